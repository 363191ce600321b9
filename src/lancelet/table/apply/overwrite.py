"""Apply Overwrite and Restore.

An overwrite replaces the schema and all rows, or creates the table. Config, metadata, bases and
counters are retained, because fragment ids and row ids are never reused. Index segments are
dropped, as they cover no fragment.

A restore makes an older version the latest under a new number. Schema, rows, config and index
segments come from the old version. Counters never decrease, because a later fragment would reuse an
id that newer versions still refer to. Stable row ids are not disabled for the same reason: row
addresses would be used as row ids again and could equal the ids of other rows.
"""

from __future__ import annotations

from lancelet.errors import InternalError, InvalidInputError
from lancelet.format.flags import Feature
from lancelet.format.fragment_list import FragmentList
from lancelet.format.manifest import Manifest
from lancelet.format.operation import Overwrite, Restore
from lancelet.format.version import DEFAULT_VERSION, FileVersion
from lancelet.table.apply.numbering import number_fragments, with_row_ids, with_versions
from lancelet.table.apply.state import CommitContext, State
from lancelet.values import replace


def apply_overwrite(operation: Overwrite, before: State | None, context: CommitContext) -> State:
    """Return the state that has only the operation's schema and fragments."""
    manifest = _empty_manifest(operation, context) if before is None else before.manifest
    if before is not None and context.data_version is not None:
        manifest = replace(manifest, data_version=context.data_version)
    fragments = number_fragments(operation.fragments, manifest)
    next_row_id = manifest.next_row_id
    if manifest.uses_stable_row_ids:
        fragments, next_row_id = with_row_ids(fragments, next_row_id)
        fragments = tuple(with_versions(fragment, context.version) for fragment in fragments)
    manifest = replace(
        manifest,
        schema=operation.schema,
        next_row_id=next_row_id,
        config={**manifest.config, **operation.config_upsert_values},
    )
    return State(manifest).with_fragments(FragmentList.of(fragments))


def _empty_manifest(operation: Overwrite, context: CommitContext) -> Manifest:
    flags = int(Feature.STABLE_ROW_IDS) if context.stable_row_ids else 0
    return Manifest(
        schema=operation.schema,
        fragments=FragmentList.of(()),
        version=0,
        data_version=context.data_version or _version_of_files(operation),
        reader_flags=flags,
        writer_flags=flags,
        base_paths=operation.initial_bases,
    )


def _version_of_files(operation: Overwrite) -> FileVersion:
    versions = [file.version for fragment in operation.fragments for file in fragment.files]
    return max(versions, key=lambda version: version.value, default=DEFAULT_VERSION)


class RestoreError(InvalidInputError, OSError):
    """A version cannot be restored."""


def apply_restore(operation: Restore, state: State, context: CommitContext) -> State:
    """Return the restored state with the counters of the latest version."""
    old = context.restored
    if old is None or old.manifest.version != operation.version:
        raise InternalError("the state of a restored version is missing", version=operation.version)
    latest = state.manifest
    if latest.uses_stable_row_ids and not old.manifest.uses_stable_row_ids:
        raise RestoreError(
            "stable row ids were enabled after that version, so its row addresses may equal the "
            "ids of other rows; read it with checkout_version and write its rows to the table "
            "again",
            version=operation.version,
            latest=latest.version,
        )
    field_id_flag = latest.writer_flags & Feature.NON_REUSABLE_FIELD_IDS
    manifest = replace(
        old.manifest,
        writer_flags=old.manifest.writer_flags | field_id_flag,
        max_fragment_id=_highest(old.manifest.max_fragment_id, latest.max_fragment_id),
        next_row_id=max(old.manifest.next_row_id, latest.next_row_id),
        max_clustering_id=max(old.manifest.max_clustering_id, latest.max_clustering_id),
        max_allocated_field_id=_highest(
            old.manifest.max_allocated_field_id, latest.max_allocated_field_id
        ),
    )
    return replace(old, manifest=manifest)


def _highest(*counters: int | None) -> int | None:
    return max((count for count in counters if count is not None), default=None)
