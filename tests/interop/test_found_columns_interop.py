"""Columns that are computed of what a search found are those of the reference."""

import lance
import numpy as np
import pyarrow as pa
import pytest

import lancelet

ROWS = 40
NEAREST = {"column": "v", "q": np.full(4, 0.5, np.float32), "k": 3}
SEVERAL = {**NEAREST, "q": np.stack([NEAREST["q"], NEAREST["q"] * 0])}


@pytest.fixture(scope="module")
def uri(tmp_path_factory):
    vectors = np.random.default_rng(3).random(ROWS * 4, dtype=np.float32)
    rows = pa.table(
        {
            "i": pa.array(range(ROWS), pa.int64()),
            "s": [f"word{i % 20} " + "more " * (i % 7) for i in range(ROWS)],
            "v": pa.FixedSizeListArray.from_arrays(vectors, 4),
            "_distance": pa.array(range(ROWS), pa.float32()),
        }
    )
    root = tmp_path_factory.mktemp("found")
    for name, table in (("own", rows), ("plain", rows.drop_columns(["_distance"]))):
        dataset = lancelet.write_dataset(table, str(root / name), max_rows_per_file=15)
        dataset.create_scalar_index("s", "INVERTED")
    return str(root)


def same(mine, theirs):
    assert mine.schema.names == theirs.schema.names
    assert mine.schema.types == theirs.schema.types
    for name in mine.schema.names:
        own, other = (np.asarray(each[name].to_pylist(), float) for each in (mine, theirs))
        np.testing.assert_allclose(own, other, rtol=1e-5)


@pytest.mark.parametrize("name", ["plain", "own"])
@pytest.mark.parametrize("more", [{}, {"disable_scoring_autoprojection": True}])
@pytest.mark.parametrize(
    "columns",
    [
        {"x": "_distance * 2"},
        {"i": "i", "x": "_distance * 2", "y": "i + 1"},
        {"d": "_distance"},
        {"_distance": "_distance * 2"},
        {"_distance": "i * 2"},
        {"near": "_distance < 0.05", "r": "_rowid"},
    ],
)
def test_distances_are_computed_with(uri, name, columns, more):
    for nearest in (NEAREST, SEVERAL):
        asked = {"columns": columns, "nearest": nearest, **more}
        both = [each.dataset(f"{uri}/{name}").to_table(**asked) for each in (lancelet, lance)]
        same(*both)
        scanner = lancelet.dataset(f"{uri}/{name}").scanner(**asked)
        assert scanner.projected_schema == both[0].schema


@pytest.mark.parametrize("columns", [None, ["i"], ["_distance", "i"], {"x": "_distance * 2"}])
def test_computed_columns_shadow_columns_of_the_same_name(uri, columns):
    columns = ["i", "_distance"] if columns is None else columns
    for more in ({}, {"filter": "_distance < 0.2", "prefilter": False}):
        asked = {"columns": columns, "nearest": NEAREST, **more}
        same(*(each.dataset(f"{uri}/own").to_table(**asked) for each in (lancelet, lance)))
    names = lancelet.dataset(f"{uri}/own").to_table(nearest=NEAREST).column_names
    assert names == lance.dataset(f"{uri}/own").to_table(nearest=NEAREST).column_names


def test_scores_and_numbers_of_queries_are_computed_with(uri):
    text = {"columns": {"x": "_score * 2", "i": "i"}, "full_text_query": "word3 more"}
    one = {**text, "filter": "i IN (3, 10)", "prefilter": True}
    same(*(each.dataset(f"{uri}/plain").to_table(**one) for each in (lancelet, lance)))
    for columns in (["i", "query_index"], {"q": "query_index"}, {"query_index": "i"}):
        asked = {"columns": columns, "nearest": SEVERAL}
        same(*(each.dataset(f"{uri}/plain").to_table(**asked) for each in (lancelet, lance)))
    for columns in (["_rowid", "i"], ["i", "_rowid"]):
        asked = {"columns": columns, "nearest": NEAREST, "with_row_id": True}
        same(*(each.dataset(f"{uri}/plain").to_table(**asked) for each in (lancelet, lance)))


def test_a_column_that_nothing_finds_is_rejected(uri):
    for library in (lancelet, lance):
        dataset = library.dataset(f"{uri}/plain")
        for search in ({"nearest": NEAREST}, {}):
            with pytest.raises(ValueError, match="No field named _score"):
                dataset.to_table(columns={"x": "_score * 2"}, **search)
