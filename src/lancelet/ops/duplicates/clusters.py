"""Rows that are connected by pairs, as clusters: the row of the least number, and the others.

pairs      (1, 4) (4, 9) (2, 3)
clusters   1: 4 9    2: 3
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

import numpy as np
import pyarrow as pa

from lancelet.buffers import Int64s
from lancelet.ops.duplicates.hashes import Pairs
from lancelet.rowids.address import UInt64s

CLUSTER_SCHEMA: Final = pa.schema(
    [
        pa.field("representative", pa.uint64(), nullable=False),
        pa.field("duplicates", pa.list_(pa.uint64()), nullable=False),
    ]
)
"""A cluster of rows, as callers get it."""

_BATCH_ROWS: Final = 10_000


def clusters_of(numbers: UInt64s, pairs: Iterable[Pairs]) -> pa.RecordBatchReader:
    """Return the clusters of rows, by the number of the first; a row alone is in none.

    Args:
        numbers: The number of each row.
        pairs: Places of rows among these, that belong together.
    """
    ordered, place = np.unique(numbers, return_inverse=True)
    roots = np.arange(len(ordered), dtype=np.int64)
    for left, right in pairs:
        roots = _joined(roots, place[left], place[right])
    sizes = np.bincount(roots, minlength=len(roots))
    members = np.argsort(roots, kind="stable")
    is_other = (members != roots[members]) & (sizes[roots[members]] > 1)
    others = ordered[members[is_other]]
    firsts = np.flatnonzero(sizes > 1)
    offsets = np.cumsum([0, *(sizes[firsts] - 1)], dtype=np.int32)
    lists = pa.ListArray.from_arrays(pa.array(offsets, pa.int32()), pa.array(others, pa.uint64()))
    table = pa.Table.from_arrays(
        [pa.array(ordered[firsts], pa.uint64()), lists], schema=CLUSTER_SCHEMA
    )
    return pa.RecordBatchReader.from_batches(
        CLUSTER_SCHEMA, table.to_batches(max_chunksize=_BATCH_ROWS) if len(firsts) else []
    )


def _joined(roots: Int64s, left: Int64s, right: Int64s) -> Int64s:
    """Return roots after pairs are joined: of each row the least one that it is connected to."""
    while True:
        least = np.minimum(roots[left], roots[right])
        before = roots.copy()
        np.minimum.at(roots, roots[left], least)
        np.minimum.at(roots, roots[right], least)
        roots = roots[roots]
        if np.array_equal(before, roots):
            return roots
