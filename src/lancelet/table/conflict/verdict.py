"""What two transactions mean to each other."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import field
from enum import Enum

from lancelet.format.fragment import Fragment
from lancelet.format.operation import (
    AddOverlays,
    DataReplacement,
    Delete,
    Operation,
    Rewrite,
    Update,
)
from lancelet.values import dataclass


class Outcome(Enum):
    """Whether a transaction may follow one that it did not know of."""

    COMPATIBLE = "compatible"
    """It may, as it is."""

    REBASE = "rebase"
    """It may, if their deleted rows and ours are not the same; see `rebase`."""

    RETRY = "retry"
    """It may not, but the same work done again from the latest version may."""

    INCOMPATIBLE = "incompatible"
    """It may not, and doing the work again would not help."""


@dataclass(frozen=True, slots=True)
class Verdict:
    """An outcome, and what is in dispute where it is not compatible.

    `unless_same_keys` is what the verdict is if the rows that they added turn out to have none of
    the keys that ours inserted, which only a look at these rows can tell.
    """

    outcome: Outcome
    reason: str = ""
    fragments: frozenset[int] = field(default=frozenset())
    fields: frozenset[int] = field(default=frozenset())
    names: frozenset[str] = field(default=frozenset())
    unless_same_keys: Verdict | None = None


COMPATIBLE = Verdict(Outcome.COMPATIBLE)


def retry(
    reason: str, *, fragments: frozenset[int] = frozenset(), fields: frozenset[int] = frozenset()
) -> Verdict:
    """Return the verdict that the work must be done again."""
    return Verdict(Outcome.RETRY, reason, fragments, fields)


def incompatible(
    reason: str, *, fragments: frozenset[int] = frozenset(), names: frozenset[str] = frozenset()
) -> Verdict:
    """Return the verdict that doing the work again would not help."""
    return Verdict(Outcome.INCOMPATIBLE, reason, fragments, names=names)


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
