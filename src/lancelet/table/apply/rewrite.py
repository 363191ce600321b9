"""Rewrite: replace groups of fragments by new fragments with the same live rows.

New fragments have reserved ids or get the next free one. Index segments that were remapped to the
new rows get a new UUID and cover the new fragments.
"""

from __future__ import annotations

from collections.abc import Container
from uuid import UUID

from pyroaring import FrozenBitMap

from lancelet.errors import InvalidInputError
from lancelet.format.fragment import Fragment
from lancelet.format.index_metadata import IndexMetadata
from lancelet.format.operation import Rewrite, RewriteGroup, RewrittenIndex
from lancelet.table.apply.coverage import cover_rewritten, stores_row_ids
from lancelet.table.apply.numbering import number_fragments
from lancelet.table.apply.state import CommitContext, State
from lancelet.values import replace


def apply_rewrite(operation: Rewrite, state: State, context: CommitContext) -> State:
    """Return the state with the old fragments replaced by the new ones."""
    del context
    fragments = state.manifest.fragments
    old_ids = [fragment.id for group in operation.groups for fragment in group.old_fragments]
    groups = _numbered(operation, state)
    new = [fragment for group in groups for fragment in group.new_fragments]
    if state.manifest.uses_stable_row_ids and any(fragment.row_ids is None for fragment in new):
        raise InvalidInputError("rewritten fragments must have row ids")
    remaining = fragments.changed(removed=old_ids).appended(new)
    indices = _remapped(replace(operation, groups=groups), state)
    return replace(state, indices=indices).with_fragments(remaining)


def _numbered(operation: Rewrite, state: State) -> tuple[RewriteGroup, ...]:
    """Return the groups with an unused id for every new fragment."""
    existing_ids = set(state.manifest.fragments.ids.tolist())
    unnumbered = [
        fragment
        for group in operation.groups
        for fragment in group.new_fragments
        if not _has_reserved_id(fragment, existing_ids)
    ]
    numbered = iter(number_fragments(unnumbered, state.manifest))
    return tuple(
        replace(
            group,
            new_fragments=tuple(
                fragment if _has_reserved_id(fragment, existing_ids) else next(numbered)
                for fragment in group.new_fragments
            ),
        )
        for group in operation.groups
    )


def _has_reserved_id(fragment: Fragment, existing_ids: Container[int]) -> bool:
    return bool(fragment.id) and fragment.id not in existing_ids


def _remapped(operation: Rewrite, state: State) -> tuple[IndexMetadata, ...]:
    """Return the segments after a rewrite; those that store row ids keep their UUIDs."""
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
    """Return a segment whose bitmap follows its rows if it stores row ids."""
    if index.fragment_bitmap is None:
        return index
    if stores_row_ids(index):
        covered = cover_rewritten(index.fragment_bitmap, operation.groups)
    else:
        old_ids = (fragment.id for group in operation.groups for fragment in group.old_fragments)
        covered = FrozenBitMap(index.fragment_bitmap - FrozenBitMap(old_ids))
    return replace(index, fragment_bitmap=covered)


def _remap(index: IndexMetadata, change: RewrittenIndex, operation: Rewrite) -> IndexMetadata:
    """Return the remapped segment, with its files in the table itself.

    The reference keeps the base of a clone's index and searches the source table for its files.
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
