"""Searches split into tasks have the results of one scan."""

from dataclasses import replace
from functools import partial

import lance
import numpy as np
import pyarrow as pa
import pytest

import lancelet
from lancelet.jobs.split import plan_splits
from lancelet.scan.execute import execute_to_table
from lancelet.scan.plan import plan_scan
from lancelet.search.scored import searched_rows
from lancelet.search.text import count_unindexed
from lancelet.spark.search_functions import plan_function
from lancelet.spark.sql import search_calls
from lancelet.spark.sql.search_calls import split_search

RANDOM = np.random.default_rng(7)
VECTORS = RANDOM.normal(size=(2000, 8)).astype(np.float32)
QUERY = VECTORS[17] + 0.01


def rows(first, stop):
    vectors = pa.FixedSizeListArray.from_arrays(VECTORS[first:stop].reshape(-1), 8)
    return pa.table({"id": range(first, stop), "v": vectors})


@pytest.fixture
def uri(tmp_path):
    made = str(tmp_path / "t.lance")
    lance.write_dataset(rows(0, 1000), made, max_rows_per_file=250)
    return made


def found(uri, **options):
    given = {"path": uri, "column": "v", "query": QUERY, "k": 20, "columns": "id", **options}
    _, plan = plan_function("lance_vector_search", given)
    parts = split_search(plan)
    tables = [execute_to_table(plan_scan(plan.snapshot, each)) for each in parts]
    together = pa.concat_tables(tables).sort_by("_distance").slice(0, 20)
    return len(parts), together, execute_to_table(plan)


@pytest.mark.parametrize("options", [{}, {"filter": "id % 3 = 0"}, {"metric": "cosine"}])
def test_unindexed_fragments_are_searched_separately(uri, options, monkeypatch):
    monkeypatch.setattr(search_calls, "plan_splits", partial(plan_splits, split_bytes=1))
    count, together, whole = found(uri, **options)
    assert count == 4
    assert together == whole


def test_segments_and_unindexed_fragments_are_searched_separately(uri, monkeypatch):
    monkeypatch.setattr(search_calls, "plan_splits", partial(plan_splits, split_bytes=1))
    made = lance.dataset(uri)
    made.create_index("v", "IVF_PQ", num_partitions=2, num_sub_vectors=4)
    lance.write_dataset(rows(1000, 1500), uri, mode="append")
    made = lance.dataset(uri)
    made.optimize.optimize_indices(num_indices_to_merge=0)
    lance.write_dataset(rows(1500, 2000), uri, mode="append", max_rows_per_file=250)
    lance.dataset(uri).delete("id = 17")
    for options in ({}, {"filter": "id % 3 = 0"}, {"refine_factor": 4}, {"metric": "cosine"}):
        count, together, whole = found(uri, nprobes=2, **options)
        assert count == (7 if options == {"metric": "cosine"} else 4)
        assert len(together) == 20
        near = np.linalg.norm(VECTORS[together["id"].to_numpy()] - QUERY, axis=1) ** 2
        if "metric" not in options:
            assert np.allclose(near, together["_distance"], rtol=1e-4)
        # Each part may find a row that is not among the best of all by the estimates of an index.
        assert np.all(together["_distance"].to_numpy() <= whole["_distance"].to_numpy() + 1e-5)
    count, together, whole = found(uri, nprobes=2, fast_search=True)
    assert (count, together["id"]) == (2, whole["id"])


def test_postfiltered_searches_are_one_search(uri):
    assert found(uri, filter="id < 500", prefilter=False)[0] == 1


@pytest.fixture
def texts(tmp_path):
    """Nine fragments with texts; the index of one text has four of them, that of the other two."""
    draw = np.random.default_rng(5)
    words = np.array(["red", "fox", "blue", "dog", "the", "sea"])
    many = [" ".join(draw.choice(words, draw.integers(0, 9))) or None for _ in range(900)]
    few = [" ".join(draw.choice(words[2:], 3)) for _ in range(900)]
    rows = pa.table({"id": range(900), "a": many, "b": few})
    uri = str(tmp_path / "texts.lance")
    dataset = lancelet.write_dataset(rows[:200], uri, max_rows_per_file=100)
    dataset.create_scalar_index("b", "INVERTED")
    dataset = lancelet.write_dataset(rows[200:400], uri, mode="append", max_rows_per_file=100)
    dataset.create_scalar_index("a", "INVERTED", with_position=True)
    dataset = lancelet.write_dataset(rows[400:], uri, mode="append", max_rows_per_file=100)
    dataset.delete("id % 7 = 0")
    return uri


@pytest.mark.parametrize(
    ("query", "options", "count"),
    [
        ("red fox", {"on": "a"}, 6),
        ("red fox red", {"on": "a", "k": 1000}, 6),
        ("blue sea", {"on": "a, b", "k": 40}, 8),
        ("blue sea", {"k": 40}, 8),
        ('"red fox"', {"on": "a", "filter": "id % 3 = 0", "k": 30}, 6),
        ("dog", {"on": "a", "filter": "id > 850"}, 6),
        ("nowhere", {"on": "a"}, 6),
        ("dog", {"on": "a", "fast_search": True}, 1),
        ("dog", {"on": "a", "filter": "id < 90", "prefilter": False}, 1),
    ],
)
def test_unindexed_texts_are_searched_separately(texts, query, options, count, monkeypatch):
    monkeypatch.setattr(search_calls, "plan_splits", partial(plan_splits, split_bytes=1))
    given = {"path": texts, "query": query, "columns": "id", "with_row_address": True, **options}
    _, plan = plan_function("lance_text_search", given)
    parts = split_search(plan)
    assert len(parts) == count
    total = {}
    for each in parts:
        own = plan_scan(plan.snapshot, each)
        for target, counted in count_unindexed(own, searched_rows(own)).items():
            total[target] = total[target] + counted if target in total else counted
    tables = []
    for each in parts:
        knowing = replace(each, search=replace(each.search, unindexed=total))
        tables.append(execute_to_table(plan_scan(plan.snapshot, knowing)))
    order = [("_score", "descending"), ("_rowaddr", "ascending")]
    together = pa.concat_tables(tables).sort_by(order).slice(0, plan.options.limit)
    assert together == execute_to_table(plan)
    assert (together.num_rows > 0) == (query != "nowhere")
