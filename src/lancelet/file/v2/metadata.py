"""Reading the metadata of 2.x files.

The metadata follows the last page. The size of the tail is estimated, so opening usually takes one
read; if the estimate is too small, a second read fetches the rest:

    pages ... | checksums | descriptor | column metadata | tables | footer
                     <------------- tail, read in one request ---------->

Column metadata is decoded when a column is first read, because most queries read few columns.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import Final

import numpy as np
from google.protobuf.message import DecodeError

from lancelet.buffers import ByteRanges, Bytes, ByteSlices, ReadCoroutine
from lancelet.encodings.base import StoredColumn
from lancelet.errors import CorruptDataError, InvalidInputError
from lancelet.file.checksums import (
    CHECKSUM_BLOCK_BYTES,
    CHECKSUM_MARKER,
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

_CACHED_DESCRIPTORS: Final = 16
"""Files of a table often have equal descriptors."""

_TAIL_BYTES: Final = 64 * 1024
_EAGER_BYTES: Final = 4 * 1024 * 1024


@dataclass(frozen=True, slots=True, eq=False)
class FileMetadata:
    """The parsed metadata of a file, and the bytes of its tail."""

    footer: Footer
    columns: ByteRanges
    buffers: ByteRanges
    descriptor: file_pb.FileDescriptor
    file_bytes: int
    tail: Bytes
    checksums: Checksums | None
    name_checksum: int | None = None
    """The checksum of the file name, or None if the file does not store one."""

    @property
    def tail_position(self) -> int:
        """The file position of the tail."""
        return self.file_bytes - self.tail.nbytes

    def in_tail(self, ranges: ByteRanges) -> ByteSlices | None:
        """Return the bytes of ranges if all of them are in the tail, or None.

        The tail of a small file is the whole file, so reading it needs no further requests.
        """
        start, size = ranges.position, ranges.size
        in_tail = (start >= self.tail_position) & (size >= 0) & (size <= self.file_bytes - start)
        if not in_tail.all() or (not len(ranges) and self.tail_position):
            return None
        return ByteSlices(self.tail, start - self.tail_position, size)

    def read_column(self, index: int) -> ReadCoroutine[StoredColumn]:
        """Decode the metadata of one column; reads bytes only if they are not in the tail."""
        metadata = yield from self.read_stored([index])
        data = metadata.slice_bytes(0)
        return (yield from decode_column(data, index=index, file_bytes=self.file_bytes))

    def read_plain_columns(self, indices: Sequence[int]) -> ReadCoroutine[PlainColumns | None]:
        """Decode the metadata of many columns, or return None if some are not plain."""
        metadata = yield from self.read_stored(indices)
        if int(metadata.size.sum()) > self.file_bytes:
            return None
        file_bytes = np.full(len(indices), self.file_bytes)
        return decode_plain_columns(metadata, indices, file_bytes=file_bytes)

    def read_stored(self, indices: Sequence[int]) -> ReadCoroutine[ByteSlices]:
        """Return the serialized metadata of columns."""
        if max(indices) >= len(self.columns):
            raise CorruptDataError(
                "a column index exceeds the number of columns of the file",
                column=max(indices),
                num_columns=len(self.columns),
            )
        rows = np.asarray(indices)
        position, size = self.columns.position[rows], self.columns.size[rows]
        if int(position.min()) >= self.tail_position:
            return ByteSlices(self.tail, position - self.tail_position, size)
        return (yield ByteRanges(position, size))

    def buffer_range(self, index: int) -> tuple[int, int]:
        """Return the position and size of a global buffer."""
        if not 0 <= index < len(self.buffers):
            raise InvalidInputError(
                "the global buffer index is out of range",
                index=index,
                num_global_buffers=len(self.buffers),
            )
        return range_at(self.buffers, index)


def tail_size(file_bytes: int | None, *, num_columns: int | None = None) -> int:
    """Estimate the size of the tail with the metadata and checksums.

    If the file size is given, the tail starts at a block boundary, so it can be verified without
    further reads.
    """
    if file_bytes is None:
        return _TAIL_BYTES
    columns = 0 if num_columns is None else 1024 * num_columns
    checksums = 4 * (file_bytes // CHECKSUM_BLOCK_BYTES)
    start = max(0, file_bytes - min(_TAIL_BYTES + columns + checksums, _EAGER_BYTES))
    return file_bytes - start // CHECKSUM_BLOCK_BYTES * CHECKSUM_BLOCK_BYTES


def read_metadata(
    tail: Bytes, *, file_bytes: int, with_checksums: bool = True
) -> ReadCoroutine[FileMetadata]:
    """Parse the tail of a file, and read missing metadata."""
    start = file_bytes - tail.nbytes
    footer = parse_footer(tail, file_bytes=file_bytes)
    missing = _eager_start(footer, start, file_bytes=file_bytes)
    if missing < start:
        tail = (yield ByteRanges.of((missing, file_bytes - missing))).slice_bytes(0)
        start = missing
    columns, buffers = _tables(footer, tail, start)
    if not len(buffers):
        raise CorruptDataError("the file has no descriptor", file_bytes=file_bytes)
    ranges = [range_at(buffers, 0)]
    checksums = range_at(buffers, len(buffers) - 1)
    if with_checksums and len(buffers) > 1 and is_checksum_size(checksums[1], file_bytes):
        ranges.append(checksums)
    buffers_data = [
        tail[position - start : position - start + size] if position >= start else None
        for position, size in ranges
    ]
    unknown = [range_ for range_, data in zip(ranges, buffers_data, strict=True) if data is None]
    if unknown:
        fetched = yield ByteRanges.of(*unknown)
        later = iter([fetched.slice_bytes(index) for index in range(len(fetched))])
        buffers_data = [next(later) if data is None else data for data in buffers_data]
    parsed = None
    if len(buffers_data) > 1 and buffers_data[1] is not None:
        parsed = Checksums.parse(buffers_data[1], position=checksums[0], file_bytes=file_bytes)
    assert buffers_data[0] is not None
    descriptor = buffers_data[0].tobytes()
    if with_checksums and parsed is None:
        check_no_checksums(tail, descriptor, position=start, file_bytes=file_bytes)
    message, name = parse_descriptor(descriptor)
    return FileMetadata(footer, columns, buffers, message, file_bytes, tail, parsed, name)


def _eager_start(footer: Footer, start: int, *, file_bytes: int) -> int:
    """Return the start of the metadata to read eagerly; the tail starts at `start`."""
    if min(footer.column_metadata, footer.column_table) >= start:
        return start
    if file_bytes - footer.column_metadata <= _EAGER_BYTES:
        return footer.column_metadata
    return min(footer.column_table, start)


def _tables(footer: Footer, tail: Bytes, start: int) -> tuple[ByteRanges, ByteRanges]:
    limit = start + tail.nbytes - FOOTER_BYTES
    tables = [
        parse_table(tail[position - start : position - start + size], limit=limit, content=content)
        for (position, size), content in (
            (footer.column_table_range, "column's metadata"),
            (footer.buffer_table_range, "global buffer"),
        )
    ]
    return tables[0], tables[1]


def parse_descriptor(data: bytes) -> tuple[file_pb.FileDescriptor, int | None]:
    """Return the descriptor of a file, and the checksum of its name, if stored."""
    text, name = split_name_checksum(data.removesuffix(CHECKSUM_MARKER))
    return _parsed_descriptor(text), name


@lru_cache(_CACHED_DESCRIPTORS)
def _parsed_descriptor(data: bytes) -> file_pb.FileDescriptor:
    try:
        return file_pb.FileDescriptor.FromString(data)
    except DecodeError as error:
        raise CorruptDataError("the descriptor of the file cannot be parsed") from error
