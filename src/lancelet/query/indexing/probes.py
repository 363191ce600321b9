"""Which parts of a filter are questions that an index may answer.

    age > 30                 Probe(age, Interval(30, None, includes_lower=False))
    age > 30 AND age < 40    Probe(age, Interval(30, 40, both excluded)), once they are joined
    name LIKE 'ab%'          Probe(name, StartsWith("ab"))
    lower(name) = 'x'        None

Literals have the type of their column already, since the filter is bound.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import assert_never

import pyarrow as pa

from lancelet.index.parts.spans import interval_within
from lancelet.index.question import (
    Contains,
    HasAll,
    HasAny,
    Interval,
    IsNull,
    OneOf,
    Question,
    StartsWith,
)
from lancelet.query import expression as ex
from lancelet.query.expression import Expression, Operator
from lancelet.query.matching import literal_prefix


@dataclass(frozen=True, slots=True, eq=False)
class Probe:
    """A question about the values of one column."""

    path: tuple[str, ...]
    question: Question


def probe_of(expression: Expression) -> Probe | None:
    """Return the question that an expression asks, or None if it is not one about a column."""
    match expression:
        case ex.Column(path):
            return Probe(path, OneOf(pa.array([True])))
        case ex.IsNull(ex.Column(path)):
            return Probe(path, IsNull())
        case ex.In(ex.Column(path), values):
            return Probe(path, OneOf(values.drop_null()))
        case ex.Comparison(operator, ex.Column(path), ex.Literal(scalar)):
            return _compared(operator, path, scalar)
        case ex.Comparison(operator, ex.Literal(scalar), ex.Column(path)):
            return _compared(operator.mirrored, path, scalar)
        case ex.Like(ex.Column(path), ex.Literal(scalar), escape, ignore_case):
            return _like(path, scalar, escape, ignore_case=ignore_case)
        case ex.Call(function, (ex.Column(path), ex.Literal(scalar))):
            return _called(function, path, scalar)
        case _:
            return None


def join_intervals(probes: Iterable[Probe]) -> list[Probe]:
    """Return probes of which all must hold, one for all intervals of a column."""
    joined: list[Probe] = []
    places: dict[tuple[str, ...], int] = {}
    for probe in probes:
        if not isinstance(probe.question, Interval):
            joined.append(probe)
        elif probe.path not in places:
            places[probe.path] = len(joined)
            joined.append(probe)
        else:
            before = joined[places[probe.path]].question
            assert isinstance(before, Interval), "the place is that of an interval"
            both = interval_within(before, probe.question)
            joined[places[probe.path]] = Probe(probe.path, both)
    return joined


def _compared(operator: Operator, path: tuple[str, ...], scalar: pa.Scalar) -> Probe | None:
    if not scalar.is_valid:
        return None
    match operator:
        case Operator.EQUAL:
            return Probe(path, OneOf(pa.repeat(scalar, 1)))
        case Operator.LESS:
            return Probe(path, Interval(upper=scalar, includes_upper=False))
        case Operator.LESS_EQUAL:
            return Probe(path, Interval(upper=scalar))
        case Operator.GREATER:
            return Probe(path, Interval(lower=scalar, includes_lower=False))
        case Operator.GREATER_EQUAL:
            return Probe(path, Interval(lower=scalar))
        case Operator.NOT_EQUAL | Operator.DISTINCT | Operator.NOT_DISTINCT:
            return None
    assert_never(operator)


def _like(
    path: tuple[str, ...], scalar: pa.Scalar, escape: str, *, ignore_case: bool
) -> Probe | None:
    """Return the question of a pattern that is a prefix and nothing else."""
    if not scalar.is_valid or ignore_case:
        return None
    pattern = scalar.as_py()
    if isinstance(pattern, bytes):
        return None
    prefix, is_whole = literal_prefix(pattern, escape)
    if is_whole:
        return Probe(path, OneOf(pa.repeat(scalar, 1))) if prefix == pattern else None
    if prefix and pattern == f"{prefix}%":
        return Probe(path, StartsWith(prefix.encode()))
    inside = _longest_literal(pattern, escape)
    return Probe(path, Contains(inside)) if inside else None


def _longest_literal(pattern: str, escape: str) -> str:
    """Return the longest text that all texts of a pattern have in them.

    >>> _longest_literal("a%b_cd!%e", "!")
    'cd%e'
    """
    runs, rest = [""], iter(pattern)
    for letter in rest:
        if letter == escape:
            runs[-1] += next(rest, "")
        elif letter in "%_":
            runs.append("")
        else:
            runs[-1] += letter
    return max(runs, key=len)


def _called(function: str, path: tuple[str, ...], scalar: pa.Scalar) -> Probe | None:
    if not scalar.is_valid:
        return None
    match function:
        case "starts_with":
            prefix = scalar.as_py()
            return Probe(path, StartsWith(prefix if isinstance(prefix, bytes) else prefix.encode()))
        case "contains" if isinstance(scalar.as_py(), str):
            return Probe(path, Contains(scalar.as_py()))
        case "array_has" | "array_contains" | "list_has" | "list_contains":
            return Probe(path, HasAny(pa.repeat(scalar, 1)))
        case "array_has_any" | "list_has_any" | "arrays_overlap":
            return Probe(path, HasAny(scalar.values.drop_null()))
        case "array_has_all" | "list_has_all" if (
            len(scalar.values) and not scalar.values.null_count
        ):
            return Probe(path, HasAll(scalar.values))
        case _:
            return None
