"""Columns of one type and one encoding, read as if they were one column.

A table of ten thousand columns has as many pages that say the same of themselves, and visiting a
column costs a hundred times what its two rows do. So its pages are put behind those of the others:

    column a   rows 0 1           read as     rows 0 1 | 2 3 | 4 5
    column b   rows 0 1                            a     b     c
    column c   rows 0 1           row 1 of all columns is rows 1, 3 and 5

Values of a bundle are decoded into one array, of which each column gets a part that it shares
with the others. What a range of rows is of such a column are `Stretches`: a
part of each.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Final, Protocol, TypeAlias

import numpy as np
import pyarrow as pa

from lancelet.buffers import Int64s, Reading
from lancelet.encodings.arrow import plain_bits
from lancelet.encodings.base import Memo, RowIndices, RowRange, Rows
from lancelet.encodings.leaf import LeafContext, LeafRows
from lancelet.encodings.levels import LeafNode, check_layers
from lancelet.encodings.spans import expand
from lancelet.encodings.stored_pages import StoredPages, bounds_of
from lancelet.encodings.stretches import Stretches
from lancelet.format import extension, logical_type
from lancelet.format.field import BLOB_KEY, Field
from lancelet.values import cached_property, dataclass

CHUNKS_MAX: Final = 1 << 16
"""Columns of more chunks are read one by one: there is enough to do in each of them."""

VALUES_MAX: Final = 1 << 20
"""So many values of all columns are decoded at once, or those of `SPLIT_ROWS` rows if fewer."""

SPLIT_ROWS: Final = 4096

_ROWS_MAX: Final = 1 << 62

_numbers = itertools.count(1)


class BundledPages(Protocol):
    """Reads pages without lists, as `structural.PageReader` does, and also stretches."""

    def read(self, rows: Rows) -> Reading[LeafRows]:
        """Read rows of the pages, counted from the first one."""

    def read_stretches(self, stretches: Stretches) -> Reading[tuple[LeafRows, Int64s]]:
        """Read stretches of rows; also return where each begins in what was read."""


OpenBundle: TypeAlias = Callable[[StoredPages, LeafContext], BundledPages]
"""Makes a reader of the pages of all columns of a bundle."""

KindOfBundle: TypeAlias = Callable[[bytes], bytes | None]
"""Tells from its encoding what a page must have in common with others of a bundle; `None` is a
page whose column is in none."""


@dataclass(frozen=True, slots=True, eq=False)
class Columns:
    """Fields of one column each, with the pages of column i at `edges[i]` up to `edges[i + 1]`.

    `places` says which they are of the fields that are asked for.
    """

    places: Sequence[int]
    fields: Sequence[Field]
    pages: StoredPages
    edges: Int64s
    num_rows: int


class Bundle:
    """Reads rows of several columns at once; `places` says which they are."""

    def __init__(
        self,
        places: Sequence[int],
        field: Field,
        open_pages: Callable[[], BundledPages],
        num_rows: int,
        bytes_: int,
    ) -> None:
        """Read columns of `num_rows` rows each, of which `field` is one."""
        self.places = tuple(places)
        self.num_rows = num_rows
        self.encoded_bytes = bytes_
        self.data_type = logical_type.storage_type_of(field.logical_type)
        self._path = (LeafNode(field, self.data_type),)
        self._open_pages = open_pages
        self._first_row = np.arange(len(places)) * num_rows
        self._value_bytes = plain_bits(self.data_type) // 8

    @cached_property
    def _pages(self) -> BundledPages:
        return self._open_pages()

    def read(self, rows: Rows) -> Reading[list[pa.Array]]:
        """Read rows that the columns have, in order, as an array of each column.

        What is wrong with the pages of some is an error that cannot say of which.
        """
        count = len(rows)
        if not count:
            return [pa.array([], self.data_type)] * len(self.places)
        match rows:
            case RowRange(start):
                stretches = Stretches(self._first_row + start, count)
                found, first = yield from self._pages.read_stretches(stretches)
            case RowIndices(indices):
                every = (indices + self._first_row[:, None]).reshape(-1)
                found = yield from self._pages.read(RowIndices(every))
                first = np.arange(len(self.places)) * count
        check_layers(self._path, found.layers)
        return list(self._parts(found.values, first, count))

    def _parts(self, values: pa.Array, first: Int64s, count: int) -> Iterator[pa.Array]:
        """Yield the part of each column; plain values as arrays that begin with their buffer."""
        if not self._value_bytes or values.null_count:
            yield from (values.slice(start, count) for start in first.tolist())
            return
        data = values.buffers()[1]
        size = count * self._value_bytes
        for start in ((first + values.offset) * self._value_bytes).tolist():
            buffers = [None, data.slice(start, size)]
            yield pa.Array.from_buffers(self.data_type, count, buffers, 0)


def open_bundles(
    columns: Columns, kind_of: KindOfBundle, open_pages: OpenBundle, memo: Memo | None
) -> list[Bundle]:
    """Return bundles of the columns that can be in one; others are left out."""
    kinds = _kinds_of_columns(columns, kind_of)
    alike: dict[tuple[str, int], list[int]] = {}
    for place, (field, kind) in enumerate(zip(columns.fields, kinds.tolist(), strict=True)):
        if kind >= 0 and is_plain(field):
            alike.setdefault((field.logical_type, kind), []).append(place)
    bundles: list[Bundle] = []
    for group in alike.values():
        bundles += [
            _open_bundle(columns, places, open_pages, memo)
            for places in _cut(columns, np.array(group))
            if len(places) > 1
        ]
    return bundles


def is_plain(field: Field) -> bool:
    """Whether a field is a column whose values users see as they are stored."""
    kind = field.logical_type
    return (
        not field.children
        and not field.extension_name
        and (not field.metadata or _is_only_told(field))
        and kind not in (logical_type.JSON, "null", logical_type.STRUCT)
        and logical_type.BFLOAT16 not in kind
        and not kind.startswith("dict:")
    )


def _is_only_told(field: Field) -> bool:
    """Whether the metadata of a field do not change what its values are."""
    return BLOB_KEY not in field.metadata and extension.NAME_KEY not in field.metadata


def _kinds_of_columns(columns: Columns, kind_of: KindOfBundle) -> Int64s:
    """Return the kind of each column as a number, negative where it cannot be in a bundle."""
    pages, edges = columns.pages, columns.edges
    kinds: dict[bytes, int] = {}
    numbers = np.full(len(pages.encodings), -1)
    for encoding in np.unique(pages.encoding).tolist():
        kind = kind_of(pages.encodings[encoding])
        if kind is not None:
            numbers[encoding] = kinds.setdefault(kind, len(kinds))
    found = np.full(len(columns.fields), -1)
    full = np.flatnonzero(np.diff(edges))
    if not len(full) or columns.num_rows * len(columns.fields) >= _ROWS_MAX:
        return found
    page_kind, starts = numbers[pages.encoding], edges[full]
    # All pages of a column are alike, and have its rows, and some each.
    least, most = (of.reduceat(page_kind, starts) for of in (np.minimum, np.maximum))
    rows = np.add.reduceat(pages.length, starts)
    shortest = np.minimum.reduceat(pages.length, starts)
    is_sound = (least == most) & (rows == columns.num_rows) & (shortest > 0)
    found[full] = np.where(is_sound, least, -1)
    return found


def _cut(columns: Columns, places: Int64s) -> Iterator[Int64s]:
    """Yield columns in groups that have not too many chunks and values."""
    edges, pages = columns.edges, columns.pages
    # The words of chunks have two bytes at least, and are in the first buffer where there are any.
    tables = np.zeros(len(pages), np.int64)
    has_table = pages.num_buffers > 1
    tables[has_table] = pages.size[pages.first_buffer[:-1][has_table]] // 2 + 1
    chunks = np.diff(bounds_of(tables)[edges])[places]
    columns_max = max(2, VALUES_MAX // max(1, min(columns.num_rows, SPLIT_ROWS)))
    small = chunks <= CHUNKS_MAX // 2
    places, before = places[small], bounds_of(chunks[small])[:-1]
    by_chunks, by_values = 2 * before // CHUNKS_MAX, np.arange(len(places)) // columns_max
    borders = np.flatnonzero(np.diff(by_chunks) | np.diff(by_values)) + 1
    yield from np.split(places, borders)


def _open_bundle(
    columns: Columns, places: Int64s, open_pages: OpenBundle, memo: Memo | None
) -> Bundle:
    start, stop = columns.edges[places], columns.edges[places + 1]
    pages = columns.pages.take(expand(start, stop - start))
    field = columns.fields[places[0]]
    data_type = logical_type.storage_type_of(field.logical_type)
    # No column has a negative number, and no other bundle this one.
    context = LeafContext(data_type, (LeafNode(field, data_type),), -next(_numbers), memo)
    return Bundle(
        [columns.places[place] for place in places.tolist()],
        field,
        partial(open_pages, pages, context),
        columns.num_rows,
        int(pages.size.sum()),
    )
