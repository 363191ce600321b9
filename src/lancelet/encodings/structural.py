"""Reads a field from the pages of its leaves, for every generation that has levels (2.1 on).

    field s: struct<x: int, y: list<string>>

    column x   page 0, page 1          rows 90..110 -> entries of both pages -> struct<x>
    column y   page 0, page 1, page 2  rows 90..110 -> entries of page 1     -> struct<y>
                                                                        merged: struct<x, y>

All pages of all columns ask for their bytes side by side, so a read takes two rounds however
many columns there are: the heads that the memo does not hold, and the data. Pages that differ in
nothing but their rows are read as one (a run), as writers may cut a column into hundreds.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import Protocol, TypeAlias

import numpy as np
import pyarrow as pa

from lancelet.buffers import Int64s, Ranges, Reading, read_together
from lancelet.encodings.base import (
    FieldReader,
    Memo,
    RowIndices,
    RowRange,
    Rows,
    StoredColumn,
    StoredPage,
)
from lancelet.encodings.leaf import LeafContext, LeafRows
from lancelet.encodings.levels import (
    Layers,
    LeafNode,
    Node,
    Path,
    check_layers,
    merge,
    paths,
    unravel,
)
from lancelet.encodings.levels import rows_multiple as multiple_of
from lancelet.encodings.stored_pages import StoredPages, bounds_of
from lancelet.encodings.take import join_arrays
from lancelet.errors import CorruptDataError, InternalError, InvalidInputError
from lancelet.values import dataclass

PAGE_ROWS_MAX = 1 << 48
"""The most rows that a page is believed to have."""

_RUN_TABLE_BYTES = 256 * 1024


PageRows: TypeAlias = LeafRows | pa.Array
"""Rows of a leaf with their levels, or, from a page without levels, as `unravel` gives them."""


class PageReader(Protocol):
    """Reads rows of a run of pages, whatever their layout."""

    def read(self, rows: Rows) -> Reading[PageRows]:
        """Read rows of the pages, counted from the first one; there is at least one."""

    def places(self, rows: Int64s) -> Ranges | None:  # noqa: ARG002
        """Return where rows are that are kept as Arrow has them, or None if they are not."""
        return None


OpenPages: TypeAlias = Callable[[Sequence[StoredPage], LeafContext, int], PageReader]
"""Makes a reader of a run of pages, given its column and the number of the first page in it."""

KindOfPage: TypeAlias = Callable[[bytes], bytes | None]
"""Tells from its encoding what a page must have in common with others to be read as one with
them; `None` is a page that is read alone."""


class StructuralReader(FieldReader):
    """Reads rows of one top-level field."""

    def __init__(
        self,
        node: Node,
        columns: Sequence[StoredColumn],
        open_pages: OpenPages,
        *,
        memo: Memo | None,
        kind_of_page: KindOfPage | None = None,
    ) -> None:
        """Prepare to read; pages are opened when they are first needed."""
        leaf_paths = tuple(paths(node))
        if len(leaf_paths) != len(columns):
            raise InternalError(
                "a field is opened over the wrong number of columns",
                field=node.field.name,
                expected=len(leaf_paths),
                found=len(columns),
            )
        self._node = node
        self._is_leaf = isinstance(node, LeafNode)
        self._leaves = [
            _LeafReader(path, column, open_pages, kind_of_page, memo)
            for path, column in zip(leaf_paths, columns, strict=True)
        ]
        rows = {leaf.num_rows for leaf in self._leaves}
        if len(rows) != 1:
            raise CorruptDataError(
                "the columns of a field differ in their rows",
                field=node.field.name,
                rows=sorted(rows),
            )
        self._num_rows = rows.pop()

    @property
    def data_type(self) -> pa.DataType:
        """The Arrow type of what is read."""
        return self._node.data_type

    @property
    def num_rows(self) -> int:
        """How many rows the field has in this file."""
        return self._num_rows

    def read(self, rows: Rows) -> Reading[pa.Array]:
        """Read rows, in order, as one array."""
        self._check(rows)
        if len(rows) == 0:
            return pa.array([], self.data_type)
        if self._is_leaf:
            return (yield from self._leaves[0].read(rows))
        arrays = yield from read_together([leaf.read(rows) for leaf in self._leaves])
        return merge(self._node, arrays)

    def places(self, rows: Int64s) -> Ranges | None:
        """Return where rows are that are kept as Arrow has them, or None if they are not."""
        self._check(RowIndices(rows))
        return self._leaves[0].places(rows) if self._is_leaf else None

    def encoded_bytes(self, rows: RowRange) -> int:
        """Estimate the bytes that reading these rows would fetch."""
        return sum(leaf.encoded_bytes(rows) for leaf in self._leaves)

    def _check(self, rows: Rows) -> None:
        match rows:
            case RowRange(start, stop):
                first, last = start, max(start, stop) - 1
            case RowIndices(indices):
                if len(indices) > 1 and not (indices[1:] > indices[:-1]).all():
                    raise InvalidInputError("rows must ascend, each at most once")
                first, last = (int(indices[0]), int(indices[-1])) if len(indices) else (0, -1)
        if first < 0 or last >= self._num_rows:
            raise InvalidInputError(
                "rows are asked for that the field does not have",
                field=self._node.field.name,
                first_row=first,
                last_row=last,
                rows=self._num_rows,
            )


@dataclass(frozen=True, slots=True)
class _Part:
    """Rows of one run of pages, counted from its first."""

    run: int
    rows: Rows


class _LeafReader:
    """Reads one column, as if the field had only this leaf."""

    def __init__(
        self,
        path: Path,
        column: StoredColumn,
        open_pages: OpenPages,
        kind_of_page: KindOfPage | None,
        memo: Memo | None,
    ) -> None:
        leaf = path[-1]
        assert isinstance(leaf, LeafNode)
        self._path = path
        self._column = column
        self._open_pages = open_pages
        self._context = LeafContext(leaf.data_type, path, column.index, memo)
        self._opened: dict[int, PageReader] = {}
        self._multiple = multiple_of(path)
        self._checked_layers: Layers | None = None
        self._pages = pages = StoredPages.of(column.pages)
        length, multiple = pages.length, self._multiple
        is_sound = (length > 0) & (length < PAGE_ROWS_MAX)
        if not is_sound.all() or (multiple != 1 and (length % multiple).any()):
            raise CorruptDataError(
                "a page claims an impossible number of rows",
                column=column.index,
                rows=length.tolist(),
                multiple_of=multiple,
            )
        self.bounds: Int64s = bounds_of(length // multiple)
        # Arrays of Arrow's dictionary types have the dictionary of one page.
        is_dictionary = pa.types.is_dictionary(leaf.data_type)
        self._run_pages = _runs(pages, None if is_dictionary else kind_of_page)
        self._run_bounds = self.bounds[self._run_pages]

    @property
    def num_rows(self) -> int:
        return int(self.bounds[-1])

    def read(self, rows: Rows) -> Reading[pa.Array]:
        parts = self._parts(rows)
        if len(parts) == 1:
            page_rows = yield from self._run(parts[0].run).read(self._page_rows(parts[0].rows))
            return self._nested(parts[0], page_rows)
        runs = [self._run(part.run).read(self._page_rows(part.rows)) for part in parts]
        read = yield from read_together(runs)
        return join_arrays([self._nested(*found) for found in zip(parts, read, strict=True)])

    def places(self, rows: Int64s) -> Ranges | None:
        if self._multiple != 1:
            return None
        found: list[Ranges] = []
        for part in self._parts(RowIndices(rows)):
            assert isinstance(part.rows, RowIndices)
            own = self._run(part.run).places(part.rows.rows)
            if own is None:
                return None
            found.append(own)
        return found[0] if len(found) == 1 else Ranges.concat(found)

    def encoded_bytes(self, rows: RowRange) -> int:
        """Estimate the bytes of rows by their share of each page."""
        stored = bounds_of(self._pages.bytes)
        if rows.start == 0 and rows.stop == self.num_rows:
            return int(stored[-1])
        start, stop = np.interp([rows.start, rows.stop], self.bounds, stored)
        return int(stop - start)

    def _nested(self, part: _Part, rows: PageRows) -> pa.Array:
        array = self._unravelled(rows) if isinstance(rows, LeafRows) else rows
        if len(array) != len(part.rows):
            raise CorruptDataError(
                "a page does not hold the rows that it claims",
                column=self._column.index,
                page=self._run_pages[part.run],
                expected_rows=len(part.rows),
                found_rows=len(array),
            )
        return array

    def _unravelled(self, rows: LeafRows) -> pa.Array:
        # All pages of a run have the layers of the first one, often the very same object.
        if rows.layers is not self._checked_layers:
            check_layers(self._path, rows.layers)
            self._checked_layers = rows.layers
        if len(self._path) == 1:
            return rows.values
        return unravel(
            self._path,
            rows.layers,
            repetition=rows.repetition,
            definition=rows.definition,
            values=rows.values,
        )

    def _parts(self, rows: Rows) -> list[_Part]:
        bounds = self._run_bounds
        if len(bounds) == 2:
            return [_Part(0, rows)]
        match rows:
            case RowRange(start, stop):
                first = int(bounds.searchsorted(start, side="right")) - 1
                last = int(bounds.searchsorted(stop))
                edges = bounds[first : last + 1].tolist()
                return [
                    _Part(
                        first + run,
                        RowRange(
                            max(start, edges[run]) - edges[run],
                            min(stop, edges[run + 1]) - edges[run],
                        ),
                    )
                    for run in range(last - first)
                ]
            case RowIndices(indices):
                cuts = indices.searchsorted(bounds)
                return [
                    _Part(run, RowIndices(indices[cuts[run] : cuts[run + 1]] - bounds[run]))
                    for run in np.flatnonzero(cuts[1:] - cuts[:-1]).tolist()
                ]

    def _page_rows(self, rows: Rows) -> Rows:
        """Return rows of the field as rows of a page."""
        if self._multiple == 1:
            return rows
        match rows:
            case RowRange(start, stop):
                return RowRange(start * self._multiple, stop * self._multiple)
            case RowIndices(indices):
                each = indices[:, None] * self._multiple + np.arange(self._multiple)
                return RowIndices(each.reshape(-1))

    def _run(self, run: int) -> PageReader:
        opened = self._opened.get(run)
        if opened is None:
            start, stop = self._run_pages[run : run + 2]
            pages = self._pages[start:stop]
            opened = self._opened[run] = self._open_pages(pages, self._context, start)
        return opened


def run_starts(table_bytes: Int64s, kinds: Int64s) -> list[int]:
    """Return where runs of pages begin, with the number of pages behind.

    A run is of one kind; pages of a negative kind are read alone. It ends at the latest where the
    tables of its pages, which have `table_bytes` each, are larger than reading a single row
    should have to prepare for.

    >>> run_starts(np.array([9, 9, 9, 9]), np.array([1, 1, -1, -1]))
    [0, 2, 3, 4]
    """
    if not len(kinds):
        return [0]
    begins = np.append(True, (kinds[1:] != kinds[:-1]) | (kinds[1:] < 0))
    edges = [*np.flatnonzero(begins).tolist(), len(kinds)]
    held = np.cumsum(table_bytes)
    starts: list[int] = []
    for page, stop in pairwise(edges):
        start = page
        while start < stop:
            starts.append(start)
            before = int(held[start] - table_bytes[start])
            start = int(held.searchsorted(before + _RUN_TABLE_BYTES, "right")) + 1
    return [*starts, len(kinds)]


def _runs(pages: StoredPages, kind_of_page: KindOfPage | None) -> list[int]:
    """Return where runs begin, whose kinds are worked out once for each different encoding."""
    if kind_of_page is None or len(pages) < 2:
        return list(range(len(pages) + 1))
    kinds: dict[bytes, int] = {}
    numbers = np.full(len(pages.encodings), -1)
    for encoding in np.unique(pages.encoding).tolist():
        kind = kind_of_page(pages.encodings[encoding])
        if kind is not None:
            numbers[encoding] = kinds.setdefault(kind, len(kinds))
    return run_starts(_table_bytes(pages), numbers[pages.encoding])


def _table_bytes(pages: StoredPages) -> Int64s:
    """Return the bytes that say where the parts of each page are, if it can be in a run.

    Those are the first of several buffers; a single buffer holds values, whose places are
    computed.
    """
    tables = np.zeros(len(pages), np.int64)
    has_table = pages.num_buffers > 1
    tables[has_table] = pages.size[pages.first_buffer[:-1][has_table]]
    return tables
