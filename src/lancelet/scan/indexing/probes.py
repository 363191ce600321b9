"""Convert predicates to index queries.

    age > 30                 Probe(age, Interval(30, None, includes_lower=False))
    age > 30 AND age < 40    Probe(age, Interval(30, 40, both excluded)), after `join_intervals`
    name LIKE 'ab%'          Probe(name, StartsWith("ab"))
    name LIKE '%ab%c'        Probe(name, Contains("ab"), is_exact=False)
    lower(name) = 'x'        None

The filter is bound, so literals have the type of their column. A query that is implied by the
predicate, but not equivalent to it, is not exact: matching rows are rechecked.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Final, assert_never

import pyarrow as pa

from lancelet.expr import expression as ex
from lancelet.expr.evaluate import Wildcard, like_parts
from lancelet.expr.expression import Expression, Operator
from lancelet.expr.functions.geometry import FROM_ARROW, PREDICATES
from lancelet.format.geometry import bounding_boxes
from lancelet.index.parts.spans import intersect_intervals
from lancelet.index.query import (
    Contains,
    HasAll,
    HasAny,
    Intersects,
    Interval,
    IsNull,
    OneOf,
    ScalarQuery,
    StartsWith,
)
from lancelet.values import dataclass

WITHIN: Final = "\0within"
"""Separates the column from keys of its JSON documents in a path; not a valid column name."""
_GETTERS: Final = {"json_get_int", "json_get_float", "json_get_string", "json_get_bool"}


@dataclass(frozen=True, slots=True, eq=False)
class Probe:
    """An index query of one column."""

    path: tuple[str, ...]
    query: ScalarQuery
    is_exact: bool = True
    """Whether the query is equivalent to the predicate, not only implied by it."""


def probe_of(expression: Expression) -> Probe | None:
    """Return the index query of a predicate, or None if it is not supported."""
    column_path: tuple[str, ...] | None
    query: ScalarQuery | None
    is_exact = True
    match expression:
        case ex.Column(path):
            return Probe(path, OneOf(pa.array([True])))
        case ex.IsNull(operand):
            column_path, query = _path_of(operand), IsNull()
        case ex.In(operand, values):
            column_path, query = _path_of(operand), OneOf(values.drop_null())
        case ex.Comparison(
            Operator.LESS | Operator.LESS_EQUAL,
            ex.Call("st_distance", (one, other)),
            ex.Literal(scalar),
        ):
            return _within_distance(one, other, scalar)
        case ex.Comparison(
            Operator.GREATER | Operator.GREATER_EQUAL,
            ex.Literal(scalar),
            ex.Call("st_distance", (one, other)),
        ):
            return _within_distance(one, other, scalar)
        case ex.Comparison(operator, ex.Literal(scalar), operand):
            column_path, query = _path_of(operand), _compared(operator.mirrored, scalar)
        case ex.Comparison(operator, operand, ex.Literal(scalar)):
            column_path, query = _path_of(operand), _compared(operator, scalar)
        case ex.Like(operand, ex.Literal(scalar), escape, ignore_case):
            if not scalar.is_valid or ignore_case or isinstance(scalar.as_py(), bytes):
                return None
            column_path, (query, is_exact) = _path_of(operand), _like(scalar, escape)
        case ex.Call(function, (operand, ex.Literal(scalar))) if function in PREDICATES:
            column_path, query, is_exact = _geometries_of(operand), _near(scalar), False
        case ex.Call(function, (ex.Literal(scalar), operand)) if function in PREDICATES:
            column_path, query, is_exact = _geometries_of(operand), _near(scalar), False
        case ex.Call(function, (operand, ex.Literal(scalar))):
            column_path, query = _path_of(operand), _called(function, scalar)
        case _:
            return None
    return None if column_path is None or query is None else Probe(column_path, query, is_exact)


def _path_of(operand: Expression) -> tuple[str, ...] | None:
    """Return the path of an expression that refers to stored values, or None.

    For example:

        json_get_int(json_get(doc, 'a'), 'b')      (doc, WITHIN, a, b)
    """
    if isinstance(operand, ex.Column):
        return operand.path
    if not isinstance(operand, ex.Call) or operand.function not in _GETTERS:
        return None
    keys: list[str] = []
    document: Expression = operand
    while isinstance(document, ex.Call) and document.function in {*_GETTERS, "json_get"}:
        document, key = document.arguments
        written = key.scalar.as_py() if isinstance(key, ex.Literal) else None
        if not isinstance(written, str) or written.isdigit():
            return None
        keys.insert(0, written)
    return (*document.path, WITHIN, *keys) if isinstance(document, ex.Column) else None


def column_of(path: tuple[str, ...]) -> tuple[str, ...]:
    """Return the path of the column, without keys of its documents."""
    return path[: path.index(WITHIN)] if WITHIN in path else path


def join_intervals(probes: Iterable[Probe]) -> list[Probe]:
    """Intersect the intervals of each column in a conjunction of probes."""
    joined: list[Probe] = []
    index_by_path: dict[tuple[str, ...], int] = {}
    for probe in probes:
        if not isinstance(probe.query, Interval):
            joined.append(probe)
        elif probe.path not in index_by_path:
            index_by_path[probe.path] = len(joined)
            joined.append(probe)
        else:
            before = joined[index_by_path[probe.path]].query
            assert isinstance(before, Interval), "the index refers to an interval"
            both = intersect_intervals(before, probe.query)
            is_exact = joined[index_by_path[probe.path]].is_exact and probe.is_exact
            joined[index_by_path[probe.path]] = Probe(probe.path, both, is_exact)
    return joined


def _compared(operator: Operator, scalar: pa.Scalar) -> ScalarQuery | None:
    if not scalar.is_valid:
        return None
    match operator:
        case Operator.EQUAL:
            return OneOf(pa.repeat(scalar, 1))
        case Operator.LESS:
            return Interval(upper=scalar, includes_upper=False)
        case Operator.LESS_EQUAL:
            return Interval(upper=scalar)
        case Operator.GREATER:
            return Interval(lower=scalar, includes_lower=False)
        case Operator.GREATER_EQUAL:
            return Interval(lower=scalar)
        case Operator.NOT_EQUAL | Operator.DISTINCT | Operator.NOT_DISTINCT:
            return None
    assert_never(operator)


def _like(scalar: pa.Scalar, escape: str) -> tuple[ScalarQuery | None, bool]:
    """Return the query of a LIKE pattern and whether it is exact."""
    pattern = like_parts(scalar.as_py(), escape)
    literals = [part for part in pattern if isinstance(part, str)]
    match pattern:
        case []:
            return OneOf(pa.array([""], scalar.type)), True
        case [str(text)]:
            return OneOf(pa.array([text], scalar.type)), True
        case [str(prefix), Wildcard.ANY]:
            return StartsWith(prefix.encode()), True
        case [Wildcard.ANY, str(text), Wildcard.ANY]:
            return Contains(text), True
        case _:
            return (Contains(max(literals, key=len)) if literals else None), False


def _geometries_of(operand: Expression) -> tuple[str, ...] | None:
    """Return the path of a geometry column, or None for other expressions."""
    if isinstance(operand, ex.Call) and operand.function == FROM_ARROW:
        operand = operand.arguments[0]
    elif isinstance(operand, ex.Cast) and pa.types.is_large_binary(operand.data_type):
        operand = operand.operand
    return operand.path if isinstance(operand, ex.Column) else None


def _near(scalar: pa.Scalar, distance: float = 0.0) -> ScalarQuery | None:
    """Return the query for geometries within a distance of a bounding box."""
    if not scalar.is_valid:
        return None
    (box,) = bounding_boxes(pa.array([scalar.as_py()], pa.large_binary())).tolist()
    if any(math.isnan(side) for side in (*box, distance)):
        return None
    return Intersects(box[0] - distance, box[1] - distance, box[2] + distance, box[3] + distance)


def _within_distance(one: Expression, other: Expression, most: pa.Scalar) -> Probe | None:
    operand, constant = (other, one) if isinstance(one, ex.Literal) else (one, other)
    path = _geometries_of(operand)
    if path is None or not isinstance(constant, ex.Literal) or not most.is_valid:
        return None
    # Computed distances are rounded, so the box includes a tolerance.
    distance = float(most.as_py())
    query = _near(constant.scalar, distance + abs(distance) * 1e-9) if distance >= 0 else None
    return None if query is None else Probe(path, query, is_exact=False)


def _called(function: str, scalar: pa.Scalar) -> ScalarQuery | None:
    if not scalar.is_valid:
        return None
    match function:
        case "starts_with":
            prefix = scalar.as_py()
            return StartsWith(prefix if isinstance(prefix, bytes) else prefix.encode())
        case "contains" if isinstance(scalar.as_py(), str):
            return Contains(scalar.as_py())
        case "array_has" | "array_contains" | "list_has" | "list_contains":
            return HasAny(pa.repeat(scalar, 1))
        case "array_has_any" | "list_has_any" | "arrays_overlap" if not scalar.values.null_count:
            return HasAny(scalar.values)
        case "array_has_all" | "list_has_all" if (
            len(scalar.values) and not scalar.values.null_count
        ):
            return HasAll(scalar.values)
        case _:
            return None
