"""Concatenating 2.x files without decoding their pages.

    file a   column 0: pages of 100, 50 rows        file b   column 0: a page of 80 rows
    joined   column 0: pages of 100, 50, 80 rows    all buffers, at new positions

Pages contain their number of rows but not their first row, so they are copied unchanged. Zone
statistics and global buffers of users are dropped. Checksums of the sources are verified, and those
of the new file are computed.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Final

import numpy as np

from lancelet.buffers import ByteRanges, Bytes
from lancelet.encodings.base import FileVersion, StoredPage
from lancelet.errors import UnsupportedError
from lancelet.file.base import WriteSummary
from lancelet.file.v2.column_metadata import WrittenPages, encode_columns
from lancelet.file.v2.container import Container, Description
from lancelet.file.v2.descriptor import descriptor_bytes
from lancelet.file.v2.generation import assign_columns
from lancelet.file.v2.reader import FileReader
from lancelet.format.schema import Schema
from lancelet.format.trailer import with_name_checksum
from lancelet.io.store import ObjectWriter
from lancelet.values import dataclass

_VERSIONS: Final = frozenset({FileVersion.V2_1, FileVersion.V2_2})
"""The versions with pages that are independent of other pages."""


@dataclass(frozen=True, slots=True)
class _SourcePage:
    """A page of a source file, its column, and the first row of the source in the new file."""

    source: FileReader
    column: int
    page: StoredPage
    first_row: int


def check_joinable(sources: Sequence[FileReader], schema: Schema) -> None:
    """Raise `UnsupportedError` if files cannot be concatenated page by page."""
    versions = {source.version for source in sources}
    if len(versions) > 1 or not versions <= _VERSIONS:
        version_names = sorted(version.value for version in versions)
        raise UnsupportedError(
            "files of these versions cannot be concatenated page by page", versions=version_names
        )
    if any(field.is_blob for field in schema.walk()):
        raise UnsupportedError("pages of blob columns contain file positions")
    placement = assign_columns(schema.fields, sources[0].version)
    for source in sources:
        ids = tuple(sorted(placement, key=placement.__getitem__))
        if source.field_ids != ids or len(source.metadata.columns) != len(ids):
            raise UnsupportedError(
                "the columns of a file are not in the order of the table",
                path=source.path,
                expected=ids,
                found=source.field_ids,
            )
        for index in range(len(ids)):
            if len(source.column(index).buffer_position):
                raise UnsupportedError("a column has column-level buffers", path=source.path)


def join_files(
    sources: Sequence[FileReader],
    schema: Schema,
    target: ObjectWriter,
    *,
    read_bytes: int,
    name: str | None = None,
) -> WriteSummary:
    """Write the pages of several files to one file, which stores `name`.

    Up to `read_bytes` bytes are read at a time.
    """
    check_joinable(sources, schema)
    version = sources[0].version
    container = Container(target)
    num_columns = len(assign_columns(schema.fields, version))
    written: list[WrittenPages] = []
    for item, buffers in _read(list(_pages(sources, num_columns)), read_bytes):
        ranges = [container.write_buffer(buffer) for buffer in buffers]
        written.append(
            WrittenPages(
                [item.column],
                [np.array([position]) for position, _ in ranges],
                [np.array([size]) for _, size in ranges],
                item.page.length,
                item.page.encoding,
                [item.first_row + item.page.priority],
            )
        )
    num_rows = sum(source.num_rows for source in sources)
    encodings = [sources[0].column(index).encoding for index in range(num_columns)]
    size = container.finish(
        Description(
            version,
            with_name_checksum(descriptor_bytes(schema, schema.metadata, num_rows), name),
            *encode_columns(written, encodings),
            [],
        )
    )
    return WriteSummary(num_rows, size)


def _pages(sources: Iterable[FileReader], num_columns: int) -> Iterator[_SourcePage]:
    """Yield the pages of all files, ordered by row within each file."""
    first_row = 0
    for source in sources:
        pages = [
            _SourcePage(source, index, page, first_row)
            for index in range(num_columns)
            for page in source.column(index).pages
        ]
        # Ordered by row instead of position, because pages of a column must retain their order.
        yield from sorted(pages, key=lambda item: (item.page.first_row, item.column))
        first_row += source.num_rows


def _read(
    pages: Sequence[_SourcePage], read_bytes: int
) -> Iterator[tuple[_SourcePage, list[Bytes]]]:
    """Yield pages with their buffers, which are read in batches of `read_bytes`."""
    batch: list[_SourcePage] = []
    size = 0
    for item in pages:
        page_bytes = int(item.page.size.sum())
        if batch and (size + page_bytes > read_bytes or batch[0].source is not item.source):
            yield from _fetched(batch)
            batch, size = [], 0
        batch.append(item)
        size += page_bytes
    if batch:
        yield from _fetched(batch)


def _fetched(batch: Sequence[_SourcePage]) -> Iterator[tuple[_SourcePage, list[Bytes]]]:
    ranges = [
        (int(position), int(size))
        for item in batch
        for position, size in zip(item.page.position, item.page.size, strict=True)
    ]
    slices = batch[0].source.fetch(ByteRanges.of(*ranges))
    first_slice = 0
    for item in batch:
        count = len(item.page.size)
        yield item, [slices.slice_bytes(first_slice + number) for number in range(count)]
        first_slice += count
