"""Minimum and maximum of a batch, as stored in page statistics.

The bounds depend on the type:

    numbers          nulls and NaN are ignored; zeros are -0.0 as minimum and +0.0 as maximum
    no values        the limits of the type; infinities for floats
    strings          truncated to 64 bytes at a character boundary; if any string was truncated, the
                     maximum is incremented: "aaz" -> "aa{"
    no bound         null, which the format stores as an empty string
"""

from __future__ import annotations

from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from lancelet import kernels
from lancelet.buffers import ByteSlices, Int64s
from lancelet.encodings.arrow import block_from_arrow, validity_bits
from lancelet.encodings.base import FixedWidth, Variable
from lancelet.encodings.gather import gather
from lancelet.encodings.v0_1 import is_variable
from lancelet.values import dataclass

TEXT_BYTES_MAX: Final = 64
"""The maximum length of a string bound in bytes."""


def is_covered(data_type: pa.DataType) -> bool:
    """Return whether the format supports statistics of a type."""
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


@dataclass(frozen=True, slots=True, eq=False)
class Bounds:
    """The null count, minimum and maximum of each batch."""

    null_count: Int64s
    minimum: pa.Array
    maximum: pa.Array


def bounds_of_batches(array: pa.Array, batch_rows: int) -> Bounds:
    """Return the bounds of each batch of `batch_rows` values; the last one may be shorter.

    >>> bounds_of_batches(pa.array([2, None, 1, None], pa.int8()), 3).minimum.to_pylist()
    [1, -128]
    """
    data_type = array.type
    if _is_number(data_type):
        return _bounds_of_numbers(array, batch_rows)
    bounds_of = _bounds_of_text if is_variable(data_type) else _bounds_of_values
    batches = [array.slice(start, batch_rows) for start in range(0, len(array), batch_rows)]
    pairs = pa.concat_arrays([bounds_of(batch) for batch in batches])
    minimum_indices = np.arange(0, len(pairs), 2)
    return Bounds(
        np.array([batch.null_count for batch in batches], np.int64),
        pairs.take(pa.array(minimum_indices)),
        pairs.take(pa.array(minimum_indices + 1)),
    )


def _is_number(data_type: pa.DataType) -> bool:
    return any(
        is_kind(data_type)
        for is_kind in (pa.types.is_integer, pa.types.is_floating, pa.types.is_date)
    )


def _bounds_of_numbers(array: pa.Array, batch_rows: int) -> Bounds:
    width = array.type.bit_width // 8
    kind = "i"
    if pa.types.is_floating(array.type):
        kind = "f"
    elif pa.types.is_unsigned_integer(array.type):
        kind = "u"
    block = block_from_arrow(array)
    assert isinstance(block, FixedWidth)
    values = np.frombuffer(block.data, f"{kind}{width}")
    minima, maxima, nulls, nans = kernels.zone_min_max(values, batch_rows, validity_bits(array))
    starts = np.arange(0, len(array), batch_rows)
    rows = np.minimum(batch_rows, len(array) - starts)
    is_empty = nulls + nans == rows
    if kind == "f":
        minima = np.where(minima == 0, values.dtype.type(-0.0), minima)
        maxima = np.where(maxima == 0, values.dtype.type(0.0), maxima)
        minima[is_empty], maxima[is_empty] = -np.inf, np.inf
    else:
        limits = np.iinfo(values.dtype)
        minima[is_empty], maxima[is_empty] = limits.min, limits.max
    return Bounds(nulls, *(_from_numpy(bound, array.type) for bound in (minima, maxima)))


def _from_numpy(values: npt.NDArray[Any], data_type: pa.DataType) -> pa.Array:
    return pa.Array.from_buffers(data_type, len(values), [None, pa.py_buffer(values)])


def _bounds_of_values(array: pa.Array) -> pa.Array:
    """Return the minimum and maximum of a batch of booleans or decimals."""
    if array.null_count < len(array):
        bounds = pc.min_max(array)
        return pa.array([bounds["min"].as_py(), bounds["max"].as_py()], array.type)
    if pa.types.is_boolean(array.type):
        return pa.array([False, True])
    # The limits of 128 bits exceed the precision of the decimal type.
    data = bytes(15) + b"\x80" + b"\xff" * 15 + b"\x7f"
    return pa.Array.from_buffers(array.type, 2, [None, pa.py_buffer(data)])


def _bounds_of_text(array: pa.Array) -> pa.Array:
    is_utf8 = pa.types.is_string(array.type) or pa.types.is_large_string(array.type)
    present = array.drop_null()
    truncated, was_truncated = _truncate(present, is_utf8=is_utf8)
    bounds = pc.min_max(truncated)
    minimum, maximum = bounds["min"].as_py(), bounds["max"].as_py()
    if was_truncated and maximum is not None:
        maximum = _increment_utf8(maximum) if is_utf8 else _increment(maximum)
    return pa.array([minimum, maximum], pa.binary()).cast(array.type)


def _truncate(array: pa.Array, *, is_utf8: bool) -> tuple[pa.Array, bool]:
    """Truncate strings to the maximum length, and return whether any was longer."""
    block = block_from_arrow(array)
    assert isinstance(block, Variable)
    start = block.offsets[:-1].astype(np.int64)
    size = np.diff(block.offsets).astype(np.int64)
    long = size > TEXT_BYTES_MAX
    if not long.any():
        return array.view(_bytes_type(array.type)), False
    size[long] = TEXT_BYTES_MAX
    if is_utf8:
        # A character has up to three continuation bytes, which are 0b10xxxxxx.
        for _ in range(3):
            inside = long.copy()
            inside[long] = (block.data[start[long] + size[long]] & 0xC0) == 0x80
            size[inside] -= 1
    offsets = np.concatenate(([0], np.cumsum(size))).astype(np.int64)
    data = gather(ByteSlices(block.data, start, size))
    buffers = [None, pa.py_buffer(offsets), pa.py_buffer(data)]
    return pa.Array.from_buffers(pa.large_binary(), len(array), buffers), True


def _increment(text: bytes) -> bytes | None:
    """Return the next larger bytes of the same length, or None."""
    number = int.from_bytes(text, "big") + 1
    return number.to_bytes(len(text), "big") if number >> (8 * len(text)) == 0 else None


def _increment_utf8(text: bytes) -> bytes | None:
    """Increment the last byte that results in valid UTF-8, or return None."""
    incremented = bytearray(text)
    for index in reversed(range(len(text))):
        for byte in range(text[index] + 1, 256):
            incremented[index] = byte
            if _is_utf8(incremented):
                return bytes(incremented)
        incremented[index] = text[index]
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
