"""Search in a BTREE index: converts bounds to row ranges of the sorted rows, and reads their ids.

    pages        0: .. 5    1: 7 .. 12    2: 15 .. 15
    6 < x <= 8   from page 1, row 0       first value above 6
                 to page 1, row 3         first value above 8

Values are read only for pages that contain a bound. For pages between two bounds, only ids are
read.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from typing import Any, Final, assert_never

import numpy as np
import pyarrow as pa

from lancelet.buffers import Int64s
from lancelet.encodings.arrow import to_numpy
from lancelet.encodings.base import RowIndices, RowRange
from lancelet.errors import CorruptDataError
from lancelet.format.wire import parse_number
from lancelet.index.base import SearchResult, is_byte_strings
from lancelet.index.folder import SegmentFolder
from lancelet.index.parts.ordering import Order, Side, order_of
from lancelet.index.parts.spans import SortedValues, Span, interval_of, row_ranges_of
from lancelet.index.query import (
    Contains,
    HasAll,
    HasAny,
    Intersects,
    Interval,
    IsNull,
    OneOf,
    ScalarQuery,
    StartsWith,
)
from lancelet.index.scalar.btree.layout import BATCH_SIZE, PAGE_DATA, PAGE_LOOKUP, PAGE_ROWS
from lancelet.index.scalar.btree.pages import Page, Pages, rows_within
from lancelet.io.metered import IoCounts
from lancelet.rowids.address import UInt64s
from lancelet.rowids.selection import RowSet
from lancelet.values import cached_property, dataclass

_PART_ROWS: Final = 1 << 20
_BATCH_MIN: Final = 8
_PAGE_LOOKUP_VALUES_MAX: Final = 1024
"""Maximum number of values looked up page by page, unless they match almost every page."""
_PAGE_DISTANCE_MAX: Final = 3
"""Pages within this mean distance are read as one range, if there are more than `_BATCH_MIN`."""


@dataclass(frozen=True, slots=True, eq=False)
class _PageRange:
    """A range of rows within a page."""

    page: Page
    start: int
    stop: int

    @property
    def ids(self) -> UInt64s:
        """Row numbers of the range."""
        return self.page.ids[self.start : self.stop]


_EMPTY_RANGE: Final = _PageRange(Page(0, pa.nulls(0), None, np.empty(0, np.uint64)), 0, 0)


class BTreeSegment:
    """An open segment of a BTREE index. Only page bounds are held in memory."""

    def __init__(self, folder: SegmentFolder) -> None:
        """Read the page bounds and open the file of the pages."""
        lookup = folder.open(PAGE_LOOKUP)
        self._data = folder.open(PAGE_DATA)
        self._loads = folder.loads
        # Early releases used another column name.
        self._ids_name = "row_ids" if "row_ids" in self._data.schema.names else "ids"
        self._page_rows = _parse_page_rows(lookup.metadata.get(BATCH_SIZE))
        minimum, maximum, null_counts = lookup.read(["min", "max", "null_count"])
        if len(maximum) != -(-self._data.num_rows // self._page_rows):
            raise CorruptDataError(
                "the number of pages in a BTREE index does not match its rows",
                path=folder.path,
                pages=len(maximum),
                rows=self._data.num_rows,
                page_rows=self._page_rows,
            )
        self._num_nulls = int(to_numpy(null_counts).astype(np.int64).sum())
        # Pages that contain only nulls are first and have no bounds.
        self._first_page = maximum.null_count
        self._minimum = minimum.slice(self._first_page)
        self._maximum = maximum.slice(self._first_page)
        self._order: Order = order_of(maximum.type)
        self._is_floating = pa.types.is_floating(maximum.type)
        self._last_keys = self._order.keys(self._maximum)
        self._first_keys = self._order.keys(self._minimum.drop_null())
        self._pages = Pages(
            self._data,
            ("values", self._ids_name),
            self._page_rows,
            self._first_page,
            self._num_nulls,
            len(self._maximum),
            self._order,
            self._loads,
            folder.cache_scope,
        )
        self._sorted = SortedValues(
            maximum.type,
            self._data.num_rows,
            self._num_nulls,
            self._insertion_points,
            self._equal_ranges,
        )

    @property
    def num_rows(self) -> int:
        """Number of indexed rows."""
        return self._data.num_rows

    @property
    def data_type(self) -> pa.DataType:
        """Type of the values."""
        return self._maximum.type

    def read_parts(self) -> Iterator[tuple[pa.Array, UInt64s]]:
        """Yield the values and row numbers of all rows, in order."""
        for start in range(0, self.num_rows, _PART_ROWS):
            rows = RowRange(start, min(start + _PART_ROWS, self.num_rows))
            values, ids = self._data.read(["values", self._ids_name], rows)
            yield values, to_numpy(ids)

    def entries(self) -> tuple[pa.Array, UInt64s]:
        """Return the value and row number of each row."""
        values, ids = self._data.read(["values", self._ids_name])
        return values, to_numpy(ids)

    def numbers(self) -> UInt64s:
        """Return the row numbers of all rows, sorted by value."""
        (ids,) = self._data.read([self._ids_name])
        numbers: UInt64s = to_numpy(ids)
        return numbers

    def sorted_entries(self, count: int, *, ascending: bool) -> tuple[pa.Array, UInt64s]:
        """Return the values and row numbers of the first or last `count` non-null rows."""
        start, stop = self._num_nulls, min(self._num_nulls + count, self.num_rows)
        if not ascending:
            start, stop = max(self._num_nulls, self.num_rows - count), self.num_rows
        values, ids = self._data.read(["values", self._ids_name], RowRange(start, stop))
        return values, to_numpy(ids)

    def estimate(self, query: ScalarQuery) -> int | None:
        """Estimate the number of matching rows from the bounds of pages."""
        match query:
            case IsNull():
                return self._num_nulls
            case OneOf(values):
                single = self._find_single(values)
                if single is not None:
                    return single.stop - single.start
                first = self._order.find(self._last_keys, values, "left")
                stop = self._stop_pages(values)
                pages = np.maximum(stop - first, 0)
                inside = np.minimum(pages, 1) * self._rows_per_value
                return min(
                    self.num_rows, int((inside + (pages - 1).clip(0) * self._page_rows).sum())
                )
            case Interval() | StartsWith():
                interval = interval_of(query, self.data_type)
                return None if interval is None else self._estimate(interval)
            case Contains() | HasAny() | HasAll() | Intersects():
                return None
        assert_never(query)

    @cached_property
    def _rows_per_value(self) -> int:
        """Estimated number of rows per distinct value, from a sample of up to three pages."""
        last = len(self._maximum) - 1
        pages = sorted({0, len(self._maximum) // 2, last}) if last >= 0 else []
        self._pages.cache_pages(pages)
        rows = distinct = 0
        for page in pages:
            values = self._pages.page(page).values
            rows += len(values)
            distinct += int(self._order.changes(values).sum())
        return -(-rows // max(distinct, 1))

    def estimate_reads(self, query: ScalarQuery) -> IoCounts:
        """Estimate the reads of a search: pages with bounds, and the ids between them."""
        if isinstance(query, IsNull):
            return self._estimate_id_reads(0, self._num_nulls)
        if isinstance(query, OneOf):
            pages = np.unique(self._order.find(self._last_keys, query.values, "left"))
            pages = pages[pages < len(self._maximum)]
            if not _are_dense(pages):
                return self._pages.estimate_reads(pages.tolist())
            first, stop = int(pages[0]), int(pages[-1]) + 1
        else:
            assert isinstance(query, Interval | StartsWith), "supported queries have an estimate"
            interval = interval_of(query, self.data_type)
            first, stop = (0, 0) if interval is None else self._pages_within(interval)
        bounds = [page for page in {first, stop - 1} if first <= page < stop]
        total = self._pages.estimate_reads(bounds)
        if stop - first < 2 or self._pages.whole is not None:
            return total
        return total + self._estimate_id_reads(*self._pages.rows_of(first, stop))

    def _estimate_id_reads(self, start: int, stop: int) -> IoCounts:
        return self._data.estimate_reads([self._ids_name], RowRange(start, max(start, stop)))

    def search(self, query: ScalarQuery) -> SearchResult:
        """Return the matching rows."""
        parts_before = self._loads.parts
        numbers = self._search_numbers(query, None)
        assert numbers is not None, "supported queries have an estimate"
        self._loads.count(cache_hits=self._loads.parts == parts_before)
        return SearchResult(RowSet.of(numbers))

    def lookup_rows(self, query: OneOf, limit: int) -> UInt64s | None:
        """Return the matching row numbers in any order, or None if there are more than `limit`."""
        parts_before = self._loads.parts
        numbers = self._search_numbers(query, limit)
        self._loads.count(cache_hits=self._loads.parts == parts_before)
        return numbers

    def _search_numbers(self, query: ScalarQuery, limit: int | None) -> UInt64s | None:
        """Return the matching row numbers; None if unsupported or more than `limit`."""
        if isinstance(query, OneOf):
            rows = min(self._page_rows, self.num_rows)
            self._loads.count(comparisons=len(query.values) * rows)
            single = self._find_single(query.values)
            numbers = self._ids_by_pages(query.values) if single is None else single.ids
            if numbers is not None:
                return numbers if limit is None or len(numbers) <= limit else None
        else:
            self._loads.count(comparisons=min(self._rows_compared(query), self.num_rows))
        ranges = row_ranges_of(query, self._sorted)
        if ranges is None or (
            limit is not None and sum(max(stop - start, 0) for start, stop in ranges) > limit
        ):
            return None
        return self._ids(ranges)

    def _ids_by_pages(self, values: pa.Array) -> UInt64s | None:
        """Return the rows with any of a few values, reading each page once.

        Returns None if another strategy is faster.
        """
        if not 1 < len(values) <= _PAGE_LOOKUP_VALUES_MAX or self._is_floating:
            return None
        ordered = values.take(pa.array(self._order.sort(values)))
        pages = self._order.find(self._last_keys, ordered, "left")
        bounds = [0, *(np.flatnonzero(np.diff(pages)) + 1).tolist(), len(pages)]
        distinct = pages[bounds[:-1]]
        inside = distinct[distinct < len(self._maximum)]
        if _are_dense(inside) or not self._pages.cache_pages(inside.tolist()):
            return None
        parts: list[UInt64s] = [np.empty(0, np.uint64)]
        for number, (bound, following) in zip(
            inside.tolist(), itertools.pairwise(bounds), strict=False
        ):
            page, targets = self._pages.single_page(number), ordered.slice(bound, following - bound)
            target_stops = self._order.find(page.keys, targets, "right")
            if target_stops[-1] == len(page.ids) and page.stop < self.num_rows:
                return None  # the next page may start with the same value
            first = self._order.find(page.keys, targets, "left")
            ranges = zip(first.tolist(), target_stops.tolist(), strict=True)
            parts += [page.ids[start:stop] for start, stop in ranges if start < stop]
        return np.concatenate(parts)

    def count(self, query: ScalarQuery) -> int | None:
        """Return the number of matching rows."""
        ranges = row_ranges_of(query, self._sorted)
        return None if ranges is None else _count_rows(ranges)

    def nulls(self) -> RowSet:
        """Return the rows with null values."""
        return RowSet.of(self._ids([(0, self._num_nulls)]))

    def prewarm(self) -> None:
        """Cache all pages, up to the cache limit."""
        self._pages.prewarm()

    def statistics(self) -> dict[str, Any]:
        """Return the number of pages and the minimum and maximum value."""
        pages = len(self._maximum)
        return {
            "num_pages": self._first_page + pages,
            "min": _format_value(self._minimum[0]) if pages else "N/A",
            "max": _format_value(self._maximum[pages - 1]) if pages else "N/A",
        }

    def _rows_compared(self, query: ScalarQuery) -> int:
        """Return the number of rows in the pages of a query."""
        if not isinstance(query, Interval | StartsWith):
            return self.estimate(query) or 0
        interval = interval_of(query, self.data_type)
        if interval is None:
            return 0
        first, stop = self._pages_within(interval)
        return max(stop - first, 0) * self._page_rows

    def _estimate(self, interval: Interval) -> int:
        """Return the rows of pages in an interval, interpolated in the outer pages if possible."""
        first, stop = self._pages_within(interval)
        rows = float(max(stop - first, 0) * self._page_rows)
        if not rows or not pa.types.is_integer(self.data_type):
            return int(rows)
        for page in {first, stop - 1}:
            low, high = self._minimum[page].as_py(), self._maximum[page].as_py()
            if low is None or high is None:
                continue
            covered_low, covered_high = low, high
            if interval.lower is not None:
                covered_low = max(low, interval.lower.as_py() + (not interval.includes_lower))
            if interval.upper is not None:
                covered_high = min(high, interval.upper.as_py() - (not interval.includes_upper))
            covered = max(covered_high - covered_low + 1, 0) / (high - low + 1)
            rows -= (1 - covered) * self._page_rows
        return max(1, -int(-rows // 1))

    def _pages_within(self, interval: Interval) -> Span:
        """Return the range of pages that may contain values of an interval."""
        first, stop = 0, len(self._maximum)
        if interval.lower is not None:
            first = int(self._order.find(self._last_keys, pa.repeat(interval.lower, 1), "left")[0])
        if interval.upper is not None:
            stop = int(self._stop_pages(pa.repeat(interval.upper, 1))[0])
        return first, stop

    def _stop_pages(self, values: pa.Array) -> Int64s:
        """Return the number of pages that start at or below each value.

        Null bounds are below all values.
        """
        stops: Int64s = self._order.find(self._first_keys, values, "right")
        stops += self._minimum.null_count
        return stops

    def _find_single(self, values: pa.Array) -> _PageRange | None:
        """Return the rows of a single value if they are within one page, otherwise None."""
        if len(values) != 1 or self._is_floating:
            return None
        targets = self._order.to_targets(values)
        page = self._pages.whole
        if page is None:
            number = int(self._order.search_keys(self._last_keys, targets, "left")[0])
            if number == len(self._maximum):
                return _EMPTY_RANGE
            page = self._pages.page(number)
        stop = int(self._order.search_keys(page.keys, targets, "right")[0])
        if stop == len(page.ids) and page.stop < self.num_rows:
            return None
        return _PageRange(page, int(self._order.search_keys(page.keys, targets, "left")[0]), stop)

    def _equal_ranges(self, values: pa.Array) -> tuple[Int64s, Int64s]:
        """Return the start and stop row of each value, reading pages once."""
        if len(values) <= _BATCH_MIN or self._is_floating:
            return self._insertion_points(values, "left"), self._insertion_points(values, "right")
        ordered = values.take(pa.array(self._order.sort(values)))
        whole = self._pages.whole_index(len(values))
        if whole is not None:
            left = self._order.find(whole.keys, ordered, "left") + whole.first
            return left, self._order.find(whole.keys, ordered, "right") + whole.first
        pages = np.unique(self._order.find(self._last_keys, ordered, "left"))
        if not _are_dense(pages):
            return self._insertion_points(values, "left"), self._insertion_points(values, "right")
        last = int(self._order.find(self._last_keys, ordered.slice(len(ordered) - 1), "right")[0])
        start, stop = self._pages.rows_of(int(pages[0]), min(last + 1, len(self._maximum)))
        (stored,) = self._data.read(["values"], RowRange(start, stop))
        keys = self._order.keys(stored)
        left = self._order.find(keys, ordered, "left") + start
        return left, self._order.find(keys, ordered, "right") + start

    def _insertion_points(self, values: pa.Array, side: Side) -> Int64s:
        """Return the left or right insertion point of each value."""
        if self._pages.whole is not None:
            return self._order.find(self._pages.whole.keys, values, side) + self._pages.whole.first
        pages = self._order.find(self._last_keys, values, side)
        inside = pages < len(self._maximum)
        rows = np.full(len(values), self.num_rows, np.int64)
        distinct = np.unique(pages[inside])
        if _are_dense(distinct):
            rows[inside] = self._insertion_points_within(
                values.filter(pa.array(inside)), int(distinct[0]), int(distinct[-1]) + 1, side
            )
            return rows
        for page in distinct.tolist():
            mask = pages == page
            cached = self._pages.page(page)
            targets = values if len(values) == 1 else values.filter(pa.array(mask))
            rows[mask] = self._order.find(cached.keys, targets, side) + cached.first
        return rows

    def _insertion_points_within(
        self, values: pa.Array, page: int, stop: int, side: Side
    ) -> Int64s:
        """Return insertion points of values in a range of pages."""
        first, last = self._pages.rows_of(page, stop)
        (ordered,) = self._data.read(["values"], RowRange(first, last))
        rows: Int64s = self._order.search(ordered, values, side)
        rows += first
        return rows

    def _ids(self, ranges: Sequence[Span]) -> UInt64s:
        """Return the row numbers of row ranges, which may be empty."""
        filled = [(start, stop) for start, stop in ranges if start < stop]
        if not filled:
            return np.empty(0, np.uint64)
        if len(filled) == 1:
            cached = self._ids_within_page(*filled[0])
            if cached is not None:
                return cached
            rows: RowRange | RowIndices = RowRange(*filled[0])
        else:
            bounds = np.array(sorted(filled), np.int64)
            rows = RowIndices(rows_within(bounds[:, 0], bounds[:, 1]))
        return self._read_ids(rows)

    def _read_ids(self, rows: RowRange | RowIndices) -> UInt64s:
        whole = self._pages.whole
        if isinstance(rows, RowIndices) and whole is not None and rows.rows[0] >= whole.first:
            cached: UInt64s = whole.ids[rows.rows - whole.first]
            return cached
        (ids,) = self._data.read([self._ids_name], rows)
        numbers: UInt64s = to_numpy(ids)
        return numbers

    def _ids_within_page(self, start: int, stop: int) -> UInt64s | None:
        """Return the row numbers of a range within a single page, which is probably cached."""
        page = start // self._page_rows
        if start < self._num_nulls:
            return None
        if self._pages.whole is None and (stop - 1) // self._page_rows != page:
            return None
        cached = self._pages.page(page - self._first_page)
        return cached.ids[start - cached.first : stop - cached.first]


def _format_value(value: pa.Scalar) -> str:
    """Format a value like the statistics of the reference.

    >>> _format_value(pa.scalar(2.0)), _format_value(pa.scalar(None, pa.int64()))
    ('2', 'NULL')
    """
    data_type = value.type
    if not value.is_valid:
        return "NULL"
    if pa.types.is_boolean(data_type):
        return str(value).lower()
    if pa.types.is_floating(data_type):
        number = data_type.to_pandas_dtype()(value.as_py())
        return "NaN" if np.isnan(number) else np.format_float_positional(number, trim="-")
    if pa.types.is_temporal(data_type) and not pa.types.is_date(data_type):
        return str(value.cast(pa.int32() if data_type.bit_width == 32 else pa.int64()))
    if pa.types.is_decimal(data_type):
        unscaled = int(value.as_py().scaleb(data_type.scale))
        return f"Some({unscaled}),{data_type.precision},{data_type.scale}"
    if is_byte_strings(data_type) and not isinstance(value.as_py(), str):
        return str(value.as_py().hex()).upper()
    return str(value)


def _are_dense(pages: Int64s) -> bool:
    """Return whether ascending pages should be read as one range, including pages in between.

    >>> _are_dense(np.arange(0, 40, 4)), _are_dense(np.arange(0, 20, 2))
    (False, True)
    """
    return len(pages) > _BATCH_MIN and int(pages[-1] - pages[0]) < _PAGE_DISTANCE_MAX * len(pages)


def _count_rows(ranges: Sequence[Span]) -> int:
    """Return the number of rows in the union of row ranges.

    >>> _count_rows([(0, 3), (2, 5), (9, 9)])
    5
    """
    total = reached = 0
    for start, stop in sorted(ranges):
        total += max(0, stop - max(start, reached))
        reached = max(reached, stop)
    return total


def _parse_page_rows(text: str | None) -> int:
    if text is None:
        return PAGE_ROWS
    page_rows = parse_number(text)
    if not page_rows:
        raise CorruptDataError("invalid page size in a BTREE index", found=text[:40])
    return page_rows
