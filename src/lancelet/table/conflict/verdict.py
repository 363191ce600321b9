"""What two transactions mean to each other."""

from __future__ import annotations

from dataclasses import field
from enum import Enum

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
