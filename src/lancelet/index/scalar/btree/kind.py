"""The BTREE kind: what it indexes, and how segments come to be."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from lancelet.index.base import (
    IndexedRows,
    IndexTypeError,
    Move,
    Parameters,
    Segment,
    gather,
    is_ordered_type,
)
from lancelet.index.folder import SegmentFolder
from lancelet.index.parts.ordering import order_of
from lancelet.index.scalar.btree.layout import write_pages
from lancelet.index.scalar.btree.search import BTreeSegment
from lancelet.rowids.address import NO_ADDRESS, UInt64s


class BTree:
    """Values in order: equality, ranges, prefixes and nulls, all exactly."""

    name = "BTREE"
    title = "BTree"
    type_url = "/lance.table.BTreeIndexDetails"
    newest_version = 1
    can_remap = True

    def version(self, *, stable_row_ids: bool) -> int:
        """Return 1 where rows have ids of their own, since it then numbers rows by address."""
        return int(stable_row_ids)

    def uses_addresses(self, version: int) -> bool:
        """Return whether rows are numbered by address."""
        return version >= 1

    def describe(self, details: bytes) -> dict[str, Any]:  # noqa: ARG002
        """Return nothing: the details of a BTREE are empty."""
        return {}

    def check_type(self, data_type: pa.DataType, column: str) -> None:
        """Raise unless values of the type have an order."""
        if not is_ordered_type(data_type):
            raise IndexTypeError(
                "a BTREE needs a column of numbers, times, texts or byte strings",
                column=column,
                found=str(data_type),
            )

    def train(self, rows: IndexedRows, folder: SegmentFolder, parameters: Parameters) -> bytes:  # noqa: ARG002
        """Sort all rows and write them."""
        _write_sorted(*gather(rows), folder)
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
        parts = [gather(rows)]
        for segment, move in zip(segments, moves, strict=True):
            parts.append(_moved(_opened(segment), move))
        values = pa.concat_arrays([part[0].cast(rows.data_type) for part in parts])
        _write_sorted(values, np.concatenate([part[1] for part in parts]), folder)
        return b""

    def remap(self, segment: Segment, move: Move, folder: SegmentFolder) -> bytes:
        """Write the same values with other numbers; the order does not change."""
        write_pages(*_moved(_opened(segment), move), folder)
        return b""


def _moved(segment: BTreeSegment, move: Move) -> tuple[pa.Array, UInt64s]:
    """Return the values and new numbers of the rows that are still there."""
    values, ids = segment.read_all()
    moved = move(ids)
    kept = moved != NO_ADDRESS
    return values.filter(pa.array(kept)), moved[kept]


def _opened(segment: Segment) -> BTreeSegment:
    assert isinstance(segment, BTreeSegment), "segments of one index are of one kind"
    return segment


def _write_sorted(values: pa.Array, ids: UInt64s, folder: SegmentFolder) -> None:
    order = order_of(values.type).sort(values)
    write_pages(values.take(pa.array(order)), ids[order], folder)
