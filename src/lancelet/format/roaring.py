"""Parsing and serialization of untrusted Roaring bitmaps in the portable format.

A bitmap is a list of containers, one per 65 536 numbers: a sorted array, a bit set or a list of
runs. The library that parses bitmaps only checks bounds; unordered numbers lead to wrong results,
so the content is validated first.

    3a300000 01000000 0000 0100 10000000 0100 0300      {1, 3}
    cookie   1 part   key  2-1  offset   1    3

A treemap is the 64-bit variant: a count, then the 32-bit high half and the bitmap of each part. In
row addresses, the high half is the fragment id.
"""

from __future__ import annotations

from array import array
from typing import Final

import numpy as np
import numpy.typing as npt
from pyroaring import BitMap, FrozenBitMap

from lancelet.errors import CorruptDataError

_COOKIE: Final = 12346
_COOKIE_WITH_RUNS: Final = 12347
_OFFSETS_FROM: Final = 4
_ARRAY_MAX: Final = 4096
_CONTAINER: Final = 1 << 16
_BITSET_BYTES: Final = _CONTAINER // 8


def parse_bitmap(data: bytes | memoryview) -> FrozenBitMap:
    """Parse and validate a bitmap in the portable format.

    >>> list(parse_bitmap(bytes.fromhex("3a3000000100000000000100100000000100 0300")))
    [1, 3]
    """
    data = bytes(data)
    bitmap_bytes(data)
    return FrozenBitMap.deserialize(data)


def to_bitmap(numbers: npt.NDArray[np.integer]) -> FrozenBitMap:
    """Create a bitmap from 32-bit numbers."""
    # The library copies an array of this type in bulk, and iterates over all other types.
    return FrozenBitMap(array("I", numbers.astype(np.uint32).tobytes()))


def to_numbers(bitmap: BitMap | FrozenBitMap) -> npt.NDArray[np.uint32]:
    """Return the numbers of a bitmap in ascending order."""
    return np.frombuffer(bitmap.to_array(), np.uint32)


def render_bitmap(bitmap: BitMap | FrozenBitMap) -> bytes:
    """Serialize a bitmap in the portable format."""
    data: bytes = bitmap.serialize()
    return data


def parse_treemap(data: bytes | memoryview) -> dict[int, FrozenBitMap]:
    """Parse a treemap to bitmaps by high half, in ascending order."""
    data = bytes(data)
    count = int.from_bytes(data[:8], "little")
    position = 8
    # The smallest part takes four bytes for its high half and eight for its bitmap.
    if len(data) < 8 or count > (len(data) - 8) // 12:
        raise _corrupt("a treemap is truncated", data)
    parts: dict[int, FrozenBitMap] = {}
    previous = -1
    for _ in range(count):
        high = int.from_bytes(data[position : position + 4], "little")
        if high <= previous or len(data) - position < 4:
            raise _corrupt("the parts of a treemap are out of order", data)
        size = bitmap_bytes(data[position + 4 :])
        parts[high] = FrozenBitMap.deserialize(data[position + 4 : position + 4 + size])
        previous = high
        position += 4 + size
    return parts


def render_treemap(parts: dict[int, FrozenBitMap] | dict[int, BitMap]) -> bytes:
    """Serialize a treemap, with run containers where they are smaller."""
    buffers = [len(parts).to_bytes(8, "little")]
    for high in sorted(parts):
        optimized = BitMap(parts[high])
        optimized.run_optimize()
        buffers += [high.to_bytes(4, "little"), optimized.serialize()]
    return b"".join(buffers)


def bitmap_bytes(data: bytes) -> int:
    """Validate the bitmap at the start of `data` and return its size in bytes."""
    octets = np.frombuffer(data, np.uint8)
    cookie = int.from_bytes(data[:4], "little")
    if len(data) < 4:
        raise _corrupt("a bitmap is truncated", data)
    has_runs = cookie & 0xFFFF == _COOKIE_WITH_RUNS
    if has_runs:
        count = (cookie >> 16) + 1
        flags_bytes = (count + 7) // 8
        is_run = np.unpackbits(octets[4 : 4 + flags_bytes], bitorder="little").astype(np.bool_)
        position = 4 + flags_bytes
    elif cookie == _COOKIE:
        count = int.from_bytes(data[4:8], "little")
        is_run = np.zeros(min(count, _CONTAINER), np.bool_)
        position = 8
    else:
        raise _corrupt("not a Roaring bitmap", data)
    if count > _CONTAINER or len(data) - position < 4 * count:
        raise _corrupt("a bitmap is truncated", data)
    heads = np.frombuffer(data, "<u2", 2 * count, position).reshape(-1, 2).astype(np.int64)
    position += 4 * count
    if not has_runs or count >= _OFFSETS_FROM:
        position += 4 * count
    if (heads[1:, 0] <= heads[:-1, 0]).any():
        raise _corrupt("the containers of a bitmap are out of order", data)
    for index in range(count):
        position = _check_container(
            data, position, int(heads[index, 1]) + 1, is_run=bool(is_run[index])
        )
    return position


def _check_container(data: bytes, at: int, cardinality: int, *, is_run: bool) -> int:
    """Validate a container and return its end."""
    if is_run:
        runs = _numbers(data, at, 1)[0]
        pairs = _numbers(data, at + 2, 2 * int(runs)).reshape(-1, 2)
        start, last = pairs[:, 0], pairs[:, 0] + pairs[:, 1]
        in_order = (start[1:] > last[:-1]).all() and (last < _CONTAINER).all()
        if not in_order or int((pairs[:, 1] + 1).sum()) != cardinality:
            raise _corrupt("the runs of a bitmap are inconsistent", data)
        return at + 2 + 4 * int(runs)
    if cardinality <= _ARRAY_MAX:
        values = _numbers(data, at, cardinality)
        if (values[1:] <= values[:-1]).any():
            raise _corrupt("the numbers of a bitmap are out of order", data)
        return at + 2 * cardinality
    if len(data) - at < _BITSET_BYTES:
        raise _corrupt("a bitmap is truncated", data)
    bits = np.unpackbits(np.frombuffer(data, np.uint8, _BITSET_BYTES, at))
    if int(bits.sum(dtype=np.int64)) != cardinality:
        raise _corrupt("the cardinality of a bit set does not match its content", data)
    return at + _BITSET_BYTES


def _numbers(data: bytes, at: int, count: int) -> npt.NDArray[np.int64]:
    if len(data) - at < 2 * count:
        raise _corrupt("a bitmap is truncated", data)
    return np.frombuffer(data, "<u2", count, at).astype(np.int64)


def _corrupt(message: str, data: bytes) -> CorruptDataError:
    return CorruptDataError(message, bitmap_bytes=len(data))
