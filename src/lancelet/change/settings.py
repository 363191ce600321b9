"""Change the config and metadata of a table, and restore versions."""

from __future__ import annotations

from collections.abc import Mapping

from lancelet.change.publish import (
    Retries,
    commit_transaction,
    new_transaction,
    publish,
    with_retries,
)
from lancelet.errors import FieldNotFoundError
from lancelet.format.operation import Restore, UpdateConfig, UpdateMap
from lancelet.table.commit import CommitOptions
from lancelet.table.snapshot import Snapshot


class UnknownFieldError(FieldNotFoundError, OSError):
    """A field for which metadata is set does not exist."""


Changes = Mapping[str, "str | None"]
"""New values by key; None removes the key."""


def update_config(snapshot: Snapshot, changes: Changes, *, replace: bool = False) -> Snapshot:
    """Change the config of the table; independent of concurrent commits."""
    operation = UpdateConfig(config=UpdateMap(dict(changes), replace))
    return with_retries(snapshot, lambda current: publish(current, operation), Retries())


def update_table_metadata(
    snapshot: Snapshot, changes: Changes, *, replace: bool = False
) -> Snapshot:
    """Change the metadata of the table."""
    change = UpdateMap(dict(changes), replace)
    return publish(snapshot, UpdateConfig(table_metadata=change))


def update_schema_metadata(
    snapshot: Snapshot, changes: Changes, *, replace: bool = False
) -> Snapshot:
    """Change the metadata of the schema."""
    change = UpdateMap(dict(changes), replace)
    return publish(snapshot, UpdateConfig(schema_metadata=change))


def update_field_metadata(
    snapshot: Snapshot,
    changes: Mapping[str, Changes],
    *,
    replace: bool = False,
) -> Snapshot:
    """Change the metadata of fields, given by their paths."""
    by_id = {}
    for path, field_changes in changes.items():
        try:
            field = snapshot.schema.field_by_path(path)
        except FieldNotFoundError as error:
            raise UnknownFieldError(f"Field '{path}' not found", **error.facts) from error
        by_id[int(field.id)] = UpdateMap(dict(field_changes), replace)
    return publish(snapshot, UpdateConfig(field_metadata=by_id))


def restore(snapshot: Snapshot, over_version: int) -> Snapshot:
    """Make a version the latest one again, as a new version that follows `over_version`."""
    transaction = new_transaction(over_version, Restore(snapshot.version))
    return commit_transaction(snapshot.location, transaction, CommitOptions(snapshot=snapshot))
