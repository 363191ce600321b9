"""Rows of many forms are converted to batches without loss."""

from __future__ import annotations

import dataclasses
import re

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest

import lancelet
from lancelet.change.rows import (
    _REPR_LENGTH_MAX,
    MixedValuesError,
    RowsTypeError,
    read_rows,
    shorten,
)
from lancelet.errors import InvalidInputError, SchemaMismatchError
from lancelet.format.blob_values import blob_field


def table_of(data, schema=None):
    stream = read_rows(data, schema)
    return pa.Table.from_batches(stream.batches, stream.schema)


@dataclasses.dataclass
class Point:
    x: int
    y: float | None


@dataclasses.dataclass
class Line:
    name: str
    begin: Point
    rest: list[Point]


def test_dataclasses_are_rows_and_those_within_them_structs():
    rows = [Line("a", Point(1, 2.0), [Point(3, None)]), Line("b", Point(4, 5.0), [])]
    assert table_of(rows).to_pylist() == [dataclasses.asdict(row) for row in rows]
    assert table_of(iter(rows)).to_pylist() == [dataclasses.asdict(row) for row in rows]
    assert table_of([Point(1, None)]).to_pylist() == [{"x": 1, "y": None}]


def test_arrays_in_dataclasses_are_lists():
    @dataclasses.dataclass
    class Embedded:
        v: np.ndarray | None

    rows = [Embedded(None), Embedded(np.array([0.5, 1.5], np.float32))]
    found = table_of(rows)
    assert found.schema.field("v").type == pa.list_(pa.float32())
    assert found["v"].to_pylist() == [None, [0.5, 1.5]]


def test_arrays_of_two_dimensions_are_vectors_and_of_more_tensors():
    matrix = np.arange(6, dtype=np.float32).reshape(2, 3)
    found = table_of({"v": matrix, "w": matrix.T.copy().T, "t": np.ones((2, 3, 4), np.int8)})
    assert found.schema.field("v").type == pa.list_(pa.float32(), 3)
    assert found["v"].to_pylist() == found["w"].to_pylist() == matrix.tolist()
    assert found.schema.field("t").type.shape == [3, 4]


def test_every_name_of_a_dict_is_a_column():
    rows = [{"a": 1}, {"a": 2, "b": "x"}, {"b": "y"}]
    wanted = [{"a": 1, "b": None}, {"a": 2, "b": "x"}, {"a": None, "b": "y"}]
    assert table_of(rows).to_pylist() == wanted
    assert table_of(iter(rows)).to_pylist() == wanted
    assert table_of([{"a": 1, "b": 2}, {"a": 3, "c": 4}])["b"].to_pylist() == [2, None]


def test_rows_of_a_generator_are_taken_as_they_are_written():
    taken = 0

    def rows():
        nonlocal taken
        for taken in range(100_000):
            yield {"a": taken}

    stream = read_rows(rows())
    assert next(stream.batches).num_rows < 10_000
    assert taken < 10_000
    assert sum(batch.num_rows for batch in stream.batches) > 90_000


@pytest.mark.parametrize(
    ("late", "reason"),
    [
        ({"a": 1, "b": 2}, "columns that earlier rows lack"),
        ({"a": "x"}, "differs from preceding rows"),
    ],
)
def test_a_late_row_that_does_not_fit_the_first_is_named(late, reason):
    rows = ({"a": k} if k < 20_000 else late for k in range(20_001))
    with pytest.raises(SchemaMismatchError, match=reason) as caught:
        table_of(rows)
    first, _, last = caught.value.facts["rows"].partition(" to ")
    assert int(first) <= 20_000 <= int(last)
    rows = ({"a": k} if k < 20_000 else {"a": k, "b": 2} for k in range(20_001))
    schema = pa.schema([("a", pa.int64()), ("b", pa.int64())])
    assert table_of(rows, schema)["b"].to_pylist()[-2:] == [None, 2]


def test_bytes_are_blobs_if_declared_in_the_schema():
    schema = pa.schema([pa.field("k", pa.int64()), blob_field("b")])
    values = {"k": [1, 2, 3], "b": [b"x", None, "s3://a/b"]}
    rows = [dict(zip(values, row, strict=True)) for row in zip(*values.values(), strict=True)]
    for data in (values, rows, iter(rows)):
        found = table_of(data, schema)["b"].to_pylist()
        assert [row and (row["data"], row["uri"]) for row in found] == [
            (b"x", None),
            None,
            (None, "s3://a/b"),
        ]


