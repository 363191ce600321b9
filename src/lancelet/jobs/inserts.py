"""The rows inserted by a version, for streaming reads of new rows.

    version 5   append                  the rows of its new fragments
    version 6   delete, compact, index  none
    version 7   update, merge, upsert   the rows of its new fragments that it created, if the table
                                        has stable row ids
    version 8   overwrite, restore      all rows are replaced

If inserts cannot be determined, the version is an error by default; the caller may choose to skip
it or to read all rows that it wrote.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import field
from enum import Enum
from typing import Final

import numpy as np

from lancelet.errors import UnsupportedError
from lancelet.format import operation as ops
from lancelet.scan.row_columns import RowColumn
from lancelet.table.snapshot import Snapshot
from lancelet.values import dataclass


class OnChange(Enum):
    """How to handle versions that update or overwrite rows."""

    FAIL = "fail"
    SKIP = "skip"
    READ = "read"


@dataclass(frozen=True, slots=True)
class Inserts:
    """The fragments with the new rows of a version, and the filter that selects them."""

    fragments: tuple[int, ...] = field(default=())
    filter: str | None = None


NO_INSERTS: Final = Inserts()


def find_inserts(snapshot: Snapshot, on_change: OnChange) -> Inserts:
    """Return the rows that a version inserted.

    Raises:
        UnsupportedError: The version changed rows, and its inserts cannot be determined.
    """
    transaction = snapshot.transaction
    operation = None if transaction is None else transaction.operation
    match operation:
        case ops.Append(fragments):
            return _last(snapshot, len(fragments))
        case ops.Overwrite() | ops.Clone() if snapshot.version == 1:
            return _last(snapshot, len(snapshot.fragments))
        case (
            ops.Delete()
            | ops.Rewrite()
            | ops.CreateIndex()
            | ops.Merge()
            | ops.Project()
            | ops.UpdateConfig()
            | ops.ReserveFragments()
            | ops.UpdateBases()
            | ops.UpdateMemWalState()
        ):
            return NO_INSERTS
        case ops.Update(new_fragments=fragments) if not fragments:
            return NO_INSERTS
        case ops.Update(new_fragments=fragments) if snapshot.manifest.uses_stable_row_ids:
            created = f"{RowColumn.CREATED.value} = {snapshot.version}"
            return Inserts(_last(snapshot, len(fragments)).fragments, created)
        case ops.Update(new_fragments=fragments):
            return _changed(snapshot, on_change, lambda: _last(snapshot, len(fragments)))
        case ops.Overwrite() | ops.Restore() | ops.Clone():
            return _changed(snapshot, on_change, lambda: _last(snapshot, len(snapshot.fragments)))
        case ops.DataReplacement() | ops.AddOverlays():
            return NO_INSERTS
        case _:
            return _changed(snapshot, on_change, lambda: NO_INSERTS)


def _last(snapshot: Snapshot, count: int) -> Inserts:
    """Return the most recently added fragments, which have the highest ids."""
    ids = np.sort(snapshot.fragments.ids)
    return Inserts(tuple(ids[len(ids) - count :].tolist()))


def _changed(snapshot: Snapshot, on_change: OnChange, written: Callable[[], Inserts]) -> Inserts:
    match on_change:
        case OnChange.SKIP:
            return NO_INSERTS
        case OnChange.READ:
            return written()
    transaction = snapshot.transaction
    raise UnsupportedError(
        "a version changed or replaced rows, and its inserts are not recorded; use the option "
        "on_change=skip or on_change=read, or a table with stable row ids",
        uri=snapshot.location.uri,
        version=snapshot.version,
        operation="unknown" if transaction is None else type(transaction.operation).__name__,
    )
