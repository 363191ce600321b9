"""Pairing the rows of two versions that are the same row.

By stable row ids, as the versions of rows are recorded:

    version 3              version 7
    id   created updated   id   created updated
    0    1       1         0    1       1           the same
    1    1       1         1    1       6           updated
    2    2       2         -                        deleted
    -                      3    5       5           inserted
    4    3       3         4    7       7           deleted, and another inserted: after the table
                                                    was overwritten ids may come again

Without such ids a row is the same for as long as it stays where it is. Either way fragments are
looked at one after another, and the rows of the other version are found through its row id index.

The rows that may differ between two versions; all others are the same without a look at them.

    fragment   version 3             version 7
    0          file a                file a                the same bytes: no row
    1          file b                file b, row 4 gone    row 4 of version 3
    2          file c                -                     all of it in version 3
    5          -                     file d                all of it in version 7

Fragments are compared as the manifests have them, so this reads only deletion files. Large ones
come in pieces, as manifests may claim any number of rows.
"""

from __future__ import annotations

from collections.abc import Iterator
from enum import Enum
from functools import lru_cache
from typing import Final

import numpy as np

from lancelet.buffers import Int64s
from lancelet.format.fragment import DataFile, Fragment
from lancelet.query.row_columns import FragmentRows
from lancelet.rowids.address import NO_ADDRESS, UInt64s, addresses_of, group_by_fragment, offsets_of
from lancelet.table.lineage import row_id_index_of
from lancelet.table.snapshot import Snapshot
from lancelet.values import dataclass

_FRAGMENTS_KEPT = 64
"""Of how many fragments of the other version the recorded versions of rows are kept."""

_PIECE_ROWS: Final = 1 << 20


class ChangeKind(Enum):
    """What happened to a row."""

    INSERT = "insert"
    UPDATE = "update"
    DELETE = "delete"


@dataclass(frozen=True, slots=True, eq=False)
class ChangedRows:
    """Rows that changed in one way: their ids, and where they are before and after."""

    kind: ChangeKind
    ids: UInt64s
    before: UInt64s | None
    after: UInt64s | None

    def __len__(self) -> int:
        """Return how many rows there are."""
        return len(self.ids)

    def slice(self, start: int, stop: int) -> ChangedRows:
        """Return some of the rows."""
        return ChangedRows(
            self.kind,
            self.ids[start:stop],
            None if self.before is None else self.before[start:stop],
            None if self.after is None else self.after[start:stop],
        )


def inserted(ids: UInt64s, addresses: UInt64s) -> ChangedRows:
    """Return rows that are new."""
    return ChangedRows(ChangeKind.INSERT, ids, None, addresses)


def deleted(ids: UInt64s, addresses: UInt64s) -> ChangedRows:
    """Return rows that are gone."""
    return ChangedRows(ChangeKind.DELETE, ids, addresses, None)


def rows_changed(begin: Snapshot, end: Snapshot) -> Iterator[ChangedRows]:
    """Yield the rows that changed, those of a fragment at a time; deleted ones come last."""
    yield from rows_inserted_or_updated(begin, end)
    yield from rows_deleted(begin, end)


def rows_inserted_or_updated(begin: Snapshot, end: Snapshot) -> Iterator[ChangedRows]:
    """Yield the rows that are new or have changed, those of a fragment at a time."""
    before = _Records(begin) if end.manifest.uses_stable_row_ids else None
    for found in candidates(end, begin):
        if before is None:
            yield inserted(found.addresses, found.addresses)
        else:
            yield from _inserted_and_updated(end, found, before)


def rows_deleted(begin: Snapshot, end: Snapshot) -> Iterator[ChangedRows]:
    """Yield the rows that are gone, those of a fragment at a time."""
    after = _Records(end) if end.manifest.uses_stable_row_ids else None
    for found in candidates(begin, end):
        if after is None:
            yield deleted(found.addresses, found.addresses)
        else:
            yield from _deleted(begin, found, after)


