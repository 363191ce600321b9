"""Searching a BTREE: bounds become places among the rows, and the rows between them are read.

    pages        0: .. 5    1: 7 .. 12    2: 15 .. 15
    6 < x <= 8   from page 1, row 0       first value above 6
                 to page 1, row 3         first value above 8

Only pages with a bound in them are read for their values; between two bounds it is the ids alone.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from typing import Any, Final, assert_never

import numpy as np
import pyarrow as pa

from lancelet.buffers import Int64s
from lancelet.encodings.arrow import numpy_of
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
_TOGETHER: Final = 8
_VALUES_BY_PAGES: Final = 1024
"""So few values are looked up page by page, unless that is almost every page."""
_GAPS: Final = 3
"""If they are more, and every third page or so, all between the first and the last are read."""


@dataclass(frozen=True, slots=True, eq=False)
class _Place:
    """Rows of a page that follow each other."""

    page: Page
    start: int
    stop: int

    @property
    def ids(self) -> UInt64s:
        """The numbers of the rows."""
        return self.page.ids[self.start : self.stop]


_NOWHERE: Final = _Place(Page(0, pa.nulls(0), None, np.empty(0, np.uint64)), 0, 0)


class BTreeSegment:
    """An open BTREE; what is in memory is its summary of pages."""

    def __init__(self, folder: SegmentFolder) -> None:
        """Read the summary; the pages are opened now and read later."""
        lookup = folder.open(PAGE_LOOKUP)
        self._data = folder.open(PAGE_DATA)
        self._loads = folder.loads
        # Old releases had another name for the column.
        self._ids_name = "row_ids" if "row_ids" in self._data.schema.names else "ids"
        self._page_rows = _page_rows(lookup.metadata.get(BATCH_SIZE))
        minimum, maximum, null_counts = lookup.read(["min", "max", "null_count"])
        if len(maximum) != -(-self._data.num_rows // self._page_rows):
            raise CorruptDataError(
                "the pages of a BTREE do not have the rows of its file",
                path=folder.path,
                pages=len(maximum),
                rows=self._data.num_rows,
                page_rows=self._page_rows,
            )
        self._num_nulls = int(numpy_of(null_counts).astype(np.int64).sum())
        # Pages of nothing but nulls come first and have no bounds.
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
            folder.kept,
        )
        self._sorted = SortedValues(
            maximum.type, self._data.num_rows, self._num_nulls, self._places, self._both_places
        )

    @property
    def num_rows(self) -> int:
        """How many rows are indexed."""
        return self._data.num_rows

    @property
    def data_type(self) -> pa.DataType:
        """The type of the values."""
        return self._maximum.type

    def read_parts(self) -> Iterator[tuple[pa.Array, UInt64s]]:
        """Yield the values and numbers of all rows, in order."""
        for start in range(0, self.num_rows, _PART_ROWS):
            rows = RowRange(start, min(start + _PART_ROWS, self.num_rows))
            values, ids = self._data.read(["values", self._ids_name], rows)
            yield values, numpy_of(ids)

    def entries(self) -> tuple[pa.Array, UInt64s]:
        """Return the value and the number of every row."""
        values, ids = self._data.read(["values", self._ids_name])
        return values, numpy_of(ids)

    def numbers(self) -> UInt64s:
        """Return the numbers of all rows, in the order of their values."""
        (ids,) = self._data.read([self._ids_name])
        found: UInt64s = numpy_of(ids)
        return found

    def sorted_entries(self, count: int, *, ascending: bool) -> tuple[pa.Array, UInt64s]:
        """Return the values and numbers of the first rows that have a value, or of the last."""
        start, stop = self._num_nulls, min(self._num_nulls + count, self.num_rows)
        if not ascending:
            start, stop = max(self._num_nulls, self.num_rows - count), self.num_rows
        values, ids = self._data.read(["values", self._ids_name], RowRange(start, stop))
        return values, numpy_of(ids)

    def estimate(self, query: ScalarQuery) -> int | None:
        """Return at most how many rows there are, judged by whole pages."""
        match query:
            case IsNull():
                return self._num_nulls
            case OneOf(values):
                one = self._place_of_one(values)
                if one is not None:
                    return one.stop - one.start
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
        """About how many rows have the same value, from a look at a few pages."""
        last = len(self._maximum) - 1
        pages = sorted({0, len(self._maximum) // 2, last}) if last >= 0 else []
        self._pages.keep(pages)
        rows = distinct = 0
        for page in pages:
            values = self._pages.page(page).values
            rows += len(values)
            distinct += int(self._order.changes(values).sum())
        return -(-rows // max(distinct, 1))

    def estimate_reads(self, query: ScalarQuery) -> IoCounts:
        """Return about what finding the rows will read: pages with bounds, and ids between them."""
        if isinstance(query, IsNull):
            return self._expected_ids(0, self._num_nulls)
        if isinstance(query, OneOf):
            pages = np.unique(self._order.find(self._last_keys, query.values, "left"))
            pages = pages[pages < len(self._maximum)]
            if not _are_dense(pages):
                return self._pages.estimate_reads(pages.tolist())
            first, stop = int(pages[0]), int(pages[-1]) + 1
        else:
            assert isinstance(query, Interval | StartsWith), "only what has an estimate is asked"
            interval = interval_of(query, self.data_type)
            first, stop = (0, 0) if interval is None else self._pages_within(interval)
        bounds = [page for page in {first, stop - 1} if first <= page < stop]
        found = self._pages.estimate_reads(bounds)
        if stop - first < 2 or self._pages.whole is not None:
            return found
        return found + self._expected_ids(*self._pages.rows_of(first, stop))

    def _expected_ids(self, start: int, stop: int) -> IoCounts:
        return self._data.estimate_reads([self._ids_name], RowRange(start, max(start, stop)))

    def search(self, query: ScalarQuery) -> SearchResult:
        """Return the rows exactly."""
        read = self._loads.parts
        numbers = self._numbers(query, None)
        assert numbers is not None, "only what has an estimate is searched"
        self._loads.count(found=self._loads.parts == read)
        return SearchResult(RowSet.of(numbers))

    def lookup_rows(self, query: OneOf, most: int) -> UInt64s | None:
        """Return the numbers of rows that answer, in any order; None if there are more."""
        read = self._loads.parts
        found = self._numbers(query, most)
        self._loads.count(found=self._loads.parts == read)
        return found

    def _numbers(self, query: ScalarQuery, most: int | None) -> UInt64s | None:
        """Return the numbers of rows that answer; None if it cannot, or if they are too many."""
        if isinstance(query, OneOf):
            rows = min(self._page_rows, self.num_rows)
            self._loads.count(comparisons=len(query.values) * rows)
            one = self._place_of_one(query.values)
            found = self._ids_by_pages(query.values) if one is None else one.ids
            if found is not None:
                return found if most is None or len(found) <= most else None
        else:
            self._loads.count(comparisons=min(self.estimate(query) or 0, self.num_rows))
        spans = row_ranges_of(query, self._sorted)
        if spans is None or (
            most is not None and sum(max(stop - start, 0) for start, stop in spans) > most
        ):
            return None
        return self._ids(spans)

    def _ids_by_pages(self, values: pa.Array) -> UInt64s | None:
        """Return the numbers of rows with one of few values, each page being looked at once.

        It is None if they are found sooner otherwise.
        """
        if not 1 < len(values) <= _VALUES_BY_PAGES or self._is_floating:
            return None
        ordered = values.take(pa.array(self._order.sort(values)))
        pages = self._order.find(self._last_keys, ordered, "left")
        borders = [0, *(np.flatnonzero(np.diff(pages)) + 1).tolist(), len(pages)]
        distinct = pages[borders[:-1]]
        inside = distinct[distinct < len(self._maximum)]
        if _are_dense(inside) or not self._pages.keep(inside.tolist()):
            return None
        found: list[UInt64s] = [np.empty(0, np.uint64)]
        for number, (border, following) in zip(
            inside.tolist(), itertools.pairwise(borders), strict=False
        ):
            page, sought = self._pages.own_page(number), ordered.slice(border, following - border)
            behind = self._order.find(page.keys, sought, "right")
            if behind[-1] == len(page.ids) and page.stop < self.num_rows:
                return None  # the next page may begin with the same value
            first = self._order.find(page.keys, sought, "left")
            spans = zip(first.tolist(), behind.tolist(), strict=True)
            found += [page.ids[start:stop] for start, stop in spans if start < stop]
        return np.concatenate(found)

    def count(self, query: ScalarQuery) -> int | None:
        """Return how many rows answer a question."""
        spans = row_ranges_of(query, self._sorted)
        return None if spans is None else _num_rows_of(spans)

    def nulls(self) -> RowSet:
        """Return the rows without a value."""
        return RowSet.of(self._ids([(0, self._num_nulls)]))

    def prewarm(self) -> None:
        """Read every page, as many as are kept."""
        self._pages.prewarm()

    def statistics(self) -> dict[str, Any]:
        """Return how many pages there are, and the smallest and greatest value."""
        pages = len(self._maximum)
        return {
            "num_pages": self._first_page + pages,
            "min": _displayed(self._minimum[0]) if pages else "N/A",
            "max": _displayed(self._maximum[pages - 1]) if pages else "N/A",
        }

    def _estimate(self, interval: Interval) -> int:
        first, stop = self._pages_within(interval)
        return max(stop - first, 0) * self._page_rows

    def _pages_within(self, interval: Interval) -> Span:
        """Return the pages that may have values of an interval."""
        first, stop = 0, len(self._maximum)
        if interval.lower is not None:
            first = int(self._order.find(self._last_keys, pa.repeat(interval.lower, 1), "left")[0])
        if interval.upper is not None:
            stop = int(self._stop_pages(pa.repeat(interval.upper, 1))[0])
        return first, stop

    def _stop_pages(self, values: pa.Array) -> Int64s:
        """Return how many pages start at or below each value; a first null is below all."""
        stops: Int64s = self._order.find(self._first_keys, values, "right")
        stops += self._minimum.null_count
        return stops

    def _place_of_one(self, values: pa.Array) -> _Place | None:
        """Return where one value is if all its rows are of one page, as they mostly are."""
        if len(values) != 1 or self._is_floating:
            return None
        sought = self._order.to_targets(values)
        page = self._pages.whole
        if page is None:
            number = int(self._order.search_keys(self._last_keys, sought, "left")[0])
            if number == len(self._maximum):
                return _NOWHERE
            page = self._pages.page(number)
        stop = int(self._order.search_keys(page.keys, sought, "right")[0])
        if stop == len(page.ids) and page.stop < self.num_rows:
            return None
        return _Place(page, int(self._order.search_keys(page.keys, sought, "left")[0]), stop)

    def _both_places(self, values: pa.Array) -> tuple[Int64s, Int64s]:
        """Return where the equals of each value start and stop; pages are read once for both."""
        if len(values) <= _TOGETHER or self._is_floating:
            return self._places(values, "left"), self._places(values, "right")
        ordered = values.take(pa.array(self._order.sort(values)))
        whole = self._pages.whole_of(len(values))
        if whole is not None:
            left = self._order.find(whole.keys, ordered, "left") + whole.first
            return left, self._order.find(whole.keys, ordered, "right") + whole.first
        pages = np.unique(self._order.find(self._last_keys, ordered, "left"))
        if not _are_dense(pages):
            return self._places(values, "left"), self._places(values, "right")
        last = int(self._order.find(self._last_keys, ordered.slice(len(ordered) - 1), "right")[0])
        start, stop = self._pages.rows_of(int(pages[0]), min(last + 1, len(self._maximum)))
        (read,) = self._data.read(["values"], RowRange(start, stop))
        keys = self._order.keys(read)
        left = self._order.find(keys, ordered, "left") + start
        return left, self._order.find(keys, ordered, "right") + start

    def _places(self, values: pa.Array, side: Side) -> Int64s:
        """Return for each value the first row that is not below it, or that is above it."""
        if self._pages.whole is not None:
            return self._order.find(self._pages.whole.keys, values, side) + self._pages.whole.first
        pages = self._order.find(self._last_keys, values, side)
        inside = pages < len(self._maximum)
        places = np.full(len(values), self.num_rows, np.int64)
        distinct = np.unique(pages[inside])
        if _are_dense(distinct):
            places[inside] = self._places_within(
                values.filter(pa.array(inside)), int(distinct[0]), int(distinct[-1]) + 1, side
            )
            return places
        for page in distinct.tolist():
            chosen = pages == page
            read = self._pages.page(page)
            sought = values if len(values) == 1 else values.filter(pa.array(chosen))
            places[chosen] = self._order.find(read.keys, sought, side) + read.first
        return places

    def _places_within(self, values: pa.Array, page: int, stop: int, side: Side) -> Int64s:
        """Return places of values among the rows of some pages."""
        first, last = self._pages.rows_of(page, stop)
        (ordered,) = self._data.read(["values"], RowRange(first, last))
        places: Int64s = self._order.search(ordered, values, side)
        places += first
        return places

    def _ids(self, spans: Sequence[Span]) -> UInt64s:
        """Return the numbers of the rows in spans, which may be empty."""
        filled = [(start, stop) for start, stop in spans if start < stop]
        if not filled:
            return np.empty(0, np.uint64)
        if len(filled) == 1:
            kept = self._ids_within_page(*filled[0])
            if kept is not None:
                return kept
            rows: RowRange | RowIndices = RowRange(*filled[0])
        else:
            bounds = np.array(sorted(filled), np.int64)
            rows = RowIndices(rows_within(bounds[:, 0], bounds[:, 1]))
        return self._read_ids(rows)

    def _read_ids(self, rows: RowRange | RowIndices) -> UInt64s:
        whole = self._pages.whole
        if isinstance(rows, RowIndices) and whole is not None and rows.rows[0] >= whole.first:
            kept: UInt64s = whole.ids[rows.rows - whole.first]
            return kept
        (ids,) = self._data.read([self._ids_name], rows)
        found: UInt64s = numpy_of(ids)
        return found

    def _ids_within_page(self, start: int, stop: int) -> UInt64s | None:
        """Return the numbers of rows of one page, which was likely looked at just before."""
        page = start // self._page_rows
        if start < self._num_nulls:
            return None
        if self._pages.whole is None and (stop - 1) // self._page_rows != page:
            return None
        read = self._pages.page(page - self._first_page)
        return read.ids[start - read.first : stop - read.first]


def _displayed(value: pa.Scalar) -> str:
    """Return the text of a value as statistics of the reference have it.

    >>> _displayed(pa.scalar(2.0)), _displayed(pa.scalar(None, pa.int64()))
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
    """Return whether pages that ascend are read at once, with those between them.

    >>> _are_dense(np.arange(0, 40, 4)), _are_dense(np.arange(0, 20, 2))
    (False, True)
    """
    return len(pages) > _TOGETHER and int(pages[-1] - pages[0]) < _GAPS * len(pages)


def _num_rows_of(spans: Sequence[Span]) -> int:
    """Return how many rows spans have together, where they overlap once.

    >>> _num_rows_of([(0, 3), (2, 5), (9, 9)])
    5
    """
    total = reached = 0
    for start, stop in sorted(spans):
        total += max(0, stop - max(start, reached))
        reached = max(reached, stop)
    return total


def _page_rows(text: str | None) -> int:
    if text is None:
        return PAGE_ROWS
    found = parse_number(text)
    if not found:
        raise CorruptDataError("the number of rows of a BTREE's pages is not one", found=text[:40])
    return found
