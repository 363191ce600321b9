"""Page metadata of mini-block pages: the positions of chunks and rows.

Writers split a column into many small pages that differ only in their rows. Such a run of pages is
read as one page, so that a take costs the same few array operations whether its rows are in one
page or in two hundred:

    page 0   chunks 0 1        rows 0 .. 1499
    page 1   chunks 2 3        rows 1500 .. 2999
    first_value                0 1024 | 1500 2524 | 3000      of the run

The table is filled page by page, when rows of a page are first read, so opening a file reads
nothing. Until then all chunks of a page have the start of the page as position, which keeps the
columns sorted for binary search. All threads write the same values, and a page is marked as loaded
afterwards, so no lock is needed.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import numpy as np
import pyarrow as pa

from lancelet import kernels
from lancelet.buffers import ByteRanges, Bytes, ByteSlices, Int64s
from lancelet.encodings.arrow import arrow_from_block
from lancelet.encodings.base import RowIndices, RowRange, Rows
from lancelet.encodings.codecs import registry
from lancelet.encodings.codecs.base import CHUNK_VALUES_MAX, Encoding
from lancelet.encodings.codecs.chunking import join_bytes, to_slices
from lancelet.encodings.miniblock.repetition_index import RepetitionIndex, parse_repetition_index
from lancelet.encodings.pages.layout import MiniBlockLayout
from lancelet.encodings.pages.leaf import Items, LeafContext
from lancelet.encodings.pages.stored_pages import StoredPages, to_bounds
from lancelet.encodings.row_ranges import expand
from lancelet.errors import CorruptDataError
from lancelet.values import dataclass

_CHUNK_BYTES = 5 * 8

_ITEMS_MAX: Final = 1 << 16
_ITEMS_PER_BYTE_MAX: Final = 64
"""Maximum accepted dictionary items per byte, above `_ITEMS_MAX`.