@pytest.mark.parametrize("wraps", [pa.table, dict, lambda data: iter([pa.record_batch(data)])])
def test_bytes_and_texts_are_blobs_if_declared_in_the_schema(wraps):
    schema = pa.schema([blob_field("b"), blob_field("c")])
    columns = {"b": pa.array([b"x", None]), "c": pa.array([None, "s3://a/b"])}
    found = table_of(wraps(columns), schema).to_pydict()
    assert [[row and (row["data"], row["uri"]) for row in each] for each in found.values()] == [
        [(b"x", None), None],
        [None, (None, "s3://a/b")],
    ]


def test_the_labels_of_a_named_range_are_a_column():
    frame = pd.DataFrame({"a": [1, 2, 3]}, index=pd.RangeIndex(10, 13, name="k"))
    assert table_of(frame)["k"].to_pylist() == [10, 11, 12]
    assert table_of(pd.DataFrame({"a": [1]})).schema.names == ["a"]


@pytest.mark.parametrize(
    "frame",
    [
        pl.DataFrame({"a": [1, 2]}),
        pl.LazyFrame({"a": [1, 2]}),
        pd.DataFrame({"a": [1, 2]}),
        pa.record_batch({"a": [1, 2]}),
        pa.StructArray.from_arrays([pa.array([1, 2])], ["a"]),
    ],
    ids=lambda frame: type(frame).__name__,
)
def test_frames_are_rows(frame):
    assert table_of(frame)["a"].to_pylist() == [1, 2]


@pytest.mark.parametrize("other", [7, "text", b"bytes", np.ones(3)])
def test_other_objects_have_no_rows(other):
    with pytest.raises(RowsTypeError):
        read_rows(other)


@pytest.mark.parametrize(
    "column",
    [
        np.ones((2, 2)),
        pd.Series([1]),
        pl.Series([1]),
        pa.array([1]),
        pa.chunked_array([[1]]),
    ],
    ids=lambda column: f"{type(column).__module__}.{type(column).__name__}",
)
def test_an_unnamed_column_is_rejected_with_a_suggestion(column):
    with pytest.raises(RowsTypeError, match="pass a dict such as"):
        read_rows(column)


@pytest.mark.parametrize("values", [5, "text", b"bytes"])
def test_a_column_has_a_value_for_each_row(values):
    with pytest.raises(InvalidInputError, match="a value for each row") as caught:
        read_rows({"a": [1], "b": values})
    assert caught.value.facts["column"] == "b"


def test_columns_are_taken_of_generators_and_of_structured_arrays():
    assert table_of({"a": (i * i for i in range(3))})["a"].to_pylist() == [0, 1, 4]
    array = np.array([(1, 2.5), (3, 4.5)], [("a", "i4"), ("b", "f8")])
    assert table_of(array).to_pylist() == [{"a": 1, "b": 2.5}, {"a": 3, "b": 4.5}]


MIXED = {"k": [1, 2, 3, 4], "a": ["x", None, 7, "y"]}


@pytest.mark.parametrize(
    "data",
    [
        MIXED,
        [dict(zip(MIXED, row, strict=True)) for row in zip(*MIXED.values(), strict=True)],
        pd.DataFrame({"k": MIXED["k"], "a": pd.Series(MIXED["a"], dtype=object)}),
    ],
    ids=["columns", "dicts", "pandas"],
)
def test_a_value_that_does_not_go_with_the_others_is_named(data):
    with pytest.raises(MixedValuesError) as caught:
        read_rows(data)
    assert caught.value.facts == {"column": "a", "row": 2, "value": 7}


def test_a_value_that_does_not_fit_the_given_schema_is_named():
    schema = pa.schema([("k", pa.int8())])
    for data in ({"k": [1, 300]}, [{"k": 1}, {"k": 300}], pd.DataFrame({"k": [1, 300]})):
        with pytest.raises(MixedValuesError) as caught:
            read_rows(data, schema)
        assert caught.value.facts["row"] == 1
        assert caught.value.facts["value"] == 300
        assert caught.value.facts["expected"] == "int8"


