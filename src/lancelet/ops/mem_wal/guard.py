"""Changes of a table that rows in the logs of its shards could not follow are refused.

Such rows were acknowledged, but the table has not got them yet, so a change sees only some rows:

    compute a column    rows in a log would have no value of it
    forbid nulls        rows in a log may have some
    another type        columns of rows in a log are known by ids, and a cast takes a new one
    rename, drop a key  a writer tells rows apart by it
"""

from __future__ import annotations

from collections.abc import Iterable

from lancelet.errors import InvalidInputError
from lancelet.format.field import Field
from lancelet.format.index_metadata import MEM_WAL_INDEX
from lancelet.ops.mem_wal.reconcile import TOMBSTONE
from lancelet.table.snapshot import Snapshot


class MemWalAttachedError(InvalidInputError, OSError):
    """The table has a write-ahead log, whose rows the change would lose or spoil."""


def refuse_with_log(snapshot: Snapshot, change: str, instead: str) -> None:
    """Raise if a table has a log, naming a change and what to do instead."""
    if any(index.name == MEM_WAL_INDEX for index in snapshot.indices.indices):
        raise MemWalAttachedError(
            f"cannot {change} on a table with a MemWAL attached: rows that are still in its log "
            f"could not follow; {instead}",
            uri=snapshot.location.uri,
        )


def refuse_names_of_log(snapshot: Snapshot, names: Iterable[str]) -> None:
    """Raise if a table with a log would get a column that its shards use for themselves."""
    if TOMBSTONE in names:
        refuse_with_log(snapshot, f"name a column {TOMBSTONE!r}", "choose another name")


def refuse_change_of_key(snapshot: Snapshot, field: Field, change: str) -> None:
    """Raise if a table has a log, and a field is or has a part of the primary key."""
    if any(node.primary_key is not None for node in field.walk()):
        refuse_with_log(
            snapshot, f"{change} a primary key column", "merge and drop the MemWAL first"
        )
