"""Append: more fragments behind those that are there."""

from __future__ import annotations

from lancelet.format.operation import Append
from lancelet.table.apply.numbering import number_fragments, with_row_ids, with_versions
from lancelet.table.apply.state import CommitContext, State
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
