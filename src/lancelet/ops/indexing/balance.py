"""Bringing partitions of vectors back to their size after rows were added; see `vector.balance`."""

from __future__ import annotations

from functools import partial

import pyarrow as pa

from lancelet.index.folder import SegmentFolder
from lancelet.index.vector.balance import Imbalance, write_balanced
from lancelet.index.vector.kind import IVF
from lancelet.query.plan import projection_of
from lancelet.query.take import take_addresses
from lancelet.rowids.address import NO_ADDRESS, UInt64s
from lancelet.table.lineage import row_id_index_of
from lancelet.table.snapshot import Snapshot


def write_rebalanced(
    snapshot: Snapshot,
    field_id: int,
    written: SegmentFolder,
    details: bytes,
    target: SegmentFolder,
    *,
    by_address: bool,
) -> bool:
    """Write a segment again in better partitions, if there are any; its files are then removed.

    Rows that are lists of vectors stay where they are, since a part of them cannot be read.
    """
    field = snapshot.schema.field_by_id(field_id)
    if not pa.types.is_fixed_size_list(field.storage_type):
        return False
    segment = IVF.open(written, details)
    imbalance = Imbalance.of(segment)
    if not imbalance:
        return False
    vectors = partial(_vectors_of, snapshot, field_id, by_address)
    write_balanced(segment, imbalance, vectors, target)
    for file in written.written:
        written.store.delete(f"{written.path}/{file.path}")
    return True


def _vectors_of(
    snapshot: Snapshot, field_id: int, by_address: bool, numbers: UInt64s
) -> tuple[pa.Array, UInt64s]:
    addresses = numbers if by_address else row_id_index_of(snapshot).addresses(numbers)
    kept = addresses != NO_ADDRESS
    projection = projection_of(snapshot, (snapshot.schema.path_of(field_id),))
    rows = take_addresses(snapshot, addresses[kept], projection)
    return rows.column(0).combine_chunks(), numbers[kept]
