"""Drop columns from the schema, and files without remaining columns from the fragments.

    schema   a 0, s 1 {x 2, y 3}      file [0, 2, 3]
    drop     s.x                      a 0, s 1 {y 3}      the file is unchanged
    drop     s.y too                  a 0                 an empty struct is dropped too

Indices on dropped fields are dropped. Compaction reclaims the space.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from lancelet.change.columns.computed import check_inputs_remain
from lancelet.change.columns.fields import find_chain, next_field_id
from lancelet.change.columns.job import Committing
from lancelet.change.dry_run import ChangeReport, DryRun
from lancelet.change.mem_wal_guard import refuse_change_of_key, with_used_field_ids
from lancelet.change.publish import publish, with_retries
from lancelet.errors import InvalidInputError
from lancelet.format import logical_type
from lancelet.format.field import Field
from lancelet.format.operation import Project
from lancelet.format.schema import Schema
from lancelet.table.snapshot import Snapshot


def drop_columns(
    snapshot: Snapshot, paths: Sequence[str], committing: Committing | None = None
) -> Snapshot:
    """Drop the columns at paths, and return the new version."""
    how = committing or Committing()

    def attempt(current: Snapshot) -> Snapshot:
        return publish(current, _dropping(current, paths), how.options, how.properties)

    return with_retries(snapshot, attempt, how.retries)


def report_drop_columns(snapshot: Snapshot, paths: Sequence[str]) -> ChangeReport:
    """Return the effect of dropping columns, which only changes the schema."""
    return DryRun.of(snapshot).report(_dropping(snapshot, paths), snapshot.num_rows)


def _dropping(snapshot: Snapshot, paths: Sequence[str]) -> Project:
    schema = without_columns(snapshot.schema, paths)
    for path in paths:
        refuse_change_of_key(snapshot, find_chain(snapshot.schema, path)[-1], "drop")
    check_inputs_remain(snapshot.schema, schema)
    schema = with_used_field_ids(snapshot, schema, next_field_id(snapshot) - 1)
    return Project(schema, preserves_nullability=True)


def without_columns(schema: Schema, paths: Iterable[str]) -> Schema:
    """Remove the fields at paths from a schema."""
    removed_ids: set[int] = set()
    for path in paths:
        chain = find_chain(schema, path)
        _check_within_map(chain, path)
        removed_ids.add(chain[-1].id)
    fields = tuple(_remaining(schema.fields, removed_ids))
    if not fields:
        raise InvalidInputError("Cannot drop all columns from a dataset", columns=list(paths))
    return Schema(fields, schema.metadata)


def _check_within_map(chain: Sequence[Field], path: str) -> None:
    for field in chain[:-1]:
        if field.logical_type == logical_type.MAP:
            raise InvalidInputError(
                f"Column {path} is a part of a map, which cannot be without it", column=path
            )


def _remaining(fields: Iterable[Field], removed_ids: set[int]) -> Iterable[Field]:
    """Yield the remaining fields, without parents that become empty."""
    for field in fields:
        if field.id in removed_ids:
            continue
        children = tuple(_remaining(field.children, removed_ids))
        if field.children and not children:
            continue
        yield (
            field
            if len(children) == len(field.children)
            and all(before is after for before, after in zip(field.children, children, strict=True))
            else field.with_children(children)
        )
