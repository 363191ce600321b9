"""Builds, merges and remaps BTREE indices."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import chain

import pyarrow as pa

from lancelet.index.base import (
    IndexedRows,
    Move,
    Parameters,
    ScalarKind,
)
from lancelet.index.folder import SegmentFolder
from lancelet.index.parts.sorted_runs import sorted_parts
from lancelet.index.scalar.btree.layout import write_pages
from lancelet.index.scalar.btree.search import BTreeSegment
from lancelet.rowids.address import NO_ADDRESS, UInt64s


class BTree(ScalarKind[BTreeSegment]):
    """The BTREE index kind: exact results for equality, ranges, prefixes and nulls."""

    name = "BTREE"
    title = "BTree"
    type_url = "/lance.table.BTreeIndexDetails"
    newest_version = 1
    unsupported_message = (
        "a BTREE index requires a column of numbers, times, strings or binary values"
    )
    can_remap = True

    def version(self, parameters: Parameters, *, stable_row_ids: bool) -> int:  # noqa: ARG002
        """Return 1 for tables with stable row ids, to store row addresses; otherwise 0."""
        return int(stable_row_ids)

    def train(self, rows: IndexedRows, folder: SegmentFolder, parameters: Parameters) -> bytes:  # noqa: ARG002
        """Sort all rows, spilling to disk if necessary, and write them."""
        write_pages(sorted_parts(rows.parts, rows.data_type), rows.data_type, folder)
        return b""

    def open(self, folder: SegmentFolder, details: bytes) -> BTreeSegment:  # noqa: ARG002
        """Open a segment."""
        return BTreeSegment(folder)

    def merge(
        self,
        segments: Sequence[BTreeSegment],
        moves: Sequence[Move],
        rows: IndexedRows,
        folder: SegmentFolder,
    ) -> bytes:
        """Merge the sorted rows of all segments and new rows."""
        moved = (_remap_rows(segment, move) for segment, move in zip(segments, moves, strict=True))
        old = ((values.cast(rows.data_type), ids) for part in moved for values, ids in part)
        write_pages(sorted_parts(chain(old, rows.parts), rows.data_type), rows.data_type, folder)
        return b""

    def remap(self, segment: BTreeSegment, move: Move, folder: SegmentFolder) -> bytes:
        """Write the same values with new row numbers, in the same order."""
        write_pages(_remap_rows(segment, move), segment.data_type, folder)
        return b""


def _remap_rows(segment: BTreeSegment, move: Move) -> Iterator[tuple[pa.Array, UInt64s]]:
    """Yield the values and new row numbers of existing rows."""
    for values, ids in segment.read_parts():
        moved = move(ids)
        remaining = moved != NO_ADDRESS
        yield values.filter(pa.array(remaining)), moved[remaining]
