"""New values that are laid over rows of fragments; see `lancelet.query.overlays`."""

from __future__ import annotations

from lancelet.errors import InvalidInputError
from lancelet.format.fragment import Fragment
from lancelet.format.operation import AddOverlays
from lancelet.table.apply.state import CommitContext, State
from lancelet.values import replace


def apply_overlays(operation: AddOverlays, state: State, context: CommitContext) -> State:
    """Return the state in which overlays lie over their fragments, above those that do already."""
    fragments = state.manifest.fragments
    known = set(fragments.ids.tolist())
    changed: dict[int, Fragment] = {}
    for group in operation.groups:
        if group.fragment_id not in known:
            raise InvalidInputError(
                "new values are laid over a fragment that does not exist",
                fragment_id=group.fragment_id,
            )
        before = changed.get(group.fragment_id) or fragments.by_id(group.fragment_id)
        new = (replace(each, committed_version=context.version) for each in group.overlays)
        changed[group.fragment_id] = replace(before, overlays=(*before.overlays, *new))
    return state.with_fragments(fragments.changed(replaced=changed))
