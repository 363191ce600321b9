"""Apply the operations on rows: Append, Delete, Update and AddOverlays.

    append          adds fragments at the end
    delete          adds deletion files; removes fragments without live rows
    update, moved   old fragments get deletions, new fragments get the rows with their ids
    in place        a new file replaces fields of a fragment; indices on them shrink
    overlays        new values replace those of some rows; see `lancelet.scan.overlays`

The created version of a moved row is taken from its previous fragment. Fragments updated in place
list the changed rows, and only these rows get a new last updated version.
"""

from __future__ import annotations

from collections.abc import Sequence

from lancelet.errors import InvalidInputError
from lancelet.format.fragment import Fragment, Inline
from lancelet.format.operation import AddOverlays, Append, Delete, Update, UpdateMode
from lancelet.format.roaring import parse_bitmap, to_numbers
from lancelet.rowids.sequence import RowIdSequence
from lancelet.rowids.versions import VersionSequence
from lancelet.table.apply.coverage import cover_moved, retain_covering, uncover
from lancelet.table.apply.mem_wal import record_generations
from lancelet.table.apply.numbering import number_fragments, with_row_ids, with_versions
from lancelet.table.apply.state import (
    CommitContext,
    State,
    column_ids,
    without_dead_files,
    without_unknown_files,
)
from lancelet.values import replace


def apply_append(operation: Append, state: State, context: CommitContext) -> State:
    """Return the state with the operation's fragments added."""
    manifest = state.manifest
    fragments = number_fragments(operation.fragments, manifest)
    if manifest.uses_stable_row_ids:
        fragments, next_row_id = with_row_ids(fragments, manifest.next_row_id)
        fragments = tuple(with_versions(fragment, context.version) for fragment in fragments)
        state = replace(state, manifest=replace(manifest, next_row_id=next_row_id))
    return state.with_fragments(manifest.fragments.appended(fragments))


def apply_delete(operation: Delete, state: State, context: CommitContext) -> State:
    """Return the state without the rows that the operation deleted."""
    del context
    updated = _with_remaining_files(operation.updated_fragments, state)
    fragments = state.manifest.fragments.changed(
        replaced={fragment.id: fragment for fragment in updated},
        removed=operation.deleted_fragment_ids,
    )
    return retain_covering(state.with_fragments(fragments))


def apply_overlays(operation: AddOverlays, state: State, context: CommitContext) -> State:
    """Return the state with new overlays added above the existing ones."""
    fragments = state.manifest.fragments
    existing = set(fragments.ids.tolist())
    changed: dict[int, Fragment] = {}
    for group in operation.groups:
        if group.fragment_id not in existing:
            raise InvalidInputError(
                "an overlay refers to a fragment that does not exist",
                fragment_id=group.fragment_id,
            )
        before = changed.get(group.fragment_id) or fragments.by_id(group.fragment_id)
        new = (replace(each, committed_version=context.version) for each in group.overlays)
        changed[group.fragment_id] = replace(before, overlays=(*before.overlays, *new))
    return state.with_fragments(fragments.changed(replaced=changed))


def apply_update(operation: Update, state: State, context: CommitContext) -> State:
    """Return the state with the old versions of updated rows replaced by the new ones."""
    manifest = state.manifest
    updated = tuple(
        _with_updated_versions(without_dead_files(fragment), operation, context.version)
        for fragment in _with_remaining_files(operation.updated_fragments, state)
    )
    fragments = manifest.fragments.changed(
        replaced={fragment.id: fragment for fragment in updated},
        removed=operation.removed_fragment_ids,
    )
    new = number_fragments(operation.new_fragments, manifest)
    moved_to = [fragment.id for fragment in new if _has_only_moved_rows(fragment)]
    if manifest.uses_stable_row_ids:
        new, next_row_id = with_row_ids(new, manifest.next_row_id)
        new = tuple(with_versions(fragment, context.version) for fragment in new)
        state = replace(state, manifest=replace(manifest, next_row_id=next_row_id))
    indices = uncover(state, [fragment.id for fragment in updated], operation.fields_modified)
    if operation.mode is UpdateMode.REWRITE_ROWS:
        indices = cover_moved(
            indices,
            moved_to=moved_to,
            moved_from=[*(f.id for f in updated), *operation.removed_fragment_ids],
            field_ids=operation.fields_for_preserving_bitmap,
        )
    indices = record_generations(indices, operation.compacted_sstables, version=context.version)
    state = replace(state, indices=indices)
    return retain_covering(state.with_fragments(fragments.appended(new)))


def _with_remaining_files(fragments: Sequence[Fragment], state: State) -> tuple[Fragment, ...]:
    """Return fragments without the files of columns that a concurrent commit dropped.

    The reference cannot read fragments with such files.
    """
    if all(len(fragment.files) < 2 for fragment in fragments):
        return tuple(fragments)
    remaining = column_ids(state.manifest.schema)
    return tuple(without_unknown_files(fragment, remaining) for fragment in fragments)


def _has_only_moved_rows(fragment: Fragment) -> bool:
    if not isinstance(fragment.row_ids, Inline):
        return False
    return len(RowIdSequence.parse(fragment.row_ids.data)) == fragment.physical_rows


def _with_updated_versions(fragment: Fragment, operation: Update, version: int) -> Fragment:
    """Return a fragment updated in place, with the version of the changed rows set."""
    changed = operation.updated_offsets.get(fragment.id)
    stored = fragment.last_updated_at_versions
    if changed is None or not isinstance(stored, Inline):
        return fragment
    versions = VersionSequence.parse(stored.data, expected_rows=fragment.physical_rows)
    offsets = to_numbers(parse_bitmap(changed)).astype("int64")
    return replace(
        fragment,
        last_updated_at_versions=Inline(versions.with_version(offsets, version).render()),
    )
