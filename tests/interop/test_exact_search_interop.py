"""Exact vector search returns the rows and distances of pylance."""

import lance
import numpy as np
import pyarrow as pa
import pytest

import lancelet

pytestmark = pytest.mark.interop
# The reference says that a column of distances will one day have to be asked for.
DIMENSION = 12
ROWS = 300


def vectors_of(random, element):
    values = random.normal(size=ROWS * DIMENSION).astype(np.float32)
    if element == pa.uint8():
        values = random.integers(0, 256, ROWS * DIMENSION).astype(np.uint8)
    array = pa.FixedSizeListArray.from_arrays(pa.array(values).cast(element), DIMENSION)
    mask = pa.array(random.random(ROWS) < 0.1)
    return pa.array(
        [
            None if null else item
            for null, item in zip(mask.to_pylist(), array.to_pylist(), strict=True)
        ],
        array.type,
    )


@pytest.fixture(scope="module")
def tables(tmp_path_factory):
    """One table for both, with deleted rows, several fragments and vectors that are null."""
    random = np.random.default_rng(5)
    columns = {
        str(kind): vectors_of(random, kind)
        for kind in (pa.float16(), pa.float32(), pa.float64(), pa.uint8())
    }
    lists = [
        None if row % 11 == 0 else random.normal(size=(row % 4, DIMENSION)).tolist()
        for row in range(ROWS)
    ]
    columns["many"] = pa.array(lists, pa.list_(pa.list_(pa.float32(), DIMENSION)))
    table = pa.table({"id": range(ROWS), "group": [row % 5 for row in range(ROWS)], **columns})
    path = str(tmp_path_factory.mktemp("nearest") / "table.lance")
    lance.write_dataset(table, path, max_rows_per_file=70)
    lance.dataset(path).delete("id % 7 = 3")
    return lancelet.dataset(path), lance.dataset(path)


def assert_same(tables, **options):
    ours, theirs = (dataset.to_table(**options) for dataset in tables)
    assert ours.schema.names == theirs.schema.names
    names = [name for name in theirs.schema.names if name != "_distance"]
    np.testing.assert_allclose(
        ours["_distance"].to_numpy(), theirs["_distance"].to_numpy(), rtol=2e-3, atol=2e-3
    )
    assert ours.select(names).to_pydict() == theirs.select(names).to_pydict()


@pytest.mark.parametrize("metric", ["l2", "cosine", "dot"])
@pytest.mark.parametrize("column", ["float", "double"])
def test_metrics_of_floats(tables, column, metric):
    for seed in range(4):
        query = np.random.default_rng(seed).normal(size=DIMENSION).astype(np.float32)
        nearest = {"column": column, "q": query, "k": 7, "metric": metric}
        assert_same(tables, columns=["id", "_distance"], nearest=nearest)


def test_half_float_distances_match_up_to_precision(tables):
    query = np.random.default_rng(1).normal(size=DIMENSION).astype(np.float16)
    nearest = {"column": "halffloat", "q": query, "k": 20}
    ours, theirs = (dataset.to_table(columns=["id"], nearest=nearest) for dataset in tables)
    np.testing.assert_allclose(
        ours["_distance"].to_numpy(), theirs["_distance"].to_numpy(), rtol=5e-3
    )
    assert len(set(ours["id"].to_pylist()) & set(theirs["id"].to_pylist())) >= 18


def test_bits(tables):
    query = np.arange(DIMENSION).astype(np.uint8)
    nearest = {"column": "uint8", "q": query, "k": 9, "metric": "hamming"}
    ours, theirs = (dataset.to_table(columns=["id"], nearest=nearest) for dataset in tables)
    assert ours["_distance"].to_pylist() == theirs["_distance"].to_pylist()


@pytest.mark.parametrize("prefilter", [True, False])
def test_filters_before_and_behind(tables, prefilter):
    query = np.zeros(DIMENSION, np.float32)
    nearest = {"column": "float", "q": query, "k": 12}
    options = {"filter": "group = 2 AND id > 40", "prefilter": prefilter, "with_row_id": True}
    assert_same(tables, columns=["_distance", "id"], nearest=nearest, **options)


def test_windows_ranges_and_computed_columns(tables):
    nearest = {"column": "float", "q": np.ones(DIMENSION, np.float32), "k": 12}
    assert_same(tables, columns=["id", "_distance"], nearest=nearest, limit=3, offset=2)
    assert_same(tables, columns={"twice": "id * 2"}, nearest=nearest)
    nearest["distance_range"] = (8.0, 20.0)
    assert_same(tables, columns=["id", "_distance"], nearest=nearest)


def test_several_queries_at_once(tables):
    queries = np.random.default_rng(2).normal(size=(3, DIMENSION)).astype(np.float32)
    nearest = {"column": "float", "q": queries, "k": 4}
    ours, theirs = (dataset.to_table(columns=["id"], nearest=nearest) for dataset in tables)
    assert ours.schema.names == theirs.schema.names == ["query_index", "id", "_distance"]
    assert ours["id"].to_pylist() == theirs["id"].to_pylist()


def test_rows_of_several_vectors(tables):
    query = np.random.default_rng(3).normal(size=(2, DIMENSION)).astype(np.float32)
    assert_same(
        tables,
        columns=["id", "_distance"],
        nearest={"column": "many", "q": query, "k": 6, "metric": "cosine"},
    )


def test_more_than_there_is(tables):
    nearest = {"column": "float", "q": np.ones(DIMENSION, np.float32), "k": 10_000}
    ours = tables[0].to_table(columns=["id"], nearest=nearest)
    theirs = tables[1].to_table(columns=["id"], nearest=nearest)
    assert sorted(ours["id"].to_pylist()) == sorted(theirs["id"].to_pylist())


@pytest.mark.parametrize(
    ("change", "error"),
    [
        ({"k": 0}, ValueError),
        ({"q": np.ones(3, np.float32)}, ValueError),
        ({"metric": "x"}, ValueError),
        ({"column": "nothing"}, ValueError),
        ({"column": "id"}, TypeError),
        ({"nprobes": 0}, ValueError),
        ({"unknown": 1}, TypeError),
    ],
    ids=str,
)
def test_wrong_questions_are_rejected_by_both(tables, change, error):
    nearest = {"column": "float", "q": np.ones(DIMENSION, np.float32), "k": 3, **change}
    for dataset in tables:
        with pytest.raises(error):
            dataset.to_table(nearest=nearest)
