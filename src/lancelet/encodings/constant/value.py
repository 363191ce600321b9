"""The value of a constant page as a block of one value, and its serialization.

    "abc"     02 00 00 00   08 00 00 00  03 00 00 00   offsets 0 3   "abc"

Serialized are the number of Arrow buffers, their sizes, and the buffers.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from lancelet.buffers import Bytes
from lancelet.encodings.arrow import arrow_from_block
from lancelet.encodings.base import FixedWidth, Variable
from lancelet.encodings.pages.leaf import slice_block, take_values
from lancelet.errors import CorruptDataError

_PROBE = 64
"""Number of values compared before all others."""

_COMPARED_BYTES = 1 << 20
"""Number of bytes compared per step."""


def constant_value(block: FixedWidth | Variable) -> FixedWidth | Variable | None:
    """Return the common value of all slots as a block of one, or None if they differ.

    >>> block = FixedWidth(16, np.array([7, 7, 7], "<i2").view(np.uint8), 3)
    >>> constant_value(block).data.tolist()
    [7, 0]
    """
    if isinstance(block, Variable):
        lengths = np.diff(block.offsets)
        start, stop = int(block.offsets[0]), int(block.offsets[-1])
        is_constant = bool((lengths == lengths[0]).all()) and (
            start == stop or _rows_are_equal(block.data[start:stop].reshape(block.count, -1))
        )
    elif block.bits == 1:
        bits = np.unpackbits(block.data, bitorder="little", count=block.count)
        is_constant = _rows_are_equal(bits.reshape(-1, 1))
    else:
        is_constant = _rows_are_equal(block.data.reshape(block.count, -1))
    if not is_constant:
        return None
    if isinstance(block, FixedWidth) and block.bits == 1:
        return FixedWidth(1, (block.data[:1] & 1).astype(np.uint8), 1)
    value = slice_block(block, 0, 1)
    assert isinstance(value, FixedWidth | Variable)
    return value


def _rows_are_equal(rows: npt.NDArray[np.uint8]) -> bool:
    step = max(_PROBE, _COMPARED_BYTES // max(rows.shape[1], 1))
    starts = (0, *range(_PROBE, len(rows), step))
    stops = (*starts[1:], len(rows))
    return all(bool((rows[a:b] == rows[0]).all()) for a, b in zip(starts, stops, strict=True))


def fixed_value(value: Bytes) -> FixedWidth:
    """Return a fixed-width value as a block of one."""
    return FixedWidth(8 * len(value), value, 1)


def parse_value(data: Bytes) -> FixedWidth | Variable:
    """Parse a serialized value as a block of one."""
    header = np.frombuffer(data[:12].tobytes().ljust(12, b"\0"), "<u4")
    num_buffers = int(header[0])
    sizes = header[1 : 1 + num_buffers].astype(np.int64)
    start = 4 * (1 + num_buffers)
    if num_buffers not in (1, 2) or start + int(sizes.sum()) > len(data):
        raise CorruptDataError(
            "the value of a constant page is truncated", bytes=len(data), buffers=num_buffers
        )
    first = data[start : start + int(sizes[0])]
    if num_buffers == 1:
        return fixed_value(first)
    if len(first) not in (8, 16):
        raise CorruptDataError("a string value must have two offsets", bytes=len(first))
    offsets = np.frombuffer(first.tobytes(), f"<i{len(first) // 2}")
    if int(offsets[0]) != 0 or int(offsets[1]) != int(sizes[1]):
        raise CorruptDataError(
            "the offsets of a string value do not match its size", bytes=int(sizes[1])
        )
    return Variable(offsets, data[start + len(first) : start + int(sizes.sum())])


def build_value(block: FixedWidth | Variable) -> Bytes:
    """Serialize a block of one value; the inverse of `parse_value`."""
    if isinstance(block, FixedWidth):
        parts = [block.data]
    else:
        offsets = block.offsets - block.offsets[0]
        parts = [offsets.view(np.uint8), block.data[int(block.offsets[0]) : int(block.offsets[1])]]
    head = np.array([len(parts), *(len(part) for part in parts)], "<u4")
    return np.concatenate([head.view(np.uint8), *parts])


def repeat_value(
    block: FixedWidth | Variable, data_type: pa.DataType, count: int, validity: Bytes | None
) -> pa.Array:
    """Return an array that repeats a block of one `count` times.

    >>> repeat_value(fixed_value(np.array([7, 0], np.uint8)), pa.int16(), 2, None).to_pylist()
    [7, 7]
    """
    if isinstance(block, Variable):
        value = arrow_from_block(block, data_type, None)
        indices = np.zeros(count, np.int64)
        return take_values(value, indices, validity)
    if pa.types.is_boolean(data_type):
        fill = 0xFF if block.data[:1].any() else 0
        data = np.full((count + 7) // 8, fill, np.uint8)
        return arrow_from_block(FixedWidth(1, data, count), data_type, validity)
    return arrow_from_block(
        FixedWidth(block.bits, np.tile(block.data, count), count), data_type, validity
    )
