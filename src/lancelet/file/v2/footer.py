"""The footer of 2.x files (the last 40 bytes), and the two tables it references.

    pages, global buffers        aligned to 64 bytes
    FileDescriptor               global buffer 0
    column metadata              one message per column, concatenated     <- column_metadata
    table of columns             position, size per column                <- column_table
    table of global buffers      position, size per buffer                <- buffer_table
    footer                       the three positions, counts, version, "LANC"

The tables and the footer are adjacent, without padding. A footer with inconsistent counts or
positions is damaged, even if all positions are within the file.

    >>> footer = Footer(column_metadata=0, column_table=0, buffer_table=0, num_buffers=0,
    ...                 num_columns=0, version=FileVersion.V2_1)
    >>> parse_footer(footer.to_bytes(), file_bytes=40) == footer
    True
"""

from __future__ import annotations

import struct
from typing import Any, Final, TypeAlias

import numpy as np
import numpy.typing as npt

from lancelet.buffers import ByteRanges, Bytes, Int64s
from lancelet.errors import CorruptDataError
from lancelet.format.version import FileVersion
from lancelet.values import dataclass

MAGIC: Final = b"LANC"
ALIGNMENT: Final = 64
PADDING_BYTE: Final = 72

Number: TypeAlias = int | npt.NDArray[np.uint64] | np.uint64

_FOOTER: Final = struct.Struct("<QQQIIHH4s")
_VERSION: Final = struct.Struct("<HH4s")
TABLE_ROW_BYTES: Final = 16

FOOTER_BYTES: Final = _FOOTER.size
VERSION_BYTES: Final = _VERSION.size


@dataclass(frozen=True, slots=True)
class Footer:
    """The positions and sizes of the metadata of a 2.x file."""

    column_metadata: int
    column_table: int
    buffer_table: int
    num_buffers: int
    num_columns: int
    version: FileVersion

    def to_bytes(self) -> bytes:
        """Return the serialized footer."""
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
        """The position and size of the column table."""
        return self.column_table, self.num_columns * TABLE_ROW_BYTES

    @property
    def buffer_table_range(self) -> tuple[int, int]:
        """The position and size of the table of global buffers."""
        return self.buffer_table, self.num_buffers * TABLE_ROW_BYTES


def parse_version(tail: Bytes, *, file_bytes: int) -> FileVersion:
    """Return the version in the last eight bytes of a file.

    >>> parse_version(np.frombuffer(bytes([0, 0, 2, 0]) + b"LANC", np.uint8), file_bytes=8)
    <FileVersion.V0_1: '0.1'>
    """
    if tail.nbytes < VERSION_BYTES:
        raise CorruptDataError(
            "the file is too short to be a Lance data file; was it truncated by a copy?",
            file_bytes=file_bytes,
        )
    major, minor, magic = _VERSION.unpack(tail[-VERSION_BYTES:].tobytes())
    if magic != MAGIC:
        raise CorruptDataError(
            "the file does not end with the magic bytes of a Lance data file",
            position=file_bytes - len(MAGIC),
            expected=MAGIC,
            found=magic,
            file_bytes=file_bytes,
        )
    return FileVersion.from_numbers(major, minor)


def parse_footer(tail: Bytes | bytes, *, file_bytes: int) -> Footer:
    """Parse and validate the footer in the tail of a 2.x file."""
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
    end = file_bytes - FOOTER_BYTES
    if not is_contiguous(metadata, columns, buffers, (num_columns, num_buffers), end):
        raise CorruptDataError(
            "the footer does not match the size of the file; was it truncated by a copy?",
            column_metadata=metadata,
            column_table=footer.column_table_range,
            buffer_table=footer.buffer_table_range,
            footer=end,
            file_bytes=file_bytes,
        )
    return footer


def is_contiguous(
    metadata: Number, columns: Number, buffers: Number, counts: tuple[Number, Number], end: Number
) -> Any:
    """Return whether metadata, tables and footer follow each other up to `end`.

    The arguments are integers or one array each with a value per file; positions in arrays must be
    at most `end`. `counts` are the rows of the tables.
    """
    num_columns, num_buffers = counts
    return (
        (metadata <= columns)
        & (columns + num_columns * TABLE_ROW_BYTES == buffers)
        & (buffers + num_buffers * TABLE_ROW_BYTES == end)
    )


def is_outside(position: Number, size: Number, limit: Number) -> Any:
    """Return whether ranges end after `limit`; the arguments are integers or unsigned arrays."""
    # `limit - position` wraps around if a position exceeds the limit.
    return (position > limit) | (size > limit - position)


def parse_table(data: Bytes, *, limit: int, content: str) -> ByteRanges:
    """Return the ranges in a table, or raise if one ends after `limit`.

    >>> parse_table(np.array([0, 5], np.uint64).view(np.uint8), limit=5, content="column").size
    array([5])
    """
    rows = np.frombuffer(data, "<u8").reshape(-1, 2)
    position, size = rows[:, 0], rows[:, 1]
    outside = is_outside(position, size, np.uint64(limit))
    if outside.any():
        index = int(outside.argmax())
        raise CorruptDataError(
            f"a {content} is outside of the file",
            index=index,
            position=int(position[index]),
            size=int(size[index]),
            limit=limit,
        )
    return ByteRanges(position.astype(np.int64), size.astype(np.int64))


def table_bytes(positions: Int64s, sizes: Int64s) -> bytes:
    """Return a serialized table of positions and sizes."""
    return np.array([positions, sizes], "<u8").T.tobytes()


def padding_after(position: int) -> int:
    """Return the number of bytes to the next aligned position.

    >>> padding_after(65), padding_after(64)
    (63, 0)
    """
    return -position % ALIGNMENT


def range_at(ranges: ByteRanges, index: int) -> tuple[int, int]:
    """Return the position and size of one range."""
    return int(ranges.position[index]), int(ranges.size[index])
