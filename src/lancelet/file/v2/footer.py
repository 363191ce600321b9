"""The last 40 bytes of a 2.x file, and the two tables they point at.

    pages, global buffers        each at a multiple of 64
    FileDescriptor               global buffer 0
    column metadata              one message per column, back to back     <- column_metadata
    table of columns             position, size per column                <- column_table
    table of global buffers      position, size per buffer                <- buffer_table
    footer                       the three positions, counts, version, "LANC"

The tables have no padding: the first ends where the second begins, and that where the footer does.
A footer whose counts do not agree with that was damaged, even if it still points into the file.

    >>> footer = Footer(column_metadata=0, column_table=0, buffer_table=0, num_buffers=0,
    ...                 num_columns=0, version=FileVersion.V2_1)
    >>> parse_footer(footer.to_bytes(), file_bytes=40) == footer
    True
"""

from __future__ import annotations

import struct
from typing import Final

import numpy as np

from lancelet.buffers import Bytes, Int64s, Ranges
from lancelet.errors import CorruptDataError
from lancelet.format.version import FileVersion
from lancelet.values import dataclass

MAGIC: Final = b"LANC"
ALIGNMENT: Final = 64
PADDING_BYTE: Final = 72

_FOOTER: Final = struct.Struct("<QQQIIHH4s")
_VERSION: Final = struct.Struct("<HH4s")
TABLE_ROW_BYTES: Final = 16

FOOTER_BYTES: Final = _FOOTER.size
VERSION_BYTES: Final = _VERSION.size


@dataclass(frozen=True, slots=True)
class Footer:
    """Where the metadata of a 2.x file begins, and how much there is."""

    column_metadata: int
    column_table: int
    buffer_table: int
    num_buffers: int
    num_columns: int
    version: FileVersion

    def to_bytes(self) -> bytes:
        """Return the footer as it is stored."""
        return _FOOTER.pack(
            self.column_metadata,
            self.column_table,
            self.buffer_table,
            self.num_buffers,
            self.num_columns,
            *self.version.footer_numbers,
            MAGIC,
        )

    @property
    def column_table_range(self) -> tuple[int, int]:
        """Position and size of the table of columns."""
        return self.column_table, self.num_columns * TABLE_ROW_BYTES

    @property
    def buffer_table_range(self) -> tuple[int, int]:
        """Position and size of the table of global buffers."""
        return self.buffer_table, self.num_buffers * TABLE_ROW_BYTES


def parse_version(tail: Bytes, *, file_bytes: int) -> FileVersion:
    """Return the version that the last bytes of a file claim; 0.1 has its own footer.

    >>> parse_version(np.frombuffer(bytes([0, 0, 2, 0]) + b"LANC", np.uint8), file_bytes=8)
    <FileVersion.V0_1: '0.1'>
    """
    if tail.nbytes < VERSION_BYTES:
        raise CorruptDataError(
            "the file is too short to be a Lance data file; was it cut short by a copy?",
            file_bytes=file_bytes,
        )
    major, minor, magic = _VERSION.unpack(tail[-VERSION_BYTES:].tobytes())
    if magic != MAGIC:
        raise CorruptDataError(
            "the file does not end with the magic of a Lance data file",
            position=file_bytes - len(MAGIC),
            expected=MAGIC,
            found=magic,
            file_bytes=file_bytes,
        )
    return FileVersion.from_numbers(major, minor)


def parse_footer(tail: Bytes | bytes, *, file_bytes: int) -> Footer:
    """Return the footer in the last bytes of a 2.x file, all of whose positions are checked."""
    data = np.frombuffer(tail, np.uint8) if isinstance(tail, bytes) else tail
    version = parse_version(data, file_bytes=file_bytes)
    if version is FileVersion.V0_1 or data.nbytes < FOOTER_BYTES:
        raise CorruptDataError(
            "the file is too short for the footer of its version",
            version=version.value,
            file_bytes=file_bytes,
        )
    metadata, columns, buffers, num_buffers, num_columns, _, _, _ = _FOOTER.unpack(
        data[-FOOTER_BYTES:].tobytes()
    )
    footer = Footer(metadata, columns, buffers, num_buffers, num_columns, version)
    column_end = columns + num_columns * TABLE_ROW_BYTES
    buffer_end = buffers + num_buffers * TABLE_ROW_BYTES
    is_end_to_end = column_end == buffers and buffer_end == file_bytes - FOOTER_BYTES
    if metadata > columns or not is_end_to_end:
        raise CorruptDataError(
            "the footer does not agree with the size of the file; was it cut short by a copy?",
            column_metadata=metadata,
            column_table=(columns, column_end),
            buffer_table=(buffers, buffer_end),
            footer=file_bytes - FOOTER_BYTES,
            file_bytes=file_bytes,
        )
    return footer


def parse_table(data: Bytes, *, limit: int, what: str) -> Ranges:
    """Return the ranges of a table, each of which ends at or before `limit`.

    >>> parse_table(np.array([0, 5], np.uint64).view(np.uint8), limit=5, what="column").size
    array([5])
    """
    rows = np.frombuffer(data, "<u8").reshape(-1, 2)
    position, size = rows[:, 0], rows[:, 1]
    # Where a position is beyond the limit, what is left behind it has no meaning.
    wrong = (position > limit) | (size > limit - position)
    if wrong.any():
        index = int(wrong.argmax())
        raise CorruptDataError(
            f"a {what} lies outside of the file",
            index=index,
            position=int(position[index]),
            size=int(size[index]),
            limit=limit,
        )
    return Ranges(position.astype(np.int64), size.astype(np.int64))


def table_bytes(positions: Int64s, sizes: Int64s) -> bytes:
    """Return a table of positions and sizes as it is stored."""
    return np.array([positions, sizes], "<u8").T.tobytes()


def padding_after(position: int) -> int:
    """Return how many bytes lie between a position and the next aligned one.

    >>> padding_after(65), padding_after(64)
    (63, 0)
    """
    return -position % ALIGNMENT


def range_at(ranges: Ranges, index: int) -> tuple[int, int]:
    """Return position and size of one range."""
    return int(ranges.position[index]), int(ranges.size[index])
