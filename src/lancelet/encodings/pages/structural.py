"""Reader of a field from the pages of its leaf columns, for generations with levels (since 2.1).

    field s: struct<x: int, y: list<string>>

    column x   page 0, page 1          rows 90..110 -> entries of both pages -> struct<x>
    column y   page 0, page 1, page 2  rows 90..110 -> entries of page 1     -> struct<y>
                                                                        merged: struct<x, y>

All pages of all columns request their bytes together, so a read takes two rounds regardless of the
number of columns: uncached page metadata, then data. Pages that differ only in their rows are read
as one (a run), since writers may split a column into hundreds of pages.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import Protocol, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from lancelet.buffers import ByteRanges, Int64s, ReadCoroutine, read_together
from lancelet.encodings.base import (
    FieldReader,
    HeaderCache,
    RowIndices,
    RowRange,
    Rows,
    StoredColumn,
    StoredPage,
)
from lancelet.encodings.codecs.base import ValueFilter
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
from lancelet.encodings.pages.leaf import LeafContext, LeafRows
from lancelet.encodings.pages.stored_pages import StoredPages, to_bounds
from lancelet.encodings.take import join_arrays
from lancelet.errors import CorruptDataError, InternalError, InvalidInputError
from lancelet.values import cached_property, dataclass

PAGE_ROWS_MAX = 1 << 48
"""Maximum accepted number of rows per page."""

_RUN_TABLE_BYTES = 256 * 1024


Flags: TypeAlias = npt.NDArray[np.bool_]

PageRows: TypeAlias = LeafRows | pa.Array
"""Rows of a leaf with levels, or the result array of a page without levels."""


class PageReader(Protocol):
    """Reads rows of a run of pages of one layout."""

    def read(self, rows: Rows) -> ReadCoroutine[PageRows]:
        """Read rows relative to the first page; at least one row is requested."""

    @property
    def num_dictionary_items(self) -> int | None:
        """The number of items of the dictionaries; None if the pages have none."""
        return None

    def match(self, rows: RowRange, values: ValueFilter) -> ReadCoroutine[Flags] | None:  # noqa: ARG002
        """Return whether the value of each row passes, or None if unsupported.

        Supported are numbers and dictionaries outside of lists.
        """
        return None

    def select(
        self,
        ranges: Sequence[RowRange],  # noqa: ARG002
        values: ValueFilter,  # noqa: ARG002
    ) -> ReadCoroutine[tuple[Int64s, PageRows]] | None:
        """Return the rows of ascending ranges that pass, and the values, or None; see `match`."""
        return None

    def value_ranges(self, rows: Int64s) -> ReadCoroutine[ByteRanges] | None:  # noqa: ARG002
        """Return the byte ranges of rows stored in Arrow layout, else None."""
        return None


OpenPages: TypeAlias = Callable[[Sequence[StoredPage], LeafContext, int], PageReader]
"""Creates the reader of a run of pages, from the column context and the index of the first page."""

PageKey: TypeAlias = Callable[[bytes], bytes | None]
"""Maps a page encoding to a key shared by all pages of a run; `None` for pages read separately."""


class StructuralReader(FieldReader):
    """Reads rows of one top-level field."""

    def __init__(
        self,
        node: Node,
        columns: Sequence[StoredColumn],
        open_pages: OpenPages,
        *,
        header_cache: HeaderCache | None,
        page_key: PageKey | None = None,
    ) -> None:
        """Prepare to read; pages are opened on first use."""
        leaf_paths = tuple(paths(node))
        if len(leaf_paths) != len(columns):
            raise InternalError(
                "wrong number of columns for a field",
                field=node.field.name,
                expected=len(leaf_paths),
                found=len(columns),
            )
        self._node = node
        self._is_leaf = isinstance(node, LeafNode)
        self._leaves = [
            _LeafReader(path, column, open_pages, page_key, header_cache)
            for path, column in zip(leaf_paths, columns, strict=True)
        ]
        rows = {leaf.num_rows for leaf in self._leaves}
        if len(rows) != 1:
            raise CorruptDataError(
                "the columns of a field have different row counts",
                field=node.field.name,
                rows=sorted(rows),
            )
        self._num_rows = rows.pop()

    @property
    def data_type(self) -> pa.DataType:
        """The Arrow type of the result."""
        return self._node.data_type

    @property
    def num_rows(self) -> int:
        """The number of rows of the field in this file."""
        return self._num_rows

    def read(self, rows: Rows) -> ReadCoroutine[pa.Array]:
        """Read rows, in order, as one array."""
        self._check(rows)
        if len(rows) == 0:
            return pa.array([], self.data_type)
        if self._is_leaf:
            return (yield from self._leaves[0].read(rows))
        arrays = yield from read_together([leaf.read(rows) for leaf in self._leaves])
        return merge(self._node, arrays)

    @property
    def num_dictionary_items(self) -> int | None:
        """The number of items of all dictionaries; None for fields of several columns."""
        return self._leaves[0].num_dictionary_items if self._is_leaf else None

    def match(self, rows: RowRange, values: ValueFilter) -> ReadCoroutine[Flags] | None:
        """Return whether the value of each row passes, or None if unsupported."""
        self._check(rows)
        return self._leaves[0].match(rows, values) if self._is_leaf else None

    def select(
        self, ranges: Sequence[RowRange], values: ValueFilter
    ) -> ReadCoroutine[tuple[Int64s, pa.Array]] | None:
        """Return the rows of ascending ranges that pass, and the values, or None if unsupported."""
        self._check(RowRange(ranges[0].start, ranges[-1].stop))
        return self._leaves[0].select(ranges, values) if self._is_leaf else None

    def value_ranges(self, rows: Int64s) -> ReadCoroutine[ByteRanges] | None:
        """Return the byte ranges of rows stored in Arrow layout, else None."""
        self._check(RowIndices(rows))
        return self._leaves[0].value_ranges(rows) if self._is_leaf else None

    def encoded_bytes(self, rows: RowRange) -> int:
        """Estimate the bytes fetched to read these rows."""
        return sum(leaf.encoded_bytes(rows) for leaf in self._leaves)

    def _check(self, rows: Rows) -> None:
        match rows:
            case RowRange(start, stop):
                first, last = start, max(start, stop) - 1
            case RowIndices(indices):
                if len(indices) > 1 and not (indices[1:] > indices[:-1]).all():
                    raise InvalidInputError("row indices must be strictly ascending")
                first, last = (int(indices[0]), int(indices[-1])) if len(indices) else (0, -1)
        if first < 0 or last >= self._num_rows:
            raise InvalidInputError(
                "the requested rows exceed the rows of the field",
                field=self._node.field.name,
                first_row=first,
                last_row=last,
                rows=self._num_rows,
            )


@dataclass(frozen=True, slots=True)
class _Part:
    """Rows of one run of pages, relative to its first page."""

    run: int
    rows: Rows


class _LeafReader:
    """Reads one column as if it were the only leaf of the field."""

    def __init__(
        self,
        path: Path,
        column: StoredColumn,
        open_pages: OpenPages,
        page_key: PageKey | None,
        header_cache: HeaderCache | None,
    ) -> None:
        leaf = path[-1]
        assert isinstance(leaf, LeafNode)
        self._path = path
        self._column = column
        self._open_pages = open_pages
        self._context = LeafContext(leaf.data_type, path, column.index, header_cache)
        self._opened: dict[int, PageReader] = {}
        self._multiple = multiple_of(path)
        self._validated_layers: Layers | None = None
        self._pages = pages = StoredPages.of(column.pages)
        length, multiple = pages.length, self._multiple
        is_valid = (length > 0) & (length < PAGE_ROWS_MAX)
        if not is_valid.all() or (multiple != 1 and (length % multiple).any()):
            raise CorruptDataError(
                "a page claims an impossible number of rows",
                column=column.index,
                rows=length.tolist(),
                multiple_of=multiple,
            )
        self.bounds: Int64s = to_bounds(length // multiple)
        # A DictionaryArray has a single dictionary, so pages are not merged into runs.
        is_dictionary = pa.types.is_dictionary(leaf.data_type)
        self._run_pages = _runs(pages, None if is_dictionary else page_key)
        self._run_bounds = self.bounds[self._run_pages]

    @property
    def num_rows(self) -> int:
        return int(self.bounds[-1])

    def read(self, rows: Rows) -> ReadCoroutine[pa.Array]:
        parts = self._parts(rows)
        if len(parts) == 1:
            page_rows = yield from self._run(parts[0].run).read(self._page_rows(parts[0].rows))
            return self._unravel_part(parts[0], page_rows)
        runs = [self._run(part.run).read(self._page_rows(part.rows)) for part in parts]
        read = yield from read_together(runs)
        return join_arrays([self._unravel_part(*item) for item in zip(parts, read, strict=True)])

    @cached_property
    def num_dictionary_items(self) -> int | None:
        total = 0
        for run in range(len(self._run_pages) - 1):
            items = self._run(run).num_dictionary_items
            if items is None:
                return None
            total += items
        return total

    def match(self, rows: RowRange, values: ValueFilter) -> ReadCoroutine[Flags] | None:
        if len(self._path) > 1 or self._multiple > 1:
            return None
        runs = []
        for part in self._parts(rows):
            assert isinstance(part.rows, RowRange), "parts of a range are ranges"
            found = self._run(part.run).match(part.rows, values)
            if found is None:
                return None
            runs.append(found)
        return self._matched(runs)

    def _matched(self, runs: Sequence[ReadCoroutine[Flags]]) -> ReadCoroutine[Flags]:
        parts = yield from read_together(runs)
        return parts[0] if len(parts) == 1 else np.concatenate(parts)

    def select(
        self, ranges: Sequence[RowRange], values: ValueFilter
    ) -> ReadCoroutine[tuple[Int64s, pa.Array]] | None:
        if len(self._path) > 1 or self._multiple > 1:
            return None
        parts: dict[int, list[RowRange]] = {}
        for rows in ranges:
            for part in self._parts(rows):
                assert isinstance(part.rows, RowRange), "parts of a range are ranges"
                parts.setdefault(part.run, []).append(part.rows)
        runs = []
        for run, own in parts.items():
            found = self._run(run).select(own, values)
            if found is None:
                return None
            runs.append(found)
        return self._selected(list(parts), runs)

    def _selected(
        self, runs: Sequence[int], reads: Sequence[ReadCoroutine[tuple[Int64s, PageRows]]]
    ) -> ReadCoroutine[tuple[Int64s, pa.Array]]:
        found = yield from read_together(reads)
        arrays = [self._unravel(rows) if isinstance(rows, LeafRows) else rows for _, rows in found]
        if runs == [0]:
            return found[0][0], arrays[0]
        rows = [own + self._run_bounds[run] for run, (own, _) in zip(runs, found, strict=True)]
        return np.concatenate(rows), join_arrays(arrays)

    def value_ranges(self, rows: Int64s) -> ReadCoroutine[ByteRanges] | None:
        if self._multiple != 1:
            return None
        runs: list[ReadCoroutine[ByteRanges]] = []
        for part in self._parts(RowIndices(rows)):
            assert isinstance(part.rows, RowIndices)
            ranges = self._run(part.run).value_ranges(part.rows.rows)
            if ranges is None:
                return None
            runs.append(ranges)
        return self._joined_ranges(runs)

    def _joined_ranges(
        self, runs: Sequence[ReadCoroutine[ByteRanges]]
    ) -> ReadCoroutine[ByteRanges]:
        return ByteRanges.concat((yield from read_together(runs)))

    def encoded_bytes(self, rows: RowRange) -> int:
        """Estimate the bytes of rows by their share of each page."""
        stored = to_bounds(self._pages.bytes)
        if rows.start == 0 and rows.stop == self.num_rows:
            return int(stored[-1])
        start, stop = np.interp([rows.start, rows.stop], self.bounds, stored)
        return int(stop - start)

    def _unravel_part(self, part: _Part, rows: PageRows) -> pa.Array:
        array = self._unravel(rows) if isinstance(rows, LeafRows) else rows
        if len(array) != len(part.rows):
            raise CorruptDataError(
                "a page does not contain the rows it claims",
                column=self._column.index,
                page=self._run_pages[part.run],
                expected_rows=len(part.rows),
                found_rows=len(array),
            )
        return array

    def _unravel(self, rows: LeafRows) -> pa.Array:
        # All pages of a run have the layers of the first one, often the same object.
        if rows.layers is not self._validated_layers:
            check_layers(self._path, rows.layers)
            self._validated_layers = rows.layers
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
        """Convert field rows to page rows."""
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
    """Return the start of each run of pages, followed by the number of pages.

    All pages of a run have the same kind; pages of a negative kind are read separately. The chunk
    tables of a run (`table_bytes` per page) are limited in size, since reading a single row needs
    all of them.

    >>> run_starts(np.array([9, 9, 9, 9]), np.array([1, 1, -1, -1]))
    [0, 2, 3, 4]
    """
    if not len(kinds):
        return [0]
    begins = np.append(True, (kinds[1:] != kinds[:-1]) | (kinds[1:] < 0))
    edges = [*np.flatnonzero(begins).tolist(), len(kinds)]
    table_ends = np.cumsum(table_bytes)
    starts: list[int] = []
    for page, stop in pairwise(edges):
        start = page
        while start < stop:
            starts.append(start)
            before = int(table_ends[start] - table_bytes[start])
            start = int(table_ends.searchsorted(before + _RUN_TABLE_BYTES, "right")) + 1
    return [*starts, len(kinds)]


def _runs(pages: StoredPages, page_key: PageKey | None) -> list[int]:
    """Return the start of each run; kinds are computed once per distinct encoding."""
    if page_key is None or len(pages) < 2:
        return list(range(len(pages) + 1))
    kinds: dict[bytes, int] = {}
    numbers = np.full(len(pages.encodings), -1)
    for encoding in np.unique(pages.encoding).tolist():
        kind = page_key(pages.encodings[encoding])
        if kind is not None:
            numbers[encoding] = kinds.setdefault(kind, len(kinds))
    return run_starts(_table_bytes(pages), numbers[pages.encoding])


def _table_bytes(pages: StoredPages) -> Int64s:
    """Return the size of the chunk table of each page that can be part of a run.

    The table is the first of several buffers; a single buffer contains values at computable
    positions.
    """
    tables = np.zeros(len(pages), np.int64)
    has_table = pages.num_buffers > 1
    tables[has_table] = pages.size[pages.first_buffer[:-1][has_table]]
    return tables
