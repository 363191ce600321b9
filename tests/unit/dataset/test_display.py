"""The text and escaped HTML representations of objects."""

import re

import matplotlib as mpl
import numpy as np
import pyarrow as pa
import pytest

import lancelet
from lancelet.errors import InvalidInputError

mpl.use("Agg")


@pytest.fixture
def table(tmp_path):
    vectors = np.random.default_rng(1).normal(size=(400, 8)).astype(np.float32)
    rows = pa.table(
        {
            "id": range(400),
            "text": ["<script>alert(1)</script>"] * 400,
            "v": pa.FixedSizeListArray.from_arrays(pa.array(vectors.ravel()), 8),
        }
    )
    table = lancelet.write_dataset(rows, str(tmp_path / "t.lance"), max_rows_per_file=100)
    table.create_index("v", "IVF_FLAT", num_partitions=4)
    table.tags.create("first")
    table.delete("id < 30")
    return table


def shown(table):
    return {
        "dataset": table,
        "scanner": table.scanner(columns=["id"], filter="id > 3"),
        "fragment": table.get_fragments()[0],
        "tags": table.tags,
        "branches": table.branches,
        "statistics": table.stats,
        "session": table.session(),
        "merge": table.merge_insert("id"),
        "optimizer": table.optimize,
        "delta": table.delta(compared_against=1),
        "plots": table.plot,
        "index": table.describe_indices()[0],
        "report": table.delete("id = 31", dry_run=True),
        "query": lancelet.sql("select 1 as one"),
    }


def test_no_object_shows_an_address(table):
    for name, each in shown(table).items():
        assert not re.search(r"object at 0x", repr(each)), name


def test_lines_have_the_facts(table):
    lines = {name: repr(each) for name, each in shown(table).items()}
    assert "id > 3" in lines["scanner"]
    assert "names=['first']" in lines["tags"]
    assert "num_fragments=4" in lines["statistics"]
    assert "begin=1, end=3" in lines["delta"]
    builder = table.merge_insert("id").when_matched_update_all("source.id > 3")
    assert repr(builder) == (
        f"MergeInsertBuilder({table.uri!r}, on=['id'], matched='UpdateAll', "
        "condition='source.id > 3', inserts=False, deletes_unmatched=False)"
    )


def test_notebooks_get_facts_and_rows_as_text(table):
    page = table._repr_html_()
    assert "370" in page
    assert "v_idx" in page
    assert "&lt;script&gt;" in page
    assert "<script>" not in page
    others = shown(table)
    for name in others.keys() - {"optimizer", "delta", "plots", "query"}:
        assert others[name]._repr_html_().startswith("<div>"), name
    assert "v_idx" in others["index"]._repr_html_()
    assert "<th>rows</th><td>1</td>" in others["report"]._repr_html_()


def test_plots_draw_what_the_table_says(table):
    sizes = table.plot.sizes()
    assert [label.get_text() for label in sizes.get_yticklabels()][-1] == "v"
    (line,) = table.plot.history().get_lines()
    assert line.get_ydata().tolist() == [400, 400, 370]
    bars = [bar.get_height() for bar in table.plot.fragments().patches]
    assert bars == [70, 100, 100, 100, 30, 0, 0, 0]
    (curve,) = table.plot.recall(sample=10, nprobes=(1, 4)).get_lines()
    assert curve.get_ydata()[-1] == 1.0
    mpl.pyplot.close("all")


def test_a_plot_of_recall_needs_an_index(tmp_path):
    table = lancelet.write_dataset({"a": [1]}, str(tmp_path / "t.lance"))
    with pytest.raises(InvalidInputError, match="column is required"):
        table.plot.recall()
