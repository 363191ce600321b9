"""Columnar representation of pages, for files with too many pages for an object each.

    page      length   buffers (position, size)     encoding
    0         1024     (64, 4) (128, 900)           a
    1         1024     (1088, 4) (1152, 870)        a
    2         7        (2048, 70)                   b

    length    1024 1024 7        first_buffer  0 2 4 5       encoding  0 0 1
    position  64 128 1088 ...    size          4 900 4 ...   encodings (a, b)

A sequence of `StoredPage`s that are created on access; readers of many pages use the arrays. Equal
encodings are stored once, so that each is parsed once.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import overload

import numpy as np

from lancelet.buffers import Int64s
from lancelet.encodings.base import StoredPage
from lancelet.encodings.row_ranges import expand
from lancelet.values import cached_property, dataclass


@dataclass(frozen=True, eq=False)
class StoredPages(Sequence[StoredPage]):
    """Pages in row order; `first_row` is relative to the first page."""

    length: Int64s
    priority: Int64s
    first_buffer: Int64s
    position: Int64s
    size: Int64s
    encoding: Int64s
    encodings: tuple[bytes, ...]
    start: int = 0
    """The first row of the first page."""

    @staticmethod
    def of(pages: Sequence[StoredPage]) -> StoredPages:
        """Convert pages to columnar form.

        >>> page = StoredPage(0, 5, np.array([64]), np.array([20]), b"flat", 0)
        >>> StoredPages.of([page, page]).encodings
        (b'flat',)
        """
        if isinstance(pages, StoredPages):
            return pages
        numbers: dict[bytes, int] = {}
        encoding = [numbers.setdefault(page.encoding, len(numbers)) for page in pages]
        none = np.empty(0, np.int64)
        return StoredPages(
            np.array([page.length for page in pages], np.int64),
            np.array([page.priority for page in pages], np.uint64).view(np.int64),
            to_bounds(np.array([len(page.size) for page in pages], np.int64)),
            np.concatenate([none, *(page.position for page in pages)]),
            np.concatenate([none, *(page.size for page in pages)]),
            np.array(encoding, np.int64),
            tuple(numbers),
            pages[0].first_row if pages else 0,
        )

    def __len__(self) -> int:
        """Return the number of pages."""
        return len(self.length)

    @overload
    def __getitem__(self, index: int) -> StoredPage: ...

    @overload
    def __getitem__(self, index: slice) -> StoredPages: ...

    def __getitem__(self, index: int | slice) -> StoredPage | StoredPages:
        """Return a page or a contiguous range of pages."""
        if isinstance(index, slice):
            start, stop, step = index.indices(len(self))
            assert step == 1, "pages must be contiguous"
            if (start, stop) == (0, len(self)):
                return self
            return self.part(start, max(start, stop), first_row=int(self.first_row[start]))
        page = range(len(self))[index]
        buffers = slice(int(self.first_buffer[page]), int(self.first_buffer[page + 1]))
        return StoredPage(
            int(self.first_row[page]),
            int(self.length[page]),
            self.position[buffers],
            self.size[buffers],
            self.encodings[self.encoding[page]],
            int(self.priority[page]) & 0xFFFF_FFFF_FFFF_FFFF,
        )

    @cached_property
    def first_row(self) -> Int64s:
        """The first row of each page, and the end of the last page."""
        return self.start + to_bounds(self.length)

    @cached_property
    def num_buffers(self) -> Int64s:
        """The number of buffers of each page."""
        return np.diff(self.first_buffer)

    @cached_property
    def bytes(self) -> Int64s:
        """The bytes of all buffers of each page."""
        return np.diff(to_bounds(self.size)[self.first_buffer])

    def buffers(self, index: int) -> tuple[Int64s, Int64s]:
        """Return position and size of one buffer of each page; all pages must have it.

        >>> page = StoredPage(0, 5, np.array([64, 128]), np.array([4, 9]), b"", 0)
        >>> StoredPages.of([page, page]).buffers(1)[1].tolist()
        [9, 9]
        """
        indices = self.first_buffer[:-1] + index
        return self.position[indices], self.size[indices]

    def take(self, pages: Int64s) -> StoredPages:
        """Return selected pages, in any order, renumbering their rows."""
        counts = self.num_buffers[pages]
        buffers = expand(self.first_buffer[pages], counts)
        return StoredPages(
            self.length[pages],
            self.priority[pages],
            to_bounds(counts),
            self.position[buffers],
            self.size[buffers],
            self.encoding[pages],
            self.encodings,
        )

    def part(self, start: int, stop: int, *, first_row: int = 0) -> StoredPages:
        """Return the pages from `start` to `stop`, with rows starting at `first_row`."""
        first, last = int(self.first_buffer[start]), int(self.first_buffer[stop])
        return StoredPages(
            self.length[start:stop],
            self.priority[start:stop],
            self.first_buffer[start : stop + 1] - first,
            self.position[first:last],
            self.size[first:last],
            self.encoding[start:stop],
            self.encodings,
            first_row,
        )


def to_bounds(counts: Int64s) -> Int64s:
    """Return the start of each part and the end of the last, from part sizes.

    >>> to_bounds(np.array([2, 0, 3])).tolist()
    [0, 2, 2, 5]
    """
    bounds = np.zeros(len(counts) + 1, np.int64)
    counts.cumsum(out=bounds[1:])
    return bounds
