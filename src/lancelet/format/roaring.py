"""Roaring bitmaps in the portable form, from bytes that are not trusted.

A bitmap is a list of containers, one per 65 536 numbers, each a sorted array, a bit set or a
list of runs. The library that reads them checks that they lie within the bytes and nothing
else: numbers out of order make its later answers wrong. So the content is checked first.

    3a300000 01000000 0000 0100 10000000 0100 0300      {1, 3}
    cookie   1 part   key  2-1  offset   1    3

A treemap is 64-bit: a count, then for each high half a 32-bit number and a bitmap. As row
addresses, the high half is the fragment.
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
    """Return the bitmap of its portable form.

    >>> list(parse_bitmap(bytes.fromhex("3a3000000100000000000100100000000100 0300")))
    [1, 3]
    """
    data = bytes(data)
    bitmap_bytes(data)
    return FrozenBitMap.deserialize(data)


def bitmap_of(numbers: npt.NDArray[np.integer]) -> FrozenBitMap:
    """Return the bitmap of these 32-bit numbers."""
    # The library reads an array of this type at once, and any other one number at a time.
    return FrozenBitMap(array("I", numbers.astype(np.uint32).tobytes()))


def numbers_of(bitmap: BitMap | FrozenBitMap) -> npt.NDArray[np.uint32]:
    """Return the numbers of a bitmap, ascending."""
    return np.frombuffer(bitmap.to_array(), np.uint32)


def render_bitmap(bitmap: BitMap | FrozenBitMap) -> bytes:
    """Return the portable form."""
    data: bytes = bitmap.serialize()
    return data


def parse_treemap(data: bytes | memoryview) -> dict[int, FrozenBitMap]:
    """Return the bitmaps of a treemap by their high halves, in order."""
    data = bytes(data)
    count = int.from_bytes(data[:8], "little")
    at = 8
    # The smallest bitmap takes eight bytes behind the four of its high half.
    if len(data) < 8 or count > (len(data) - 8) // 12:
        raise _corrupt("a treemap is cut short", data)
    parts: dict[int, FrozenBitMap] = {}
    previous = -1
    for _ in range(count):
        high = int.from_bytes(data[at : at + 4], "little")
        if high <= previous or len(data) - at < 4:
            raise _corrupt("the parts of a treemap are out of order", data)
        size = bitmap_bytes(data[at + 4 :])
        parts[high] = FrozenBitMap.deserialize(data[at + 4 : at + 4 + size])
        previous = high
        at += 4 + size
    return parts


def render_treemap(parts: dict[int, FrozenBitMap] | dict[int, BitMap]) -> bytes:
    """Return the portable form of a treemap; containers become runs where that is smaller."""
    pieces = [len(parts).to_bytes(8, "little")]
    for high in sorted(parts):
        optimised = BitMap(parts[high])
        optimised.run_optimize()
        pieces += [high.to_bytes(4, "little"), optimised.serialize()]
    return b"".join(pieces)


def bitmap_bytes(data: bytes) -> int:
    """Return how many bytes the bitmap at the start of `data` takes, after checking all of it."""
    words = np.frombuffer(data, np.uint8)
    cookie = int.from_bytes(data[:4], "little")
    if len(data) < 4:
        raise _corrupt("a bitmap is cut short", data)
    has_runs = cookie & 0xFFFF == _COOKIE_WITH_RUNS
    if has_runs:
        count = (cookie >> 16) + 1
        flags_bytes = (count + 7) // 8
        is_run = np.unpackbits(words[4 : 4 + flags_bytes], bitorder="little").astype(np.bool_)
        at = 4 + flags_bytes
    elif cookie == _COOKIE:
        count = int.from_bytes(data[4:8], "little")
        is_run = np.zeros(min(count, _CONTAINER), np.bool_)
        at = 8
    else:
        raise _corrupt("bytes are not a bitmap", data)
    if count > _CONTAINER or len(data) - at < 4 * count:
        raise _corrupt("a bitmap is cut short", data)
    heads = np.frombuffer(data, "<u2", 2 * count, at).reshape(-1, 2).astype(np.int64)
    at += 4 * count
    if not has_runs or count >= _OFFSETS_FROM:
        at += 4 * count
    if (heads[1:, 0] <= heads[:-1, 0]).any():
        raise _corrupt("the containers of a bitmap are out of order", data)
    for index in range(count):
        at = _check_container(data, at, int(heads[index, 1]) + 1, is_run=bool(is_run[index]))
    return at


def _check_container(data: bytes, at: int, cardinality: int, *, is_run: bool) -> int:
    """Check one container and return where it ends."""
    if is_run:
        runs = _numbers(data, at, 1)[0]
        pairs = _numbers(data, at + 2, 2 * int(runs)).reshape(-1, 2)
        start, last = pairs[:, 0], pairs[:, 0] + pairs[:, 1]
        in_order = (start[1:] > last[:-1]).all() and (last < _CONTAINER).all()
        if not in_order or int((pairs[:, 1] + 1).sum()) != cardinality:
            raise _corrupt("the runs of a bitmap contradict each other", data)
        return at + 2 + 4 * int(runs)
    if cardinality <= _ARRAY_MAX:
        values = _numbers(data, at, cardinality)
        if (values[1:] <= values[:-1]).any():
            raise _corrupt("the numbers of a bitmap are out of order", data)
        return at + 2 * cardinality
    if len(data) - at < _BITSET_BYTES:
        raise _corrupt("a bitmap is cut short", data)
    bits = np.unpackbits(np.frombuffer(data, np.uint8, _BITSET_BYTES, at))
    if int(bits.sum(dtype=np.int64)) != cardinality:
        raise _corrupt("a bit set does not hold as many numbers as it claims", data)
    return at + _BITSET_BYTES


def _numbers(data: bytes, at: int, count: int) -> npt.NDArray[np.int64]:
    if len(data) - at < 2 * count:
        raise _corrupt("a bitmap is cut short", data)
    return np.frombuffer(data, "<u2", count, at).astype(np.int64)


def _corrupt(message: str, data: bytes) -> CorruptDataError:
    return CorruptDataError(message, bitmap_bytes=len(data))
