"""Searching all partitions with refinement equals exact search after any changes.

Rows are appended, updated and deleted, fragments compacted, indices optimized and retrained. After
each step, the index finds the rows of an exhaustive search.
"""

import tempfile

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import lancelet

DIMENSION = 8
STEPS = ("append", "delete", "update", "compact", "optimise", "append_segment", "retrain")


def rows(first, count, seed):
    vectors = np.random.default_rng(seed).normal(size=(count, DIMENSION)).astype(np.float32)
    array = pa.FixedSizeListArray.from_arrays(vectors.reshape(-1), DIMENSION)
    return pa.table({"id": range(first, first + count), "part": [0] * count, "v": array})


def nearest(dataset, query, k, **options):
    scan = {key: options.pop(key) for key in ("filter", "prefilter") if key in options}
    result = dataset.to_table(
        nearest={"column": "v", "q": query, "k": k, **options}, columns=["id", "_distance"], **scan
    )
    return result["id"].to_pylist()


def assert_exact(dataset, seed):
    query = np.random.default_rng(seed).normal(size=DIMENSION).astype(np.float32)
    for k in (5, 2000):
        for scan in ({}, {"filter": "id % 3 = 1", "prefilter": True}):
            exact = nearest(dataset, query, k, use_index=False, **scan)
            found = nearest(dataset, query, k, nprobes=100, refine_factor=50, **scan)
            assert found == exact


def apply(dataset, step, number):
    match step:
        case "append":
            first = 1000 * (number + 1)
            return lancelet.write_dataset(rows(first, 40, number), dataset, mode="append")
        case "delete":
            dataset.delete(f"id % 5 = {number % 5}")
        case "update":
            dataset.update({"part": "part + 1"}, where=f"id % 7 = {number % 7}")
        case "compact":
            dataset.optimize.compact_files()
        case "optimise":
            dataset.optimize.optimize_indices()
        case "append_segment":
            dataset.optimize.optimize_indices(num_indices_to_merge=0)
        case "retrain":
            dataset.optimize.optimize_indices(retrain=True)
    return dataset


@settings(max_examples=12, deadline=None)
@given(
    st.sampled_from(["IVF_FLAT", "IVF_PQ", "IVF_SQ", "IVF_RQ", "IVF_HNSW_FLAT", "IVF_HNSW_SQ"]),
    st.booleans(),
    st.lists(st.sampled_from(STEPS), min_size=1, max_size=6),
)
def test_results_stay_exact_after_any_sequence_of_operations(kind, stable, steps):
    with tempfile.TemporaryDirectory() as folder:
        dataset = lancelet.write_dataset(
            rows(0, 300, 1), folder, max_rows_per_file=100, enable_stable_row_ids=stable
        )
        own = {"num_sub_vectors": 4, "num_bits": 4} if kind == "IVF_PQ" else {}
        dataset.create_index("v", kind, num_partitions=4, sample_rate=16, **own)
        assert_exact(dataset, 0)
        for number, step in enumerate(steps):
            dataset = apply(dataset, step, number)
            assert_exact(dataset, number)


@pytest.fixture(scope="module")
def table(tmp_path_factory):
    path = str(tmp_path_factory.mktemp("indexed") / "table.lance")
    dataset = lancelet.write_dataset(rows(0, 2000, 2), path, max_rows_per_file=500)
    dataset.create_index("v", "IVF_FLAT", num_partitions=16, sample_rate=16)
    return dataset


def test_the_requested_number_of_rows_is_found(table):
    query = np.zeros(DIMENSION, np.float32)
    assert len(nearest(table, query, 700, nprobes=1)) == 700
    found = nearest(table, query, 10, nprobes=1, filter="id % 200 = 3", prefilter=True)
    assert sorted(found) == list(range(3, 2000, 200))
    capped = nearest(table, query, 700, maximum_nprobes=1)
    assert 0 < len(capped) < 700


def test_a_range_of_distances_is_searched_until_it_is_full(table):
    query = np.zeros(DIMENSION, np.float32)
    exact = nearest(table, query, 50, use_index=False, distance_range=(6.0, 7.0))
    assert nearest(table, query, 50, nprobes=16, distance_range=(6.0, 7.0)) == exact


def test_several_queries_are_answered_at_once(table):
    queries = np.random.default_rng(3).normal(size=(3, DIMENSION)).astype(np.float32)
    result = table.to_table(
        nearest={"column": "v", "q": queries, "k": 4, "nprobes": 16}, columns=["id"]
    )
    for index, query in enumerate(queries):
        own = result.filter(pa.compute.field("query_index") == index)["id"].to_pylist()
        assert own == nearest(table, query, 4, nprobes=16)


