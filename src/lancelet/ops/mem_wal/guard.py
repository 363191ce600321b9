"""Changes of a table that rows in the logs of its shards could not follow are refused.

Such rows were acknowledged, but the table has not got them yet, so a change sees only some rows:

    compute a column    rows in a log would have no value of it
    forbid nulls        rows in a log may have some
    another type        columns of rows in a log are known by ids, and a cast takes a new one
    rename, drop a key  a writer tells rows apart by it

A column of which no file has values leaves nothing behind when it is dropped, so that its id would
be given to the next one, which then had the values of the first in rows of shards. Tables with a
log therefore note the ids that were used.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import Final

from lancelet.errors import InvalidInputError
from lancelet.format.field import Field
from lancelet.format.schema import Schema
from lancelet.format.wire import parse_number
from lancelet.ops.mem_wal.reconcile import TOMBSTONE
from lancelet.table.apply.mem_wal import log_entry
from lancelet.table.snapshot import Snapshot

_USED: Final = "lancelet:max_field_id"
"""Where the schema of a table with a log notes the highest id that a field of it ever had."""


class MemWalAttachedError(InvalidInputError, OSError):
    """The table has a write-ahead log, whose rows the change would lose or spoil."""


def used_field_id(schema: Schema) -> int:
    """Return the highest id that is noted as used, -1 if none is."""
    found = parse_number(schema.metadata.get(_USED))
    return -1 if found is None else found


def with_used_field_ids(snapshot: Snapshot, schema: Schema, highest: int) -> Schema:
    """Return the next schema of a table, with a note of the ids that were used if it has a log."""
    if log_entry(snapshot.indices.indices) is None:
        return schema
    used = max(highest, used_field_id(schema), used_field_id(snapshot.schema))
    return replace(schema, metadata={**schema.metadata, _USED: str(used)})


def refuse_with_log(snapshot: Snapshot, change: str, instead: str) -> None:
    """Raise if a table has a log, naming a change and what to do instead."""
    if log_entry(snapshot.indices.indices) is not None:
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
