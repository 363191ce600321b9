"""Update: rows written anew elsewhere, or some columns of them rewritten in place.

    rows moved      old fragments get deletions, new fragments get the rows with their ids
    columns rewritten   the fragment gets a file that takes fields over; indices on them shrink

The version in which a moved row was created is looked up where the row was. Fragments that were
updated in place say which rows changed, and their last updated versions change for those alone.
"""

from __future__ import annotations

from lancelet.format.fragment import Fragment, Inline
from lancelet.format.operation import Update, UpdateMode
from lancelet.format.roaring import numbers_of, parse_bitmap
from lancelet.rowids.sequence import RowIdSequence
from lancelet.rowids.versions import VersionSequence
from lancelet.table.apply.coverage import cover_moved, retain_covering, uncover
from lancelet.table.apply.mem_wal import record_generations
from lancelet.table.apply.numbering import number_fragments, with_row_ids, with_versions
from lancelet.table.apply.state import CommitContext, State, without_dead_files
from lancelet.values import replace


def apply_update(operation: Update, state: State, context: CommitContext) -> State:
    """Return the state with the operation's rows in place of the old ones."""
    manifest = state.manifest
    updated = tuple(
        _with_updated_versions(without_dead_files(fragment), operation, context.version)
        for fragment in operation.updated_fragments
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


def _has_only_moved_rows(fragment: Fragment) -> bool:
    if not isinstance(fragment.row_ids, Inline):
        return False
    return len(RowIdSequence.parse(fragment.row_ids.data)) == fragment.physical_rows


def _with_updated_versions(fragment: Fragment, operation: Update, version: int) -> Fragment:
    """Return a fragment updated in place, with the version of the rows that changed."""
    changed = operation.updated_offsets.get(fragment.id)
    stored = fragment.last_updated_at_versions
    if changed is None or not isinstance(stored, Inline):
        return fragment
    versions = VersionSequence.parse(stored.data, expected_rows=fragment.physical_rows)
    offsets = numbers_of(parse_bitmap(changed)).astype("int64")
    return replace(
        fragment,
        last_updated_at_versions=Inline(versions.with_version(offsets, version).render()),
    )
