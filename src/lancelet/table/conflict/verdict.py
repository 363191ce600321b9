"""The outcome of comparing two concurrent transactions."""

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
    """Whether a transaction may follow a concurrent one."""

    COMPATIBLE = "compatible"
    """It may follow unchanged."""

    REBASE = "rebase"
    """It may follow if both delete different rows; see `rebase`."""

    RETRY = "retry"
    """It conflicts; redoing the work from the latest version may succeed."""

    INCOMPATIBLE = "incompatible"
    """It conflicts, and redoing the work cannot succeed."""


@dataclass(frozen=True, slots=True)
class Verdict:
    """An outcome, and the conflicting objects if it is not compatible.

    `if_keys_disjoint` is the verdict if the rows that they added contain none of the keys that ours
    inserted. Deciding this requires reading these rows.
    """

    outcome: Outcome
    reason: str = ""
    fragments: frozenset[int] = field(default=frozenset())
    fields: frozenset[int] = field(default=frozenset())
    names: frozenset[str] = field(default=frozenset())
    if_keys_disjoint: Verdict | None = None


COMPATIBLE = Verdict(Outcome.COMPATIBLE)


def retry(
    reason: str, *, fragments: frozenset[int] = frozenset(), fields: frozenset[int] = frozenset()
) -> Verdict:
    """Return a verdict that requires redoing the work."""
    return Verdict(Outcome.RETRY, reason, fragments, fields)


def incompatible(
    reason: str, *, fragments: frozenset[int] = frozenset(), names: frozenset[str] = frozenset()
) -> Verdict:
    """Return a verdict of a conflict that redoing the work cannot resolve."""
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
    """Return the ids of the fragments that an operation removes completely."""
    match operation:
        case Delete(deleted_fragment_ids=removed) | Update(removed_fragment_ids=removed):
            return frozenset(removed)
        case Rewrite():
            return touched_fragments(operation)
        case _:
            return frozenset()


def updated_fragments(operation: Operation) -> dict[int, Fragment]:
    """Return the updated fragments of an operation by id."""
    match operation:
        case Delete(updated_fragments=updated) | Update(updated_fragments=updated):
            return {fragment.id: fragment for fragment in updated}
        case _:
            return {}


def _ids(fragments: Iterable[Fragment]) -> frozenset[int]:
    return frozenset(int(fragment.id) for fragment in fragments)
