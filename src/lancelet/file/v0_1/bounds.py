"""The least and the greatest value of a batch, as page statistics have them.

numbers          nulls and NaN do not count; a least zero is -0.0, a greatest one +0.0
nothing counts   the least and the greatest value of the type; infinities for floats
strings          no longer than 64 bytes, cut between characters; when any was cut, the
                 greatest is raised a little, so that it still bounds: "aaz" -> "ab{"[:3]
no bound         null, which the format stores as an empty string
"""

from __future__ import annotations

from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from lancelet import kernels
from lancelet.buffers import Int64s, Slices
from lancelet.encodings.arrow import block_from_arrow, validity_bits
from lancelet.encodings.base import FixedWidth, Variable
from lancelet.encodings.gather import gather
from lancelet.encodings.v0_1 import is_variable
from lancelet.values import dataclass

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


@dataclass(frozen=True, slots=True, eq=False)
class Bounds:
    """The nulls, the least and the greatest value of each batch."""

    null_count: Int64s
    minimum: pa.Array
    maximum: pa.Array


def bounds_of_batches(array: pa.Array, batch_rows: int) -> Bounds:
    """Return the bounds of a covered type for every `batch_rows` values and what remains.

    >>> bounds_of_batches(pa.array([2, None, 1, None], pa.int8()), 3).minimum.to_pylist()
    [1, -128]
    """
    data_type = array.type
    if _is_number(data_type):
        return _bounds_of_numbers(array, batch_rows)
    bounds_of = _bounds_of_text if is_variable(data_type) else _bounds_of_values
    batches = [array.slice(start, batch_rows) for start in range(0, len(array), batch_rows)]
    pairs = pa.concat_arrays([bounds_of(batch) for batch in batches])
    least = np.arange(0, len(pairs), 2)
    return Bounds(
        np.array([batch.null_count for batch in batches], np.int64),
        pairs.take(pa.array(least)),
        pairs.take(pa.array(least + 1)),
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
    least, greatest, nulls, nans = kernels.zone_min_max(values, batch_rows, validity_bits(array))
    starts = np.arange(0, len(array), batch_rows)
    rows = np.minimum(batch_rows, len(array) - starts)
    nothing = nulls + nans == rows
    if kind == "f":
        least = np.where(least == 0, values.dtype.type(-0.0), least)
        greatest = np.where(greatest == 0, values.dtype.type(0.0), greatest)
        least[nothing], greatest[nothing] = -np.inf, np.inf
    else:
        limits = np.iinfo(values.dtype)
        least[nothing], greatest[nothing] = limits.min, limits.max
    return Bounds(nulls, *(_from_numpy(bound, array.type) for bound in (least, greatest)))


def _from_numpy(values: npt.NDArray[Any], data_type: pa.DataType) -> pa.Array:
    return pa.Array.from_buffers(data_type, len(values), [None, pa.py_buffer(values)])


def _bounds_of_values(array: pa.Array) -> pa.Array:
    """Return the least and the greatest value of a batch of booleans or decimals."""
    if array.null_count < len(array):
        bounds = pc.min_max(array)
        return pa.array([bounds["min"].as_py(), bounds["max"].as_py()], array.type)
    if pa.types.is_boolean(array.type):
        return pa.array([False, True])
    # The sixteen bytes of a decimal can hold more than its digits.
    data = bytes(15) + b"\x80" + b"\xff" * 15 + b"\x7f"
    return pa.Array.from_buffers(array.type, 2, [None, pa.py_buffer(data)])


def _bounds_of_text(array: pa.Array) -> pa.Array:
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
