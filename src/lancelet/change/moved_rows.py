"""Rewrite updated rows to new fragments, with their row ids.

    fragment 0    ids 0 1 2 3      rows 1 and 3 change, a row is inserted
    fragment 0    deleted {1, 3}
    new fragment  rows 1' 3' new   row ids 1 3; the third row gets its id at the commit

Moved rows precede inserted rows. In tables without stable row ids, moved rows get new ids.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import field, replace

import numpy as np
import pyarrow as pa

from lancelet.buffers import Int64s
from lancelet.change.bases import BaseSelection
from lancelet.change.write import FileOptions, write_fragments
from lancelet.format.fragment import Fragment, Inline
from lancelet.format.version import FileVersion
from lancelet.rowids.address import (
    UInt64s,
    distinct,
    group_by_fragment,
    offsets_by_fragment,
    offsets_of,
)
from lancelet.rowids.sequence import RowIdSequence
from lancelet.table.apply.state import with_actual_version
from lancelet.table.conflict.rebase import AffectedRows
from lancelet.table.dictionaries import dictionary_values_of
from lancelet.table.lineage import row_ids_of
from lancelet.table.snapshot import Snapshot
from lancelet.values import dataclass


@dataclass(frozen=True, slots=True)
class RowFiles:
    """The file version and the bases of rewritten rows; by default those of the table."""

    version: FileVersion | None = None
    bases: BaseSelection = field(default_factory=BaseSelection)


def rows_by_fragment(addresses: UInt64s) -> dict[int, Int64s]:
    """Return the ascending, distinct row offsets of each fragment.

    >>> rows_by_fragment(np.array([7, 4294967297, 3, 7], np.uint64))
    {0: array([3, 7]), 1: array([1])}
    """
    return offsets_by_fragment(distinct(addresses))


def union_rows(one: AffectedRows, other: AffectedRows) -> dict[int, Int64s]:
    """Return the union of two row sets by fragment, ascending and distinct."""
    rows = dict(one)
    for fragment_id, offsets in other.items():
        offsets_before = rows.get(fragment_id)
        rows[fragment_id] = (
            offsets if offsets_before is None else np.union1d(offsets_before, offsets)
        )
    return rows


def write_rows(
    snapshot: Snapshot, batches: Iterable[pa.RecordBatch], files: RowFiles
) -> tuple[Fragment, ...]:
    """Write rows with all columns of a version as fragments without row ids."""
    options = FileOptions(
        version=files.version or with_actual_version(snapshot.manifest).data_version,
        dictionaries=dictionary_values_of(snapshot),
    )
    targets = files.bases.targets(snapshot.location, snapshot.manifest.bases)
    return write_fragments(targets, batches, snapshot.schema, options)


def with_moved_ids(
    snapshot: Snapshot, fragments: Sequence[Fragment], addresses: UInt64s
) -> tuple[Fragment, ...]:
    """Return new fragments with the ids of the moved rows.

    `addresses` are the previous addresses of the first rows of the fragments, in order.
    """
    if not snapshot.manifest.uses_stable_row_ids:
        return tuple(fragments)
    return tuple(_with_ids(fragments, row_ids_at(snapshot, addresses)))


def row_ids_at(snapshot: Snapshot, addresses: UInt64s) -> UInt64s:
    """Return the ids of the rows at some addresses."""
    ids = np.empty(len(addresses), np.uint64)
    for fragment_id, positions in group_by_fragment(addresses).items():
        sequence = row_ids_of(snapshot, snapshot.fragments.by_id(fragment_id))
        ids[positions] = sequence.take(offsets_of(addresses[positions]))
    return ids


def count_rows(rows: Mapping[int, Int64s]) -> int:
    """Return the total number of rows of all fragments."""
    return sum(map(len, rows.values()))


def _with_ids(fragments: Sequence[Fragment], ids: UInt64s) -> Iterator[Fragment]:
    start = 0
    for fragment in fragments:
        fragment_ids = ids[start : start + fragment.physical_rows]
        start += fragment.physical_rows
        yield (
            replace(fragment, row_ids=Inline(RowIdSequence.of(fragment_ids).render()))
            if len(fragment_ids)
            else (fragment)
        )
