"""The LABEL_LIST kind: which lists have an element, any of several, or all of them.

    tags   ["a", "b"], ["b"], null, []        a {0}   b {0, 1}   lists that are null {2}

An element that is null is a key of its own; a list that is null is kept apart from the keys, in
files of version 1 and later. Empty lists are nowhere.
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
    """An open LABEL_LIST."""

    def __init__(self, folder: SegmentFolder) -> None:
        """Read the keys."""
        self.key_sets = KeySets(folder)

    def estimate(self, query: ScalarQuery) -> int | None:
        """Return how many rows there are: adding sets up is as cheap as guessing."""
        match query:
            case HasAny() | HasAll():
                return self._search(query).rows.num_listed
            case IsNull():
                return None if self._null_lists is None else self._null_lists.num_listed
            case _:
                return None

    def search(self, query: ScalarQuery) -> SearchResult:
        """Return the rows exactly."""
        if isinstance(query, HasAny | HasAll):
            self.key_sets.count_comparisons(len(query.values))
        return self._search(query)

    def _search(self, query: ScalarQuery) -> SearchResult:
        match query:
            case HasAny(values):
                return SearchResult(self._rows_with(values))
            case HasAll(values):
                found = [self._rows_with(values.slice(place, 1)) for place in range(len(values))]
                rows = found[0] if found else NO_ROWS
                for others in found[1:]:
                    rows &= others
                return SearchResult(rows)
            case _:
                assert isinstance(query, IsNull)
                assert self._null_lists is not None
                return SearchResult(self._null_lists)

    def nulls(self) -> RowSet | None:
        """Return the rows whose list is null; files of version 0 do not say."""
        return self._null_lists

    def entries(self) -> tuple[pa.Array, UInt64s]:
        """Return a key and the number of a row for every row of every key."""
        return self.key_sets.entries()

    def statistics(self) -> dict[str, Any]:
        """Return how many keys there are."""
        return {"num_bitmaps": len(self.key_sets.keys)}

    @cached_property
    def _null_lists(self) -> RowSet | None:
        number = self.key_sets.metadata.get(_NULL_LISTS)
        return None if number is None else RowSet.parse(self.key_sets.global_buffer(number))

    def _rows_with(self, values: pa.Array) -> RowSet:
        spans = self.key_sets.spans(OneOf(values.cast(self.key_sets.data_type)))
        assert spans is not None
        return self.key_sets.union(spans)


class LabelList(ScalarKind[LabelListSegment]):
    """A set of rows for each distinct element of lists."""

    name = "LABEL_LIST"
    title = "LabelList"
    type_url = "/lance.table.LabelListIndexDetails"
    newest_version = 2
    unsupported_message = (
        "a LABEL_LIST needs a column of lists of numbers, times, texts or byte strings"
    )
    written_version = 1  # lists that are null are known
    addresses_since = 2
    can_remap = True

    def supports_type(self, data_type: pa.DataType) -> bool:
        """Return whether it is a list of values with an order."""
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
        """Unite the sets of each key, and the lists that are null."""
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
        """Write the same keys with other rows."""
        nothing = IndexedRows(pa.list_(segment.key_sets.data_type), ())
        return self.merge([segment], [move], nothing, folder)


class _Lists:
    """Lists as their elements, each with the number of its row; null lists are gathered apart."""

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
        """Return the rows whose list is null, of those that went by."""
        return self._nulls
