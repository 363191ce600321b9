"""Segments: sequences of 64-bit numbers in the smallest of five encodings.

    5 6 7 8 9            range 5..10
    5 6 8 9              range 5..10 with holes [7], or with the bitmap 11011
    5 700 90000          sorted array
    700 5                array

Arrays are stored as offsets from the minimum, in 16 or 32 bits where possible.
"""

from __future__ import annotations

from typing import Final, TypeAlias

import numpy as np
import numpy.typing as npt

from lancelet.buffers import Bytes, Int64s
from lancelet.errors import CorruptDataError
from lancelet.format.protos import rowids_pb
from lancelet.rowids.address import UInt64s
from lancelet.values import dataclass

# Estimated sizes used to choose an encoding: a fixed header, and bytes per item.
_HEAD_BYTES: Final = 24
_HOLE_BYTES: Final = 4
_ITEM_BYTES: Final = 2
_ROWS_MAX: Final = 2**32
_STOP_MAX: Final = 2**64 - 1


@dataclass(frozen=True, slots=True)
class Range:
    """The numbers `start <= number < stop`."""

    start: int
    stop: int

    def __len__(self) -> int:
        """Return the number of row ids."""
        return self.stop - self.start

    def to_array(self) -> UInt64s:
        """Return the row ids as an array."""
        return np.arange(self.start, self.stop, dtype=np.uint64)


@dataclass(frozen=True, slots=True, eq=False)
class RangeWithHoles:
    """A range without the sorted numbers in `holes`."""

    start: int
    stop: int
    holes: UInt64s

    def __len__(self) -> int:
        """Return the number of row ids."""
        return self.stop - self.start - len(self.holes)

    def to_array(self) -> UInt64s:
        """Return the row ids as an array."""
        present = np.ones(self.stop - self.start, np.bool_)
        present[(self.holes - np.uint64(self.start)).astype(np.int64)] = False
        return _numbers_at(present, self.start)


@dataclass(frozen=True, slots=True, eq=False)
class RangeWithBitmap:
    """A range and a bitmap; bit i, least significant first, is set if `start + i` is present."""

    start: int
    stop: int
    bitmap: Bytes

    def __len__(self) -> int:
        """Return the number of row ids."""
        return int(self._present().sum())

    def to_array(self) -> UInt64s:
        """Return the row ids as an array."""
        return _numbers_at(self._present(), self.start)

    def _present(self) -> npt.NDArray[np.bool_]:
        span = self.stop - self.start
        return np.unpackbits(self.bitmap, count=span, bitorder="little").astype(np.bool_)


@dataclass(frozen=True, slots=True, eq=False)
class Numbers:
    """An array of numbers, strictly ascending if `is_sorted`."""

    values: UInt64s
    is_sorted: bool

    def __len__(self) -> int:
        """Return the number of row ids."""
        return len(self.values)

    def to_array(self) -> UInt64s:
        """Return the row ids as an array."""
        return self.values


Segment: TypeAlias = Range | RangeWithHoles | RangeWithBitmap | Numbers

EMPTY: Final = Range(0, 0)


def segment_of(values: UInt64s) -> Segment:
    """Return the smallest segment for a sequence of numbers.

    >>> segment_of(np.array([5, 6, 7], np.uint64))
    Range(start=5, stop=8)
    """
    count = len(values)
    if not count:
        return EMPTY
    if not (values[1:] > values[:-1]).all():
        return Numbers(values, is_sorted=False)
    start, stop = int(values[0]), int(values[-1]) + 1
    if stop > _STOP_MAX:  # the end of a range is exclusive, and stored with 64 bits
        return Numbers(values, is_sorted=True)
    span = stop - start
    if span == count:
        return Range(start, stop)
    sizes = (
        _HEAD_BYTES + _HOLE_BYTES * (span - count),
        _HEAD_BYTES + (span + 7) // 8,
        _HEAD_BYTES + _ITEM_BYTES * count,
    )
    smallest = min(sizes)
    if smallest == sizes[2] and smallest < min(sizes[:2]):
        return Numbers(values, is_sorted=True)
    present = np.zeros(span, np.bool_)
    present[(values - values[0]).astype(np.int64)] = True
    if smallest == sizes[0]:
        return RangeWithHoles(start, stop, _numbers_at(~present, start))
    return RangeWithBitmap(start, stop, np.packbits(present, bitorder="little"))


def slice_segment(segment: Segment, start: int, stop: int) -> Segment:
    """Return the numbers at positions in `[start, stop)`."""
    if isinstance(segment, Range):
        return Range(segment.start + start, segment.start + max(start, stop))
    if start == 0 and stop >= len(segment):
        return segment
    return segment_of(segment.to_array()[start:stop])


