"""Columns of one type and one encoding, read as one column.

The pages of ten thousand such columns have the same metadata, and opening a column costs a hundred
times as much as reading two of its rows. Their pages are therefore concatenated:

    column a   rows 0 1           read as     rows 0 1 | 2 3 | 4 5
    column b   rows 0 1                            a     b     c
    column c   rows 0 1           row 1 of all columns is rows 1, 3 and 5

The values of a bundle are decoded into one array; columns are slices of it. A range of rows of all
columns is represented by `ColumnSlices`.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Final, Protocol, TypeAlias

import numpy as np
import pyarrow as pa

from lancelet.buffers import Int64s, ReadCoroutine
from lancelet.encodings.arrow import plain_bits
from lancelet.encodings.base import HeaderCache, RowIndices, RowRange, Rows
from lancelet.encodings.levels import LeafNode, check_layers
from lancelet.encodings.pages.column_slices import ColumnSlices
from lancelet.encodings.pages.leaf import LeafContext, LeafRows
from lancelet.encodings.pages.stored_pages import StoredPages, to_bounds
from lancelet.encodings.row_ranges import expand
from lancelet.format import extension, logical_type
from lancelet.format.field import BLOB_KEY, Field
from lancelet.values import cached_property, dataclass

CHUNKS_MAX: Final = 1 << 16
"""Columns with more chunks are read separately, as the cost per column is negligible."""

VALUES_MAX: Final = 1 << 20
"""Maximum number of values decoded together, or the values of `SPLIT_ROWS` rows if larger."""

SPLIT_ROWS: Final = 4096

_ROWS_MAX: Final = 1 << 62

_numbers = itertools.count(1)


class BundledPages(Protocol):
    """Reads pages without lists, like `structural.PageReader`, and also column slices."""

    def read(self, rows: Rows) -> ReadCoroutine[LeafRows]:
        """Read rows of the concatenated pages."""

    def read_slices(self, slices: ColumnSlices) -> ReadCoroutine[tuple[LeafRows, Int64s]]:
        """Read column slices; also return the start of each slice in the result."""


OpenBundle: TypeAlias = Callable[[StoredPages, LeafContext], BundledPages]
"""Creates a reader of the pages of all columns of a bundle."""

BundleKey: TypeAlias = Callable[[bytes], bytes | None]
"""Maps a page encoding to a key shared by all pages of a bundle; `None` if not bundled."""


@dataclass(frozen=True, slots=True, eq=False)
class Columns:
    """Fields of one column each; column i has the pages from `edges[i]` to `edges[i + 1]`.

    `field_indices` are the indices of the fields in the request.
    """

    field_indices: Sequence[int]
    fields: Sequence[Field]
    pages: StoredPages
    edges: Int64s
    num_rows: int


class Bundle:
    """Reads rows of several columns together; `field_indices` are their field indices."""

    def __init__(
        self,
        field_indices: Sequence[int],
        field: Field,
        open_pages: Callable[[], BundledPages],
        num_rows: int,
        bytes_: int,
    ) -> None:
        """Read columns of `num_rows` rows each, with the type of `field`."""
        self.field_indices = tuple(field_indices)
        self.num_rows = num_rows
        self.encoded_bytes = bytes_
        self.data_type = logical_type.storage_type_of(field.logical_type)
        self._path = (LeafNode(field, self.data_type),)
        self._open_pages = open_pages
        self._first_row = np.arange(len(field_indices)) * num_rows
        self._value_bytes = plain_bits(self.data_type) // 8

    @cached_property
    def _pages(self) -> BundledPages:
        return self._open_pages()

    def read(self, rows: Rows) -> ReadCoroutine[list[pa.Array]]:
        """Read rows of the columns, in order, as one array per column.

        Errors of a damaged page do not identify the column.
        """
        count = len(rows)
        if not count:
            return [pa.array([], self.data_type)] * len(self.field_indices)
        match rows:
            case RowRange(start):
                slices = ColumnSlices(self._first_row + start, count)
                leaf_rows, first = yield from self._pages.read_slices(slices)
            case RowIndices(indices):
                all_rows = (indices + self._first_row[:, None]).reshape(-1)
                leaf_rows = yield from self._pages.read(RowIndices(all_rows))
                first = np.arange(len(self.field_indices)) * count
        check_layers(self._path, leaf_rows.layers)
        return list(self._parts(leaf_rows.values, first, count))

    def _parts(self, values: pa.Array, first: Int64s, count: int) -> Iterator[pa.Array]:
        """Yield the slice of each column; plain values as arrays with offset 0."""
        if not self._value_bytes or values.null_count:
            yield from (values.slice(start, count) for start in first.tolist())
            return
        data = values.buffers()[1]
        size = count * self._value_bytes
        for start in ((first + values.offset) * self._value_bytes).tolist():
            buffers = [None, data.slice(start, size)]
            yield pa.Array.from_buffers(self.data_type, count, buffers, 0)


def open_bundles(
    columns: Columns,
    bundle_key: BundleKey,
    open_pages: OpenBundle,
    header_cache: HeaderCache | None,
) -> list[Bundle]:
    """Return bundles of compatible columns; other columns are omitted."""
    kinds = _column_kinds(columns, bundle_key)
    groups: dict[tuple[str, int], list[int]] = {}
    for column, (field, kind) in enumerate(zip(columns.fields, kinds.tolist(), strict=True)):
        if kind >= 0 and is_plain(field):
            groups.setdefault((field.logical_type, kind), []).append(column)
    bundles: list[Bundle] = []
    for group in groups.values():
        bundles += [
            _open_bundle(columns, group_columns, open_pages, header_cache)
            for group_columns in _split_group(columns, np.array(group))
            if len(group_columns) > 1
        ]
    return bundles


def is_plain(field: Field) -> bool:
    """Return whether a field is a single column whose values are returned as stored."""
    kind = field.logical_type
    return (
        not field.children
        and not field.extension_name
        and (not field.metadata or _has_plain_metadata(field))
        and kind not in (logical_type.JSON, "null", logical_type.STRUCT)
        and logical_type.BFLOAT16 not in kind
        and not kind.startswith("dict:")
    )


def _has_plain_metadata(field: Field) -> bool:
    """Return whether the metadata of a field does not affect its values."""
    return BLOB_KEY not in field.metadata and extension.NAME_KEY not in field.metadata


def _column_kinds(columns: Columns, bundle_key: BundleKey) -> Int64s:
    """Return the bundle key of each column as a number, -1 if not bundled."""
    pages, edges = columns.pages, columns.edges
    kinds: dict[bytes, int] = {}
    numbers = np.full(len(pages.encodings), -1)
    for encoding in np.unique(pages.encoding).tolist():
        kind = bundle_key(pages.encodings[encoding])
        if kind is not None:
            numbers[encoding] = kinds.setdefault(kind, len(kinds))
    column_kinds = np.full(len(columns.fields), -1)
    full = np.flatnonzero(np.diff(edges))
    if not len(full) or columns.num_rows * len(columns.fields) >= _ROWS_MAX:
        return column_kinds
    page_kind, starts = numbers[pages.encoding], edges[full]
    # All pages of a column must have the same encoding, be non-empty, and add up to the table.
    kind_min, kind_max = (reduce.reduceat(page_kind, starts) for reduce in (np.minimum, np.maximum))
    rows = np.add.reduceat(pages.length, starts)
    shortest = np.minimum.reduceat(pages.length, starts)
    is_uniform = (kind_min == kind_max) & (rows == columns.num_rows) & (shortest > 0)
    column_kinds[full] = np.where(is_uniform, kind_min, -1)
    return column_kinds


def _split_group(columns: Columns, column_indices: Int64s) -> Iterator[Int64s]:
    """Yield groups of columns with a limited number of chunks and values."""
    edges, pages = columns.edges, columns.pages
    # Chunk table entries have at least two bytes; the table is the first buffer if present.
    tables = np.zeros(len(pages), np.int64)
    has_table = pages.num_buffers > 1
    tables[has_table] = pages.size[pages.first_buffer[:-1][has_table]] // 2 + 1
    chunks = np.diff(to_bounds(tables)[edges])[column_indices]
    columns_max = max(2, VALUES_MAX // max(1, min(columns.num_rows, SPLIT_ROWS)))
    small = chunks <= CHUNKS_MAX // 2
    column_indices, before = column_indices[small], to_bounds(chunks[small])[:-1]
    by_chunks, by_values = 2 * before // CHUNKS_MAX, np.arange(len(column_indices)) // columns_max
    borders = np.flatnonzero(np.diff(by_chunks) | np.diff(by_values)) + 1
    yield from np.split(column_indices, borders)


def _open_bundle(
    columns: Columns,
    column_indices: Int64s,
    open_pages: OpenBundle,
    header_cache: HeaderCache | None,
) -> Bundle:
    start, stop = columns.edges[column_indices], columns.edges[column_indices + 1]
    pages = columns.pages.take(expand(start, stop - start))
    field = columns.fields[column_indices[0]]
    data_type = logical_type.storage_type_of(field.logical_type)
    # Unique negative numbers distinguish bundles from columns in the metadata cache.
    context = LeafContext(data_type, (LeafNode(field, data_type),), -next(_numbers), header_cache)
    return Bundle(
        [columns.field_indices[column] for column in column_indices.tolist()],
        field,
        partial(open_pages, pages, context),
        columns.num_rows,
        int(pages.size.sum()),
    )
