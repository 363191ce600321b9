"""The pages of a BTREE that are in memory: each that was looked at, or all as if they were one.

    pages        0 1 2 3 4 5 6 7       rows of 16 bytes
    looked at    1 5                   two pages are kept
    and then     0 4 6                 a quarter was read: now the whole index is

Pages that are missing are read together. They are in the cache for as long as it has room.
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
from lancelet.encodings.arrow import numpy_of
from lancelet.encodings.base import RowIndices, RowRange, Rows
from lancelet.index.folder import IndexLoads, StoredFile
from lancelet.index.parts.ordering import Order
from lancelet.index.parts.spans import Span
from lancelet.io.cache import CacheScope
from lancelet.io.fork import renew_after_fork
from lancelet.io.metered import IoCounts
from lancelet.rowids.address import UInt64s
from lancelet.values import cached_property, dataclass

_WHOLE: Final = "whole"
_WHOLE_FROM: Final = 4
"""The share of pages, one of so many, that are read before all are."""


@dataclass(frozen=True, slots=True, eq=False)
class Page:
    """The rows of a page that have a value, of which `first` is the first."""

    first: int
    values: pa.Array
    keys: Any
    ids: UInt64s

    @property
    def stop(self) -> int:
        """The row behind the last."""
        return self.first + len(self.ids)

    @property
    def memory_bytes(self) -> int:
        """How much memory it takes."""
        return int(self.values.nbytes + self.ids.nbytes)


@dataclass(eq=False)
class Pages:
    """The pages with values, counted from the first such page, which is `skipped` in the file."""

    data: StoredFile
    columns: tuple[str, str]
    page_rows: int
    skipped: int
    num_nulls: int
    count: int
    order: Order
    loads: IndexLoads
    kept: CacheScope

    def __post_init__(self) -> None:
        """Begin with none in memory."""
        self._num_read = 0
        self._counting = threading.Lock()
        renew_after_fork(self, Pages._renew)

    @property
    def whole(self) -> Page | None:
        """The whole index, if it is in memory."""
        return self.kept.get(_WHOLE)

    def page(self, number: int) -> Page:
        """Return a page, or the whole index if that is in memory."""
        whole = self.whole_of(0)
        return self.own_page(number) if whole is None else whole

    def own_page(self, number: int) -> Page:
        """Return a page and no more."""
        return self.kept.get_or_make(number, partial(self._read_page, number))

    def keep(self, numbers: Sequence[int]) -> bool:
        """Read pages that are missing, all at once; say no if the whole index is there instead."""
        missing = [number for number in numbers if number not in self.kept]
        if self.whole_of(len(missing)) is not None:
            return False
        if len(missing) < 2:
            return True
        spans = np.array([self.rows_of(number, number + 1) for number in missing], np.int64)
        self.loads.count(parts=len(missing))
        self._count(len(missing))
        values, ids = self._read(RowIndices(rows_within(spans[:, 0], spans[:, 1])))
        borders = [0, *np.cumsum(spans[:, 1] - spans[:, 0]).tolist()]
        for number, (first, _), (start, stop) in zip(
            missing, spans.tolist(), pairwise(borders), strict=True
        ):
            # Copies, since slices would hold what was read for all of them.
            own = pa.concat_arrays([values.slice(start, stop - start)])
            page = Page(first, own, self.order.keys(own), ids[start:stop].copy())
            self.kept.put(number, page, value_bytes=page.memory_bytes)
        return True

    def estimate_reads(self, numbers: Sequence[int]) -> IoCounts:
        """Return about what looking at pages will read, of those that are not in memory."""
        missing = {number for number in numbers if number not in self.kept}
        if self.whole is not None or not missing:
            return IoCounts()
        rows = [RowRange(*self.rows_of(number, number + 1)) for number in missing]
        if self._is_whole_from(len(missing)):
            rows = [RowRange(self.num_nulls, self.data.num_rows)]
        return self.data.estimate_reads(self.columns, *rows)

    def prewarm(self) -> None:
        """Read every page, as many as are kept."""
        if self.whole_of(self.count) is None:
            some = self.page(self.count // 2).memory_bytes
            for number in range(min(self.count, self.kept.entry_bytes_max // max(some, 1))):
                self.page(number)

    def whole_of(self, pages: int) -> Page | None:
        """Return the whole index if it is in memory, or is to be, now that pages will be read."""
        whole = self.whole
        if whole is None and self._is_whole_from(pages) and self._fits:
            if self.count == 1:
                return self.own_page(0)
            read = partial(self._read_rows, self.num_nulls, self.data.num_rows)
            whole = self.kept.get_or_make(_WHOLE, read)
        return whole

    def rows_of(self, page: int, stop: int) -> Span:
        """Return the rows of pages that have a value."""
        first = max((self.skipped + page) * self.page_rows, self.num_nulls)
        return first, min((self.skipped + stop) * self.page_rows, self.data.num_rows)

    def _is_whole_from(self, pages: int) -> bool:
        """Whether so many pages more are a share for which all are read."""
        return (self._num_read + pages) * _WHOLE_FROM >= self.count

    @cached_property
    def _fits(self) -> bool:
        """Whether there are pages, and not too large ones to be kept together."""
        if not self.count:
            return False
        some = self.own_page(self.count // 2)
        rows = self.data.num_rows - self.num_nulls
        row_bytes = some.memory_bytes / max(len(some.ids), 1)
        return rows * row_bytes <= self.kept.entry_bytes_max

    def _read_page(self, number: int) -> Page:
        self._count(1)
        return self._read_rows(*self.rows_of(number, number + 1))

    def _count(self, pages: int) -> None:
        """Count pages that are read, by any number of threads at once."""
        with self._counting:
            self._num_read += pages

    def _renew(self) -> None:
        self._counting = threading.Lock()

    def _read_rows(self, first: int, stop: int) -> Page:
        self.loads.count(parts=1)
        values, ids = self._read(RowRange(first, stop))
        return Page(first, values, self.order.keys(values), ids)

    def _read(self, rows: Rows) -> tuple[pa.Array, UInt64s]:
        values, ids = self.data.read(self.columns, rows)
        return values, numpy_of(ids)


def rows_within(starts: Int64s, stops: Int64s) -> Int64s:
    """Return every row of spans that ascend and do not overlap.

    >>> rows_within(np.array([2, 9]), np.array([4, 10])).tolist()
    [2, 3, 9]
    """
    lengths = stops - starts
    before = np.cumsum(lengths) - lengths
    return np.repeat(starts - before, lengths) + np.arange(int(lengths.sum()))
