"""The least and the greatest value of a batch, as page statistics have them.

numbers          nulls and NaN do not count; a least zero is -0.0, a greatest one +0.0
nothing counts   the least and the greatest value of the type; infinities for floats
strings          no longer than 64 bytes, cut between characters; when any was cut, the
                 greatest is raised a little, so that it still bounds: "aaz" -> "ab{"[:3]
no bound         null, which the format stores as an empty string
"""

from __future__ import annotations

from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from lancelet.buffers import Slices
from lancelet.encodings.arrow import block_from_arrow
from lancelet.encodings.base import Variable
from lancelet.encodings.gather import gather
from lancelet.encodings.v0_1 import is_variable

TEXT_BYTES_MAX: Final = 64
"""The bytes of a string that statistics keep."""


def is_covered(data_type: pa.DataType) -> bool:
    """Whether the format keeps statistics of a type."""
    return is_variable(data_type) or any(
        is_kind(data_type)
        for is_kind in (
            pa.types.is_boolean,
            pa.types.is_integer,
            pa.types.is_float32,
            pa.types.is_float64,
            pa.types.is_date,
            pa.types.is_decimal128,
        )
    )


def bounds_of_batch(array: pa.Array) -> pa.Array:
    """Return the least and the greatest value of a batch, of a type that is covered.

    >>> bounds_of_batch(pa.array([2, None, 1])).to_pylist()
    [1, 2]
    >>> bounds_of_batch(pa.array([None], pa.int8())).to_pylist()
    [-128, 127]
    """
    data_type = array.type
    if pa.types.is_floating(data_type):
        return _float_bounds(array)
    if pa.types.is_boolean(data_type):
        present = array.drop_null() if array.null_count < len(array) else pa.array([False, True])
        return _min_max(present)
    if is_variable(data_type):
        return _text_bounds(array)
    if array.null_count == len(array):
        return _limits(data_type)
    if pa.types.is_date(data_type):
        # Python's dates end in the year 9999.
        return _min_max(array.view(f"int{data_type.bit_width}")).view(data_type)
    return _min_max(array)


def _min_max(array: pa.Array) -> pa.Array:
    bounds = pc.min_max(array)
    return pa.array([bounds["min"].as_py(), bounds["max"].as_py()], array.type)


def _limits(data_type: pa.DataType) -> pa.Array:
    """Return the least and the greatest number that the width of a type can hold."""
    width = data_type.bit_width // 8
    if pa.types.is_unsigned_integer(data_type):
        data = bytes(width) + b"\xff" * width
    else:
        data = bytes(width - 1) + b"\x80" + b"\xff" * (width - 1) + b"\x7f"
    return pa.Array.from_buffers(data_type, 2, [None, pa.py_buffer(data)])


def _float_bounds(array: pa.Array) -> pa.Array:
    values = array.drop_null().to_numpy(zero_copy_only=False)
    values = values[~np.isnan(values)]
    least, greatest = (values.min(), values.max()) if len(values) else (-np.inf, np.inf)
    return pa.array([least or -0.0, greatest or 0.0], array.type)


def _text_bounds(array: pa.Array) -> pa.Array:
    is_utf8 = pa.types.is_string(array.type) or pa.types.is_large_string(array.type)
    present = array.drop_null()
    kept, was_cut = _cut(present, is_utf8=is_utf8)
    bounds = pc.min_max(kept)
    least, greatest = bounds["min"].as_py(), bounds["max"].as_py()
    if was_cut and greatest is not None:
        greatest = _raised_utf8(greatest) if is_utf8 else _raised(greatest)
    return pa.array([least, greatest], pa.binary()).cast(array.type)


def _cut(array: pa.Array, *, is_utf8: bool) -> tuple[pa.Array, bool]:
    """Return strings as bytes, cut to what statistics keep, and whether any was cut."""
    block = block_from_arrow(array)
    assert isinstance(block, Variable)
    start = block.offsets[:-1].astype(np.int64)
    size = np.diff(block.offsets).astype(np.int64)
    long = size > TEXT_BYTES_MAX
    if not long.any():
        return array.view(_bytes_type(array.type)), False
    size[long] = TEXT_BYTES_MAX
    if is_utf8:
        # A character has at most three bytes behind its first, all of them 0b10xxxxxx.
        for _ in range(3):
            inside = long.copy()
            inside[long] = (block.data[start[long] + size[long]] & 0xC0) == 0x80
            size[inside] -= 1
    offsets = np.concatenate(([0], np.cumsum(size))).astype(np.int64)
    data = gather(Slices(block.data, start, size))
    buffers = [None, pa.py_buffer(offsets), pa.py_buffer(data)]
    return pa.Array.from_buffers(pa.large_binary(), len(array), buffers), True


def _raised(text: bytes) -> bytes | None:
    """Return the next larger bytes of the same length, if there are any."""
    number = int.from_bytes(text, "big") + 1
    return number.to_bytes(len(text), "big") if number >> (8 * len(text)) == 0 else None


def _raised_utf8(text: bytes) -> bytes | None:
    """Return the text with its last byte raised that can be, if any can, and stay UTF-8."""
    raised = bytearray(text)
    for place in reversed(range(len(text))):
        for byte in range(text[place] + 1, 256):
            raised[place] = byte
            if _is_utf8(raised):
                return bytes(raised)
        raised[place] = text[place]
    return None


def _is_utf8(text: bytearray) -> bool:
    try:
        text.decode("utf-8")
    except UnicodeDecodeError:
        return False
    return True


def _bytes_type(data_type: pa.DataType) -> pa.DataType:
    is_large = pa.types.is_large_string(data_type) or pa.types.is_large_binary(data_type)
    return pa.large_binary() if is_large else pa.binary()
