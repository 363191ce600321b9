"""The BTREE kind: what it indexes, and how segments come to be."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import chain

import pyarrow as pa

from lancelet.index.base import (
    IndexedRows,
    IndexTypeError,
    Move,
    Parameters,
    ScalarKind,
    Segment,
    is_ordered_type,
)
from lancelet.index.folder import SegmentFolder
from lancelet.index.parts.sorted_runs import sorted_parts
from lancelet.index.scalar.btree.layout import write_pages
from lancelet.index.scalar.btree.search import BTreeSegment
from lancelet.rowids.address import NO_ADDRESS, UInt64s


class BTree(ScalarKind):
    """Values in order: equality, ranges, prefixes and nulls, all exactly."""

    name = "BTREE"
    title = "BTree"
    type_url = "/lance.table.BTreeIndexDetails"
    newest_version = 1
    can_remap = True

    def version(self, parameters: Parameters, *, stable_row_ids: bool) -> int:  # noqa: ARG002
        """Return 1 where rows have ids of their own, since it then numbers rows by address."""
        return int(stable_row_ids)

    def check_type(self, data_type: pa.DataType, column: str) -> None:
        """Raise unless values of the type have an order."""
        if not is_ordered_type(data_type):
            raise IndexTypeError(
                "a BTREE needs a column of numbers, times, texts or byte strings",
                column=column,
                found=str(data_type),
            )

    def train(self, rows: IndexedRows, folder: SegmentFolder, parameters: Parameters) -> bytes:  # noqa: ARG002
        """Sort all rows, on disk if they are many, and write them."""
        write_pages(sorted_parts(rows.parts, rows.data_type), rows.data_type, folder)
        return b""

    def open(self, folder: SegmentFolder, details: bytes) -> BTreeSegment:  # noqa: ARG002
        """Open a segment."""
        return BTreeSegment(folder)

    def merge(
        self,
        segments: Sequence[Segment],
        moves: Sequence[Move],
        rows: IndexedRows,
        folder: SegmentFolder,
    ) -> bytes:
        """Sort the rows of all together."""
        moved = (_moved(_opened(one), move) for one, move in zip(segments, moves, strict=True))
        old = ((values.cast(rows.data_type), ids) for part in moved for values, ids in part)
        write_pages(sorted_parts(chain(old, rows.parts), rows.data_type), rows.data_type, folder)
        return b""

    def remap(self, segment: Segment, move: Move, folder: SegmentFolder) -> bytes:
        """Write the same values with other numbers; the order does not change."""
        opened = _opened(segment)
        write_pages(_moved(opened, move), opened.data_type, folder)
        return b""


def _moved(segment: BTreeSegment, move: Move) -> Iterator[tuple[pa.Array, UInt64s]]:
    """Yield the values and new numbers of the rows that are still there."""
    for values, ids in segment.read_parts():
        moved = move(ids)
        kept = moved != NO_ADDRESS
        yield values.filter(pa.array(kept)), moved[kept]


def _opened(segment: Segment) -> BTreeSegment:
    assert isinstance(segment, BTreeSegment), "segments of one index are of one kind"
    return segment
