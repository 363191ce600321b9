"""The BITMAP index kind, for columns with few distinct values. All results are exact.

For example:

    city = 'Rome'                the row set of one key
    city > 'A' AND city < 'C'    the union of the row sets of a key range
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
    """An open segment of a BITMAP index."""

    def __init__(self, folder: SegmentFolder) -> None:
        """Read the keys."""
        self.key_sets = KeySets(folder)

    @property
    def data_type(self) -> pa.DataType:
        """Type of the values."""
        return self.key_sets.data_type

    def estimate(self, query: ScalarQuery) -> int | None:
        """Return the exact number of matching rows."""
        key_ranges = self.key_sets.spans(query)
        return None if key_ranges is None else self.key_sets.num_rows(key_ranges)

    def search(self, query: ScalarQuery) -> SearchResult:
        """Return the matching rows."""
        key_ranges = self.key_sets.spans(query)
        assert key_ranges is not None, "supported queries have an estimate"
        self.key_sets.count_comparisons(sum(stop - start for start, stop in key_ranges))
        return SearchResult(self.key_sets.union(key_ranges))

    def nulls(self) -> RowSet:
        """Return the rows with null values."""
        return self.key_sets.null_key()

    def entries(self) -> tuple[pa.Array, UInt64s]:
        """Return the key and row number of each entry."""
        return self.key_sets.entries()

    def statistics(self) -> dict[str, Any]:
        """Return the number of keys."""
        return {"num_bitmaps": len(self.key_sets.keys)}


class Bitmap(ScalarKind[BitmapSegment]):
    """The BITMAP index kind: a set of rows for each distinct value."""

    name = "BITMAP"
    title = "Bitmap"
    type_url = "/lance.table.BitmapIndexDetails"
    newest_version = 1
    unsupported_message = (
        "a BITMAP index requires a column of numbers, times, strings or binary values"
    )
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
        """Merge the row sets of each key."""
        parts = [group_rows(rows.parts, rows.data_type)]
        for segment, move in zip(segments, moves, strict=True):
            parts.append(remap_groups(stored_groups(segment.key_sets), move))
        write_groups(merge_groups(parts, rows.data_type), rows.data_type, folder)
        return b""
