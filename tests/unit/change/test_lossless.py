"""Conversions preserve every value; a lossy conversion is rejected with its row."""

from __future__ import annotations

import datetime as dt
from decimal import Decimal

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

import lancelet
from lancelet.change.lossless import LossyConversionError, find_converter
from lancelet.errors import SchemaMismatchError

NOON = dt.datetime(2020, 1, 1, 12)  # noqa: DTZ001 - a time of no zone
VECTOR = pa.list_(pa.float32(), 2)
KEPT = [
    (pa.array(["a", None], pa.string_view()), pa.string()),
    (pa.array(["a", None], pa.large_string()), pa.string()),
    (pa.array(["a", None]), pa.large_string()),
    (pa.array([b"ab", None]), pa.binary(2)),
    (pa.array([b"ab", None], pa.binary(2)), pa.large_binary()),
    (pa.array([1, None, -5]), pa.int8()),
    (pa.array([1, None]), pa.float32()),
    (pa.array([1.0, None]), pa.uint8()),
    (pa.array([0.5, None, float("inf")]), pa.float16()),
    (pa.array([7, None]), pa.decimal128(5, 2)),
    (pa.array([Decimal("1.20"), None]), pa.decimal256(50, 5)),
    (pa.array([NOON, None]), pa.timestamp("s")),
    (pa.array([NOON, None], pa.timestamp("s", "UTC")), pa.timestamp("ns", "UTC")),
    (pa.array([NOON.date(), None]), pa.date64()),
    (pa.array([dt.time(1, 2), None]), pa.time32("s")),
    (pa.array([dt.timedelta(1), None]), pa.duration("s")),
    (pa.array(["a", "b", None, "a"]).dictionary_encode(), pa.large_string()),
    (pa.array(["a", "b", None, "a"]), pa.dictionary(pa.int8(), pa.string())),
    (pa.array([[1.0, 2.0], None, [3.0, 4.0]]), VECTOR),
    (pa.array([[1, 2], None, [3, 4]], pa.list_(pa.int64(), 2)), pa.large_list(pa.int8())),
    (pa.array([["a"], [], None]), pa.large_list(pa.large_string())),
    (pa.array([[[1.0, 2.0], None], None, []]), pa.list_(VECTOR)),
    (pa.array([[("a", 1)], None, []], pa.map_(pa.string(), pa.int64())), pa.map_("str", pa.int8())),
    (pa.nulls(3), VECTOR),
]


@pytest.mark.parametrize(
    ("array", "wanted"), KEPT, ids=lambda each: str(getattr(each, "type", each))
)
def test_values_that_fit_are_unchanged(array, wanted):
    for start in (0, 1):
        part = array.slice(start)
        found = find_converter(array.type, wanted)(part)
        found.validate(full=True)
        assert found.type == wanted
        assert [plain(value) for value in found] == [plain(value) for value in part]


def plain(scalar):
    """Return a value that is equal for equal values of any types."""
    value = scalar.as_py()
    if isinstance(value, dt.datetime):
        return value.timestamp()
    if isinstance(value, dt.timedelta):
        return value.total_seconds()
    return value


@pytest.mark.parametrize(
    ("values", "wanted"),
    [
        (pa.array([1, 300]), pa.int8()),
        (pa.array([1, -1]), pa.uint64()),
        (pa.array([1.0, 1.5]), pa.int32()),
        (pa.array([0.5, 0.1]), pa.float32()),
        (pa.array([1, 2**53 + 1]), pa.float64()),
        (pa.array([b"ab", b"c"]), pa.binary(2)),
        (pa.array([1, 10**4]), pa.decimal128(5, 2)),
        (pa.array([Decimal("1.20"), Decimal("1.25")]), pa.decimal128(5, 1)),
        (pa.array([NOON, NOON.replace(microsecond=5)]), pa.timestamp("ms")),
        (pa.array([[1.0, 2.0], [3.0]]), VECTOR),
        (pa.array([[1.0, 2.0], [0.1, 2.0]]), VECTOR),
        (pa.array([{"x": 1}, {"x": 300}]), pa.struct([("x", pa.int8())])),
    ],
    ids=str,
)
def test_the_first_value_that_would_change_is_named(values, wanted, tmp_path):
    dataset = lancelet.write_dataset(pa.table({"c": pa.nulls(1, wanted)}), tmp_path / "t")
    rows = pa.table({"c": pa.chunked_array([values.slice(0, 1)] * 3 + [values])})
    with pytest.raises(LossyConversionError) as caught:
        dataset.insert(rows)
    assert caught.value.facts["row"] == 4
    assert caught.value.facts["column"] == "c"
    assert caught.value.facts["value"] == values[1].as_py()
    assert dataset.count_rows() == 1


