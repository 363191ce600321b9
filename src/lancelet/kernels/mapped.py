"""A file that lies in memory, and what is known of it: what kernels that read by themselves need.

    source      the bytes of the file, mapped
    known       per 4096 bytes: were they asked for before they are touched?      `read_ahead`
    verified    per block: was it compared with its checksum in `sums`?           `crc32c_verify`

Marks are set by whoever reads, once for all readers that share them.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, NamedTuple, Protocol

import numpy as np
import numpy.typing as npt

from lancelet.buffers import Bytes, Int64s
from lancelet.values import dataclass

_NO_BLOCKS: Final[Int64s] = np.empty(0, np.int64)
_NO_SUMS: Final[npt.NDArray[np.uint32]] = np.empty(0, np.uint32)
_NO_FLAGS: Final[Bytes] = np.empty(0, np.uint8)


@dataclass(frozen=True, slots=True, eq=False)
class MappedFile:
    """The bytes of a file; `prefetched` and `verified` are marked by whoever reads.

    `blocks` are the bytes of a block, and position and size of the checksums themselves, which
    count as zeros; a file without checksums has neither blocks nor sums.
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


class ColumnPlan(Protocol):
    """What is known of a column, by which its rows are read without visiting its pages one by one.

    It grows with the pages that were read, and may be used by several threads.
    """

    @property
    def memory_bytes(self) -> int:
        """How much memory it takes by now."""


class TakenRows(NamedTuple):
    """Some rows of columns, in one buffer, and how much was read for them.

    `outputs` has of each column the number of nulls, where validity, values or offsets, and bytes
    of strings begin, how many of these there are, how many values, and where the layers around
    them are told, or None where it was not read. The plans have grown by `bytes_added` bytes.
    """

    data: Bytes
    outputs: Sequence[tuple[int, ...] | None]
    num_ranges: int
    num_bytes: int
    bytes_added: int
