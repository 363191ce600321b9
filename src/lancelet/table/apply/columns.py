"""Apply the operations on columns: Merge, Project and DataReplacement.

    fragment 0   a.lance [0, 1]                     created and last updated at 1
    Merge        a.lance [0, 1]   b.lance [2]       last updated at the new version
    Project      a.lance [0, 1]                     field 2 and its file are removed

These operations do not record which rows they change, so all rows of a fragment whose values change
in place count as updated.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from lancelet.errors import InvalidInputError
from lancelet.format.flags import Feature
from lancelet.format.fragment import Fragment, Inline
from lancelet.format.fragment_list import FragmentList
from lancelet.format.index_metadata import FRAGMENT_REUSE_INDEX
from lancelet.format.operation import DataReplacement, Merge, Project
from lancelet.rowids.sequence import RowIdSequence
from lancelet.table.apply.coverage import retain_covering, uncover
from lancelet.table.apply.numbering import updated_in_place, with_row_ids, with_versions
from lancelet.table.apply.state import (
    CommitContext,
    State,
    column_ids,
    with_column_file,
    without_dead_files,
    without_unknown_files,
)
from lancelet.values import replace


def apply_merge(operation: Merge, state: State, context: CommitContext) -> State:
    """Return the state with the operation's schema and its complete list of fragments."""
    manifest = state.manifest
    before = {int(fragment.id): fragment for fragment in manifest.fragments}
    _check_same_rows(before, operation.fragments)
    fragments = tuple(without_dead_files(fragment) for fragment in operation.fragments)
    if context.activates_row_ids:
        state = with_active_row_ids(state, fragments)
        manifest = state.manifest
    if manifest.uses_stable_row_ids:
        fragments = tuple(
            updated_in_place(fragment, context.version)
            if fragment.id in before and fragment.files != before[fragment.id].files
            else fragment
            for fragment in fragments
        )
        fragments, next_row_id = with_row_ids(fragments, manifest.next_row_id)
        fragments = tuple(with_versions(fragment, context.version) for fragment in fragments)
        state = replace(state, manifest=replace(manifest, next_row_id=next_row_id))
    merged = state.with_schema(operation.schema).with_fragments(FragmentList.of(fragments))
    return retain_covering(merged)


def apply_project(operation: Project, state: State, context: CommitContext) -> State:
    """Apply a projection: set the schema and drop files without remaining fields."""
    del context
    renamed = state.with_schema(operation.schema)
    remaining = column_ids(operation.schema)
    if column_ids(state.manifest.schema) <= remaining:
        # No file lost a field, so the fragments need not be scanned.
        return retain_covering(renamed)
    changed: dict[int, Fragment] = {}
    for fragment in state.manifest.fragments:
        pruned = without_unknown_files(fragment, remaining)
        if pruned is not fragment:
            changed[fragment.id] = pruned
    fragments = state.manifest.fragments.changed(replaced=changed)
    return retain_covering(renamed.with_fragments(fragments))


def apply_data_replacement(
    operation: DataReplacement, state: State, context: CommitContext
) -> State:
    """Apply a replacement: the new files take over their fields."""
    if len({group.new_file.fields for group in operation.replacements}) > 1:
        raise InvalidInputError("all files of one replacement must have the same fields")
    fragments = state.manifest.fragments
    replaced = {
        group.fragment_id: with_column_file(fragments.by_id(group.fragment_id), group.new_file)
        for group in operation.replacements
    }
    if state.manifest.uses_stable_row_ids:
        replaced = {
            fragment_id: updated_in_place(fragment, context.version)
            for fragment_id, fragment in replaced.items()
        }
    field_ids = {field_id for group in operation.replacements for field_id in group.new_file.fields}
    state = replace(state, indices=uncover(state, replaced, field_ids))
    return retain_covering(state.with_fragments(fragments.changed(replaced=replaced)))


def _check_same_rows(before: Mapping[int, Fragment], after: Iterable[Fragment]) -> None:
    """Raise unless a merge lists the same fragments and row counts as the table."""
    rows = {int(fragment.id): fragment.physical_rows for fragment in after}
    missing = sorted(before.keys() - rows.keys())
    if missing:
        raise InvalidInputError(
            "a merge must list every fragment of the table", missing=missing, listed=len(rows)
        )
    for fragment_id, fragment in before.items():
        if rows[fragment_id] != fragment.physical_rows and fragment.physical_rows:
            raise InvalidInputError(
                "a merge must not change the number of rows of a fragment",
                fragment_id=fragment_id,
                expected=fragment.physical_rows,
                found=rows[fragment_id],
            )


def with_active_row_ids(state: State, fragments: Iterable[Fragment]) -> State:
    """Enable stable row ids for a table whose fragments all have inline row ids."""
    manifest = state.manifest
    next_row_id = max((_next_row_id(fragment) for fragment in fragments), default=0)
    flag = int(Feature.STABLE_ROW_IDS)
    return replace(
        state,
        manifest=replace(
            manifest,
            reader_flags=manifest.reader_flags | flag,
            writer_flags=manifest.writer_flags | flag,
            next_row_id=max(manifest.next_row_id, next_row_id),
        ),
        indices=tuple(index for index in state.indices if index.name != FRAGMENT_REUSE_INDEX),
    )


def _next_row_id(fragment: Fragment) -> int:
    """Return the first unused row id after those of a fragment."""
    if not isinstance(fragment.row_ids, Inline):
        raise InvalidInputError(
            "stable row ids can be enabled only if every fragment has inline row ids",
            fragment_id=fragment.id,
        )
    ids = RowIdSequence.parse(fragment.row_ids.data, expected_rows=fragment.physical_rows)
    return max(
        (int(segment.to_array().max()) + 1 for segment in ids.segments if len(segment)), default=0
    )
