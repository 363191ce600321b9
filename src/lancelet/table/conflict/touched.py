"""What an operation touches: fragments, fields and index names."""

from __future__ import annotations

from collections.abc import Iterable

from lancelet.format.fragment import Fragment
from lancelet.format.operation import (
    AddOverlays,
    DataReplacement,
    Delete,
    Operation,
    Rewrite,
    Update,
)


def touched_fragments(operation: Operation) -> frozenset[int]:
    """Return the ids of the fragments that an operation changes, replaces or removes."""
    match operation:
        case Delete(updated_fragments=updated, deleted_fragment_ids=removed):
            return _ids(updated) | frozenset(removed)
        case Update(updated_fragments=updated, removed_fragment_ids=removed):
            return _ids(updated) | frozenset(removed)
        case Rewrite(groups=groups):
            return _ids(fragment for group in groups for fragment in group.old_fragments)
        case DataReplacement(replacements=replacements):
            return frozenset(group.fragment_id for group in replacements)
        case AddOverlays(groups=overlays):
            return frozenset(group.fragment_id for group in overlays)
        case _:
            return frozenset()


def removed_fragments(operation: Operation) -> frozenset[int]:
    """Return the ids of the fragments that an operation removes whole."""
    match operation:
        case Delete(deleted_fragment_ids=removed) | Update(removed_fragment_ids=removed):
            return frozenset(removed)
        case Rewrite():
            return touched_fragments(operation)
        case _:
            return frozenset()


def updated_fragments(operation: Operation) -> dict[int, Fragment]:
    """Return the fragments as an operation leaves them, by id."""
    match operation:
        case Delete(updated_fragments=updated) | Update(updated_fragments=updated):
            return {fragment.id: fragment for fragment in updated}
        case _:
            return {}


def _ids(fragments: Iterable[Fragment]) -> frozenset[int]:
    return frozenset(int(fragment.id) for fragment in fragments)
