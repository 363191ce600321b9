"""What every read of mini-block pages needs to know of them: where chunks are, where rows begin.

Writers cut a column into many small pages that differ in nothing but their rows. Such a run of
pages is read as if it were one page, so that a take costs the same few array operations whether
its rows lie in one page or in two hundred:

    page 0   chunks 0 1        rows 0 .. 1499
    page 1   chunks 2 3        rows 1500 .. 2999
    first_value                0 1024 | 1500 2524 | 3000      of the run

The table is filled page by page, when rows of a page are first wanted, so opening a file reads
nothing. Until then all chunks of a page are said to begin where the page begins, which keeps the
columns in order and so fit for a binary search. What is filled in is the same whoever does it,
and a page counts as known only afterwards, so threads need no lock.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import numpy as np
import pyarrow as pa

from lancelet import kernels
from lancelet.buffers import Bytes, Int64s, Ranges, Slices
from lancelet.encodings import registry
from lancelet.encodings.arrow import arrow_from_block
from lancelet.encodings.base import RowRange, Rows
from lancelet.encodings.codecs.base import CHUNK_VALUES_MAX, Encoding
from lancelet.encodings.codecs.cut import joined_bytes, slices_of
from lancelet.encodings.layout import MiniBlockLayout
from lancelet.encodings.leaf import Items, LeafContext
from lancelet.encodings.miniblock.repetition_index import RepetitionIndex, parse_repetition_index
from lancelet.encodings.spans import expand
from lancelet.encodings.stored_pages import StoredPages, bounds_of
from lancelet.encodings.stretches import Stretches
from lancelet.errors import CorruptDataError
from lancelet.values import dataclass

_CHUNK_BYTES = 5 * 8

_ITEMS_MAX: Final = 1 << 16
_ITEMS_PER_BYTE_MAX: Final = 64
"""How many items of a dictionary are believed besides, for each of its bytes.

