"""A file that lies in memory, and what is known of it: what kernels that read by themselves need.

    source      the bytes of the file, mapped
    known       per 4096 bytes: were they asked for before they are touched?      `read_ahead`
    verified    per block: was it compared with its checksum in `sums`?           `crc32c_verify`

Marks are set by whoever reads, once for all readers that share them.
"""

from __future__ import annotations

from typing import Final, NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt

from lancelet.buffers import Bytes, Int64s
from lancelet.values import dataclass

_NO_BLOCKS: Final[Int64s] = np.empty(0, np.int64)
_NO_SUMS: Final[npt.NDArray[np.uint32]] = np.empty(0, np.uint32)
_NO_MARKS: Final[Bytes] = np.empty(0, np.uint8)


@dataclass(frozen=True, slots=True, eq=False)
class MappedFile:
    """The bytes of a file; `known` and `verified` are marked by whoever reads.

    `blocks` are the bytes of a block, and position and size of the checksums themselves, which
    count as zeros; a file without checksums has neither blocks nor sums.
    """

    source: Bytes
    known: Bytes
    blocks: Int64s
    sums: npt.NDArray[np.uint32]
    verified: Bytes

    @staticmethod
    def unverified(source: Bytes, known: Bytes) -> MappedFile:
        """Return a file without checksums."""
        return MappedFile(source, known, _NO_BLOCKS, _NO_SUMS, _NO_MARKS)


class FewRows(NamedTuple):
    """Some rows of columns, in one buffer, and how much was read for them.

    `places` has of each column the number of nulls, where validity, values or offsets, and bytes
    of strings begin, and how many of these there are.
    """

    data: Bytes
    places: tuple[tuple[int, ...], ...]
    num_ranges: int
    num_bytes: int


@dataclass(frozen=True, slots=True, eq=False)
class KnownSymbols:
    """Tables of symbols behind each other, 256 each, and the first chunk of the pages of each."""

    symbols: npt.NDArray[np.uint64]
    lengths: Bytes
    first_chunk: Int64s


@dataclass(frozen=True, slots=True, eq=False)
class KnownItems:
    """Items of a dictionary: values of `width` bytes, or offsets of as many into `data`."""

    count: int
    width: int
    values: Bytes
    data: Bytes | None = None


@dataclass(frozen=True, slots=True, eq=False)
class ChunkRun:
    """Mini-block pages: where the chunks are and what they hold.

    `known` says of which chunks that is known, if not of all; `bits` are those of a value, or of an
    offset.
    """

    first_value: Int64s
    known: Bytes | None
    position: Int64s
    size: Int64s
    count: Int64s
    has_definition: bool
    size_bytes: int
    compression: int
    codec: int
    bits: int
    symbols: KnownSymbols | None
    items: KnownItems | None


@dataclass(frozen=True, slots=True, eq=False)
class ItemRun:
    """Full-zip pages of fixed width; `item_bytes` include the definition."""

    first_row: Int64s
    position: Int64s
    has_definition: bool
    item_bytes: int


@dataclass(frozen=True, slots=True, eq=False)
class ZippedRun:
    """A full-zip page of strings, with an index of where its rows begin."""

    rows: int
    index_position: int
    index_width: int
    position: int
    size: int
    has_definition: bool
    length_bytes: int
    codec: int
    symbols: KnownSymbols | None


@dataclass(frozen=True, slots=True, eq=False)
class ConstantRun:
    """A page of one value; None is null."""

    value: Bytes | None


KnownRun: TypeAlias = ChunkRun | ItemRun | ZippedRun | ConstantRun


@dataclass(frozen=True, slots=True, eq=False)
class KnownColumn:
    """What values of a column become, and its runs; what is not known of it yet is None."""

    form: int
    width: int
    is_text: bool
    first_row: Int64s
    runs: tuple[KnownRun | None, ...]


class FewColumns(NamedTuple):
    """Columns as the kernel takes them, and how many they are."""

    handle: object
    num_columns: int