def test_fast_search_omits_unindexed_rows(tmp_path):
    dataset = lancelet.write_dataset(rows(0, 300, 2), str(tmp_path / "fast"))
    dataset.create_index("v", "IVF_FLAT", num_partitions=1)
    dataset = lancelet.write_dataset(rows(1000, 50, 4), dataset, mode="append")
    query = rows(0, 50, 4)["v"][7].as_py()
    assert nearest(dataset, query, 1) == [1007]
    result = dataset.to_table(
        nearest={"column": "v", "q": query, "k": 1}, columns=["id"], fast_search=True
    )
    assert result["id"].to_pylist() != [1007]


@pytest.mark.parametrize("bad", [np.nan, np.inf, None])
def test_vectors_that_are_no_numbers_are_left_out(tmp_path, bad):
    table = rows(0, 300, 5)
    lists = table["v"].to_pylist()
    lists[7] = None if bad is None else [bad] * DIMENSION
    column = pa.array(lists, table.schema.field("v").type)
    dataset = lancelet.write_dataset(table.set_column(2, "v", column), str(tmp_path / "bad"))
    dataset.create_index("v", "IVF_SQ", num_partitions=1)
    sizes = dataset.stats.index_stats("v_idx")["indices"][0]["partitions"]
    assert sizes == [{"size": 299}]
    assert 7 not in nearest(dataset, np.zeros(DIMENSION, np.float32), 300)


@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        ({"column": "w"}, KeyError, "not found"),
        ({"column": "id"}, TypeError, "must be"),
        ({"index_type": "IVF_ABC"}, NotImplementedError, "index types supported"),
        ({"metric": "manhattan"}, ValueError, "not supported"),
        ({"metric": "hamming"}, ValueError, "requires uint8 vectors"),
        ({"index_type": "IVF_PQ", "num_sub_vectors": 3}, ValueError, "divisible"),
        ({"index_type": "IVF_PQ", "num_sub_vectors": 2, "num_bits": 5}, ValueError, "bits"),
        ({"index_type": "IVF_RQ", "num_bits": 10}, ValueError, "bits"),
        ({"num_partitions": 0}, ValueError, "positive integer"),
        ({"ivf_centroids": np.zeros((3, 5))}, ValueError, "dimension"),
        ({"fragment_ids": [99]}, ValueError, "does not have these fragments"),
    ],
)
def test_input_that_cannot_be_built_is_rejected(table, arguments, error, message):
    given = {"column": "v", "index_type": "IVF_FLAT", "name": "other", **arguments}
    with pytest.raises(error, match=message):
        table.create_index(**given)


@pytest.mark.parametrize("kind", ["IVF_FLAT", "IVF_PQ", "IVF_SQ", "IVF_RQ", "IVF_HNSW_PQ"])
def test_rows_of_which_none_has_a_vector_are_indexed_as_none(tmp_path, kind):
    table = rows(0, 300, 5)
    column = pa.array([None] * 300, table.schema.field("v").type)
    dataset = lancelet.write_dataset(table.set_column(2, "v", column), str(tmp_path))
    own = {"num_sub_vectors": 4} if kind.endswith("PQ") else {}
    dataset.create_index("v", kind, num_partitions=4, **own)
    query = np.zeros(DIMENSION, np.float32)
    assert nearest(dataset, query, 5) == []
    dataset = lancelet.write_dataset(rows(1000, 5, 6), dataset, mode="append")
    dataset.optimize.optimize_indices()
    assert sorted(nearest(dataset, query, 9)) == list(range(1000, 1005))
    assert dataset.check() == []


def test_a_name_is_taken_until_it_is_replaced(tmp_path):
    dataset = lancelet.write_dataset(rows(0, 300, 2), str(tmp_path / "names"))
    dataset.create_index("v", "IVF_FLAT", num_partitions=1)
    with pytest.raises(RuntimeError, match="already exists"):
        dataset.create_index("v", "IVF_FLAT", num_partitions=1)
    dataset.create_index("v", "IVF_SQ", num_partitions=1, replace=True)
    assert [index.name for index in dataset.describe_indices()] == ["v_idx"]


def test_an_index_may_be_filled_later(tmp_path):
    dataset = lancelet.write_dataset(rows(0, 300, 2), str(tmp_path / "later"))
    dataset.create_index("v", "IVF_SQ", num_partitions=1, train=False)
    query = np.zeros(DIMENSION, np.float32)
    assert len(nearest(dataset, query, 10)) == 10
    dataset.optimize.optimize_indices()
    assert dataset.stats.index_stats("v_idx")["num_indexed_rows"] == 300
    assert len(nearest(dataset, query, 10)) == 10
