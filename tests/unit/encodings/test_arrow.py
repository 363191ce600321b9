"""Arrow arrays become blocks and come back; bytes that do not fit the type are refused.

Every array is tried whole and as slices that start within bytes of its bitmaps.
"""

import decimal

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lancelet.encodings.arrow import (
    arrow_from_block,
    bits_per_value,
    block_from_arrow,
    to_numpy,
    validity_bits,
    with_null_items,
)
from lancelet.encodings.base import Fields, FixedSizeList, FixedWidth, Variable
from lancelet.errors import CorruptDataError, InvalidInputError, UnsupportedError

ARRAYS = {
    "int8": pa.array([1, None, -3, 4], pa.int8()),
    "bool": pa.array([True, None, False] * 7),
    "half": pa.array([1.5, None, -0.0], pa.float16()),
    "decimal128": pa.array([decimal.Decimal("1.25"), None], pa.decimal128(15, 2)),
    "decimal256": pa.array([decimal.Decimal("1.25"), None], pa.decimal256(45, 2)),
    "timestamp": pa.array([1, None, 3], pa.timestamp("us", "UTC")),
    "interval": pa.array([pa.MonthDayNano([1, 2, 3]), None], pa.month_day_nano_interval()),
    "fixed_size_binary": pa.array([b"abc", None], pa.binary(3)),
    "string": pa.array(["a", None, "", "dé", "€"]),
    "large_binary": pa.array([b"", b"\xff", None], pa.large_binary()),
    "string_view": pa.array(["a", None, "longer than twelve bytes"], pa.string_view()),
    "binary_view": pa.array([b"a", None], pa.binary_view()),
    "list": pa.array([[1, None, 3], None, [4, 5, 6]], pa.list_(pa.int32(), 3)),
    "list_of_bool": pa.array([[True, False, None]] * 5, pa.list_(pa.bool_(), 3)),
    "list_of_list": pa.array(
        [[[1, 2], [3, None]], [None, [5, 6]]], pa.list_(pa.list_(pa.int16(), 2), 2)
    ),
    "struct": pa.array([{"a": 1, "b": 2.5}, None, {"a": 3, "b": 0.5}]).fill_null(
        {"a": 0, "b": 0.0}
    ),
}


@pytest.mark.parametrize("name", ARRAYS)
@pytest.mark.parametrize("start", [0, 1])
@pytest.mark.parametrize("cut", [0, 1])
def test_arrays_come_back_from_blocks(name: str, start: int, cut: int) -> None:
    array = ARRAYS[name]
    array = array.slice(start, len(array) - start - cut)
    found = arrow_from_block(block_from_arrow(array), array.type, validity_bits(array))
    found.validate(full=True)
    assert found.equals(array)


@pytest.mark.parametrize("name", ARRAYS)
def test_arrays_without_rows_are_blocks_without_values(name: str) -> None:
    block = block_from_arrow(ARRAYS[name][:0])
    assert block.count == 0
    assert arrow_from_block(block, ARRAYS[name].type, None).equals(ARRAYS[name][:0])


def test_extension_arrays_are_their_storage() -> None:
    uuid = pa.array([b"0123456789abcdef"], pa.binary(16)).cast(pa.uuid())
    block = block_from_arrow(uuid)
    assert isinstance(block, FixedWidth)
    assert arrow_from_block(block, pa.uuid(), None).equals(uuid)


def test_values_are_not_copied() -> None:
    numbers = pa.array(range(100))
    block = block_from_arrow(numbers[10:])
    assert block.data.ctypes.data == numbers.buffers()[1].address + 80
    found = arrow_from_block(block, numbers.type, None)
    assert found.buffers()[1].address == block.data.ctypes.data


def test_bytes_that_begin_anywhere_are_aligned() -> None:
    data = np.arange(33, dtype=np.uint8)[1:]
    found = arrow_from_block(FixedWidth(64, data, 4), pa.uint64(), None)
    assert found.buffers()[1].address % 8 == 0
    assert found.to_numpy().tobytes() == data.tobytes()


def test_bytes_under_nulls_are_dropped() -> None:
    values = pa.py_buffer(np.array([0, 6, 8], np.int32))
    bits = pa.py_buffer(b"\x02")
    array = pa.Array.from_buffers(pa.string(), 2, [bits, values, pa.py_buffer(b"secretab")])
    block = block_from_arrow(array)
    assert isinstance(block, Variable)
    assert np.diff(block.offsets).tolist() == [0, 2]
    assert b"secret" not in block.data.tobytes()


