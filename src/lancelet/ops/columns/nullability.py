"""Whether what an expression computes may be null, given which columns may be.

a not null, n nullable
a + 1            never null: what cannot be computed is an error
a + n            may be null
n IS NULL        never null
coalesce(n, 0)   never null
upper(a)         said to be nullable, as of all other functions
"""

from __future__ import annotations

from typing import Final

import pyarrow as pa

from lancelet.query.expression import (
    And,
    Call,
    Cast,
    Column,
    Comparison,
    Expression,
    In,
    IsNull,
    IsTrue,
    Like,
    Literal,
    Not,
    Or,
)
from lancelet.query.traversal import children

_STRICT: Final = frozenset({"+", "-", "*", "/", "%", "||"})
"""Functions that are null only if an argument is."""


def may_be_null(expression: Expression, names: pa.Schema) -> bool:
    """Say whether a bound expression over columns of `names` may be null."""
    match expression:
        case Literal(scalar):
            return not scalar.is_valid
        case Column(path):
            return _column_may_be_null(path, names)
        case IsNull() | IsTrue():
            return False
        case Call("coalesce", arguments):
            return all(may_be_null(argument, names) for argument in arguments)
        case In(operand, values):
            return bool(values.null_count) or may_be_null(operand, names)
        case Call(function, _) if function not in _STRICT:
            return True
        case Cast(_, _, True):
            return True
        case And() | Or() | Not() | Comparison() | Like() | Cast() | Call():
            return any(may_be_null(child, names) for child in children(expression))
        case _:
            return True


def _column_may_be_null(path: tuple[str, ...], names: pa.Schema) -> bool:
    field = names.field(path[0])
    for name in path[1:]:
        if field.nullable or not pa.types.is_struct(field.type):
            return True
        field = field.type.field(name)
    return bool(field.nullable)
