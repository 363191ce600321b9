"""Row id sequences: the stable row ids of a fragment, in row order.

The sequence covers all physical rows, including deleted ones. An updated row has the same
id in the old fragment, where it is deleted, and in the new fragment.

    fragment 0, 5 rows     range 0..5
    update of row 3        range 0..5, row 3 deleted      fragment 1: range 3..4
"""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from lancelet.buffers import Int64s
from lancelet.errors import CorruptDataError
from lancelet.format.protos import rowids_pb
from lancelet.format.wire import parse_message, render_message
from lancelet.rowids.address import UInt64s
from lancelet.rowids.segment import (
    Range,
    Segment,
    drop_positions,
    segment_from_proto,
    segment_of,
    segment_to_proto,
    slice_segment,
)
from lancelet.values import dataclass


@dataclass(frozen=True, slots=True)
class RowIdSequence:
    """Row ids in row order, as a sequence of segments."""

    segments: tuple[Segment, ...]

    @staticmethod
    def of(ids: UInt64s) -> RowIdSequence:
        """Build the sequence of these ids."""
        return RowIdSequence((segment_of(ids),) if len(ids) else ())

    @staticmethod
    def of_range(start: int, stop: int) -> RowIdSequence:
        """Build the sequence `start..stop`."""
        return RowIdSequence((Range(start, stop),) if start < stop else ())

    @staticmethod
    def parse(data: bytes, *, expected_rows: int | None = None) -> RowIdSequence:
        """Parse the protobuf message. Raise if it does not have `expected_rows` ids.

        >>> RowIdSequence.parse(bytes.fromhex("0a06 0a04 0802 1005")).to_array()
        array([2, 3, 4], dtype=uint64)
        """
        proto = parse_message(rowids_pb.RowIdSequence, data)
        sequence = RowIdSequence(tuple(map(segment_from_proto, proto.segments)))
        if expected_rows is not None and len(sequence) != expected_rows:
            raise CorruptDataError(
                "a row id sequence and its fragment have different row counts",
                expected=expected_rows,
                found=len(sequence),
            )
        return sequence

    def render(self) -> bytes:
        """Return the protobuf message."""
        return render_message(
            rowids_pb.RowIdSequence(segments=map(segment_to_proto, self.segments))
        )

    def __len__(self) -> int:
        """Return the number of ids."""
        return sum(map(len, self.segments))

    def __eq__(self, other: object) -> bool:
        """Return whether both have the same ids in the same order, regardless of segments."""
        return isinstance(other, RowIdSequence) and np.array_equal(
            self.to_array(), other.to_array()
        )

    __hash__ = None  # type: ignore[assignment]  # equality compares all ids

    def to_array(self) -> UInt64s:
        """Return the ids as an array."""
        if not self.segments:
            return np.empty(0, np.uint64)
        return np.concatenate([segment.to_array() for segment in self.segments])

    def slice(self, start: int, stop: int) -> RowIdSequence:
        """Return the ids of the rows in `[start, stop)`."""
        segments: list[Segment] = []
        offset = 0
        for segment in self.segments:
            first, last = max(start - offset, 0), min(stop - offset, len(segment))
            if first < last:
                segments.append(slice_segment(segment, first, last))
            offset += len(segment)
        return RowIdSequence(tuple(segments))

    def take(self, offsets: Int64s) -> UInt64s:
        """Return the ids of the rows at these offsets."""
        if len(self.segments) == 1 and isinstance(self.segments[0], Range):
            return offsets.astype(np.uint64) + np.uint64(self.segments[0].start)
        return self.to_array()[offsets]

    def without(self, offsets: Int64s) -> RowIdSequence:
        """Return the sequence without the rows at these offsets."""
        dropped = np.unique(offsets)
        segments: list[Segment] = []
        offset = 0
        for segment in self.segments:
            first, last = np.searchsorted(dropped, [offset, offset + len(segment)])
            remaining = drop_positions(segment, dropped[first:last] - offset)
            if len(remaining):
                segments.append(remaining)
            offset += len(segment)
        return RowIdSequence(tuple(segments))

    @staticmethod
    def concat(sequences: Iterable[RowIdSequence]) -> RowIdSequence:
        """Concatenate sequences, merging adjacent ranges."""
        joined: list[Segment] = []
        for sequence in sequences:
            for segment in sequence.segments:
                last = joined[-1] if joined else None
                match last, segment:
                    case Range(start, middle), Range(continued, stop) if middle == continued:
                        joined[-1] = Range(start, stop)
                    case _:
                        joined.append(segment)
        return RowIdSequence(tuple(joined))
