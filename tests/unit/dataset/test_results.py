"""Results are converted for other libraries and displayed as tables and text."""

from __future__ import annotations

import html

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest

import lancelet
from lancelet.dataset.sql.query import SqlError

ROWS = pa.table({"a": [1, 2, 3], "s": ["x", "y", "z"]})
LETTERS = pd.DataFrame({"s": ["x", "y"], "n": [1, 2]})


@pytest.fixture
def dataset():
    return lancelet.write_dataset(ROWS, "memory://results")


@pytest.mark.parametrize("kind", ["dataset", "scanner", "query", "builder"])
def test_rows_go_to_every_library(dataset, kind):
    result = {
        "dataset": dataset,
        "scanner": dataset.scanner(),
        "query": dataset.sql("SELECT * FROM dataset").build(),
        "builder": lancelet.sql("SELECT * FROM d", tables={"d": dataset}),
    }[kind]
    assert result.to_arrow() == ROWS
    assert result.to_polars().to_dict(as_series=False) == ROWS.to_pydict()
    assert pl.DataFrame(result).shape == (3, 2)
    assert pa.RecordBatchReader.from_stream(result).read_all() == ROWS
    assert result.to_pandas()["a"].tolist() == [1, 2, 3]
    assert lancelet.write_dataset(result, f"memory://copy_{kind}").to_table() == ROWS


def test_a_query_finds_the_variables_of_its_caller(dataset):
    prices = pl.DataFrame({"a": [1, 3], "price": [10, 30]})  # noqa: F841 - found by its name
    more = pa.table({"a": [1], "more": ["m"]})
    query = "SELECT a, price, n FROM Dataset JOIN prices USING (a) LEFT JOIN LETTERS USING (s)"
    found = lancelet.sql(query + " ORDER BY a").to_table().to_pydict()
    assert found == {"a": [1, 3], "price": [10, 30], "n": [1, None]}
    assert lancelet.sql("SELECT more FROM more").to_table().num_rows == more.num_rows
    del dataset
    with pytest.raises(SqlError, match="nobody"):
        lancelet.sql("SELECT * FROM nobody").to_table()


def test_merges_have_the_names_of_the_native_builder(dataset):
    merge = dataset.merge_insert("a").when_not_matched_insert_all()
    rows = pa.table({"a": [7], "s": ["q"]})
    assert "MergeInsert" in merge.analyze_plan_batches(rows) or merge.analyze_plan_batches(rows)
    transaction, did = merge.execute_uncommitted_batches(rows)
    assert (transaction.read_version, did["num_inserted_rows"]) == (1, 1)
    assert merge.execute_batches(rows)["num_inserted_rows"] == 1
    assert dataset.count_rows() == 4


def test_iterators_have_the_names_of_the_native_module(tmp_path):
    from lancelet.bitmap import Bitmap
    from lancelet.fragment import RowIdSequence
    from lancelet.lance import BitmapIterator, PyDirectoryNamespace, RowIdSequenceIterator

    bitmap, ids = iter(Bitmap([5, 1])), iter(RowIdSequence([9, 2]))
    assert isinstance(bitmap, BitmapIterator)
    assert isinstance(ids, RowIdSequenceIterator)
    assert (list(bitmap), list(ids)) == ([1, 5], [9, 2])
    namespace = PyDirectoryNamespace(root=str(tmp_path))
    namespace.declare_table({"id": ["t"]})
    assert namespace.list_tables({"id": []})["tables"] == ["t"]
    assert namespace.describe_table({"id": ["t"]})["table"] == "t"
    assert not hasattr(namespace, "no_such_operation")


def test_plans_and_recall_reports_are_shown_as_lines():
    vectors = np.random.default_rng(0).random((64, 8)).tolist()
    dataset = lancelet.write_dataset({"id": range(64), "v": vectors}, "memory://shown-plans/t")
    plan = dataset.scanner(filter="id > 3").explain_plan()
    assert repr(plan) == plan
    assert plan._repr_html_() == f"<pre>{html.escape(plan)}</pre>"
    merge = dataset.merge_insert("id").when_matched_update_all()
    assert repr(merge.explain_plan()) == merge.explain_plan()
    dataset.create_index("v", "IVF_FLAT", num_partitions=2)
    report = dataset.recall_report("v", k=5, sample=10, nprobes=2)
    lines = repr(report).splitlines()
    assert lines[:3] == [
        "index           v_idx, version 2",
        "recall at 5     1.000 (lowest 1.000)",
        "searches        10",
    ]
    assert lines[-1] == "unindexed rows  0"
    assert report._repr_html_().startswith("<pre>index")


def test_a_recall_report_counts_unindexed_rows_as_the_statistics_do():
    vectors = np.random.default_rng(0).random((200, 8)).tolist()
    rows = {"id": range(200), "v": vectors}
    dataset = lancelet.write_dataset(rows, "memory://recall-of-updates/t")
    dataset.create_index("v", "IVF_FLAT", num_partitions=2)
    dataset.update({"id": "id + 1000"}, where="id < 5")
    upsert = dataset.merge_insert("id").when_matched_update_all().when_not_matched_insert_all()
    upsert.execute({"id": [10, 500], "v": vectors[:2]})
    dataset.insert({"id": [501], "v": vectors[:1]})
    found = dataset.recall_report("v", k=5, sample=10).unindexed_rows
    assert found == dataset.stats.index_stats("v_idx")["num_unindexed_rows"] == 8
