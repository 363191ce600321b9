"""What a 2.x file says of itself, in the shapes of pylance's `lance.file`."""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa

from lancelet.encodings.base import StoredColumn
from lancelet.file.messages import encoding_text
from lancelet.file.v2.footer import range_at
from lancelet.file.v2.reader import FileReader
from lancelet.values import dataclass


@dataclass(frozen=True, slots=True)
class LanceBufferDescriptor:
    """Where a buffer is in the file."""

    position: int
    size: int


@dataclass(frozen=True, slots=True)
class LancePageMetadata:
    """The buffers of a page, and its encoding in words."""

    buffers: list[LanceBufferDescriptor]
    encoding: str


@dataclass(frozen=True, slots=True)
class LanceColumnMetadata:
    """The pages of a column, and buffers that belong to all of them."""

    column_buffers: list[LanceBufferDescriptor]
    pages: list[LancePageMetadata]


@dataclass(frozen=True, slots=True)
class LanceColumnStatistics:
    """How large a column is in the file."""

    num_pages: int
    size_bytes: int

    def __repr__(self) -> str:
        return f"ColumnStatistics(num_pages={self.num_pages}, size_bytes={self.size_bytes})"


@dataclass(frozen=True, slots=True)
class LanceFileStatistics:
    """How large each column of a file is."""

    columns: list[LanceColumnStatistics]

    def __repr__(self) -> str:
        return f"FileStatistics(columns={self.columns})"


@dataclass(frozen=True, slots=True, repr=False)
class LanceFileMetadata:
    """Everything that the end of a file says of the rest."""

    schema: pa.Schema
    num_rows: int
    num_data_bytes: int
    num_column_metadata_bytes: int
    num_global_buffer_bytes: int
    global_buffers: list[LanceBufferDescriptor]
    columns: list[LanceColumnMetadata]
    major_version: int
    minor_version: int

    def __repr__(self) -> str:
        return "\n".join(_metadata_lines(self))


def describe_metadata(reader: FileReader, schema: pa.Schema) -> LanceFileMetadata:
    """Return the metadata of an open file, all columns decoded."""
    metadata = reader.metadata
    footer = metadata.footer
    buffers = [_descriptor(*range_at(metadata.buffers, i)) for i in range(len(metadata.buffers))]
    buffer_bytes = sum(buffer.size for buffer in buffers)
    major, minor = footer.version.footer_numbers
    return LanceFileMetadata(
        schema=schema,
        num_rows=reader.num_rows,
        num_data_bytes=footer.column_metadata - buffer_bytes,
        num_column_metadata_bytes=footer.buffer_table - footer.column_metadata,
        num_global_buffer_bytes=buffer_bytes,
        global_buffers=buffers,
        columns=[_describe_column(column) for column in _columns(reader)],
        major_version=major,
        minor_version=minor,
    )


def describe_statistics(reader: FileReader) -> LanceFileStatistics:
    """Return how large each column of an open file is."""
    return LanceFileStatistics(
        [
            LanceColumnStatistics(
                len(column.pages), sum(int(page.size.sum()) for page in column.pages)
            )
            for column in _columns(reader)
        ]
    )


def _columns(reader: FileReader) -> Iterator[StoredColumn]:
    return (reader.column(index) for index in range(len(reader.metadata.columns)))


def _describe_column(column: StoredColumn) -> LanceColumnMetadata:
    return LanceColumnMetadata(
        [
            _descriptor(position, size)
            for position, size in zip(column.buffer_position, column.buffer_size, strict=True)
        ],
        [
            LancePageMetadata(
                [
                    _descriptor(position, size)
                    for position, size in zip(page.position, page.size, strict=True)
                ],
                encoding_text(page.encoding),
            )
            for page in column.pages
        ],
    )


def _descriptor(position: int, size: int) -> LanceBufferDescriptor:
    return LanceBufferDescriptor(int(position), int(size))


def _metadata_lines(metadata: LanceFileMetadata) -> Iterator[str]:
    for name in (
        "major_version",
        "minor_version",
        "num_rows",
        "num_data_bytes",
        "num_column_metadata_bytes",
        "num_global_buffer_bytes",
    ):
        yield f"{name}: {getattr(metadata, name)}"
    yield from _buffer_lines("global_buffers", metadata.global_buffers, indent="")
    yield "columns:"
    for column in metadata.columns:
        first, *rest = _buffer_lines("column_buffers", column.column_buffers, indent="  ")
        yield f"- {first.lstrip()}"
        yield from rest
        yield "  pages:" if column.pages else "  pages: []"
        for page in column.pages:
            first, *rest = _buffer_lines("buffers", page.buffers, indent="    ")
            yield f"  - {first.lstrip()}"
            yield from rest
            yield "    encoding: |-"
            yield from (f"      {line}" for line in page.encoding.split("\n"))


def _buffer_lines(name: str, buffers: list[LanceBufferDescriptor], *, indent: str) -> list[str]:
    if not buffers:
        return [f"{indent}{name}: []"]
    lines = [f"{indent}{name}:"]
    for buffer in buffers:
        lines += [f"{indent}- position: {buffer.position}", f"{indent}  size: {buffer.size}"]
    return lines
