"""Changing what a table says of itself: config, metadata of table, schema and fields; restoring."""

from __future__ import annotations

from collections.abc import Mapping

from lancelet.format.operation import Restore, UpdateConfig, UpdateMap
from lancelet.ops.publish import publish
from lancelet.table.commit import CommitOptions
from lancelet.table.snapshot import Snapshot

Changes = Mapping[str, "str | None"]
"""New values by key; None takes the key away."""


def update_config(
    snapshot: Snapshot, changes: Changes, *, replace: bool = False, options: CommitOptions
) -> Snapshot:
    """Change the config of the table."""
    return publish(snapshot, UpdateConfig(config=UpdateMap(dict(changes), replace)), options)


def update_table_metadata(
    snapshot: Snapshot, changes: Changes, *, replace: bool = False, options: CommitOptions
) -> Snapshot:
    """Change the metadata of the table."""
    change = UpdateMap(dict(changes), replace)
    return publish(snapshot, UpdateConfig(table_metadata=change), options)


def update_schema_metadata(
    snapshot: Snapshot, changes: Changes, *, replace: bool = False, options: CommitOptions
) -> Snapshot:
    """Change the metadata of the schema."""
    change = UpdateMap(dict(changes), replace)
    return publish(snapshot, UpdateConfig(schema_metadata=change), options)


def update_field_metadata(
    snapshot: Snapshot,
    changes: Mapping[str, Changes],
    *,
    replace: bool = False,
    options: CommitOptions,
) -> Snapshot:
    """Change the metadata of fields, given by their paths."""
    by_id = {
        int(snapshot.schema.field_by_path(path).id): UpdateMap(dict(own), replace)
        for path, own in changes.items()
    }
    return publish(snapshot, UpdateConfig(field_metadata=by_id), options)


def restore(snapshot: Snapshot, *, options: CommitOptions) -> Snapshot:
    """Make a version the latest one again, as a new version."""
    return publish(snapshot, Restore(snapshot.version), options)