@pytest.mark.parametrize(
    ("found", "wanted"),
    [
        (pa.string(), pa.int8()),
        (pa.int8(), pa.string()),
        (pa.bool_(), pa.int8()),
        (pa.timestamp("us"), pa.timestamp("us", "UTC")),
        (pa.binary(), pa.string()),
        (pa.struct([("x", pa.int8())]), pa.struct([("y", pa.int8())])),
        (pa.list_(pa.string()), pa.list_(pa.int8())),
    ],
)
def test_other_kinds_of_values_are_not_converted(found, wanted, tmp_path):
    assert find_converter(found, wanted) is None
    dataset = lancelet.write_dataset(pa.table({"c": pa.nulls(1, wanted)}), tmp_path / "t")
    with pytest.raises(SchemaMismatchError, match="different schema"):
        dataset.insert(pa.table({"c": pa.nulls(1, found)}))


@given(st.lists(st.none() | st.floats(width=64), max_size=20))
def test_narrowed_numbers_are_the_same_or_rejected(values):
    array = pa.array(values, pa.float64())
    known = np.array([value for value in values if value is not None], np.float64)
    with np.errstate(over="ignore"):
        fits = np.array_equal(known, known.astype(np.float32), equal_nan=True)
    try:
        found = find_converter(pa.float64(), pa.float32())(array)
    except (pa.ArrowInvalid, ValueError):
        assert not fits
    else:
        assert fits
        assert str(found.cast(pa.float64()).to_pylist()) == str(values)


ROWS = pa.table(
    {
        "k": pa.array([1, 2], pa.int16()),
        "s": ["a", "b"],
        "v": pa.array([[1.0, 2.0], [0.1, 0.2]], VECTOR),
        "t": pa.array([NOON, NOON], pa.timestamp("ms")),
        "c": ["x", "y"],
    }
)


def frames():
    plain = ROWS.to_pylist()
    yield "dicts", plain
    yield "generator", lambda: iter(plain)
    yield "columns", ROWS.to_pydict()
    yield "matrix", {**ROWS.to_pydict(), "v": np.array([[1, 2], [0.1, 0.2]], np.float32)}
    categories = ROWS.to_pandas().astype({"c": "category"})
    yield "pandas", categories
    yield "lists in pandas", categories.assign(v=[[1.0, 2.0], [0.1, 0.2]])
    yield (
        "pandas 2",
        pd.DataFrame({n: pd.Series(c, dtype=object) for n, c in ROWS.to_pydict().items()}),
    )
    yield "polars", pl.from_arrow(ROWS).with_columns(pl.col("v").arr.to_list())
    own = pl.from_arrow(ROWS)
    yield "categories of polars", own.with_columns(pl.col("c").cast(pl.Categorical))


@pytest.mark.parametrize("frame", [f for _, f in frames()], ids=[name for name, _ in frames()])
def test_frames_are_inserted_and_merged_into_a_table_of_other_types(frame, tmp_path):
    dataset = lancelet.write_dataset(ROWS, tmp_path / "t")
    dataset.insert(frame() if callable(frame) else frame)
    assert dataset.to_table() == pa.concat_tables([ROWS, ROWS])
    merge = dataset.merge_insert("k").when_matched_delete()
    assert merge.execute(frame() if callable(frame) else frame)["num_deleted_rows"] == 4
    upsert = dataset.merge_insert("k").when_matched_update_all().when_not_matched_insert_all()
    assert upsert.execute(frame() if callable(frame) else frame)["num_inserted_rows"] == 2
    assert dataset.to_table().sort_by("k") == ROWS


def test_struct_fields_missing_in_rows_are_null(tmp_path):
    wanted = pa.struct([("x", pa.int8()), ("y", pa.string())])
    dataset = lancelet.write_dataset(pa.table({"s": pa.nulls(1, wanted)}), tmp_path / "t")
    dataset.insert(pa.table({"s": [{"x": 5}]}))
    assert dataset.to_table()["s"].to_pylist() == [None, {"x": 5, "y": None}]
