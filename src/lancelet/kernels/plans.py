"""A mapped file and its state, for kernels that read from it directly; or fetched ranges.

    source      bytes of the map
    prefetched  flag per 4096 bytes: checked by `read_ahead`
    verified    flag per block: compared with its checksum by `crc32c_verify`

Kernels set the flags, which are shared by all readers of the file.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final, NamedTuple, Protocol

import numpy as np
import numpy.typing as npt

from lancelet.buffers import ByteRanges, Bytes, ByteSlices, Int64s
from lancelet.values import dataclass

_NO_BLOCKS: Final[Int64s] = np.empty(0, np.int64)
_NO_SUMS: Final[npt.NDArray[np.uint32]] = np.empty(0, np.uint32)
_NO_FLAGS: Final[Bytes] = np.empty(0, np.uint8)


@dataclass(frozen=True, slots=True, eq=False)
class MappedFile:
    """The bytes of a file; kernels update `prefetched` and `verified`.

    `blocks` has the block size, and position and size of the checksums themselves, which are read
    as zeros. Files without checksums have empty `blocks` and `sums`.
    """

    source: Bytes
    prefetched: Bytes
    blocks: Int64s
    sums: npt.NDArray[np.uint32]
    verified: Bytes

    @staticmethod
    def unverified(source: Bytes, prefetched: Bytes) -> MappedFile:
        """Return a file without checksums."""
        return MappedFile(source, prefetched, _NO_BLOCKS, _NO_SUMS, _NO_FLAGS)

    @property
    def arrays(self) -> tuple[npt.NDArray[Any], ...]:
        """The arrays that kernels expect."""
        return self.source, self.prefetched, self.blocks, self.sums, self.verified


@dataclass(frozen=True, slots=True, eq=False)
class FetchedRanges:
    """Byte ranges of a file, as returned by `find_ranges`, and their slices in memory."""

    ranges: ByteRanges
    slices: ByteSlices

    @property
    def arrays(self) -> tuple[npt.NDArray[Any], ...]:
        """The arrays that kernels expect."""
        ranges, slices = self.ranges, self.slices
        return slices.source, ranges.position, ranges.size, slices.position


class ColumnPlan(Protocol):
    """A cache of page locations that lets kernels read rows of a column. Thread-safe.

    It grows with the pages that were read.
    """

    @property
    def memory_bytes(self) -> int:
        """Current memory in bytes."""

    @property
    def num_rows(self) -> int:
        """The number of rows of the column."""

    @property
    def stored_bytes(self) -> int:
        """The size of the pages in bytes."""


class TakenRows(NamedTuple):
    """Rows of several columns in one buffer, and the number and size of the reads.

    `outputs` has for each column the null count; the positions of validity, values or offsets, and
    string bytes; the size of the string bytes; the number of values; and the position of the
    enclosing layers. It is None for columns that were not read. The plans grew by `bytes_added`.
    """

    data: Bytes
    outputs: Sequence[tuple[int, ...] | None]
    num_ranges: int
    num_bytes: int
    bytes_added: int
