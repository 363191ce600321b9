"""The in-memory rows of a shard that are not flushed, with counters."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import field

import pyarrow as pa

from lancelet.values import dataclass


@dataclass(frozen=True, slots=True, eq=False)
class Write:
    """The rows of one put, which share a log entry and a flushed table."""

    batches: tuple[pa.RecordBatch, ...]
    num_rows: int
    num_bytes: int

    @staticmethod
    def of(batches: Sequence[pa.RecordBatch]) -> Write:
        """Create a put, and count its rows."""
        return Write(tuple(batches), sum(map(len, batches)), sum(each.nbytes for each in batches))


@dataclass(frozen=True, slots=True)
class MemTableLimits:
    """The limits of an in-memory table before it is flushed."""

    num_rows: int
    num_batches: int
    num_bytes: int


@dataclass(frozen=True, slots=True)
class MemTableSize:
    """The number of rows, batches and bytes in memory."""

    num_rows: int = 0
    num_batches: int = 0
    num_bytes: int = 0

    def plus(self, write: Write) -> MemTableSize:
        """Return the size including the rows of a put."""
        return MemTableSize(
            self.num_rows + write.num_rows,
            self.num_batches + len(write.batches),
            self.num_bytes + write.num_bytes,
        )

    def fits(self, write: Write, limits: MemTableLimits) -> bool:
        """Return whether the rows of a put fit the limits."""
        return (
            self.num_rows + write.num_rows <= limits.num_rows
            and self.num_batches + len(write.batches) <= limits.num_batches
        )

    def is_full(self, limits: MemTableLimits) -> bool:
        """Return whether the table should be flushed."""
        return (
            self.num_rows >= limits.num_rows
            or self.num_batches >= limits.num_batches
            or self.num_bytes >= limits.num_bytes
        )


@dataclass(slots=True, eq=False)
class MemTable:
    """Rows in insertion order; the cost of an insertion does not depend on the size."""

    batches: list[pa.RecordBatch] = field(default_factory=list)
    size: MemTableSize = MemTableSize()

    def add(self, write: Write) -> None:
        """Add the rows of a put."""
        self.batches += write.batches
        self.size = self.size.plus(write)