def test_columns_of_one_name_are_rejected():
    with pytest.raises(InvalidInputError, match="duplicate column names"):
        read_rows(pd.DataFrame([[1, 2, 3]], columns=["a", "b", "a"]))


def test_columns_of_different_lengths_are_rejected():
    with pytest.raises(InvalidInputError, match="different lengths"):
        read_rows({"a": [1], "b": [1, 2]})


def test_an_append_with_new_columns_names_the_call_that_adds_them():
    uri = "memory://append-with-new-columns/t"
    dataset = lancelet.write_dataset([{"a": 1}], uri)
    rows = [{"a": 2, "b": 1.5, "c": True}]
    with pytest.raises(ValueError, match="add_columns") as raised:
        lancelet.write_dataset(rows, uri, mode="append")
    schema = re.search(r"add_columns\((.*)\) before", str(raised.value))
    dataset.add_columns(eval(schema[1], {"pa": pa}))
    assert lancelet.write_dataset(rows, uri, mode="append").to_table().num_rows == 2


def test_a_text_search_without_an_index_names_the_call_that_builds_it():
    dataset = lancelet.write_dataset([{"body": "a fox"}], "memory://text-without-index/t")
    with pytest.raises(ValueError, match=r"create_scalar_index\('body', 'INVERTED'\)"):
        dataset.to_table(full_text_query="fox")


@pytest.mark.parametrize(
    ("value", "message"),
    [(2**70, "more than 64 bits"), (-(2**63) - 1, "more than 64 bits"), ("\ud800", "surrogates")],
)
def test_values_beyond_the_types_of_arrow_are_errors_with_their_row(value, message):
    for data in ([{"a": None}, {"a": value}], {"a": [None, value]}):
        with pytest.raises(MixedValuesError, match=message) as caught:
            table_of(data)
        assert {name: caught.value.facts[name] for name in ("column", "row", "value")} == {
            "column": "a",
            "row": 1,
            "value": value,
        }


def test_an_image_is_rejected_with_how_to_encode_it():
    image = pytest.importorskip("PIL.Image").new("RGB", (2, 2))
    with pytest.raises(MixedValuesError, match=r"image\.save\(buffer, 'PNG'\)"):
        lancelet.write_dataset([{"image": image}], "memory://images/t")


@pytest.mark.parametrize(
    ("length", "is_cut"), [(_REPR_LENGTH_MAX, False), (_REPR_LENGTH_MAX + 1, True)]
)
def test_values_in_messages_are_shortened(length, is_cut):
    text = "x" * (length - 2)
    found = shorten(text)
    assert found == (repr(text)[:_REPR_LENGTH_MAX] + "..." if is_cut else text)


@pytest.mark.parametrize("value", [5, "a", b"a", None.__class__])
def test_other_items_of_an_iterable_are_an_error_that_lists_the_accepted_ones(value):
    with pytest.raises(InvalidInputError, match="must yield batches, tables, dicts") as raised:
        read_rows(iter([value, value]), None)
    assert raised.value.facts["found"] == str(type(value))


def test_errors_name_the_next_step() -> None:
    with pytest.raises(InvalidInputError, match=r"open a file first"):
        read_rows("people.parquet")
    with pytest.raises(InvalidInputError, match=r"convert integers of more than 64 bits"):
        read_rows({"a": [1, 2**70]})
    with pytest.raises(InvalidInputError) as caught:
        read_rows({"a": ["x", object()]})
    assert "64 bits" not in str(caught.value)


def test_an_array_of_another_type_is_rejected_without_a_row() -> None:
    """Arrow's error has the value; no row is worse than the ones before it."""
    schema = pa.schema([("a", pa.int64())])
    with pytest.raises(pa.ArrowInvalid, match="Failed to parse string: 'y'"):
        read_rows({"a": pa.array(["1", "y"])}, schema)


def test_the_first_value_of_a_column_tells_whether_it_has_records() -> None:
    @dataclasses.dataclass
    class Point:
        x: int

    @dataclasses.dataclass
    class Row:
        a: Point | None
        b: list[Point]

    found = table_of([Row(None, []), Row(Point(1), [Point(2)])])
    assert found["a"].to_pylist() == [None, {"x": 1}]
    assert found["b"].to_pylist() == [[], [{"x": 2}]]
