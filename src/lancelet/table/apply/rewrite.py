"""Rewrite: groups of fragments replaced by others with the same live rows.

The new fragments have ids that were reserved before; one without an id gets the next. Index
segments that were mapped to the new rows get a new identity and cover the new fragments.
"""

from __future__ import annotations

from dataclasses import replace
from uuid import UUID

from pyroaring import FrozenBitMap

from lancelet.errors import InvalidInputError
from lancelet.format.index_metadata import IndexMetadata
from lancelet.format.operation import Rewrite, RewrittenIndex
from lancelet.table.apply.coverage import cover_rewritten
from lancelet.table.apply.numbering import number_fragments
from lancelet.table.apply.state import CommitContext, State


def apply_rewrite(operation: Rewrite, state: State, context: CommitContext) -> State:
    """Return the state with the new fragments in place of the old ones."""
    del context
    fragments = state.manifest.fragments
    gone = [fragment.id for group in operation.groups for fragment in group.old_fragments]
    new = [fragment for group in operation.groups for fragment in group.new_fragments]
    taken = set(fragments.ids.tolist())
    reserved = [fragment for fragment in new if fragment.id and fragment.id not in taken]
    numbered = number_fragments(
        [fragment for fragment in new if fragment not in reserved], state.manifest
    )
    remaining = fragments.changed(removed=gone).appended([*reserved, *numbered])
    indices = _remapped(operation, state.indices)
    return replace(state, indices=indices).with_fragments(remaining)


def _remapped(operation: Rewrite, indices: tuple[IndexMetadata, ...]) -> tuple[IndexMetadata, ...]:
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
        index if index.uuid not in changes else _remap(index, changes[index.uuid], operation)
        for index in indices
    )


def _remap(index: IndexMetadata, change: RewrittenIndex, operation: Rewrite) -> IndexMetadata:
    covered = cover_rewritten(index.fragment_bitmap or FrozenBitMap(), operation.groups)
    return replace(
        index,
        uuid=change.new_id,
        fragment_bitmap=covered,
        details=change.new_details or index.details,
        index_version=change.new_version or index.index_version,
        files=change.new_files or index.files,
    )
