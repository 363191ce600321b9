"""Reads a field from the pages of its leaves, for every generation that has levels (2.1 on).

    field s: struct<x: int, y: list<string>>

    column x   page 0, page 1          rows 90..110 -> entries of both pages -> struct<x>
    column y   page 0, page 1, page 2  rows 90..110 -> entries of page 1     -> struct<y>
                                                                        merged: struct<x, y>

All pages of all columns ask for their bytes side by side, so a read takes two rounds however
many columns there are: the heads that the memo does not hold, and the data.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol, TypeAlias

import numpy as np
import pyarrow as pa

from lancelet.buffers import Int64s, Reading, read_together
from lancelet.encodings.base import Memo, RowIndices, RowRange, Rows, StoredColumn, StoredPage
from lancelet.encodings.leaf import LeafContext, LeafRows
from lancelet.encodings.levels import LeafNode, Node, Path, check_layers, merge, paths, unravel
from lancelet.encodings.levels import rows_multiple as multiple_of
from lancelet.errors import CorruptDataError, InternalError, InvalidInputError, UnsupportedError

PAGE_ROWS_MAX = 1 << 48
"""The most rows that a page is believed to have."""


PageRows: TypeAlias = LeafRows | pa.Array
"""Rows of a leaf with their levels, or, from a page without levels, as `unravel` gives them."""


class PageReader(Protocol):
    """Reads rows of one page, whatever its layout."""

    def read(self, rows: Rows) -> Reading[PageRows]:
        """Read rows of the page, counted from its first one; there is at least one."""

    def encoded_bytes(self, rows: RowRange) -> int:
        """Estimate the bytes that reading these rows would fetch."""


OpenPage: TypeAlias = Callable[[StoredPage, LeafContext, int], PageReader]
"""Makes a reader of a page, given its column and its number in it."""


class StructuralReader:
    """Reads rows of one top-level field."""

    def __init__(
        self,
        node: Node,
        columns: Sequence[StoredColumn],
        open_page: OpenPage,
        *,
        memo: Memo | None,
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
        self._leaves = [
            _LeafReader(path, column, open_page, memo)
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

    @property
    def page_starts(self) -> Int64s:
        """The first row of each page of any column; a scan cut here copies the least."""
        return np.unique(np.concatenate([leaf.bounds for leaf in self._leaves]))

    def read(self, rows: Rows) -> Reading[pa.Array]:
        """Read rows, in order, as one array."""
        self._check(rows)
        if len(rows) == 0:
            return pa.array([], self.data_type)
        arrays = yield from read_together([leaf.read(rows) for leaf in self._leaves])
        return merge(self._node, arrays)

    def encoded_bytes(self, rows: RowRange) -> int:
        """Estimate the bytes that reading these rows would fetch."""
        return sum(leaf.encoded_bytes(rows) for leaf in self._leaves)

    def _check(self, rows: Rows) -> None:
        match rows:
            case RowRange(start, stop):
                first, last = start, max(start, stop) - 1
            case RowIndices(indices):
                if len(indices) > 1 and int(np.diff(indices).min()) <= 0:
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
    """Rows of one page, counted from its first."""

    page: int
    rows: Rows


class _LeafReader:
    """Reads one column, as if the field had only this leaf."""

    def __init__(
        self, path: Path, column: StoredColumn, open_page: OpenPage, memo: Memo | None
    ) -> None:
        leaf = path[-1]
        assert isinstance(leaf, LeafNode)
        self._path = path
        self._column = column
        self._open_page = open_page
        self._context = LeafContext(leaf.data_type, path, column.index, memo)
        self._opened: dict[int, PageReader] = {}
        self._multiple = multiple_of(path)
        lengths = np.array([page.length for page in column.pages], np.object_)
        if any(not 0 < length < PAGE_ROWS_MAX or length % self._multiple for length in lengths):
            raise CorruptDataError(
                "a page claims an impossible number of rows",
                column=column.index,
                rows=lengths.tolist(),
                multiple_of=self._multiple,
            )
        self.bounds: Int64s = np.zeros(len(lengths) + 1, np.int64)
        np.cumsum(lengths.astype(np.int64) // self._multiple, out=self.bounds[1:])

    @property
    def num_rows(self) -> int:
        return int(self.bounds[-1])

    def read(self, rows: Rows) -> Reading[pa.Array]:
        parts = self._parts(rows)
        pages = [self._page(part.page).read(self._page_rows(part.rows)) for part in parts]
        read = yield from read_together(pages)
        arrays = [self._nested(page_rows) for page_rows in read]
        for part, array in zip(parts, arrays, strict=True):
            if len(array) != len(part.rows):
                raise CorruptDataError(
                    "a page does not hold the rows that it claims",
                    column=self._column.index,
                    page=part.page,
                    expected_rows=len(part.rows),
                    found_rows=len(array),
                )
        return _concat(arrays)

    def _nested(self, rows: PageRows) -> pa.Array:
        if not isinstance(rows, LeafRows):
            return rows
        check_layers(self._path, rows.layers)
        return unravel(
            self._path,
            rows.layers,
            repetition=rows.repetition,
            definition=rows.definition,
            values=rows.values,
        )

    def encoded_bytes(self, rows: RowRange) -> int:
        return sum(
            self._page(part.page).encoded_bytes(part.rows)
            for part in self._parts(rows)
            if isinstance(part.rows, RowRange)
        )

    def _parts(self, rows: Rows) -> list[_Part]:
        match rows:
            case RowRange(start, stop):
                first = int(np.searchsorted(self.bounds, start, side="right")) - 1
                last = int(np.searchsorted(self.bounds, stop, side="left"))
                edges = self.bounds[first : last + 1].tolist()
                return [
                    _Part(
                        first + page,
                        RowRange(
                            max(start, edges[page]) - edges[page],
                            min(stop, edges[page + 1]) - edges[page],
                        ),
                    )
                    for page in range(last - first)
                ]
            case RowIndices(indices):
                cuts = np.searchsorted(indices, self.bounds)
                return [
                    _Part(
                        page, RowIndices(indices[cuts[page] : cuts[page + 1]] - self.bounds[page])
                    )
                    for page in np.flatnonzero(np.diff(cuts)).tolist()
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

    def _page(self, index: int) -> PageReader:
        opened = self._opened.get(index)
        if opened is None:
            page = self._column.pages[index]
            opened = self._opened[index] = self._open_page(page, self._context, index)
        return opened


def _concat(arrays: Sequence[pa.Array]) -> pa.Array:
    if len(arrays) == 1:
        return arrays[0]
    try:
        return pa.concat_arrays(arrays)
    except pa.ArrowInvalid as error:
        raise UnsupportedError(
            "the rows do not fit one array; read fewer rows at a time",
            rows=sum(len(array) for array in arrays),
        ) from error
