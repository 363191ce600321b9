"""Searches within bounds of distances return k rows if at least k rows match."""

import numpy as np
import pyarrow as pa
import pytest

import lancelet
from lancelet.errors import InvalidInputError

ROWS, DIMENSION, NEAREST = 2000, 16, 10
VECTORS = np.random.default_rng(1).normal(size=(ROWS, DIMENSION)).astype(np.float32)
QUERIES = np.random.default_rng(2).normal(size=(6, DIMENSION)).astype(np.float32)


def table(first, stop):
    column = pa.FixedSizeListArray.from_arrays(pa.array(VECTORS[first:stop].reshape(-1)), DIMENSION)
    return pa.table({"id": range(first, stop), "v": column})


@pytest.fixture(scope="module", params=["IVF_PQ", "IVF_SQ", "IVF_RQ", "IVF_HNSW_PQ"])
def dataset(request, tmp_path_factory):
    path = tmp_path_factory.mktemp("bounds") / "t.lance"
    dataset = lancelet.write_dataset(table(0, ROWS - 100), path)
    options = {"num_sub_vectors": 4} if "PQ" in request.param else {}
    dataset.create_index("v", request.param, num_partitions=4, **options)
    return dataset


def check(dataset, query, rows, bounds, **options):
    squares = ((VECTORS[:rows] - query) ** 2).sum(axis=1)
    ordered = np.sort(squares)  # bounds lie between two distances, which are rounded
    low, high = (
        None if each is None else float(ordered[each - 1] + ordered[each]) / 2 for each in bounds
    )
    nearest = {"column": "v", "q": query, "k": NEAREST, "distance_range": (low, high), **options}
    found = dataset.to_table(columns=["id", "_distance"], nearest=nearest)
    exact = squares[found["id"].to_numpy()]
    assert np.allclose(exact, found["_distance"].to_numpy(), rtol=1e-4)
    assert (np.diff(exact) >= -1e-4).all()
    matching = (squares >= (low or 0)) & (squares < (np.inf if high is None else high))
    assert found.num_rows == min(NEAREST, int(matching.sum())), bounds


BOUNDS = [(None, 3), (None, 40), (200, None), (50, 65), (1500, 1800), (1895, None), (1, 2)]


@pytest.mark.parametrize("refine_factor", [1, 3])
@pytest.mark.parametrize("bounds", BOUNDS, ids=str)
def test_k_rows_are_found_if_k_rows_match(dataset, refine_factor, bounds):
    for query in QUERIES:
        check(dataset, query, ROWS - 100, bounds, refine_factor=refine_factor)


def test_k_rows_are_found_with_unindexed_rows(dataset):
    dataset.insert(table(ROWS - 100, ROWS))
    for bounds in BOUNDS:
        for query in QUERIES:
            check(dataset, query, ROWS, bounds)


def test_a_batch_finds_as_many_for_each_query(dataset):
    nearest = {"column": "v", "q": QUERIES, "k": NEAREST, "refine_factor": 1}
    found = dataset.to_table(columns=["id"], nearest=nearest | {"distance_range": (12.0, 40.0)})
    counts = found.group_by("query_index").aggregate([("id", "count")])["id_count"].to_pylist()
    assert counts == [NEAREST] * len(QUERIES)


@pytest.mark.parametrize(("query", "nearest"), [([300, 2], [255, 2]), ([-1, 2], [0, 2])])
def test_bits_of_a_query_are_clipped_to_bytes(query, nearest, tmp_path):
    values = pa.array([[0, 2], [44, 2], [255, 2]], pa.list_(pa.uint8(), 2))
    dataset = lancelet.write_dataset(pa.table({"v": values}), tmp_path)
    found = dataset.to_table(nearest={"column": "v", "q": query, "k": 1, "metric": "hamming"})
    assert found.to_pylist() == [{"v": nearest, "_distance": 0.0}]


@pytest.mark.filterwarnings("error")
def test_large_values_of_a_query_are_infinite(tmp_path):
    values = pa.array([[0, 2], [1, 2]], pa.list_(pa.float32(), 2))
    dataset = lancelet.write_dataset(pa.table({"v": values}), tmp_path)
    found = dataset.to_table(nearest={"column": "v", "q": [1e39, 2], "k": 1})
    assert found["_distance"].to_pylist() == [np.inf]


@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64])
@pytest.mark.parametrize("shape", [(4,), (2, 4)])
def test_nan_in_a_query_is_rejected(dtype, shape, tmp_path):
    column = pa.FixedSizeListArray.from_arrays(pa.array(np.ones(40, dtype)), 4)
    dataset = lancelet.write_dataset(pa.table({"v": column}), tmp_path)
    query = np.ones(shape, dtype)
    query[..., 2] = np.nan
    with pytest.raises(InvalidInputError, match="contains NaN") as caught:
        dataset.to_table(nearest={"column": "v", "q": query, "k": 3})
    assert caught.value.facts == {"column": "v", "element": 2}
