"""Reject changes of a table that unmerged rows in the logs of its shards cannot follow.

Such rows are acknowledged but not part of the table, so that a change would not apply to them:

    compute a column    rows in a log would have no value for it
    forbid nulls        rows in a log may contain nulls
    another type        rows in a log are matched by field id, and a cast assigns a new id
    rename, drop a key  writers identify rows by the key

If a dropped column has no values in any file, its id would be assigned to the next new column,
which would then read the values of the dropped column in rows of shards. Therefore, tables with a
log record the highest used field id.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import Final

from lancelet.errors import InvalidInputError
from lancelet.format.field import Field
from lancelet.format.schema import Schema
from lancelet.format.shard_manifest import TOMBSTONE
from lancelet.format.wire import parse_number
from lancelet.table.apply.mem_wal import log_entry
from lancelet.table.snapshot import Snapshot

_USED: Final = "lancelet:max_field_id"
"""The metadata key for the highest field id that a table with a log has used."""


class MemWalAttachedError(InvalidInputError, OSError):
    """The change would lose or corrupt rows in the write-ahead log of the table."""


def used_field_id(schema: Schema) -> int:
    """Return the highest recorded field id, -1 if none is recorded."""
    found = parse_number(schema.metadata.get(_USED))
    return -1 if found is None else found


def with_used_field_ids(snapshot: Snapshot, schema: Schema, highest: int) -> Schema:
    """Return the next schema of a table; with a log, it records the used field ids."""
    if log_entry(snapshot.indices.indices) is None:
        return schema
    used = max(highest, used_field_id(schema), used_field_id(snapshot.schema))
    return replace(schema, metadata={**schema.metadata, _USED: str(used)})


def refuse_with_log(snapshot: Snapshot, change: str, instead: str) -> None:
    """Raise if a table has a log, with a description of the change and an alternative."""
    if log_entry(snapshot.indices.indices) is not None:
        raise MemWalAttachedError(
            f"cannot {change} on a table with a MemWAL attached: rows that are still in its log "
            f"could not follow; {instead}",
            uri=snapshot.location.uri,
        )


def refuse_names_of_log(snapshot: Snapshot, names: Iterable[str]) -> None:
    """Raise if a table with a log would get a column with a reserved name."""
    if TOMBSTONE in names:
        refuse_with_log(snapshot, f"name a column {TOMBSTONE!r}", "choose another name")


def refuse_change_of_key(snapshot: Snapshot, field: Field, change: str) -> None:
    """Raise if a table has a log, and a field is or contains a primary key column."""
    if any(node.primary_key is not None for node in field.walk()):
        refuse_with_log(
            snapshot, f"{change} a primary key column", "merge and drop the MemWAL first"
        )
