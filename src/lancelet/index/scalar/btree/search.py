"""Searching a BTREE: bounds become places among the rows, and the rows between them are read.

    pages        0: .. 5    1: 7 .. 12    2: 15 .. 15
    6 < x <= 8   from page 1, row 0       first value above 6
                 to page 1, row 3         first value above 8

Only pages with a bound in them are read for their values; between two bounds it is the ids alone.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import cached_property
from typing import Any, Final, assert_never

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from lancelet.buffers import Int64s
from lancelet.encodings.base import RowIndices, RowRange
from lancelet.errors import CorruptDataError
from lancelet.index.base import Found
from lancelet.index.folder import SegmentFolder
from lancelet.index.parts.ordering import Order, Side, order_of
from lancelet.index.question import (
    Contains,
    HasAll,
    HasAny,
    Interval,
    IsNull,
    OneOf,
    Question,
    StartsWith,
)
from lancelet.index.scalar.btree.layout import BATCH_SIZE, PAGE_DATA, PAGE_LOOKUP, PAGE_ROWS
from lancelet.rowids.address import UInt64s
from lancelet.rowids.selection import RowSet

_TOGETHER: Final = 8
"""From so many pages on, all between the first and the last are read at once."""


class BTreeSegment:
    """An open BTREE; what is in memory is its summary of pages."""

    def __init__(self, folder: SegmentFolder) -> None:
        """Read the summary; the pages are opened now and read later."""
        lookup = folder.open(PAGE_LOOKUP)
        self._data = folder.open(PAGE_DATA)
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
        self._num_nulls = int(null_counts.to_numpy().astype(np.int64).sum())
        # Pages of nothing but nulls come first and have no bounds.
        self._first_page = maximum.null_count
        self._minimum = minimum.slice(self._first_page)
        self._maximum = maximum.slice(self._first_page)
        self._order: Order = order_of(maximum.type)

    @property
    def num_rows(self) -> int:
        """How many rows are indexed."""
        return self._data.num_rows

    @property
    def data_type(self) -> pa.DataType:
        """The type of the values."""
        return self._maximum.type

    def read_all(self) -> tuple[pa.Array, UInt64s]:
        """Return the values and numbers of all rows, in order."""
        values, ids = self._data.read(["values", "ids"])
        return values, ids.to_numpy()

    def estimate(self, question: Question) -> int | None:
        """Return at most how many rows there are, judged by whole pages."""
        match question:
            case IsNull():
                return self._num_nulls
            case OneOf(values):
                first = self._order.search(self._maximum, values, "left")
                stop = self._stop_pages(values)
                return int(np.maximum(stop - first, 0).sum()) * self._page_rows
            case Interval() | StartsWith():
                interval = _interval_of(question, self.data_type)
                return None if interval is None else self._estimate(interval)
            case Contains() | HasAny() | HasAll():
                return None
        assert_never(question)

    def search(self, question: Question) -> Found:
        """Return the rows exactly."""
        match question:
            case IsNull():
                spans = [(0, self._num_nulls)]
            case OneOf(values):
                starts, stops = self._places(values, "left"), self._places(values, "right")
                spans = list(zip(starts.tolist(), stops.tolist(), strict=True))
                if pa.types.is_floating(values.type) and pc.any(pc.is_nan(values)).as_py():
                    spans.append(self._span_of_negative_nans)
            case Interval() | StartsWith():
                interval = _interval_of(question, self.data_type)
                assert interval is not None, "only what has an estimate is searched"
                spans = self._spans(interval)
            case Contains() | HasAny() | HasAll():
                raise AssertionError("only what has an estimate is searched")
            case _:
                assert_never(question)
        return Found(RowSet.of(self._ids(spans)))

    def nulls(self) -> RowSet:
        """Return the rows without a value."""
        return RowSet.of(self._ids([(0, self._num_nulls)]))

    def statistics(self) -> dict[str, Any]:
        """Return how many pages there are, and the smallest and greatest value."""
        bounds = [None, None]
        if len(self._maximum):
            smallest = self._minimum[0]
            bounds = [smallest.as_py(), self._maximum[len(self._maximum) - 1].as_py()]
        return {
            "num_pages": self._first_page + len(self._maximum),
            "min": bounds[0],
            "max": bounds[1],
        }

    def _estimate(self, interval: Interval) -> int:
        first, stop = 0, len(self._maximum)
        if interval.lower is not None:
            first = int(self._order.search(self._maximum, _one(interval.lower), "left")[0])
        if interval.upper is not None:
            stop = int(self._stop_pages(_one(interval.upper))[0])
        return max(stop - first, 0) * self._page_rows

    def _stop_pages(self, values: pa.Array) -> Int64s:
        """Return how many pages start at or below each value; a first null is below all."""
        num_nulls = self._minimum.null_count
        stops: Int64s = self._order.search(self._minimum.slice(num_nulls), values, "right")
        return stops + num_nulls

    def _spans(self, interval: Interval) -> list[tuple[int, int]]:
        lower, upper = interval.lower, interval.upper
        start = self._first_number
        if lower is not None:
            start = int(
                self._places(_one(lower), "left" if interval.includes_lower else "right")[0]
            )
        stop = self.num_rows
        if upper is not None:
            stop = int(self._places(_one(upper), "right" if interval.includes_upper else "left")[0])
        spans = [(start, stop)]
        reaches_nan = upper is None or (interval.includes_upper and _is_nan(upper))
        starts_above = lower is not None and not interval.includes_lower and _is_nan(lower)
        if reaches_nan and not starts_above:
            spans.append(self._span_of_negative_nans)
        return spans

    @cached_property
    def _first_number(self) -> int:
        """Where values start that are not null nor a NaN below every number."""
        return self._span_of_negative_nans[1]

    @cached_property
    def _span_of_negative_nans(self) -> tuple[int, int]:
        if not pa.types.is_floating(self.data_type) or not len(self._maximum):
            return self._num_nulls, self._num_nulls
        infinity = pa.array([float("-inf")]).cast(self.data_type)
        return self._num_nulls, int(self._places(infinity, "left")[0])

    def _places(self, values: pa.Array, side: Side) -> Int64s:
        """Return for each value the first row that is not below it, or that is above it."""
        pages = self._order.search(self._maximum, values, side)
        inside = pages < len(self._maximum)
        places = np.full(len(values), self.num_rows, np.int64)
        distinct = np.unique(pages[inside])
        if len(distinct) > _TOGETHER:
            places[inside] = self._places_within(
                values.filter(pa.array(inside)), int(distinct[0]), int(distinct[-1]) + 1, side
            )
            return places
        for page in distinct.tolist():
            chosen = pages == page
            places[chosen] = self._places_within(
                values.filter(pa.array(chosen)), page, page + 1, side
            )
        return places

    def _places_within(self, values: pa.Array, page: int, stop: int, side: Side) -> Int64s:
        """Return places of values among the rows of some pages."""
        first = max((self._first_page + page) * self._page_rows, self._num_nulls)
        last = min((self._first_page + stop) * self._page_rows, self.num_rows)
        (ordered,) = self._data.read(["values"], RowRange(first, last))
        places: Int64s = self._order.search(ordered, values, side)
        return places + first

    def _ids(self, spans: Sequence[tuple[int, int]]) -> UInt64s:
        """Return the numbers of the rows in spans, which may be empty."""
        filled = sorted((start, stop) for start, stop in spans if start < stop)
        if not filled:
            return np.empty(0, np.uint64)
        if len(filled) == 1:
            rows: RowRange | RowIndices = RowRange(*filled[0])
        else:
            bounds = np.array(filled, np.int64)
            rows = RowIndices(_rows_of(bounds[:, 0], bounds[:, 1]))
        (ids,) = self._data.read(["ids"], rows)
        found: UInt64s = ids.to_numpy()
        return found


def _one(scalar: pa.Scalar) -> pa.Array:
    return pa.repeat(scalar, 1)


def _is_nan(scalar: pa.Scalar) -> bool:
    return pa.types.is_floating(scalar.type) and math.isnan(scalar.as_py())


def _rows_of(starts: Int64s, stops: Int64s) -> Int64s:
    """Return every row of spans that ascend and do not overlap.

    >>> _rows_of(np.array([2, 9]), np.array([4, 10])).tolist()
    [2, 3, 9]
    """
    lengths = stops - starts
    before = np.cumsum(lengths) - lengths
    return np.repeat(starts - before, lengths) + np.arange(int(lengths.sum()))


def _interval_of(question: Interval | StartsWith, data_type: pa.DataType) -> Interval | None:
    """Return the values that a question is about as an interval, or None if they are not one."""
    if isinstance(question, Interval):
        return question
    is_text = pa.types.is_string(data_type) or pa.types.is_large_string(data_type)
    if (
        not is_text
        and not pa.types.is_binary(data_type)
        and not pa.types.is_large_binary(data_type)
    ):
        return None
    if not is_text:
        beyond = question.prefix.rstrip(b"\xff")
        upper = pa.scalar(beyond[:-1] + bytes((beyond[-1] + 1,)), data_type) if beyond else None
        return Interval(pa.scalar(question.prefix, data_type), upper, includes_upper=False)
    prefix = question.prefix.decode()
    following = _next_text(prefix)
    upper = None if following is None else pa.scalar(following, data_type)
    return Interval(pa.scalar(prefix, data_type), upper, includes_upper=False)


def _next_text(prefix: str) -> str | None:
    """Return the least text above every text with a prefix; None if there is none.

    >>> _next_text("ab")
    'ac'
    """
    rest = prefix.rstrip("\U0010ffff")
    if not rest:
        return None
    code = ord(rest[-1]) + 1
    # Between these lie no characters.
    return rest[:-1] + chr(0xE000 if code == 0xD800 else code)


def _page_rows(text: str | None) -> int:
    if text is None:
        return PAGE_ROWS
    if not text.isdecimal() or int(text) < 1:
        raise CorruptDataError("the number of rows of a BTREE's pages is not one", found=text)
    return int(text)
