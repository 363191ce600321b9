"""Joining 2.x files page by page, without decoding what is in the pages.

    file a   column 0: pages of 100, 50 rows        file b   column 0: a page of 80 rows
    joined   column 0: pages of 100, 50, 80 rows    the buffers of all, at new positions

A page says how many rows it has and not which, so it can stand behind others as it is. What is
kept of whole files (zone statistics, buffers of users) does not survive; checksums are made anew,
after those of the sources were verified.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Final

import numpy as np

from lancelet.buffers import Bytes, Ranges
from lancelet.encodings.base import FileVersion, StoredPage
from lancelet.errors import UnsupportedError
from lancelet.file.base import WriteSummary
from lancelet.file.v2.column_metadata import WrittenPages, encode_columns
from lancelet.file.v2.container import Container, Description
from lancelet.file.v2.descriptor import descriptor_bytes
from lancelet.file.v2.generation import place_columns
from lancelet.file.v2.reader import FileReader
from lancelet.format.schema import Schema
from lancelet.format.trailer import with_name_checksum
from lancelet.io.store import ObjectWriter
from lancelet.values import dataclass

_VERSIONS: Final = frozenset({FileVersion.V2_1, FileVersion.V2_2})
"""The versions in which nothing of a page depends on the pages around it."""


@dataclass(frozen=True, slots=True)
class _PlacedPage:
    """A page of a source, the column it is in, and the first of its rows in the joined file."""

    source: FileReader
    column: int
    page: StoredPage
    first_row: int


def check_joinable(sources: Sequence[FileReader], schema: Schema) -> None:
    """Raise `UnsupportedError`, which says why, unless files can be joined page by page."""
    versions = {source.version for source in sources}
    if len(versions) > 1 or not versions <= _VERSIONS:
        found = sorted(version.value for version in versions)
        raise UnsupportedError("pages of these versions cannot be in one file", versions=found)
    if any(field.is_blob for field in schema.walk()):
        raise UnsupportedError("blobs lie at positions that their pages name")
    placement = place_columns(schema.fields, sources[0].version)
    for source in sources:
        ids = tuple(sorted(placement, key=placement.__getitem__))
        if source.field_ids != ids or len(source.metadata.columns) != len(ids):
            raise UnsupportedError(
                "a file does not have the columns of the table in their order",
                path=source.path,
                expected=ids,
                found=source.field_ids,
            )
        for index in range(len(ids)):
            if len(source.column(index).buffer_position):
                raise UnsupportedError("a column has buffers of its own", path=source.path)


def join_files(
    sources: Sequence[FileReader],
    schema: Schema,
    target: ObjectWriter,
    *,
    read_bytes: int,
    name: str | None = None,
) -> WriteSummary:
    """Write the pages of files behind each other as one file, which keeps its `name`.

    `read_bytes` are read at a time.
    """
    check_joinable(sources, schema)
    version = sources[0].version
    container = Container(target)
    num_columns = len(place_columns(schema.fields, version))
    written: list[WrittenPages] = []
    for placed, buffers in _read(list(_pages(sources, num_columns)), read_bytes):
        places = [container.write_buffer(buffer) for buffer in buffers]
        written.append(
            WrittenPages(
                [placed.column],
                [np.array([position]) for position, _ in places],
                [np.array([size]) for _, size in places],
                placed.page.length,
                placed.page.encoding,
                [placed.first_row + placed.page.priority],
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


def _pages(sources: Iterable[FileReader], num_columns: int) -> Iterator[_PlacedPage]:
    """Yield the pages of files, those of one file in the order in which they lie there."""
    first_row = 0
    for source in sources:
        pages = [
            _PlacedPage(source, index, page, first_row)
            for index in range(num_columns)
            for page in source.column(index).pages
        ]
        # By row and not by position, since the pages of a column have to stay in order.
        yield from sorted(pages, key=lambda placed: (placed.page.first_row, placed.column))
        first_row += source.num_rows


def _read(
    pages: Sequence[_PlacedPage], read_bytes: int
) -> Iterator[tuple[_PlacedPage, list[Bytes]]]:
    """Yield pages with their buffers, as many read at a time as `read_bytes` allows."""
    batch: list[_PlacedPage] = []
    size = 0
    for placed in pages:
        own = int(placed.page.size.sum())
        if batch and (size + own > read_bytes or batch[0].source is not placed.source):
            yield from _fetched(batch)
            batch, size = [], 0
        batch.append(placed)
        size += own
    if batch:
        yield from _fetched(batch)


def _fetched(batch: Sequence[_PlacedPage]) -> Iterator[tuple[_PlacedPage, list[Bytes]]]:
    ranges = [
        (int(position), int(size))
        for placed in batch
        for position, size in zip(placed.page.position, placed.page.size, strict=True)
    ]
    found = batch[0].source.fetch(Ranges.of(*ranges))
    at = 0
    for placed in batch:
        count = len(placed.page.size)
        yield placed, [found.slice_bytes(at + number) for number in range(count)]
        at += count
