"""The value of a constant page: detection, and storage as an Arrow buffer."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest

from lancelet.encodings.arrow import arrow_from_block, block_from_arrow
from lancelet.encodings.base import FixedWidth
from lancelet.encodings.constant.value import build_value, constant_value, parse_value, repeat_value
from lancelet.errors import CorruptDataError

CONSTANT = [
    pa.array([7] * 100, pa.int16()),
    pa.array([True] * 9),
    pa.array([False] * 70),
    pa.array(["same"] * 70),
    pa.array([""] * 3),
    pa.array([b"x" * 40] * 5, pa.binary(40)),
    pa.array(["x", "same", "same"], pa.large_string())[1:],
]


@pytest.mark.parametrize("array", CONSTANT, ids=lambda array: f"{array.type} {array[0]}")
def test_one_value_all_over_is_found_and_repeated(array):
    value = constant_value(block_from_arrow(array))
    assert value is not None
    assert value.count == 1
    assert repeat_value(value, array.type, len(array), None).to_pylist() == array.to_pylist()
    nulls = np.packbits(np.arange(len(array)) % 2 == 0, bitorder="little")
    some = repeat_value(value, array.type, len(array), nulls)
    some.validate(full=True)
    assert some.null_count == len(array) // 2
    if array.type != pa.bool_():
        again = parse_value(build_value(value))
        assert arrow_from_block(again, array.type, None).to_pylist() == array[:1].to_pylist()


@pytest.mark.parametrize(
    "array",
    [
        pa.array([7] * 100 + [8]),
        pa.array([True] * 99 + [False]),
        pa.array(["same"] * 100 + ["other"]),
        pa.array(["same"] * 100 + ["emas"]),
    ],
    ids=lambda array: str(array.type),
)
def test_another_value_is_noticed(array):
    assert constant_value(block_from_arrow(array)) is None


def test_a_string_is_stored_as_its_arrow_buffers():
    value = constant_value(block_from_arrow(pa.array(["abc"] * 2)))
    assert build_value(value).tobytes() == (b"\2\0\0\0\x08\0\0\0\3\0\0\0\0\0\0\0\3\0\0\0abc")


@pytest.mark.parametrize(
    "words",
    [
        [],
        [0],
        [3, 0, 0, 0],
        [1, 9],
        [2, 4, 0, 0],
        [2, 8, 5, 0, 5],
        [2, 8, 3, 1, 3],
        [1 << 31, 0],
        [2, 0xFFFFFFFF, 0xFFFFFFFF],
    ],
)
def test_a_buffer_that_holds_no_value_is_corrupt(words):
    with pytest.raises(CorruptDataError):
        parse_value(np.array(words, "<u4").view(np.uint8))


def test_a_value_of_another_width_than_its_type_is_corrupt():
    with pytest.raises(CorruptDataError):
        repeat_value(FixedWidth(16, np.zeros(2, np.uint8), 1), pa.int32(), 3, None)
