"""Delete: fragments with fewer live rows, and fragments without any, which go."""

from __future__ import annotations

from lancelet.format.operation import Delete
from lancelet.table.apply.coverage import retain_covering
from lancelet.table.apply.state import CommitContext, State


def apply_delete(operation: Delete, state: State, context: CommitContext) -> State:
    """Return the state without the rows that the operation deleted."""
    del context
    fragments = state.manifest.fragments.changed(
        replaced={fragment.id: fragment for fragment in operation.updated_fragments},
        removed=operation.deleted_fragment_ids,
    )
    return retain_covering(state.with_fragments(fragments))
