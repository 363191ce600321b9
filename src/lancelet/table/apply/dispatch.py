"""Dispatch each operation to the function that applies it."""

from __future__ import annotations

from typing import assert_never

from lancelet.errors import InvalidInputError, UnsupportedError
from lancelet.format.flags import check_writable
from lancelet.format.operation import (
    AddOverlays,
    Append,
    Clone,
    CreateIndex,
    DataReplacement,
    Delete,
    Merge,
    Operation,
    Overwrite,
    Project,
    ReserveFragments,
    Restore,
    Rewrite,
    UnknownOperation,
    Update,
    UpdateBases,
    UpdateConfig,
    UpdateMemWalState,
)
from lancelet.table.apply.columns import apply_data_replacement, apply_merge, apply_project
from lancelet.table.apply.mem_wal import apply_update_mem_wal_state
from lancelet.table.apply.numbering import check_next_row_id, with_file_versions
from lancelet.table.apply.overwrite import apply_overwrite, apply_restore
from lancelet.table.apply.rewrite import apply_rewrite
from lancelet.table.apply.rows import apply_append, apply_delete, apply_overlays, apply_update
from lancelet.table.apply.settings import (
    apply_create_index,
    apply_reserve_fragments,
    apply_update_bases,
    apply_update_config,
)
from lancelet.table.apply.state import CommitContext, State, with_actual_version
from lancelet.values import replace


def apply_operation(operation: Operation, before: State | None, context: CommitContext) -> State:
    """Return the next state of a table; `before` is None for a new table.

    The manifest has the version of the context and the flags that its content requires. The
    committer sets the timestamp and the transaction file.
    """
    for version in (before, context.restored):
        if version is not None:
            check_writable(version.manifest.reader_flags, version.manifest.writer_flags)
    if before is not None:
        before = before.with_manifest(with_actual_version(before.manifest))
    if isinstance(operation, Overwrite):
        after = apply_overwrite(operation, before, context)
    elif before is None:
        raise InvalidInputError(
            "the first version of a table must define a schema",
            operation=type(operation).__name__,
        )
    else:
        if not isinstance(operation, Restore):
            before.manifest.check_row_ids()
            check_next_row_id(before.manifest)
        after = _apply_to_table(operation, before, context)
    after.manifest.fragments.check_unique_ids()
    manifest = with_file_versions(after.manifest, operation)
    if manifest.max_allocated_field_id is not None:
        manifest = replace(manifest, max_allocated_field_id=manifest.max_field_id)
    # Auxiliary data belongs to the previous version only.
    manifest = replace(manifest, version_aux_data=0)
    return after.with_manifest(manifest.with_flags(version=context.version))


def _apply_to_table(operation: Operation, state: State, context: CommitContext) -> State:
    match operation:
        case Append():
            return apply_append(operation, state, context)
        case Overwrite():
            return apply_overwrite(operation, state, context)
        case Delete():
            return apply_delete(operation, state, context)
        case Update():
            return apply_update(operation, state, context)
        case Rewrite():
            return apply_rewrite(operation, state, context)
        case Merge():
            return apply_merge(operation, state, context)
        case Project():
            return apply_project(operation, state, context)
        case DataReplacement():
            return apply_data_replacement(operation, state, context)
        case Restore():
            return apply_restore(operation, state, context)
        case CreateIndex():
            return apply_create_index(operation, state, context)
        case UpdateConfig():
            return apply_update_config(operation, state, context)
        case UpdateBases():
            return apply_update_bases(operation, state, context)
        case UpdateMemWalState():
            return apply_update_mem_wal_state(operation, state, context)
        case ReserveFragments():
            return apply_reserve_fragments(operation, state, context)
        case Clone():
            raise InvalidInputError("a clone starts a table and cannot be committed to one")
        case AddOverlays():
            return apply_overlays(operation, state, context)
        case UnknownOperation():
            raise UnsupportedError("a newer release is needed to commit this operation")
    assert_never(operation)