def drop_positions(segment: Segment, positions: Int64s) -> Segment:
    """Return the segment without the numbers at these positions."""
    if not len(positions):
        return segment
    return segment_of(np.delete(segment.to_array(), positions))


def segment_from_proto(proto: rowids_pb.U64Segment) -> Segment:
    """Convert a protobuf message to a segment."""
    match proto.WhichOneof("segment"):
        case "range":
            return Range(*_bounds(proto.range.start, proto.range.end))
        case "range_with_holes":
            start, stop = _bounds(proto.range_with_holes.start, proto.range_with_holes.end)
            holes = _decode_array(proto.range_with_holes.holes)
            in_order = (holes[1:] > holes[:-1]).all()
            if not in_order or (len(holes) and not start <= holes[0] <= holes[-1] < stop):
                raise CorruptDataError(
                    "the holes of a row id range are unsorted or outside of the range"
                )
            return RangeWithHoles(start, stop, holes)
        case "range_with_bitmap":
            ranged = proto.range_with_bitmap
            start, stop = _bounds(ranged.start, ranged.end)
            if 8 * len(ranged.bitmap) < stop - start:
                raise CorruptDataError(
                    "the bitmap of a row id range is too short",
                    span=stop - start,
                    bitmap_bytes=len(ranged.bitmap),
                )
            return RangeWithBitmap(start, stop, np.frombuffer(ranged.bitmap, np.uint8))
        case "sorted_array":
            return Numbers(_decode_array(proto.sorted_array), is_sorted=True)
        case "array":
            return Numbers(_decode_array(proto.array), is_sorted=False)
    raise CorruptDataError("unknown encoding of a row id segment")


def segment_to_proto(segment: Segment) -> rowids_pb.U64Segment:
    """Convert a segment to a protobuf message."""
    kinds = rowids_pb.U64Segment
    match segment:
        case Range(start, stop):
            return kinds(range=kinds.Range(start=start, end=stop))
        case RangeWithHoles(start, stop, holes):
            return kinds(
                range_with_holes=kinds.RangeWithHoles(
                    start=start, end=stop, holes=_encode_array(holes)
                )
            )
        case RangeWithBitmap(start, stop, bitmap):
            return kinds(
                range_with_bitmap=kinds.RangeWithBitmap(
                    start=start, end=stop, bitmap=bitmap.tobytes()
                )
            )
        case Numbers(values, is_sorted):
            array = _encode_array(values)
            return kinds(sorted_array=array) if is_sorted else kinds(array=array)


def _bounds(start: int, stop: int) -> tuple[int, int]:
    if not start <= stop <= start + _ROWS_MAX:
        raise CorruptDataError(
            "a row id range is reversed or longer than a fragment", start=start, stop=stop
        )
    return start, stop


def _numbers_at(present: npt.NDArray[np.bool_], start: int) -> UInt64s:
    return np.flatnonzero(present).astype(np.uint64) + np.uint64(start)


def _decode_array(proto: rowids_pb.EncodedU64Array) -> UInt64s:
    match proto.WhichOneof("array"):
        case "u16_array":
            return _from_offsets(proto.u16_array.base, proto.u16_array.offsets, "<u2")
        case "u32_array":
            return _from_offsets(proto.u32_array.base, proto.u32_array.offsets, "<u4")
        case "u64_array":
            return _from_offsets(0, proto.u64_array.values, "<u8")
    return np.empty(0, np.uint64)


def _from_offsets(base: int, data: bytes, dtype: str) -> UInt64s:
    if len(data) % np.dtype(dtype).itemsize:
        raise CorruptDataError(
            "the size of a row id array is not a multiple of its item size",
            array_bytes=len(data),
            item_type=dtype,
        )
    offsets = np.frombuffer(data, dtype).astype(np.uint64)
    if len(offsets) and base + int(offsets.max()) >= 1 << 64:
        raise CorruptDataError("a row id exceeds 64 bits", base=base)
    return offsets + np.uint64(base)


def _encode_array(values: UInt64s) -> rowids_pb.EncodedU64Array:
    kinds = rowids_pb.EncodedU64Array
    base = values.min() if len(values) else np.uint64(0)
    span = int(values.max() - base) if len(values) else 0
    offsets = values - base
    if span < 1 << 16:
        data = offsets.astype("<u2").tobytes()
        return kinds(u16_array=kinds.U16Array(base=int(base), offsets=data))
    if span < 1 << 32:
        data = offsets.astype("<u4").tobytes()
        return kinds(u32_array=kinds.U32Array(base=int(base), offsets=data))
    return kinds(u64_array=kinds.U64Array(values=values.astype("<u8").tobytes()))
