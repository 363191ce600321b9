"""Match the rows of two versions.

With stable row ids, rows are matched by id, using their recorded versions:

    version 3              version 7
    id   created updated   id   created updated
    0    1       1         0    1       1           unchanged
    1    1       1         1    1       6           updated
    2    2       2         -                        deleted
    -                      3    5       5           inserted
    4    3       3         4    7       7           deleted and inserted: overwriting the table
                                                    may reuse ids

Without stable row ids, rows are matched by address. Fragments are processed one at a time, and the
rows of the other version are found through its row id index.

Only candidates are compared, since other rows cannot differ:

    fragment   version 3             version 7
    0          file a                file a                unchanged entry: no rows
    1          file b                file b, row 4 deleted row 4 of version 3
    2          file c                -                     all rows of version 3
    5          -                     file d                all rows of version 7

Fragments are compared by their manifest entries, so that only deletion files are read. Fragments
are processed in ranges, since manifests may claim any number of rows.
"""

from __future__ import annotations

from collections.abc import Iterator
from enum import Enum
from functools import lru_cache
from typing import Final

import numpy as np

from lancelet.buffers import Int64s
from lancelet.format.fragment import DataFile, Fragment
from lancelet.format.roaring import to_numbers
from lancelet.rowids.address import NO_ADDRESS, UInt64s, addresses_of, group_by_fragment, offsets_of
from lancelet.scan.row_columns import FragmentRows
from lancelet.table.lineage import row_id_index_of
from lancelet.table.snapshot import Snapshot
from lancelet.values import dataclass

_FRAGMENT_CACHE_SIZE = 64
"""Number of fragments whose row versions are cached."""

_RANGE_ROWS: Final = 1 << 20


class ChangeKind(Enum):
    """The kind of a row change."""

    INSERT = "insert"
    UPDATE = "update"
    DELETE = "delete"


@dataclass(frozen=True, slots=True, eq=False)
class ChangedRows:
    """Rows with the same kind of change: ids and addresses before and after."""

    kind: ChangeKind
    ids: UInt64s
    before: UInt64s | None
    after: UInt64s | None

    def __len__(self) -> int:
        """Return the number of rows."""
        return len(self.ids)

    def slice(self, start: int, stop: int) -> ChangedRows:
        """Return a slice of the rows."""
        return ChangedRows(
            self.kind,
            self.ids[start:stop],
            None if self.before is None else self.before[start:stop],
            None if self.after is None else self.after[start:stop],
        )


def inserted_rows(ids: UInt64s, addresses: UInt64s) -> ChangedRows:
    """Return inserted rows."""
    return ChangedRows(ChangeKind.INSERT, ids, None, addresses)


def deleted_rows(ids: UInt64s, addresses: UInt64s) -> ChangedRows:
    """Return deleted rows."""
    return ChangedRows(ChangeKind.DELETE, ids, addresses, None)


def rows_changed(begin: Snapshot, end: Snapshot) -> Iterator[ChangedRows]:
    """Yield the changed rows by fragment; deleted rows come last."""
    yield from rows_inserted_or_updated(begin, end)
    yield from rows_deleted(begin, end)


def rows_inserted_or_updated(begin: Snapshot, end: Snapshot) -> Iterator[ChangedRows]:
    """Yield the inserted and updated rows by fragment."""
    before = _RowRecords(begin) if end.manifest.uses_stable_row_ids else None
    for candidate in candidates(end, begin):
        if before is None:
            yield inserted_rows(candidate.addresses, candidate.addresses)
        else:
            yield from _inserted_and_updated(end, candidate, before)


def rows_deleted(begin: Snapshot, end: Snapshot) -> Iterator[ChangedRows]:
    """Yield the deleted rows by fragment."""
    after = _RowRecords(end) if end.manifest.uses_stable_row_ids else None
    for candidate in candidates(begin, end):
        if after is None:
            yield deleted_rows(candidate.addresses, candidate.addresses)
        else:
            yield from _deleted(begin, candidate, after)


class _RowRecords:
    """The row ids and row versions of a snapshot."""

    def __init__(self, snapshot: Snapshot) -> None:
        self._snapshot = snapshot
        self._index = row_id_index_of(snapshot)
        self._rows = lru_cache(_FRAGMENT_CACHE_SIZE)(self._open_rows)

    def addresses(self, ids: UInt64s) -> UInt64s:
        """Return the addresses of row ids, `NO_ADDRESS` for missing rows."""
        return self._index.addresses(ids)

    def versions(self, addresses: UInt64s) -> tuple[UInt64s, UInt64s]:
        """Return the versions in which rows were created and last updated."""
        created, updated = np.empty((2, len(addresses)), np.uint64)
        for fragment_id, positions in group_by_fragment(addresses).items():
            rows, offsets = self._rows(fragment_id), offsets_of(addresses[positions])
            created[positions], updated[positions] = rows.created(offsets), rows.updated(offsets)
        return created, updated

    def _open_rows(self, fragment_id: int) -> FragmentRows:
        return FragmentRows(self._snapshot, self._snapshot.fragments.by_id(fragment_id))


