"""Version sequences: the table versions of the creation or last update of rows.

    fragment of 6 rows    versions  2 2 2 2 5 5
    stored                runs      4 rows of version 2, 2 rows of version 5

In files, each run has a segment of row numbers; only its length is significant. Segments may
overlap, because compaction removes numbers without renumbering the rest.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from lancelet.buffers import Int64s
from lancelet.errors import CorruptDataError
from lancelet.format.protos import rowids_pb
from lancelet.format.wire import parse_message, render_message
from lancelet.rowids.address import UInt64s
from lancelet.rowids.segment import Range, segment_from_proto, segment_to_proto
from lancelet.values import dataclass


@dataclass(frozen=True, slots=True, eq=False)
class VersionSequence:
    """The versions of rows in row order, run-length encoded."""

    lengths: Int64s
    versions: UInt64s

    @staticmethod
    def constant(num_rows: int, version: int) -> VersionSequence:
        """Return a sequence with one version for all rows."""
        count = int(num_rows > 0)
        return VersionSequence(
            np.full(count, num_rows, np.int64), np.full(count, version, np.uint64)
        )

    @staticmethod
    def of(versions: UInt64s) -> VersionSequence:
        """Build a sequence from the version of each row.

        >>> VersionSequence.of(np.array([2, 2, 5], np.uint64)).lengths
        array([2, 1])
        """
        starts = np.flatnonzero(np.append(True, versions[1:] != versions[:-1])[: len(versions)])
        lengths = np.diff(np.append(starts, len(versions))).astype(np.int64)
        return VersionSequence(lengths, versions[starts])

    @staticmethod
    def parse(data: bytes, *, expected_rows: int | None = None) -> VersionSequence:
        """Parse the protobuf message. Raise if it does not have `expected_rows` rows."""
        proto = parse_message(rowids_pb.RowDatasetVersionSequence, data)
        lengths = [len(segment_from_proto(run.span)) for run in proto.runs]
        if expected_rows is not None and sum(lengths) != expected_rows:
            raise CorruptDataError(
                "a version sequence and its fragment have different row counts",
                expected=expected_rows,
                found=sum(lengths),
            )
        versions = [run.version for run in proto.runs]
        return VersionSequence(np.array(lengths, np.int64), np.array(versions, np.uint64))

    def render(self) -> bytes:
        """Return the protobuf message."""
        proto = rowids_pb.RowDatasetVersionSequence()
        stops = np.cumsum(self.lengths)
        for stop, length, version in zip(
            stops.tolist(), self.lengths.tolist(), self.versions.tolist(), strict=True
        ):
            proto.runs.add(span=segment_to_proto(Range(stop - length, stop)), version=version)
        return render_message(proto)

    def __len__(self) -> int:
        """Return the number of rows."""
        return int(self.lengths.sum())

    def __eq__(self, other: object) -> bool:
        """Return whether all rows have equal versions."""
        return isinstance(other, VersionSequence) and np.array_equal(
            self.to_array(), other.to_array()
        )

    __hash__ = None  # type: ignore[assignment]  # equality compares all rows

    def to_array(self) -> UInt64s:
        """Return the version of each row."""
        return np.repeat(self.versions, self.lengths)

    def take(self, offsets: Int64s) -> UInt64s:
        """Return the versions of the rows at these offsets."""
        if len(self.versions) == 1:
            return np.full(len(offsets), self.versions[0])
        return self.versions[np.searchsorted(np.cumsum(self.lengths), offsets, side="right")]

    def slice(self, start: int, stop: int) -> VersionSequence:
        """Return the versions of the rows in `[start, stop)`."""
        stops = np.cumsum(self.lengths)
        lengths = np.minimum(stops, stop) - np.maximum(stops - self.lengths, start)
        remaining = lengths > 0
        return VersionSequence(lengths[remaining], self.versions[remaining])

    def without(self, offsets: Int64s) -> VersionSequence:
        """Return the sequence without the rows at these offsets."""
        runs = np.searchsorted(np.cumsum(self.lengths), np.unique(offsets), side="right")
        lengths = self.lengths - np.bincount(runs, minlength=len(self.lengths))
        remaining = lengths > 0
        return VersionSequence(lengths[remaining], self.versions[remaining])

    def with_version(self, offsets: Int64s, version: int) -> VersionSequence:
        """Return a sequence with `version` at these offsets."""
        versions = self.to_array()
        versions[offsets] = version
        return VersionSequence.of(versions)

    @staticmethod
    def concat(sequences: Sequence[VersionSequence]) -> VersionSequence:
        """Concatenate sequences, merging adjacent runs of the same version."""
        if not sequences:
            return VersionSequence.constant(0, 0)
        lengths = np.concatenate([sequence.lengths for sequence in sequences])
        versions = np.concatenate([sequence.versions for sequence in sequences])
        starts = np.flatnonzero(np.append(True, versions[1:] != versions[:-1])[: len(versions)])
        merged = np.add.reduceat(lengths, starts) if len(starts) else lengths
        return VersionSequence(merged, versions[starts])
