"""The LABEL_LIST index kind: finds lists that contain any or all of some elements.

    tags   ["a", "b"], ["b"], null, []        a {0}   b {0, 1}   null lists {2}

Null elements are a key. Null lists are stored in a separate row set since file version 1. Empty
lists are not stored.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc

from lancelet.index.base import (
    IndexedRows,
    Move,
    Parameters,
    ScalarKind,
    SearchResult,
    is_ordered_type,
)
from lancelet.index.folder import SegmentFolder
from lancelet.index.parts.grouping import (
    group_rows,
    merge_groups,
    remap_groups,
    remap_rows,
    stored_groups,
    write_groups,
)
from lancelet.index.parts.key_sets import KeySets
from lancelet.index.parts.sorted_runs import Part
from lancelet.index.query import HasAll, HasAny, IsNull, OneOf, ScalarQuery
from lancelet.index.text.elements import is_list
from lancelet.rowids.address import UInt64s
from lancelet.rowids.selection import NO_ROWS, RowSet
from lancelet.values import cached_property

_NULL_LISTS: Final = "lance:label_list_nulls"


class LabelListSegment:
    """An open segment of a LABEL_LIST index."""

    def __init__(self, folder: SegmentFolder) -> None:
        """Read the keys."""
        self.key_sets = KeySets(folder)

    def estimate(self, query: ScalarQuery) -> int | None:
        """Return the exact number of matching rows."""
        match query:
            case HasAny() | HasAll():
                return self._search(query).rows.num_listed
            case IsNull():
                return None if self._null_lists is None else self._null_lists.num_listed
            case _:
                return None

    def search(self, query: ScalarQuery) -> SearchResult:
        """Return the matching rows."""
        if isinstance(query, HasAny | HasAll):
            self.key_sets.count_comparisons(len(query.values))
        return self._search(query)

    def _search(self, query: ScalarQuery) -> SearchResult:
        match query:
            case HasAny(values):
                return SearchResult(self._rows_with(values))
            case HasAll(values):
                row_sets = [self._rows_with(values.slice(index, 1)) for index in range(len(values))]
                rows = row_sets[0] if row_sets else NO_ROWS
                for others in row_sets[1:]:
                    rows &= others
                return SearchResult(rows)
            case _:
                assert isinstance(query, IsNull)
                assert self._null_lists is not None
                return SearchResult(self._null_lists)

    def nulls(self) -> RowSet | None:
        """Return the rows with null lists; None for version 0, which does not record them."""
        return self._null_lists

    def entries(self) -> tuple[pa.Array, UInt64s]:
        """Return the key and row number of each entry."""
        return self.key_sets.entries()

    def statistics(self) -> dict[str, Any]:
        """Return the number of keys."""
        return {"num_bitmaps": len(self.key_sets.keys)}

    @cached_property
    def _null_lists(self) -> RowSet | None:
        number = self.key_sets.metadata.get(_NULL_LISTS)
        return None if number is None else RowSet.parse(self.key_sets.global_buffer(number))

    def _rows_with(self, values: pa.Array) -> RowSet:
        key_ranges = self.key_sets.spans(OneOf(values.cast(self.key_sets.data_type)))
        assert key_ranges is not None
        return self.key_sets.union(key_ranges)


class LabelList(ScalarKind[LabelListSegment]):
    """The LABEL_LIST index kind: a set of rows for each distinct list element."""

    name = "LABEL_LIST"
    title = "LabelList"
    type_url = "/lance.table.LabelListIndexDetails"
    newest_version = 2
    unsupported_message = (
        "a LABEL_LIST index requires a column of lists of numbers, times, strings or binary values"
    )
    written_version = 1  # records null lists
    addresses_since = 2
    can_remap = True

    def supports_type(self, data_type: pa.DataType) -> bool:
        """Return whether the type is a list of ordered values."""
        return is_list(data_type) and is_ordered_type(data_type.value_type)

    def train(self, rows: IndexedRows, folder: SegmentFolder, parameters: Parameters) -> bytes:  # noqa: ARG002
        """Group the rows by element and write the groups."""
        lists = _Lists(rows)
        groups = group_rows(lists.elements(), lists.data_type)
        write_groups(groups, lists.data_type, folder, nulls=(_NULL_LISTS, lists.nulls))
        return b""

    def open(self, folder: SegmentFolder, details: bytes) -> LabelListSegment:  # noqa: ARG002
        """Open a segment."""
        return LabelListSegment(folder)

    def merge(
        self,
        segments: Sequence[LabelListSegment],
        moves: Sequence[Move],
        rows: IndexedRows,
        folder: SegmentFolder,
    ) -> bytes:
        """Merge the row sets of each key and the null lists."""
        lists = _Lists(rows)
        parts = [group_rows(lists.elements(), lists.data_type)]
        null_lists = NO_ROWS
        for segment, move in zip(segments, moves, strict=True):
            parts.append(remap_groups(stored_groups(segment.key_sets), move))
            null_lists |= remap_rows(segment.nulls() or NO_ROWS, move)
        groups = merge_groups(parts, lists.data_type)
        nulls = (_NULL_LISTS, lambda: null_lists | lists.nulls())
        write_groups(groups, lists.data_type, folder, nulls=nulls)
        return b""

    def remap(self, segment: LabelListSegment, move: Move, folder: SegmentFolder) -> bytes:
        """Write the same keys with new row numbers."""
        no_rows = IndexedRows(pa.list_(segment.key_sets.data_type), ())
        return self.merge([segment], [move], no_rows, folder)


class _Lists:
    """Flattens lists to elements with row numbers, and collects the rows of null lists."""

    def __init__(self, rows: IndexedRows) -> None:
        self._rows = rows
        self._nulls = NO_ROWS
        self.data_type = rows.data_type.value_type

    def elements(self) -> Iterator[Part]:
        for lists, numbers in self._rows.parts:
            if lists.null_count:
                is_null = lists.is_null().to_numpy(zero_copy_only=False)
                self._nulls |= RowSet.of(numbers[is_null])
            yield pc.list_flatten(lists), numbers[pc.list_parent_indices(lists).to_numpy()]

    def nulls(self) -> RowSet:
        """Return the rows of null lists seen so far."""
        return self._nulls
