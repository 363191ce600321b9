"""Traverse and rebuild expression trees."""

from __future__ import annotations

from collections.abc import Iterator
from typing import assert_never

from lancelet.expr.expression import (
    And,
    Call,
    Case,
    Cast,
    Column,
    Comparison,
    Expression,
    In,
    IsNull,
    IsTrue,
    Like,
    Literal,
    Member,
    Not,
    Or,
)


def children(expression: Expression) -> tuple[Expression, ...]:
    """Return the direct children of an expression, in SQL order."""
    match expression:
        case Column() | Literal():
            return ()
        case And(operands) | Or(operands):
            return operands
        case Not(operand) | IsNull(operand) | IsTrue(operand):
            return (operand,)
        case In(operand, _) | Cast(operand, _, _) | Member(operand, _):
            return (operand,)
        case Comparison(_, left, right):
            return (left, right)
        case Like(operand, pattern, _, _):
            return (operand, pattern)
        case Call(_, arguments):
            return arguments
        case Case(branches, otherwise):
            flat = (part for branch in branches for part in branch)
            return (*flat, otherwise)
        case _:
            assert_never(expression)


def with_children(expression: Expression, parts: tuple[Expression, ...]) -> Expression:
    """Return the node with replaced children, in the order of `children`."""
    match expression:
        case Column() | Literal():
            return expression
        case And() | Or():
            return type(expression)(parts)
        case Not() | IsNull() | IsTrue():
            return type(expression)(parts[0])
        case In(_, values):
            return In(parts[0], values)
        case Cast(_, data_type, or_null):
            return Cast(parts[0], data_type, or_null)
        case Member(_, name):
            return Member(parts[0], name)
        case Comparison(operator, _, _):
            return Comparison(operator, parts[0], parts[1])
        case Like(_, _, escape, ignore_case):
            return Like(parts[0], parts[1], escape, ignore_case)
        case Call(function, _):
            return Call(function, parts)
        case Case():
            pairs = tuple(zip(parts[0:-1:2], parts[1:-1:2], strict=True))
            return Case(pairs, parts[-1])
        case _:
            assert_never(expression)


def walk(expression: Expression) -> Iterator[Expression]:
    """Yield an expression and its descendants in preorder.

    >>> from lancelet.expr.expression import column
    >>> [str(part) for part in walk(And((column("a"), column("b"))))]
    ['a AND b', 'a', 'b']
    """
    pending = [expression]
    while pending:
        node = pending.pop()
        yield node
        pending.extend(reversed(children(node)))


def columns_of(expression: Expression) -> frozenset[tuple[str, ...]]:
    """Return the column paths in an expression.

    >>> from lancelet.expr.expression import column
    >>> sorted(columns_of(And((column("b"), Not(column("a.x"))))))
    [('a', 'x'), ('b',)]
    """
    return frozenset(node.path for node in walk(expression) if isinstance(node, Column))
