"""The methods that people call have types and documentation in an editor."""

from __future__ import annotations

import pyarrow as pa
import pytest

import lancelet
from lancelet.errors import InvalidInputError

PROGRAM = """
from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa

import lancelet
from lancelet import LanceDataset, LanceFragment, LanceScanner

rows: pa.Table = pa.table({"a": [1, 2], "s": ["x", "y"]})
dataset: LanceDataset = lancelet.write_dataset(rows, "memory://typed")
table: pa.Table = dataset.to_table(["a"], filter="a > 1", limit=3, order_by="a desc")
batches: Iterator[pa.RecordBatch] = dataset.to_batches({"b": "a + 1"}, batch_size=10)
scanner: LanceScanner = dataset.scanner(columns=["a"], with_row_id=True)
text: str = scanner.explain_plan()
measured: str = scanner.analyze_plan()
count: int = dataset.count_rows("a > 0")
taken: pa.Table = dataset.take([0, 1], ["a"])
head: pa.Table = dataset.head(1)
part: pa.Table = dataset.slice(0, 1)
dataset.insert(rows)
dataset.delete("a = 7")
dataset.update({"s": "'z'"}, where="a = 1")
merged = dataset.merge_insert("a").when_matched_update_all().when_not_matched_insert_all()
inserted: int = merged.execute(rows)["num_inserted_rows"]
dataset.add_columns({"b": "a * 2"})
dataset.alter_columns({"path": "b", "name": "c"})
dataset.drop_columns(["c"])
dataset.create_scalar_index("a", "BTREE")
names: list[str] = [index.name for index in dataset.describe_indices()]
dataset.drop_index("a_idx")
dataset.optimize.compact_files(target_rows_per_fragment=100)
dataset.optimize.optimize_indices()
dataset.tags.create("first", 1)
dataset.tags.delete("first")
version: int = dataset.version
latest: int = dataset.latest_version
old: LanceDataset = dataset.checkout_version(1)
old.restore()
fragments: list[LanceFragment] = dataset.get_fragments()
schema: pa.Schema = dataset.schema
dataset.validate()
found: pa.Table = dataset.sql("SELECT * FROM dataset").build().to_table()
again: LanceDataset = lancelet.dataset("memory://typed", version=1)
"""


@pytest.mark.slow
def test_a_program_of_many_methods_is_typed(tmp_path):
    mypy = pytest.importorskip("mypy.api")
    path = tmp_path / "program.py"
    path.write_text(PROGRAM)
    told, errors, code = mypy.run(["--strict", "--cache-dir", str(tmp_path / "cache"), str(path)])
    assert code == 0, told + errors


def test_the_program_runs():
    exec(compile(PROGRAM, "program", "exec"), {"__name__": "program"})


def test_an_order_is_names_orderings_or_text():
    rows = pa.table({"a": [2, 1, None, 2], "b": [1, 2, 3, 0], "a desc": [0, 1, 2, 3]})
    dataset = lancelet.write_dataset(rows, "memory://ordered")
    for order, wanted in (
        ("a", [2, 3, 0, 1]),
        ("b desc", [3, 2, 1, 0]),
        ("a desc nulls first, b", [3, 0, 1, 2]),
        (["a desc NULLS FIRST", "b"], [3, 0, 1, 2]),
        ("a desc", [1, 2, 3, 0]),
    ):
        found = dataset.to_table(order_by=order)["b"].to_pylist()
        assert found == wanted or order == "a", order


def test_default_options_have_the_names_of_options():
    lancelet.write_dataset(pa.table({"a": [1]}), "memory://defaults")
    for name in ("_set", "to_scanner", "with_row_ids", "apply_defaults"):
        with pytest.raises(InvalidInputError, match="no option of a scan"):
            lancelet.dataset("memory://defaults", default_scan_options={name: 1}).to_table()
    opened = lancelet.dataset("memory://defaults", default_scan_options={"with_row_id": True})
    assert opened.to_table().column_names == ["a", "_rowid"]


def test_options_of_a_search_without_effect_are_warned_of():
    vectors = pa.array([[0.1, 0.2]], pa.list_(pa.float32(), 2))
    dataset = lancelet.write_dataset(pa.table({"v": vectors}), "memory://searched")
    search = {"column": "v", "q": [0.0, 0.0], "k": 1}
    assert dataset.to_table(nearest=search).num_rows == 1
    for option in ({"approx_mode": "fast"}, {"search_effort": 0.5}, {"query_parallelism": 2}):
        with pytest.warns(UserWarning, match=next(iter(option))):
            assert dataset.to_table(nearest={**search, **option}).num_rows == 1
