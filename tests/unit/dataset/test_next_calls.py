"""Errors of a first search name a call that works."""

import re

import pyarrow as pa
import pytest

import lancelet as lance
from lancelet.errors import FieldNotFoundError, InvalidInputError

ROWS = {
    "id": [1, 2, 3],
    "text": ["a red fox", "a dog", "an owl"],
    "tags": [["x"], ["y"], []],
    "whole": [[1, 2], [3, 4], [5, 6]],
    "short": [[1.0, 2.0], [3.0, 4.0], [5.0, 6.0]],
}


@pytest.fixture
def table(tmp_path):
    return lance.write_dataset(ROWS, tmp_path / "rows.lance")


def call_in(message, replacement="2"):
    """Return the first call of an error message."""
    (call,) = re.findall(r"(dataset\.\w+\((?:\{.*?\}|[^{}]*?)\))", message)[:1]
    return call.replace("DIMENSION", replacement)


@pytest.mark.parametrize("column", ["id", "text", "tags", "whole", "short"])
def test_create_index_names_a_call_that_fits_the_column(table, column):
    with pytest.raises(InvalidInputError, match="Vector column") as raised:
        table.create_index(column)
    eval(call_in(str(raised.value)), {"dataset": table, "pa": pa})
    if column in {"whole", "short"}:
        table.create_index(column)
        found = table.to_table(nearest={"column": column, "q": [3, 4], "k": 1})
        assert found["id"].to_pylist() == [2]
    else:
        assert table.describe_indices()[0].field_names == [column]


@pytest.mark.parametrize("column", ["id", "text", "whole", "short"])
def test_a_search_names_a_call_that_fits_the_column(table, column):
    with pytest.raises(InvalidInputError, match="must be a vector") as raised:
        table.to_table(nearest={"column": column, "q": [3, 4], "k": 1})
    eval(call_in(str(raised.value)), {"dataset": table, "pa": pa})


@pytest.mark.parametrize("column", ["id", "text", "tags"])
def test_create_scalar_index_without_a_type_names_one(table, column):
    with pytest.raises(TypeError, match="requires an index type") as raised:
        table.create_scalar_index(column)
    eval(call_in(str(raised.value)), {"dataset": table})
    assert table.describe_indices()[0].field_names == [column]


def test_a_vector_column_is_indexed_by_create_index(table):
    table.alter_columns({"path": "short", "data_type": pa.list_(pa.float32(), 2)})
    with pytest.raises(TypeError, match=r"create_index\('short'\) for vector search"):
        table.create_scalar_index("short")


def test_a_hybrid_search_without_vectors_names_the_column_to_convert(table):
    table.create_scalar_index("text", "INVERTED")
    with pytest.raises(InvalidInputError, match="requires a vector column") as raised:
        table.hybrid_search("fox", [1, 2])
    eval(call_in(str(raised.value)), {"dataset": table, "pa": pa})
    assert table.hybrid_search("fox", [1, 2], k=1)["id"].to_pylist() == [1]


def test_a_hybrid_search_of_several_vector_columns_names_the_argument(table):
    for column in ("whole", "short"):
        table.alter_columns({"path": column, "data_type": pa.list_(pa.float32(), 2)})
    with pytest.raises(InvalidInputError, match=r"nearest=\{'column': 'whole', 'q': vector\}"):
        table.hybrid_search("fox", [1, 2])


def test_unknown_columns_and_wrong_dimensions_are_described(table):
    with pytest.raises(FieldNotFoundError, match="did you mean short") as raised:
        table.to_table(nearest={"column": "shor", "q": [3, 4], "k": 1})
    assert raised.value.facts["available"] == list(ROWS)
    with pytest.raises(FieldNotFoundError, match="did you mean short"):
        table.create_index("shor")
    table.alter_columns({"path": "short", "data_type": pa.list_(pa.float32(), 2)})
    with pytest.raises(InvalidInputError, match="size 3 does not match index column size 2; embed"):
        table.to_table(nearest={"column": "short", "q": [3, 4, 5], "k": 1})


def test_an_append_of_a_frame_names_its_index():
    pandas = pytest.importorskip("pandas")
    table = lance.write_dataset({"id": [1], "x": [2]}, "memory://next-calls-index/t")
    frame = pandas.DataFrame({"id": [3], "x": [4]}, index=pandas.Index(["a"], name="x"))
    with pytest.raises(InvalidInputError, match=r"append frame\.reset_index\(drop=True\)"):
        table.insert(frame)
    table.insert(frame.reset_index(drop=True))
    assert table.count_rows() == 2


def test_a_function_that_returns_an_index_is_told_to_drop_it():
    pandas = pytest.importorskip("pandas")
    frame = pandas.DataFrame({"x": [1, 2]}, index=pandas.Index([5, 6], name="id"))
    table = lance.write_dataset(frame, "memory://next-calls-function/t")
    with pytest.raises(InvalidInputError, match=r"frame\.reset_index\(drop=True\)"):
        table.add_columns(lambda batch: batch.to_pandas()[["x"]].rename(columns={"x": "y"}))
    table.add_columns(lambda batch: pandas.DataFrame({"y": batch.to_pandas()["x"].to_numpy()}))
    assert table.to_table()["y"].to_pylist() == [1, 2]
