"""The rows that may differ between two versions; all others are the same without a look at them.

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
from typing import Final

import numpy as np

from lancelet.buffers import Int64s
from lancelet.format.fragment import DataFile, Fragment
from lancelet.rowids.address import UInt64s, addresses_of
from lancelet.table.snapshot import Snapshot
from lancelet.values import dataclass

_PIECE_ROWS: Final = 1 << 20


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
        and all(_place(one.file_of(each)) == _place(other.file_of(each)) for each in fields)
    )


def _place(file: DataFile | None) -> tuple[object, ...] | None:
    return None if file is None else (file.path, file.base_id)
