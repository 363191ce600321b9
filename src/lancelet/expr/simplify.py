"""Simplify bound expressions to equivalent ones, including nulls.

    NOT (a > 1 OR b IS NULL)        a <= 1 AND b IS NOT NULL
    a = 1 OR a = 2 OR a IN (3)      a IN (1, 2, 3)
    (a AND b) OR (a AND c)          a AND (b OR c)
    1 + 1 = 2 AND x                 x

A filter selects rows that are true, so below AND and OR at its top, null may become false: `x = x`
is then `x IS NOT NULL`. `split_conjuncts` splits a filter into conjuncts with the columns they
read, cheapest first.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import pyarrow as pa

from lancelet.errors import ExpressionError
from lancelet.expr import expression as ex
from lancelet.expr.evaluate import can_fail, evaluate
from lancelet.expr.expression import Expression, Operator
from lancelet.expr.traversal import children, columns_of, walk, with_children
from lancelet.values import dataclass

_ONE_ROW: Final = pa.StructArray.from_arrays([pa.nulls(1)], ["row"])


def simplify(expression: Expression) -> Expression:
    """Return an equivalent expression, including nulls."""
    parts = tuple(simplify(part) for part in children(expression))
    return _simpler(with_children(expression, parts) if parts else expression)


def simplify_filter(expression: Expression) -> Expression:
    """Return an expression that is true for the same rows as the filter."""
    return simplify(_without_null(simplify(expression)))


@dataclass(frozen=True, slots=True)
class Conjunct:
    """An operand of the top-level AND of a filter; `columns` are the paths it reads."""

    expression: Expression
    columns: frozenset[tuple[str, ...]]


def split_conjuncts(expression: Expression) -> tuple[Conjunct, ...]:
    """Return the conjuncts of a filter, cheap ones first and those that can fail last.

    >>> from lancelet.expr.parse import parse
    >>> [str(part.expression) for part in split_conjuncts(parse("a + b > 1 AND c AND d = 2"))]
    ['c', 'd = 2', 'a + b > 1']
    """
    parts = expression.operands if isinstance(expression, ex.And) else (expression,)
    conjuncts = [Conjunct(part, columns_of(part)) for part in parts if part != ex.TRUE]
    return tuple(sorted(conjuncts, key=_cost))


def _cost(conjunct: Conjunct) -> tuple[bool, int, int]:
    nodes = sum(1 for _ in walk(conjunct.expression))
    return can_fail(conjunct.expression), len(conjunct.columns), nodes


# --- rules -----------------------------------------------------------------------------------


def _simpler(node: Expression) -> Expression:
    """Apply all rules to a node with simplified children."""
    match node:
        case ex.Column() | ex.Literal():
            return node
        case ex.And(operands):
            return _junction(ex.And, operands)
        case ex.Or(operands):
            return _junction(ex.Or, operands)
        case ex.Not(operand):
            return _negated(operand)
        case ex.In(operand, values) if len(values) == 1 and not isinstance(operand, ex.Literal):
            return ex.Comparison(Operator.EQUAL, operand, ex.Literal(values[0]))
        case ex.IsNull(ex.IsNull() | ex.IsTrue()):
            return ex.FALSE
        case ex.IsTrue(ex.IsNull() | ex.IsTrue() as operand):
            return operand
    return _folded(node)


def _folded(node: Expression) -> Expression:
    """Evaluate a node with constant operands; return it unchanged if that fails."""
    parts = children(node)
    if not parts or not all(isinstance(part, ex.Literal) for part in parts):
        return node
    try:
        return ex.Literal(evaluate(node, _ONE_ROW)[0])
    except ExpressionError:
        return node


def _negated(operand: Expression) -> Expression:
    match operand:
        case ex.Not(inner):
            return inner
        case ex.And(operands):
            return _junction(ex.Or, tuple(_negated(part) for part in operands))
        case ex.Or(operands):
            return _junction(ex.And, tuple(_negated(part) for part in operands))
        case ex.Comparison(operator, left, right):
            return ex.Comparison(operator.negated, left, right)
    return _folded(ex.Not(operand))


def _junction(kind: type[ex.And | ex.Or], operands: Sequence[Expression]) -> Expression:
    """Flatten nested operands, remove neutral ones, and stop at a dominating one."""
    neutral, settling = (ex.TRUE, ex.FALSE) if kind is ex.And else (ex.FALSE, ex.TRUE)
    flat: dict[Expression, None] = {}
    for operand in operands:
        inner = operand.operands if isinstance(operand, kind) else (operand,)
        flat.update(dict.fromkeys(part for part in inner if part != neutral))
    if settling in flat:
        return settling
    parts = list(flat)
    if kind is ex.Or:
        parts = _merged_memberships(parts)
        common = _common_factor(parts)
        if common is not None:
            return common
    if not parts:
        return neutral
    return parts[0] if len(parts) == 1 else kind(tuple(parts))


def _merged_memberships(parts: list[Expression]) -> list[Expression]:
    """Merge equalities and lists of the same operand into one list."""
    groups: dict[Expression, list[pa.Array]] = {}
    for part in parts:
        match part:
            case ex.Comparison(Operator.EQUAL, operand, ex.Literal(scalar)) if scalar.is_valid:
                groups.setdefault(operand, []).append(pa.array([scalar], scalar.type))
            case ex.In(operand, values):
                groups.setdefault(operand, []).append(values)
    joined = {
        operand: values
        for operand, values in groups.items()
        if len(values) > 1 and _have_same_type(values)
    }
    merged: list[Expression] = []
    done: set[Expression] = set()
    for part in parts:
        subject = _membership_operand(part)
        if subject is None or subject not in joined:
            merged.append(part)
        elif subject not in done:
            done.add(subject)
            merged.append(ex.In(subject, pa.concat_arrays(joined[subject]).unique()))
    return merged


def _membership_operand(part: Expression) -> Expression | None:
    match part:
        case ex.Comparison(Operator.EQUAL, operand, ex.Literal(scalar)) if scalar.is_valid:
            return operand
        case ex.In(operand, _):
            return operand
    return None


def _have_same_type(arrays: list[pa.Array]) -> bool:
    nested = pa.types.is_nested(arrays[0].type)
    return not nested and all(array.type == arrays[0].type for array in arrays)


def _common_factor(parts: list[Expression]) -> Expression | None:
    """Return `a AND (b OR c)` for `(a AND b) OR (a AND c)`, or None without a common part."""
    if len(parts) < 2:
        return None
    factors = [part.operands if isinstance(part, ex.And) else (part,) for part in parts]
    shared = [part for part in factors[0] if all(part in others for others in factors[1:])]
    if not shared:
        return None
    rests = [tuple(part for part in own if part not in shared) for own in factors]
    rest = _junction(ex.Or, [_junction(ex.And, own) for own in rests])
    return _junction(ex.And, [*shared, rest])


def _without_null(node: Expression) -> Expression:
    """Replace null by false where a filter treats them equally."""
    match node:
        case ex.And(operands) | ex.Or(operands):
            return type(node)(tuple(_without_null(part) for part in operands))
        case ex.Literal(scalar) if not scalar.is_valid:
            return ex.FALSE
        case ex.Comparison(Operator.EQUAL, left, right) if left == right:
            return ex.Not(ex.IsNull(left))
        case ex.Comparison(Operator.NOT_EQUAL, left, right) if left == right:
            return ex.FALSE
        case ex.IsTrue(operand):
            return _without_null(operand)
        case ex.Comparison(operator, _, ex.Literal(scalar)) if not scalar.is_valid:
            return node if operator in {Operator.DISTINCT, Operator.NOT_DISTINCT} else ex.FALSE
    return node
