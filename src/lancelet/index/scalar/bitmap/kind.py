"""The BITMAP kind: for columns of few distinct values; any question about them, exactly.

city = 'Rome'                the set of one key
city > 'A' AND city < 'C'    the union of the keys between
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pyarrow as pa

from lancelet.index.base import (
    IndexedRows,
    Move,
    Parameters,
    ScalarKind,
    SearchResult,
)
from lancelet.index.folder import SegmentFolder
from lancelet.index.parts.grouping import (
    group_rows,
    merge_groups,
    remap_groups,
    stored_groups,
    write_groups,
)
from lancelet.index.parts.key_sets import KeySets
from lancelet.index.query import ScalarQuery
from lancelet.rowids.address import UInt64s
from lancelet.rowids.selection import RowSet


class BitmapSegment:
    """An open BITMAP."""

    def __init__(self, folder: SegmentFolder) -> None:
        """Read the keys."""
        self.key_sets = KeySets(folder)

    @property
    def data_type(self) -> pa.DataType:
        """The type of the values."""
        return self.key_sets.data_type

    def estimate(self, query: ScalarQuery) -> int | None:
        """Return how many rows there are: adding sets up is as cheap as guessing."""
        spans = self.key_sets.spans(query)
        return None if spans is None else self.key_sets.num_rows(spans)

    def search(self, query: ScalarQuery) -> SearchResult:
        """Return the rows exactly."""
        spans = self.key_sets.spans(query)
        assert spans is not None, "only what has an estimate is searched"
        self.key_sets.count_comparisons(sum(stop - start for start, stop in spans))
        return SearchResult(self.key_sets.union(spans))

    def nulls(self) -> RowSet:
        """Return the rows without a value."""
        return self.key_sets.null_key()

    def entries(self) -> tuple[pa.Array, UInt64s]:
        """Return a key and the number of a row for every row of every key."""
        return self.key_sets.entries()

    def statistics(self) -> dict[str, Any]:
        """Return how many keys there are."""
        return {"num_bitmaps": len(self.key_sets.keys)}


class Bitmap(ScalarKind[BitmapSegment]):
    """A set of rows for each distinct value."""

    name = "BITMAP"
    title = "Bitmap"
    type_url = "/lance.table.BitmapIndexDetails"
    newest_version = 1
    unsupported_message = "a BITMAP needs a column of numbers, times, texts or byte strings"
    can_remap = True

    def train(self, rows: IndexedRows, folder: SegmentFolder, parameters: Parameters) -> bytes:  # noqa: ARG002
        """Group the rows by value and write the groups."""
        write_groups(group_rows(rows.parts, rows.data_type), rows.data_type, folder)
        return b""

    def open(self, folder: SegmentFolder, details: bytes) -> BitmapSegment:  # noqa: ARG002
        """Open a segment."""
        return BitmapSegment(folder)

    def merge(
        self,
        segments: Sequence[BitmapSegment],
        moves: Sequence[Move],
        rows: IndexedRows,
        folder: SegmentFolder,
    ) -> bytes:
        """Unite the sets of each key."""
        parts = [group_rows(rows.parts, rows.data_type)]
        for segment, move in zip(segments, moves, strict=True):
            parts.append(remap_groups(stored_groups(segment.key_sets), move))
        write_groups(merge_groups(parts, rows.data_type), rows.data_type, folder)
        return b""
