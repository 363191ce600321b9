"""Rewrite: groups of fragments replaced by others with the same live rows.

The new fragments have ids that were reserved before; one without an id gets the next. Index
segments that were mapped to the new rows get a new identity and cover the new fragments.
"""

from __future__ import annotations

from collections.abc import Container
from uuid import UUID

from pyroaring import FrozenBitMap

from lancelet.errors import InvalidInputError
from lancelet.format.fragment import Fragment
from lancelet.format.index_metadata import IndexMetadata
from lancelet.format.operation import Rewrite, RewriteGroup, RewrittenIndex
from lancelet.table.apply.coverage import cover_rewritten, knows_rows_by_id
from lancelet.table.apply.numbering import number_fragments
from lancelet.table.apply.state import CommitContext, State
from lancelet.values import replace


def apply_rewrite(operation: Rewrite, state: State, context: CommitContext) -> State:
    """Return the state with the new fragments in place of the old ones."""
    del context
    fragments = state.manifest.fragments
    gone = [fragment.id for group in operation.groups for fragment in group.old_fragments]
    groups = _numbered(operation, state)
    new = [fragment for group in groups for fragment in group.new_fragments]
    if state.manifest.uses_stable_row_ids and any(fragment.row_ids is None for fragment in new):
        raise InvalidInputError("rewritten rows must bring their row ids")
    remaining = fragments.changed(removed=gone).appended(new)
    indices = _remapped(replace(operation, groups=groups), state)
    return replace(state, indices=indices).with_fragments(remaining)


def _numbered(operation: Rewrite, state: State) -> tuple[RewriteGroup, ...]:
    """Return the groups with an id for every new fragment, one that the table never used."""
    taken = set(state.manifest.fragments.ids.tolist())
    unnumbered = [
        fragment
        for group in operation.groups
        for fragment in group.new_fragments
        if not _has_reserved_id(fragment, taken)
    ]
    numbered = iter(number_fragments(unnumbered, state.manifest))
    return tuple(
        replace(
            group,
            new_fragments=tuple(
                fragment if _has_reserved_id(fragment, taken) else next(numbered)
                for fragment in group.new_fragments
            ),
        )
        for group in operation.groups
    )


def _has_reserved_id(fragment: Fragment, taken: Container[int]) -> bool:
    return bool(fragment.id) and fragment.id not in taken


def _remapped(operation: Rewrite, state: State) -> tuple[IndexMetadata, ...]:
    """Return the segments after the rewrite; those of stable row ids need no new identity."""
    indices = state.indices
    changes: dict[UUID, RewrittenIndex] = {}
    for change in operation.rewritten_indices:
        if changes.setdefault(change.old_id, change) is not change:
            raise InvalidInputError(
                "two tasks of one rewrite remapped the same index", uuid=str(change.old_id)
            )
    unknown = set(changes) - {index.uuid for index in indices}
    if unknown:
        raise InvalidInputError(
            "a rewrite names an index that the table does not have",
            uuid=min(map(str, unknown)),
        )
    return tuple(
        _remap(index, changes[index.uuid], operation)
        if index.uuid in changes
        else _cover_same_ids(index, operation)
        if state.manifest.uses_stable_row_ids and not index.is_system
        else index
        for index in indices
    )


def _cover_same_ids(index: IndexMetadata, operation: Rewrite) -> IndexMetadata:
    """Return a segment that covers its rows where they are now, if it knows them by id."""
    if index.fragment_bitmap is None:
        return index
    if knows_rows_by_id(index):
        covered = cover_rewritten(index.fragment_bitmap, operation.groups)
    else:
        gone = (fragment.id for group in operation.groups for fragment in group.old_fragments)
        covered = FrozenBitMap(index.fragment_bitmap - FrozenBitMap(gone))
    return replace(index, fragment_bitmap=covered)


def _remap(index: IndexMetadata, change: RewrittenIndex, operation: Rewrite) -> IndexMetadata:
    """Return a segment as it was written anew, which is beside the table whatever held it before.

    The reference goes on looking for the files of a clone's index in what was cloned.
    """
    covered = cover_rewritten(index.fragment_bitmap or FrozenBitMap(), operation.groups)
    return replace(
        index,
        uuid=change.new_id,
        base_id=index.base_id if change.new_id == change.old_id else None,
        fragment_bitmap=covered,
        details=change.new_details or index.details,
        index_version=change.new_version or index.index_version,
        files=change.new_files or index.files,
    )