Items are distinct, so codecs rarely encode them in less than a few bits.
"""

_BATCH_BYTES_MAX: Final = 1 << 18
"""Maximum total bytes of dictionaries that are decoded together."""


@dataclass(frozen=True, slots=True, eq=False)
class Dictionary:
    """The dictionary items of chunks in one array.

    Chunk i refers to `count[i]` items from `first[i]`; both are `None` if every chunk refers to the
    entire array.
    """

    items: Items
    first: Int64s | None = None
    count: Int64s | None = None


_NO_DICTIONARY: Final = Dictionary(Items(pa.nulls(0)))


class PageMetadata:
    """Positions of the chunks and rows of a run of pages."""

    def __init__(
        self,
        pages: StoredPages,
        num_values: Int64s,
        num_items: Sequence[int],
        layout: MiniBlockLayout,
        leaf: LeafContext,
    ) -> None:
        """Prepare for pages with the given number of values and dictionary items.

        No page is loaded.
        """
        self._num_items = num_items
        self._pages = pages
        self._num_values = num_values
        self._layout = layout
        self._leaf = leaf
        self._entry_bytes = 4 if layout.has_large_chunks else 2
        self._is_loaded = np.zeros(len(pages), np.bool_)
        self._is_complete = False
        chunks = pages.buffers(0)[1] // self._entry_bytes
        self.first_chunk = to_bounds(chunks)
        self.first_row = to_bounds(pages.length)
        self.first_value = _repeat_bounds(to_bounds(num_values), chunks)
        self.position, self.size, self.count = np.zeros((3, len(self.first_value) - 1), np.int64)
        self.rows: RepetitionIndex | None = None
        if layout.repetition_index_depth:
            rows = _repeat_bounds(self.first_row, chunks)
            self.rows = RepetitionIndex(rows, rows.copy())
        # Only accessed for loaded pages.
        self._items: list[Dictionary] = [_NO_DICTIONARY] * len(pages)
        self._all_items: Dictionary | None = None

    @property
    def num_bytes(self) -> int:
        """Return the approximate memory usage in bytes."""
        size = _CHUNK_BYTES * len(self.first_value) * (2 if self.rows is not None else 1)
        if self._layout.dictionary is not None:
            size += 8 * int(self._pages.buffers(2)[1].sum())
        return size

    def missing(self, rows: Rows) -> Int64s:
        """Return the pages with any of the rows that are not loaded."""
        if self._is_complete:
            return np.empty(0, np.int64)
        match rows:
            case RowRange(start, stop):
                first = int(np.searchsorted(self.first_row, start, side="right")) - 1
                pages = np.arange(first, int(np.searchsorted(self.first_row, stop)))
            case RowIndices(indices):
                pages = kernels.locate_rows(self.first_row, indices)[0]
        return pages[~self._is_loaded[pages]]

    def ranges(self, pages: Int64s) -> ByteRanges:
        """Return the byte ranges of the metadata of pages: all buffers except chunks."""
        buffer_indices = np.array([0, *range(2, 2 + self._layout.num_extra)])
        buffers = (self._pages.first_buffer[pages][:, None] + buffer_indices).reshape(-1)
        return ByteRanges(self._pages.position[buffers], self._pages.size[buffers])

    def add(self, pages: Int64s, slices: ByteSlices) -> None:
        """Parse and validate the metadata of pages, read from `ranges`."""
        step = 1 + self._layout.num_extra
        if not self._layout.repetition_index_depth:
            self._check_rows(pages)
        data_position, data_size = self._pages.buffers(1)
        position, size, count = kernels.locate_chunks(
            ByteSlices(slices.source, slices.position[::step], slices.size[::step]),
            self._entry_bytes,
            self._num_values[pages],
            data_position[pages],
            data_size[pages],
            count_max=CHUNK_VALUES_MAX,
        )
        start = self.first_chunk[pages]
        chunks = self.first_chunk[pages + 1] - start
        chunk_indices = expand(start, chunks)
        self.position[chunk_indices] = position
        self.size[chunk_indices] = size
        self.count[chunk_indices] = count
        # Two threads may load the same page; loaded values are never observed half-written.
        before = to_bounds(count)
        in_page = before[:-1] - np.repeat(before[to_bounds(chunks)[:-1]], chunks)
        self.first_value[chunk_indices] = np.repeat(self.first_value[start], chunks) + in_page
        encoding = self._layout.dictionary
        if encoding is not None:
            items = ByteSlices(slices.source, slices.position[1::step], slices.size[1::step])
            self._add_dictionaries(encoding, pages, items)
        if self.rows is not None:
            for index, page in enumerate(pages.tolist()):
                self._add_repetition(self.rows, page, slices.slice_bytes((index + 1) * step - 1))
        self._is_loaded[pages] = True
        self._is_complete = bool(self._is_loaded.all())

    def chunk_ranges(self, chunks: Int64s) -> tuple[ByteRanges, Int64s]:
        """Return the bytes of ascending chunks, one range per run of chunks of a page.

        Also returns the index of the first chunk of each range, followed by the number of chunks.
        """
        first, last = int(chunks[0]), int(chunks[-1])
        if last - first == len(chunks) - 1 and last < self.first_chunk[self._page_of(first) + 1]:
            edges = np.array([0, len(chunks)], np.int64)
        else:
            # Chunks of different pages have different differences.
            run = chunks + self.pages_of(chunks)
            edges = np.flatnonzero(np.diff(run, prepend=-2, append=-2) != 1)
        starts, lasts = chunks[edges[:-1]], chunks[edges[1:] - 1]
        position = self.position[starts]
        return ByteRanges(position, self.position[lasts] + self.size[lasts] - position), edges

    def dictionary(self, chunks: Int64s) -> Dictionary | None:
        """Return the dictionary of chunks of loaded pages, or None without dictionaries."""
        if self._layout.dictionary is None:
            return None
        first, last = self._page_of(int(chunks[0])), self._page_of(int(chunks[-1]))
        if first == last:
            return self._items[first]
        pages = self.pages_of(chunks)
        if self._is_complete:
            if self._all_items is None:
                self._all_items = _concat_dictionaries(self._items)
            return _take_dictionary(self._all_items, pages)
        unique_pages, page_indices = np.unique(pages, return_inverse=True)
        return _take_dictionary(
            _concat_dictionaries([self._items[page] for page in unique_pages.tolist()]),
            page_indices,
        )

    def pages_of(self, chunks: Int64s) -> Int64s:
        """Return the page index of each chunk."""
        return self.first_chunk.searchsorted(chunks, side="right") - 1

    def _page_of(self, chunk: int) -> int:
        return int(self.first_chunk.searchsorted(chunk, side="right")) - 1

    def _check_rows(self, pages: Int64s) -> None:
        rows = np.diff(self.first_row)[pages]
        wrong = np.flatnonzero(rows != self._num_values[pages])
        if len(wrong):
            raise CorruptDataError(
                "the number of values of a page does not match its rows",
                column=self._leaf.column,
                rows=int(rows[wrong[0]]),
                values=int(self._num_values[pages[wrong[0]]]),
            )

    def _add_dictionaries(self, encoding: Encoding, pages: Int64s, slices: ByteSlices) -> None:
        """Decode the dictionaries of pages; small ones are decoded together."""
        if len(pages) > 1 and int(slices.size.sum()) > _BATCH_BYTES_MAX:
            for index in range(len(pages)):
                self._add_dictionaries(
                    encoding, pages[index : index + 1], slices[index : index + 1]
                )
            return
        data_type = self._leaf.data_type
        if pa.types.is_dictionary(data_type):
            data_type = data_type.value_type
        claimed = [self._num_items[page] for page in pages.tolist()]
        for count, size in zip(claimed, slices.size.tolist(), strict=True):
            if count > _ITEMS_MAX + _ITEMS_PER_BYTE_MAX * size:
                raise CorruptDataError(
                    "a dictionary claims more items than its bytes can contain",
                    column=self._leaf.column,
                    items=count,
                    bytes=size,
                )
        # A copy, so that cached items do not retain the memory maps of many files.
        data = to_slices(slices.size, join_bytes(slices).copy())
        counts = np.array(claimed, np.int64)
        items = arrow_from_block(registry.decode_blocks(encoding, data, counts), data_type, None)
        for page, stop, count in zip(pages.tolist(), counts.cumsum(), claimed, strict=True):
            self._items[page] = Dictionary(Items(items.slice(int(stop) - count, count)))

    def _add_repetition(self, rows: RepetitionIndex, page: int, data: Bytes) -> None:
        start, stop = int(self.first_chunk[page]), int(self.first_chunk[page + 1])
        num_rows = int(self._pages.length[page])
        index = parse_repetition_index(data, num_chunks=stop - start, num_rows=num_rows)
        rows.started[start:stop] = index.started[:-1] + self.first_row[page]
        rows.ended[start:stop] = index.ended[:-1] + self.first_row[page]


def _concat_dictionaries(dictionaries: Sequence[Dictionary]) -> Dictionary:
    """Concatenate the items of pages, with the range of each page."""
    items = [dictionary.items.array for dictionary in dictionaries]
    count = np.array([len(array) for array in items], np.int64)
    return Dictionary(Items(pa.concat_arrays(items)), np.cumsum(count) - count, count)


def _take_dictionary(joined: Dictionary, pages: Int64s) -> Dictionary:
    """Return the dictionary of chunks, from that of pages and the page of each chunk."""
    assert joined.first is not None
    assert joined.count is not None
    return Dictionary(joined.items, joined.first[pages], joined.count[pages])


def _repeat_bounds(bounds: Int64s, chunks: Int64s) -> Int64s:
    """Return the start of the page for each chunk, followed by the end of the last page."""
    return np.append(np.repeat(bounds[:-1], chunks), bounds[-1])
