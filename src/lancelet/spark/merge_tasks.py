"""The output of merge tasks, and its commit as one version.

    rows of a task, sorted by action      update at 40, update at 44, insert, insert, delete at 41
    files                                 [the updated rows]  [the inserted rows]
    sent to the driver                    fragments, addresses 40 44 and 41, the inserted keys
    commit                                40, 41 and 44 deleted, the fragments added

Updated rows are written to separate files. In tables with stable row ids they retain their ids
while inserted rows get new ones.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from enum import IntEnum
from functools import reduce
from itertools import groupby
from operator import itemgetter
from typing import Final

import numpy as np
import pyarrow as pa

from lancelet.change.delete import write_deletions
from lancelet.change.merge.decide import MergeMatchError
from lancelet.change.merge.key_columns import KeyColumns
from lancelet.change.merge.key_filters import InsertedKeys
from lancelet.change.moved_rows import rows_by_fragment, with_moved_ids
from lancelet.change.publish import publish
from lancelet.format.fragment import Fragment
from lancelet.format.key_filter import BLOOM_BITS, BloomFilter, KeyFilter
from lancelet.format.operation import Update, UpdateMode
from lancelet.jobs.engine import Done
from lancelet.rowids.address import UInt64s, distinct
from lancelet.spark.files import FilePlan, Publication, delete_files, write_task
from lancelet.spark.types import has_collation
from lancelet.table.commit import CommitOptions
from lancelet.table.snapshot import Snapshot
from lancelet.values import dataclass

ACTION: Final = "__lancelet_action"
ADDRESS: Final = "__lancelet_address"
_NO_ADDRESSES: Final = np.empty(0, np.uint64)


class Action(IntEnum):
    """The change of a joined row; the rows of a task are sorted by it."""

    UPDATE = 0
    INSERT = 1
    DELETE = 2


@dataclass(frozen=True, slots=True)
class MergeCounts:
    """The number of rows that a merge inserted, updated and deleted."""

    inserted: int = 0
    updated: int = 0
    deleted: int = 0

    def __add__(self, other: MergeCounts) -> MergeCounts:
        """Return the sums."""
        return MergeCounts(
            self.inserted + other.inserted,
            self.updated + other.updated,
            self.deleted + other.deleted,
        )

    @property
    def total(self) -> int:
        """The total number of rows."""
        return self.inserted + self.updated + self.deleted


@dataclass(frozen=True, slots=True, eq=False)
class MergedPart:
    """The fragments that a task wrote, and the addresses of the updated and deleted rows."""

    fragments: tuple[Fragment, ...]
    replaced: UInt64s
    key_bits: bytes
    counts: MergeCounts


def write_merged(
    files: FilePlan, on: tuple[str, ...], batches: Iterable[pa.RecordBatch]
) -> Done[MergedPart]:
    """Write the rows of a task, sorted by action; without join columns no keys are recorded."""
    snapshot = files.table.open()
    keys = InsertedKeys(KeyColumns.of(snapshot.schema, on)) if on else None
    fragments: list[Fragment] = []
    replaced: list[UInt64s] = [_NO_ADDRESSES]
    counts = MergeCounts()
    for action, group in groupby(_by_action(batches), key=itemgetter(0)):
        match action:
            case Action.UPDATE:
                updated: list[UInt64s] = [_NO_ADDRESSES]
                written = write_task(files, _collecting_addresses(group, updated))
                moved = np.concatenate(updated)
                fragments += with_moved_ids(snapshot, written, moved)
                replaced.append(moved)
                counts += MergeCounts(updated=len(moved))
            case Action.INSERT:
                rows = (batch for _, batch in group)
                written = write_task(files, rows if keys is None else _with_keys(rows, keys, on))
                fragments += written
                counts += MergeCounts(inserted=sum(each.physical_rows for each in written))
            case Action.DELETE:
                removed = [_addresses(batch) for _, batch in group]
                replaced += removed
                counts += MergeCounts(deleted=sum(map(len, removed)))
    bits = b""
    if keys is not None:
        inserted = keys.filter().keys
        assert isinstance(inserted, BloomFilter)
        bits = inserted.bitmap
    part = MergedPart(tuple(fragments), np.concatenate(replaced), bits, counts)
    return Done(part, counts.total)


def commit_merge(
    snapshot: Snapshot,
    files: FilePlan,
    on: tuple[str, ...],
    parts: Sequence[MergedPart],
    publication: Publication,
    *,
    only_deletes: bool = False,
) -> tuple[Snapshot, MergeCounts]:
    """Publish the output of all tasks as one version; none if nothing changed.

    With `only_deletes` a row may occur several times.
    """
    counts = sum((part.counts for part in parts), MergeCounts())
    fragments = tuple(fragment for part in parts for fragment in part.fragments)
    addresses = np.concatenate([_NO_ADDRESSES, *(part.replaced for part in parts)])
    if not counts.total:
        return snapshot, counts
    distinct_addresses = distinct(addresses)
    extra = len(addresses) - len(distinct_addresses)
    if extra and not only_deletes:  # the source returned different rows when it was read again
        delete_files(files, fragments)
        raise repeated_match_error(on, extra)
    counts = replace(counts, deleted=counts.deleted - extra)
    rows = rows_by_fragment(distinct_addresses)
    removal = write_deletions(snapshot, rows)
    operation = Update(
        removed_fragment_ids=removal.removed,
        updated_fragments=removal.updated,
        new_fragments=fragments,
        fields_for_preserving_bitmap=tuple(int(node.id) for node in files.schema.walk()),
        mode=UpdateMode.REWRITE_ROWS,
        inserted_rows=_joined_keys(snapshot, on, parts) if on else None,
    )
    committing = CommitOptions(affected=rows, watermark=publication.watermark, checks_files=True)
    return publish(snapshot, operation, committing, publication.commit_properties), counts


def repeated_match_error(on: tuple[str, ...], rows: int) -> MergeMatchError:
    """Return the error for several source rows that change the same row."""
    return MergeMatchError(
        "several rows of the source change the same row of the table; make the keys of the "
        "source distinct first",
        on=on,
        rows=rows,
    )


def _by_action(batches: Iterable[pa.RecordBatch]) -> Iterator[tuple[Action, pa.RecordBatch]]:
    for batch in batches:
        actions = batch.column(ACTION).to_numpy()
        bounds = np.searchsorted(actions, [*Action, len(Action)])
        for action, start, stop in zip(Action, bounds, bounds[1:], strict=False):
            if stop > start:
                yield action, batch.slice(start, stop - start)


def _collecting_addresses(
    group: Iterable[tuple[Action, pa.RecordBatch]], collected: list[UInt64s]
) -> Iterator[pa.RecordBatch]:
    for _, batch in group:
        collected.append(_addresses(batch))
        yield batch


def _with_keys(
    rows: Iterable[pa.RecordBatch], keys: InsertedKeys, on: tuple[str, ...]
) -> Iterator[pa.RecordBatch]:
    for batch in rows:
        keys.add(batch.select(list(on)))
        yield batch


def _addresses(batch: pa.RecordBatch) -> UInt64s:
    addresses: UInt64s = batch.column(ADDRESS).to_numpy().astype(np.uint64)
    return addresses


def _joined_keys(snapshot: Snapshot, on: tuple[str, ...], parts: Sequence[MergedPart]) -> KeyFilter:
    bits = [np.frombuffer(part.key_bits, np.uint8) for part in parts]
    joined = reduce(np.bitwise_or, bits, np.zeros(BLOOM_BITS // 8, np.uint8))
    fields = [each.to_arrow() for each in snapshot.schema.fields if each.name in on]
    if joined.any() and any(map(has_collation, fields)):
        # Equal keys of a collated column may differ in bytes, so the filter must match every key.
        joined[:] = 0xFF
    return KeyFilter(KeyColumns.of(snapshot.schema, on).field_ids, BloomFilter(joined.tobytes()))
