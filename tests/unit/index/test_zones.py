"""Zones are created while the table is read, summarized in groups, and never all in memory."""

import math
import weakref

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lancelet.index.base import IndexedRows
from lancelet.index.parts.zone_bounds import compute_bounds
from lancelet.index.parts.zones import NullRows, concatenate_small, zone_runs

FRAGMENTS = st.lists(st.lists(st.booleans(), max_size=20), max_size=5)


def rows_of(fragments: list[list[bool]], part_rows: int) -> IndexedRows:
    """Return the live rows in parts that are independent of fragments."""
    addresses = np.array(
        [
            number << 32 | offset
            for number, rows in enumerate(fragments)
            for offset, is_live in enumerate(rows)
            if is_live
        ],
        np.uint64,
    )
    values = pa.array(
        [None if int(each) % 3 == 0 else int(each) for each in addresses], pa.uint64()
    )
    parts = [
        (values[start : start + part_rows], addresses[start : start + part_rows])
        for start in range(0, len(values), part_rows)
    ]
    return IndexedRows(pa.uint64(), parts, len(values))


@given(fragments=FRAGMENTS, part_rows=st.integers(1, 50), zone_rows=st.integers(1, 8))
def test_zones_have_so_many_live_rows_of_one_fragment_each(fragments, part_rows, zone_rows):
    expected = []
    for number, rows in enumerate(fragments):
        live = [offset for offset, is_live in enumerate(rows) if is_live]
        for first in range(0, len(live), zone_rows):
            own = live[first : first + zone_rows]
            nulls = sum((number << 32 | offset) % 3 == 0 for offset in own)
            expected.append((number, own[0], own[-1] + 1 - own[0], nulls))
    runs = list(zone_runs(rows_of(fragments, part_rows), zone_rows))
    found = [
        (*place, nulls)
        for run in runs
        for *place, nulls in zip(
            *(column.to_pylist() for column in run.columns()),
            run.null_counts().tolist(),
            strict=True,
        )
    ]
    assert found == expected


@given(fragments=FRAGMENTS, part_rows=st.integers(1, 50))
def test_rows_without_a_value_are_collected(fragments, part_rows):
    rows = rows_of(fragments, part_rows)
    nulls = NullRows()
    for run in zone_runs(rows, 4):
        nulls.add(run)
    expected = [int(each) for _, numbers in rows.parts for each in numbers if int(each) % 3 == 0]
    assert nulls.rows().listed().tolist() == expected


def test_parts_are_let_go_once_their_zones_were_seen():
    held: list[weakref.ref[np.ndarray]] = []

    def parts():
        for number in range(20):
            numbers = np.arange(number * 100, number * 100 + 100, dtype=np.uint64)
            held.append(weakref.ref(numbers))
            yield pa.array(numbers), numbers

    most = 0
    for _ in zone_runs(IndexedRows(pa.uint64(), parts()), 30):
        most = max(most, sum(each() is not None for each in held))
    assert most <= 3


NUMBERS = st.one_of(
    st.none(), st.sampled_from([0.0, -0.0, math.nan, math.inf, -math.inf]), st.floats(width=16)
)


@pytest.mark.parametrize("data_type", [pa.float16(), pa.float32(), pa.float64()])
@given(
    values=st.lists(NUMBERS, max_size=20), zone_rows=st.integers(1, 6), skipped=st.integers(0, 3)
)
def test_bounds_of_floats_are_in_total_order(data_type, values, zone_rows, skipped):
    array = pa.array([None if v is None else np.float16(v) for v in values], pa.float16())
    found = compute_bounds(array.cast(data_type)[skipped:], zone_rows)
    values = values[skipped:]
    for zone, start in enumerate(range(0, len(values), zone_rows)):
        own = [v for v in values[start : start + zone_rows] if v is not None]
        filled = sorted(
            (v for v in own if not math.isnan(v)), key=lambda v: (v, math.copysign(1, v))
        )
        num_nan = len(own) - len(filled)
        low = filled[0] if filled else math.nan if num_nan else None
        high = math.nan if num_nan else filled[-1] if filled else None
        assert repr(found.minimum[zone].as_py()) == repr(low)
        assert repr(found.maximum[zone].as_py()) == repr(high)
        assert found.nan_counts[zone] == num_nan


@pytest.mark.parametrize(
    "array",
    [
        pa.array([5, None, -3, 7, 0]),
        pa.array([True, None, False, None, True]),
        pa.array(["b", None, "a", "ü", ""]),
        pa.array([b"b", None, b"a", b"\xff", b""], pa.large_binary()),
        pa.array([b"bb", None, b"aa", b"\xff0", b"00"], pa.binary(2)),
        pa.array([1, None, -2, 0, 3], pa.decimal128(5)),
        pa.array([1, None, -2, 0, 3], pa.duration("s")),
        pa.array([1, None, 2, 0, 3], pa.date32()),
    ],
    ids=lambda array: str(array.type),
)
@pytest.mark.parametrize("zone_rows", [1, 2, 3, 5])
def test_bounds_of_other_values_are_the_least_and_the_greatest(array, zone_rows):
    found = compute_bounds(array[1:], zone_rows)
    assert found.minimum.type == found.maximum.type == array.type
    values = array[1:].to_pylist()
    for zone, start in enumerate(range(0, len(values), zone_rows)):
        own = [value for value in values[start : start + zone_rows] if value is not None]
        assert found.minimum[zone].as_py() == min(own, default=None)
        assert found.maximum[zone].as_py() == max(own, default=None)


def test_values_without_an_order_have_no_bounds():
    found = compute_bounds(pa.array([{"a": 1}, None, {"a": 2}]), 2)
    assert found.minimum.to_pylist() == found.maximum.to_pylist() == [None, None]


@given(sizes=st.lists(st.integers(0, 5), max_size=10))
def test_pieces_have_the_same_rows(sizes):
    tables = [pa.table({"x": pa.array(range(size), pa.int64())}) for size in sizes]
    pieces = list(concatenate_small(tables))
    assert [x for piece in pieces for x in piece["x"].to_pylist()] == [
        x for table in tables for x in table["x"].to_pylist()
    ]
    assert len(pieces) <= 1
