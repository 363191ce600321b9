"""Page cache of a BTREE index, which holds single pages or the whole index.

    pages        0 1 2 3 4 5 6 7       rows of 16 bytes
    reads of     1 5                   two pages are cached
    reads of     0 4 6                 a quarter was read: the whole index is loaded

Missing pages are read in one batch. Cached pages may be evicted.
"""

from __future__ import annotations

import threading
from collections.abc import Sequence
from functools import partial
from itertools import pairwise
from typing import Any, Final

import numpy as np
import pyarrow as pa

from lancelet.buffers import Int64s
from lancelet.encodings.arrow import to_numpy
from lancelet.encodings.base import RowIndices, RowRange, Rows
from lancelet.index.folder import IndexLoads, StoredFile
from lancelet.index.parts.ordering import Order
from lancelet.index.parts.spans import Span
from lancelet.io.cache import CacheScope
from lancelet.io.fork import reset_after_fork
from lancelet.io.metered import IoCounts
from lancelet.rowids.address import UInt64s
from lancelet.values import cached_property, dataclass

_WHOLE: Final = "whole"
_WHOLE_INDEX_SHARE: Final = 4
"""The whole index is loaded once one in this number of pages was read."""


@dataclass(frozen=True, slots=True, eq=False)
class Page:
    """The rows of a page with non-null values; `first` is the index of the first row."""

    first: int
    values: pa.Array
    keys: Any
    ids: UInt64s

    @property
    def stop(self) -> int:
        """End of the row range, exclusive."""
        return self.first + len(self.ids)

    @property
    def memory_bytes(self) -> int:
        """Memory in bytes."""
        return int(self.values.nbytes + self.ids.nbytes)


@dataclass(eq=False)
class Pages:
    """The pages with non-null values. Page 0 follows `skipped` pages of nulls in the file."""

    data: StoredFile
    columns: tuple[str, str]
    page_rows: int
    skipped: int
    num_nulls: int
    count: int
    order: Order
    loads: IndexLoads
    cache: CacheScope

    def __post_init__(self) -> None:
        """Start with an empty cache."""
        self._num_read = 0
        self._lock = threading.Lock()
        reset_after_fork(self, Pages._reset)

    @property
    def whole(self) -> Page | None:
        """The whole index if it is cached, or None."""
        return self.cache.get(_WHOLE)

    def page(self, number: int) -> Page:
        """Return a page, or the whole index if it is cached."""
        whole = self.whole_index(0)
        return self.single_page(number) if whole is None else whole

    def single_page(self, number: int) -> Page:
        """Return a single page."""
        return self.cache.get_or_make(number, partial(self._read_page, number))

    def cache_pages(self, numbers: Sequence[int]) -> bool:
        """Cache missing pages in one read. Return False if the whole index is cached instead."""
        missing = [number for number in numbers if number not in self.cache]
        if self.whole_index(len(missing)) is not None:
            return False
        if len(missing) < 2:
            return True
        ranges = np.array([self.rows_of(number, number + 1) for number in missing], np.int64)
        self.loads.count(parts=len(missing))
        self._count(len(missing))
        values, ids = self._read(RowIndices(rows_within(ranges[:, 0], ranges[:, 1])))
        bounds = [0, *np.cumsum(ranges[:, 1] - ranges[:, 0]).tolist()]
        for number, (first, _), (start, stop) in zip(
            missing, ranges.tolist(), pairwise(bounds), strict=True
        ):
            # Slices would retain the memory of the whole read.
            page_values = pa.concat_arrays([values.slice(start, stop - start)])
            page = Page(first, page_values, self.order.keys(page_values), ids[start:stop].copy())
            self.cache.put(number, page, value_bytes=page.memory_bytes)
        return True

    def estimate_reads(self, numbers: Sequence[int]) -> IoCounts:
        """Estimate the reads of pages that are not cached."""
        missing = {number for number in numbers if number not in self.cache}
        if self.whole is not None or not missing:
            return IoCounts()
        rows = [RowRange(*self.rows_of(number, number + 1)) for number in missing]
        if self._should_load_all(len(missing)):
            rows = [RowRange(self.num_nulls, self.data.num_rows)]
        return self.data.estimate_reads(self.columns, *rows)

    def prewarm(self) -> None:
        """Cache all pages, up to the cache limit."""
        if self.whole_index(self.count) is None:
            page_bytes = self.page(self.count // 2).memory_bytes
            for number in range(min(self.count, self.cache.entry_bytes_max // max(page_bytes, 1))):
                self.page(number)

    def whole_index(self, pages: int) -> Page | None:
        """Return the whole index if it is cached, or worth loading for `pages` further reads."""
        whole = self.whole
        if whole is None and self._should_load_all(pages) and self._fits:
            if self.count == 1:
                return self.single_page(0)
            read = partial(self._read_rows, self.num_nulls, self.data.num_rows)
            whole = self.cache.get_or_make(_WHOLE, read)
        return whole

    def rows_of(self, page: int, stop: int) -> Span:
        """Return the row range of pages, excluding nulls."""
        first = max((self.skipped + page) * self.page_rows, self.num_nulls)
        return first, min((self.skipped + stop) * self.page_rows, self.data.num_rows)

    def _should_load_all(self, pages: int) -> bool:
        """Return whether the whole index should be loaded before `pages` further reads."""
        return (self._num_read + pages) * _WHOLE_INDEX_SHARE >= self.count

    @cached_property
    def _fits(self) -> bool:
        """Whether the whole index fits in the cache."""
        if not self.count:
            return False
        page = self.single_page(self.count // 2)
        rows = self.data.num_rows - self.num_nulls
        row_bytes = page.memory_bytes / max(len(page.ids), 1)
        return rows * row_bytes <= self.cache.entry_bytes_max

    def _read_page(self, number: int) -> Page:
        self._count(1)
        return self._read_rows(*self.rows_of(number, number + 1))

    def _count(self, pages: int) -> None:
        """Count pages read. Thread-safe."""
        with self._lock:
            self._num_read += pages

    def _reset(self) -> None:
        self._lock = threading.Lock()

    def _read_rows(self, first: int, stop: int) -> Page:
        self.loads.count(parts=1)
        values, ids = self._read(RowRange(first, stop))
        return Page(first, values, self.order.keys(values), ids)

    def _read(self, rows: Rows) -> tuple[pa.Array, UInt64s]:
        values, ids = self.data.read(self.columns, rows)
        return values, to_numpy(ids)


def rows_within(starts: Int64s, stops: Int64s) -> Int64s:
    """Return the rows of ascending ranges that do not overlap.

    >>> rows_within(np.array([2, 9]), np.array([4, 10])).tolist()
    [2, 3, 9]
    """
    lengths = stops - starts
    offsets = np.cumsum(lengths) - lengths
    return np.repeat(starts - offsets, lengths) + np.arange(int(lengths.sum()))