class _Records:
    """What a version records of rows, by their ids."""

    def __init__(self, snapshot: Snapshot) -> None:
        self._snapshot = snapshot
        self._index = row_id_index_of(snapshot)
        self._rows = lru_cache(_FRAGMENTS_KEPT)(self._rows_of)

    def addresses(self, ids: UInt64s) -> UInt64s:
        """Return where rows are, `NO_ADDRESS` for those that are not there."""
        return self._index.addresses(ids)

    def versions(self, addresses: UInt64s) -> tuple[UInt64s, UInt64s]:
        """Return in which versions rows were created and last changed."""
        created, updated = np.empty((2, len(addresses)), np.uint64)
        for fragment_id, places in group_by_fragment(addresses).items():
            rows, offsets = self._rows(fragment_id), offsets_of(addresses[places])
            created[places], updated[places] = rows.created(offsets), rows.updated(offsets)
        return created, updated

    def _rows_of(self, fragment_id: int) -> FragmentRows:
        return FragmentRows(self._snapshot, self._snapshot.fragments.by_id(fragment_id))


def _inserted_and_updated(
    end: Snapshot, found: Candidates, before: _Records
) -> Iterator[ChangedRows]:
    rows = FragmentRows(end, found.fragment)
    ids, created, updated = (
        column(found.offsets) for column in (rows.ids, rows.created, rows.updated)
    )
    origin = before.addresses(ids)
    known = np.flatnonzero(origin != NO_ADDRESS)
    created_then, updated_then = before.versions(origin[known])
    is_same_row = created_then == created[known]
    is_new = np.ones(len(ids), np.bool_)
    is_new[known[is_same_row]] = False
    changed = known[is_same_row & (updated_then != updated[known])]
    addresses = found.addresses
    if is_new.any():
        yield inserted(ids[is_new], addresses[is_new])
    if len(changed):
        yield ChangedRows(ChangeKind.UPDATE, ids[changed], origin[changed], addresses[changed])


def _deleted(begin: Snapshot, found: Candidates, after: _Records) -> Iterator[ChangedRows]:
    rows = FragmentRows(begin, found.fragment)
    ids, created = rows.ids(found.offsets), rows.created(found.offsets)
    place = after.addresses(ids)
    known = np.flatnonzero(place != NO_ADDRESS)
    created_now, _ = after.versions(place[known])
    is_gone = np.ones(len(ids), np.bool_)
    is_gone[known[created_now == created[known]]] = False
    if is_gone.any():
        yield deleted(ids[is_gone], found.addresses[is_gone])


@dataclass(frozen=True, slots=True, eq=False)
class Candidates:
    """Rows of a fragment of a version that may be different in another version."""

    fragment: Fragment
    offsets: Int64s

    @property
    def addresses(self) -> UInt64s:
        """Where the rows are."""
        return addresses_of(self.fragment.id, self.offsets)


def candidates(here: Snapshot, there: Snapshot) -> Iterator[Candidates]:
    """Yield the live rows of one version that may not be the same in another, by fragment."""
    others = {int(field.id) for field in there.schema.walk()}
    fields = tuple(int(field.id) for field in here.schema.walk() if int(field.id) in others)
    theirs = there.fragments
    known = {number: at for at, number in enumerate(theirs.ids.tolist())}
    for place, number in enumerate(here.fragments.ids.tolist()):
        at = known.get(number)
        if at is not None and here.fragments.message(place) == theirs.message(at):
            continue
        fragment = here.fragments[place]
        deleted, rows = here.deletions(fragment), here.physical_rows(fragment)
        is_kept = at is not None and _has_same_rows(fragment, theirs[at], fields)
        theirs_deleted = there.deletions(theirs[at]) if at is not None and is_kept else None
        for start in range(0, rows, _PIECE_ROWS):
            stop = min(start + _PIECE_ROWS, rows)
            live = deleted.live_within(start, stop)
            if theirs_deleted is not None:
                live &= ~theirs_deleted.live_within(start, stop)
            offsets = np.flatnonzero(live).astype(np.int64) + start
            if len(offsets):
                yield Candidates(fragment, offsets)


def _has_same_rows(one: Fragment, other: Fragment, fields: tuple[int, ...]) -> bool:
    """Return whether rows at one offset are the same row with the same values."""
    return (
        (one.row_ids, one.created_at_versions, one.last_updated_at_versions, one.overlays)
        == (
            other.row_ids,
            other.created_at_versions,
            other.last_updated_at_versions,
            other.overlays,
        )
        and one.physical_rows == other.physical_rows
        and all(_place(one.find_file(each)) == _place(other.find_file(each)) for each in fields)
    )


def _place(file: DataFile | None) -> tuple[object, ...] | None:
    return None if file is None else (file.path, file.base_id)