Items differ, so hardly any codec makes them smaller than a few bits."""

_TOGETHER_BYTES: Final = 1 << 18
"""Dictionaries of so many bytes in all are decoded together."""


@dataclass(frozen=True, slots=True, eq=False)
class Dictionary:
    """The items that some chunks point into, all of them in one array.

    Chunk i points into `count[i]` items from `first[i]` on; both are `None` where that is the
    whole array for every chunk.
    """

    items: Items
    first: Int64s | None = None
    count: Int64s | None = None


_NO_DICTIONARY: Final = Dictionary(Items(pa.nulls(0)))


class MiniBlockHead:
    """Where the chunks and rows of a run of pages are."""

    def __init__(
        self,
        pages: StoredPages,
        num_values: Int64s,
        num_items: Sequence[int],
        layout: MiniBlockLayout,
        leaf: LeafContext,
    ) -> None:
        """Prepare for pages of a layout, with so many values and so many items of dictionaries.

        Nothing is known of them yet.
        """
        self._num_items = num_items
        self._pages = pages
        self._num_values = num_values
        self._layout = layout
        self._leaf = leaf
        self._word_bytes = 4 if layout.has_large_chunks else 2
        self._is_known = np.zeros(len(pages), np.bool_)
        self._is_complete = False
        chunks = pages.buffers(0)[1] // self._word_bytes
        self.first_chunk = bounds_of(chunks)
        self.first_row = bounds_of(pages.length)
        self.first_value = _spread(bounds_of(num_values), chunks)
        self.position, self.size, self.count = np.zeros((3, len(self.first_value) - 1), np.int64)
        self.rows: RepetitionIndex | None = None
        if layout.repetition_index_depth:
            rows = _spread(self.first_row, chunks)
            self.rows = RepetitionIndex(rows, rows.copy())
        # Asked for only where a page is known.
        self._items: list[Dictionary] = [_NO_DICTIONARY] * len(pages)
        self._joined: Dictionary | None = None

    @property
    def num_bytes(self) -> int:
        """Return the memory this takes, about."""
        size = _CHUNK_BYTES * len(self.first_value) * (2 if self.rows is not None else 1)
        if self._layout.dictionary is not None:
            size += 8 * int(self._pages.buffers(2)[1].sum())
        return size

    def missing(self, rows: Rows | Stretches) -> Int64s:
        """Return the pages that hold any of the rows and are not known yet."""
        if self._is_complete:
            return np.empty(0, np.int64)
        match rows:
            case RowRange(start, stop):
                first = int(np.searchsorted(self.first_row, start, side="right")) - 1
                pages = np.arange(first, int(np.searchsorted(self.first_row, stop)))
            case Stretches():
                first_pages = self.first_row.searchsorted(rows.start, side="right") - 1
                pages = expand(first_pages, self.first_row.searchsorted(rows.stop) - first_pages)
            case _:
                pages = kernels.locate_rows(self.first_row, rows.rows)[0]
        return pages[~self._is_known[pages]]

    def ranges(self, pages: Int64s) -> Ranges:
        """Return what must be read to know pages: all buffers but the chunks themselves."""
        places = np.array([0, *range(2, 2 + self._layout.num_extra)])
        buffers = (self._pages.first_buffer[pages][:, None] + places).reshape(-1)
        return Ranges(self._pages.position[buffers], self._pages.size[buffers])

    def add(self, pages: Int64s, slices: Slices) -> None:
        """Take what `ranges` asked for, and check it against the pages."""
        step = 1 + self._layout.num_extra
        if not self._layout.repetition_index_depth:
            self._check_rows(pages)
        data_position, data_size = self._pages.buffers(1)
        position, size, count = kernels.place_chunks(
            Slices(slices.source, slices.position[::step], slices.size[::step]),
            self._word_bytes,
            self._num_values[pages],
            data_position[pages],
            data_size[pages],
            count_max=CHUNK_VALUES_MAX,
        )
        start = self.first_chunk[pages]
        chunks = self.first_chunk[pages + 1] - start
        these = expand(start, chunks)
        self.position[these] = position
        self.size[these] = size
        self.count[these] = count
        # Two threads may add one page; what is known already is never seen half written.
        before = bounds_of(count)
        in_page = before[:-1] - np.repeat(before[bounds_of(chunks)[:-1]], chunks)
        self.first_value[these] = np.repeat(self.first_value[start], chunks) + in_page
        encoding = self._layout.dictionary
        if encoding is not None:
            items = Slices(slices.source, slices.position[1::step], slices.size[1::step])
            self._add_dictionaries(encoding, pages, items)
        if self.rows is not None:
            for index, page in enumerate(pages.tolist()):
                self._add_repetition(self.rows, page, slices.slice_bytes((index + 1) * step - 1))
        self._is_known[pages] = True
        self._is_complete = bool(self._is_known.all())

    def chunk_ranges(self, first: int, last: int) -> tuple[Ranges, Int64s]:
        """Return the bytes of chunks `first` up to `last`, a range a page, and where pages begin.

        The second value has the first of the chunks in each range, and `last` behind.
        """
        page = self._page_of(first)
        if self.first_chunk[page + 1] >= last:
            edges = np.array([first, last], np.int64)
        else:
            after = int(np.searchsorted(self.first_chunk, last))
            inner = np.unique(self.first_chunk[page + 1 : after])
            edges = np.concatenate(([first], inner[inner < last], [last]))
        start = self.position[edges[:-1]]
        stop = self.position[edges[1:] - 1] + self.size[edges[1:] - 1]
        return Ranges(start, stop - start), edges

    def dictionary(self, chunks: Int64s) -> Dictionary | None:
        """Return the items that chunks point into, all of whose pages are known."""
        if self._layout.dictionary is None:
            return None
        first, last = self._page_of(int(chunks[0])), self._page_of(int(chunks[-1]))
        if first == last:
            return self._items[first]
        pages = self.pages_of(chunks)
        if self._is_complete:
            if self._joined is None:
                self._joined = _joined(self._items)
            return _of_pages(self._joined, pages)
        touched, which = np.unique(pages, return_inverse=True)
        return _of_pages(_joined([self._items[page] for page in touched.tolist()]), which)

    def pages_of(self, chunks: Int64s) -> Int64s:
        """Return the page that each chunk is in."""
        return self.first_chunk.searchsorted(chunks, side="right") - 1

    def _page_of(self, chunk: int) -> int:
        return int(self.first_chunk.searchsorted(chunk, side="right")) - 1

    def _check_rows(self, pages: Int64s) -> None:
        rows = np.diff(self.first_row)[pages]
        wrong = np.flatnonzero(rows != self._num_values[pages])
        if len(wrong):
            raise CorruptDataError(
                "a page does not have a value for each of its rows",
                column=self._leaf.column,
                rows=int(rows[wrong[0]]),
                values=int(self._num_values[pages[wrong[0]]]),
            )

    def _add_dictionaries(self, encoding: Encoding, pages: Int64s, slices: Slices) -> None:
        """Take the items of pages, which mostly are so few that they are decoded together."""
        if len(pages) > 1 and int(slices.size.sum()) > _TOGETHER_BYTES:
            for at in range(len(pages)):
                self._add_dictionaries(encoding, pages[at : at + 1], slices[at : at + 1])
            return
        data_type = self._leaf.data_type
        if pa.types.is_dictionary(data_type):
            data_type = data_type.value_type
        claimed = [self._num_items[page] for page in pages.tolist()]
        for count, size in zip(claimed, slices.size.tolist(), strict=True):
            if count > _ITEMS_MAX + _ITEMS_PER_BYTE_MAX * size:
                raise CorruptDataError(
                    "a dictionary claims more items than its bytes could hold",
                    column=self._leaf.column,
                    items=count,
                    bytes=size,
                )
        # A copy, for what is kept of many files must not keep their maps.
        data = slices_of(slices.size, joined_bytes(slices).copy())
        counts = np.array(claimed, np.int64)
        items = arrow_from_block(registry.decode_blocks(encoding, data, counts), data_type, None)
        for page, stop, count in zip(pages.tolist(), counts.cumsum(), claimed, strict=True):
            self._items[page] = Dictionary(Items(items.slice(int(stop) - count, count)))

    def _add_repetition(self, rows: RepetitionIndex, page: int, data: Bytes) -> None:
        start, stop = int(self.first_chunk[page]), int(self.first_chunk[page + 1])
        num_rows = int(self._pages.length[page])
        index = parse_repetition_index(data, num_chunks=stop - start, num_rows=num_rows)
        rows.begun[start:stop] = index.begun[:-1] + self.first_row[page]
        rows.ended[start:stop] = index.ended[:-1] + self.first_row[page]


def _joined(dictionaries: Sequence[Dictionary]) -> Dictionary:
    """Return the items of pages as one array, and where those of each page are."""
    items = [dictionary.items.array for dictionary in dictionaries]
    count = np.array([len(array) for array in items], np.int64)
    return Dictionary(Items(pa.concat_arrays(items)), np.cumsum(count) - count, count)


def _of_pages(joined: Dictionary, pages: Int64s) -> Dictionary:
    """Return the dictionary of chunks, given that of pages and the page of each chunk."""
    assert joined.first is not None
    assert joined.count is not None
    return Dictionary(joined.items, joined.first[pages], joined.count[pages])


def _spread(bounds: Int64s, chunks: Int64s) -> Int64s:
    """Return for each chunk where its page begins, and the end behind."""
    return np.append(np.repeat(bounds[:-1], chunks), bounds[-1])
