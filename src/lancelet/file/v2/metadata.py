"""What is read when a 2.x file is opened: everything behind its last page.

One read of the tail usually holds it all. Its size is a guess; when the guess was too small, one
more read fetches the rest:

    pages ... | checksums | descriptor | column metadata | tables | footer
                     <------------- the tail, read at once ------------->

Of the column metadata only the places are kept. The metadata of a column are decoded when the
column is first wanted, since a table may have thousands of columns and a query wants three.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import numpy as np
from google.protobuf.message import DecodeError

from lancelet.buffers import Bytes, Ranges, Reading, Slices
from lancelet.encodings.base import StoredColumn
from lancelet.errors import CorruptDataError, InvalidInputError
from lancelet.file.checksums import (
    CHECKSUM_BLOCK_BYTES,
    CHECKSUMS_MARK,
    Checksums,
    check_no_checksums,
    is_checksum_size,
)
from lancelet.file.v2.column_metadata import (
    PlainColumns,
    decode_column,
    decode_plain_columns,
)
from lancelet.file.v2.footer import FOOTER_BYTES, Footer, parse_footer, parse_table, range_at
from lancelet.format.protos import file_pb
from lancelet.format.trailer import split_name_checksum
from lancelet.values import dataclass

_TAIL_BYTES: Final = 64 * 1024
_EAGER_BYTES: Final = 4 * 1024 * 1024


@dataclass(frozen=True, slots=True, eq=False)
class FileMetadata:
    """The parsed tail of a file, and the bytes of it that were read."""

    footer: Footer
    columns: Ranges
    buffers: Ranges
    descriptor: file_pb.FileDescriptor
    file_bytes: int
    tail: Bytes
    checksums: Checksums | None
    name_checksum: int | None = None
    """What the file keeps of the name that its table gave it, if it does."""

    @property
    def tail_position(self) -> int:
        """Where the bytes that were kept begin."""
        return self.file_bytes - self.tail.nbytes

    def in_tail(self, ranges: Ranges) -> Slices | None:
        """Return the bytes of ranges if all of them lie in the tail, or None.

        A small file is its tail, so opening it has read all of it, and no store is asked again.
        """
        start, size = ranges.position, ranges.size
        lie_in = (start >= self.tail_position) & (size >= 0) & (size <= self.file_bytes - start)
        if not lie_in.all() or (not len(ranges) and self.tail_position):
            return None
        return Slices(self.tail, start - self.tail_position, size)

    def read_column(self, index: int) -> Reading[StoredColumn]:
        """Decode the metadata of one column; asks for nothing that opening has read."""
        metadata = yield from self.read_stored([index])
        data = metadata.slice_bytes(0)
        return (yield from decode_column(data, index=index, file_bytes=self.file_bytes))

    def read_plain_columns(self, indices: Sequence[int]) -> Reading[PlainColumns | None]:
        """Decode the metadata of many columns at once, or return None if some are not plain."""
        metadata = yield from self.read_stored(indices)
        return decode_plain_columns(metadata, indices, file_bytes=self.file_bytes)

    def read_stored(self, indices: Sequence[int]) -> Reading[Slices]:
        """Return the metadata of columns as they are stored."""
        if max(indices) >= len(self.columns):
            raise CorruptDataError(
                "a field is said to be in a column that the file does not have",
                column=max(indices),
                num_columns=len(self.columns),
            )
        which = np.asarray(indices)
        position, size = self.columns.position[which], self.columns.size[which]
        if int(position.min()) >= self.tail_position:
            return Slices(self.tail, position - self.tail_position, size)
        return (yield Ranges(position, size))

    def buffer_range(self, index: int) -> tuple[int, int]:
        """Return position and size of a global buffer."""
        if not 0 <= index < len(self.buffers):
            raise InvalidInputError(
                "the file has no global buffer of that index",
                index=index,
                num_global_buffers=len(self.buffers),
            )
        return range_at(self.buffers, index)


def tail_size(file_bytes: int | None, *, num_columns: int | None = None) -> int:
    """Guess how many bytes at the end of a file hold its metadata, checksums included.

    Where the size of the file is known, the tail begins at the border of a checksummed block,
    so that it can be verified as it is.
    """
    if file_bytes is None:
        return _TAIL_BYTES
    columns = 0 if num_columns is None else 1024 * num_columns
    checksums = 4 * (file_bytes // CHECKSUM_BLOCK_BYTES)
    start = max(0, file_bytes - min(_TAIL_BYTES + columns + checksums, _EAGER_BYTES))
    return file_bytes - start // CHECKSUM_BLOCK_BYTES * CHECKSUM_BLOCK_BYTES


def read_metadata(
    tail: Bytes, *, file_bytes: int, with_checksums: bool = True
) -> Reading[FileMetadata]:
    """Parse the tail of a file of `file_bytes`, and read what it turns out to lack."""
    start = file_bytes - tail.nbytes
    footer = parse_footer(tail, file_bytes=file_bytes)
    missing = _first_wanted(footer, start, file_bytes=file_bytes)
    if missing < start:
        tail = (yield Ranges.of((missing, file_bytes - missing))).slice_bytes(0)
        start = missing
    columns, buffers = _tables(footer, tail, start)
    if not len(buffers):
        raise CorruptDataError("the file has no descriptor of its schema", file_bytes=file_bytes)
    wanted = [range_at(buffers, 0)]
    checksums = range_at(buffers, len(buffers) - 1)
    if with_checksums and len(buffers) > 1 and is_checksum_size(checksums[1], file_bytes):
        wanted.append(checksums)
    found = [
        tail[position - start : position - start + size] if position >= start else None
        for position, size in wanted
    ]
    unknown = [place for place, data in zip(wanted, found, strict=True) if data is None]
    if unknown:
        fetched = yield Ranges.of(*unknown)
        later = iter([fetched.slice_bytes(index) for index in range(len(fetched))])
        found = [next(later) if data is None else data for data in found]
    parsed = None
    if len(found) > 1 and found[1] is not None:
        parsed = Checksums.parse(found[1], position=checksums[0], file_bytes=file_bytes)
    assert found[0] is not None
    descriptor = found[0].tobytes()
    if with_checksums and parsed is None:
        check_no_checksums(tail, descriptor, position=start, file_bytes=file_bytes)
    _, name = split_name_checksum(descriptor.removesuffix(CHECKSUMS_MARK))
    message = _descriptor(descriptor)
    return FileMetadata(footer, columns, buffers, message, file_bytes, tail, parsed, name)


def _first_wanted(footer: Footer, start: int, *, file_bytes: int) -> int:
    """Return where the metadata begin that should be read eagerly, given that `start` on is."""
    if min(footer.column_metadata, footer.column_table) >= start:
        return start
    if file_bytes - footer.column_metadata <= _EAGER_BYTES:
        return footer.column_metadata
    return min(footer.column_table, start)


def _tables(footer: Footer, tail: Bytes, start: int) -> tuple[Ranges, Ranges]:
    limit = start + tail.nbytes - FOOTER_BYTES
    tables = [
        parse_table(tail[position - start : position - start + size], limit=limit, what=what)
        for (position, size), what in (
            (footer.column_table_range, "column's metadata"),
            (footer.buffer_table_range, "global buffer"),
        )
    ]
    return tables[0], tables[1]


def _descriptor(data: bytes) -> file_pb.FileDescriptor:
    try:
        return file_pb.FileDescriptor.FromString(data)
    except DecodeError as error:
        raise CorruptDataError("the descriptor of the file cannot be parsed") from error