def _inserted_and_updated(
    end: Snapshot, candidate: Candidates, before: _RowRecords
) -> Iterator[ChangedRows]:
    rows = FragmentRows(end, candidate.fragment)
    ids, created, updated = (
        column(candidate.offsets) for column in (rows.ids, rows.created, rows.updated)
    )
    origin = before.addresses(ids)
    existing = np.flatnonzero(origin != NO_ADDRESS)
    created_then, updated_then = before.versions(origin[existing])
    is_same_row = created_then == created[existing]
    is_new = np.ones(len(ids), np.bool_)
    is_new[existing[is_same_row]] = False
    changed = existing[is_same_row & (updated_then != updated[existing])]
    addresses = candidate.addresses
    if is_new.any():
        yield inserted_rows(ids[is_new], addresses[is_new])
    if len(changed):
        yield ChangedRows(ChangeKind.UPDATE, ids[changed], origin[changed], addresses[changed])


def _deleted(begin: Snapshot, candidate: Candidates, after: _RowRecords) -> Iterator[ChangedRows]:
    rows = FragmentRows(begin, candidate.fragment)
    ids, created = rows.ids(candidate.offsets), rows.created(candidate.offsets)
    addresses = after.addresses(ids)
    existing = np.flatnonzero(addresses != NO_ADDRESS)
    created_now, _ = after.versions(addresses[existing])
    is_deleted = np.ones(len(ids), np.bool_)
    is_deleted[existing[created_now == created[existing]]] = False
    if is_deleted.any():
        yield deleted_rows(ids[is_deleted], candidate.addresses[is_deleted])


@dataclass(frozen=True, slots=True, eq=False)
class Candidates:
    """Rows of a fragment that may differ in another version."""

    fragment: Fragment
    offsets: Int64s

    @property
    def addresses(self) -> UInt64s:
        """The row addresses."""
        return addresses_of(self.fragment.id, self.offsets)


def candidates(snapshot: Snapshot, other: Snapshot) -> Iterator[Candidates]:
    """Yield the live rows of one version that may differ in another, by fragment."""
    other_field_ids = {int(field.id) for field in other.schema.walk()}
    fields = tuple(
        int(field.id) for field in snapshot.schema.walk() if int(field.id) in other_field_ids
    )
    other_fragments = other.fragments
    other_positions = {
        number: other_position for other_position, number in enumerate(other_fragments.ids.tolist())
    }
    for position, number in enumerate(snapshot.fragments.ids.tolist()):
        other_position = other_positions.get(number)
        if other_position is not None and snapshot.fragments.message(
            position
        ) == other_fragments.message(other_position):
            continue
        fragment = snapshot.fragments[position]
        deleted, rows = snapshot.deletions(fragment), snapshot.physical_rows(fragment)
        has_same_rows = other_position is not None and _has_same_rows(
            fragment, other_fragments[other_position], fields
        )
        if has_same_rows:
            assert other_position is not None, "the fragment is in both versions"
            other_deleted = other.deletions(other_fragments[other_position])
            deleted_there = to_numbers(other_deleted.offsets - deleted.offsets)
            for start in range(0, len(deleted_there), _RANGE_ROWS):
                offsets = deleted_there[start : start + _RANGE_ROWS].astype(np.int64)
                yield Candidates(fragment, offsets)
            continue
        for start in range(0, rows, _RANGE_ROWS):
            stop = min(start + _RANGE_ROWS, rows)
            live = deleted.live_within(start, stop)
            offsets = np.flatnonzero(live).astype(np.int64, copy=False) + start
            if len(offsets):
                yield Candidates(fragment, offsets)


def _has_same_rows(left: Fragment, right: Fragment, fields: tuple[int, ...]) -> bool:
    """Return whether rows with equal offsets are the same rows with the same values."""
    return (
        (left.row_ids, left.created_at_versions, left.last_updated_at_versions, left.overlays)
        == (
            right.row_ids,
            right.created_at_versions,
            right.last_updated_at_versions,
            right.overlays,
        )
        and left.physical_rows == right.physical_rows
        and all(
            _file_key(left.find_file(field_id)) == _file_key(right.find_file(field_id))
            for field_id in fields
        )
    )


def _file_key(file: DataFile | None) -> tuple[object, ...] | None:
    return None if file is None else (file.path, file.base_id)