def test_offsets_take_the_width_of_the_type() -> None:
    block = Variable(np.array([2, 3, 5]), np.frombuffer(b"--abc", np.uint8))
    assert arrow_from_block(block, pa.string(), None).to_pylist() == ["a", "bc"]
    narrow = Variable(np.array([2, 3, 5], np.int32), block.data)
    assert arrow_from_block(narrow, pa.large_string(), None).to_pylist() == ["a", "bc"]


def test_lists_come_back_from_wide_values() -> None:
    rows = FixedWidth(48, np.arange(6, dtype="<i2").view(np.uint8), 2)
    kind = pa.list_(pa.int16(), 3)
    assert arrow_from_block(rows, kind, None).to_pylist() == [[0, 1, 2], [3, 4, 5]]


@given(text=st.lists(st.text(max_size=5), min_size=1, max_size=20), data=st.data())
def test_strings_are_utf8_or_rejected(text: list[str], data: st.DataObject) -> None:
    block = block_from_arrow(pa.array(text))
    assert isinstance(block, Variable)
    if not block.data.nbytes:
        return
    damaged = block.data.copy()
    damaged[data.draw(st.integers(0, len(damaged) - 1))] = data.draw(st.integers(0, 255))
    try:
        found = arrow_from_block(Variable(block.offsets, damaged), pa.string(), None)
    except CorruptDataError:
        return
    found.validate(full=True)


def test_a_string_must_not_begin_within_a_character() -> None:
    block = Variable(np.array([0, 1, 2], np.int32), np.frombuffer("é".encode(), np.uint8))
    with pytest.raises(CorruptDataError, match="within a UTF-8 character"):
        arrow_from_block(block, pa.string(), None)
    assert arrow_from_block(block, pa.binary(), None).to_pylist() == [b"\xc3", b"\xa9"]


@pytest.mark.parametrize(
    ("block", "data_type"),
    [
        (FixedWidth(32, np.zeros(4, np.uint8), 1), pa.int64()),
        (FixedWidth(32, np.zeros(4, np.uint8), 1), pa.string()),
        (FixedWidth(32, np.zeros(4, np.uint8), 1), pa.list_(pa.int32(), 2)),
        (FixedWidth(32, np.zeros(4, np.uint8), 1), pa.struct({"a": pa.int32()})),
        (Variable(np.zeros(2, np.int32), np.empty(0, np.uint8)), pa.int32()),
        (FixedSizeList(1, None, FixedWidth(8, np.zeros(1, np.uint8), 1), 1), pa.int8()),
        (Fields((), 1), pa.struct({"a": pa.int32()})),
        (Fields((), 1), pa.int8()),
    ],
)
def test_blocks_of_another_type_are_rejected(block, data_type) -> None:
    with pytest.raises(CorruptDataError, match="do not match the schema type"):
        arrow_from_block(block, data_type, None)


def test_types_without_a_width_are_rejected() -> None:
    with pytest.raises(UnsupportedError, match="type"):
        bits_per_value(pa.null())


def test_packed_structs_take_no_nulls() -> None:
    with pytest.raises(InvalidInputError, match="cannot be null"):
        block_from_arrow(pa.array([{"a": 1}, {"a": None}]))


def test_lists_of_no_bytes_are_lists_of_nulls_if_no_item_is_seen_that_is_not():
    lists = pa.list_(pa.list_(pa.binary(0), 2), 1)
    array = pa.array([[[b"", b""]], [[None, None]], None, [None], [[None, None]]], lists)
    assert with_null_items(array) is None
    assert with_null_items(array[1:]).to_pylist() == array[1:].to_pylist()
    assert with_null_items(array[1:]).type == pa.list_(pa.list_(pa.null(), 2), 1)
    # Values under nulls are arbitrary.
    hidden = pa.FixedSizeListArray.from_arrays(
        pa.array([b"", None, None, None], pa.binary(0)), 2, mask=pa.array([True, False])
    )
    assert with_null_items(hidden).to_pylist() == [None, [None, None]]


@pytest.mark.parametrize("start", [0, 1, 9, 20])
@pytest.mark.parametrize("kind", [pa.bool_(), pa.int8(), pa.uint64(), pa.float16(), pa.float64()])
def test_numbers_and_booleans_match_arrow(kind, start):
    array = pa.array([row % 3 == 0 for row in range(20)]).cast(pa.uint8()).cast(kind).slice(start)
    found, expected = to_numpy(array), array.to_numpy(zero_copy_only=False)
    assert found.dtype == expected.dtype
    assert found.tolist() == expected.tolist()


def test_nulls_are_no_numbers():
    with pytest.raises(pa.ArrowInvalid):
        to_numpy(pa.array([1, None]))
    assert to_numpy(pa.array([True, None])).tolist() == [True, None]
