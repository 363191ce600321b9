"""The expression tree of filters and computed columns.

An expression is a condition on a row or a value computed from it. The nodes are a closed union of
immutable values, so mypy checks that every traversal is exhaustive.

    text     age > 30 AND name IS NOT NULL
    tree     And(Comparison(GREATER, Column(age), Literal(30)), Not(IsNull(Column(name))))

Several SQL forms share a node: BETWEEN becomes two comparisons, `IS FALSE` becomes
`IsTrue(Not(...))`, `x NOT IN (...)` becomes `Not(In(...))`. Booleans have three values as in SQL:
true, false and null (unknown). The parser returns literals typed by their notation; `bind` returns
a tree whose literals and casts match a schema.

`str` of an expression is SQL that can be parsed back to the same tree.
"""

from __future__ import annotations

import re
from enum import Enum
from typing import Final, TypeAlias, assert_never

import pyarrow as pa

from lancelet.expr.data_types import print_arrow_type, print_sql_type
from lancelet.expr.literal_text import print_scalar, quote_text, scalar_of
from lancelet.values import dataclass


class Operator(Enum):
    """A comparison operator; floats are in total order, with all NaN equal and greatest."""

    EQUAL = "="
    NOT_EQUAL = "<>"
    LESS = "<"
    LESS_EQUAL = "<="
    GREATER = ">"
    GREATER_EQUAL = ">="
    DISTINCT = "IS DISTINCT FROM"
    NOT_DISTINCT = "IS NOT DISTINCT FROM"

    @property
    def negated(self) -> Operator:
        """The logical negation; null where this operator is null."""
        return _NEGATED[self]

    @property
    def mirrored(self) -> Operator:
        """The equivalent operator with swapped operands."""
        return _MIRRORED.get(self, self)


_NEGATED = {
    Operator.EQUAL: Operator.NOT_EQUAL,
    Operator.NOT_EQUAL: Operator.EQUAL,
    Operator.LESS: Operator.GREATER_EQUAL,
    Operator.GREATER_EQUAL: Operator.LESS,
    Operator.GREATER: Operator.LESS_EQUAL,
    Operator.LESS_EQUAL: Operator.GREATER,
    Operator.DISTINCT: Operator.NOT_DISTINCT,
    Operator.NOT_DISTINCT: Operator.DISTINCT,
}
_MIRRORED = {
    Operator.LESS: Operator.GREATER,
    Operator.GREATER: Operator.LESS,
    Operator.LESS_EQUAL: Operator.GREATER_EQUAL,
    Operator.GREATER_EQUAL: Operator.LESS_EQUAL,
}


class _Node:
    """Base of all nodes with `str` as SQL."""

    __slots__ = ()

    def __str__(self) -> str:
        """Return SQL that can be parsed back to the same tree."""
        return print_sql(self)  # type: ignore[arg-type]  # only nodes of the union derive from this


@dataclass(frozen=True, slots=True)
class Column(_Node):
    """A column, or a field nested in struct columns: `a`, `a.b`."""

    path: tuple[str, ...]


@dataclass(frozen=True, slots=True, eq=False)
class Literal(_Node):
    """A constant. Equality compares type and bits: NaN equals NaN, and 0.0 does not equal -0.0."""

    scalar: pa.Scalar

    @property
    def data_type(self) -> pa.DataType:
        """The Arrow type of the constant."""
        return self.scalar.type

    @property
    def is_null(self) -> bool:
        """Whether the constant is NULL."""
        return not self.scalar.is_valid

    def __eq__(self, other: object) -> bool:
        """Compare type and value, including NaN."""
        return isinstance(other, Literal) and self._key() == other._key()

    def __hash__(self) -> int:
        """Return a hash consistent with equality."""
        return hash(self._key())

    def _key(self) -> tuple[str, str]:
        return str(self.scalar.type), text_of_scalar(self.scalar)


@dataclass(frozen=True, slots=True)
class And(_Node):
    """True if all operands are true, false if any is false."""

    operands: tuple[Expression, ...]


@dataclass(frozen=True, slots=True)
class Or(_Node):
    """True if any operand is true, false if all are false."""

    operands: tuple[Expression, ...]


@dataclass(frozen=True, slots=True)
class Not(_Node):
    """Negates true and false; null remains null."""

    operand: Expression


@dataclass(frozen=True, slots=True)
class Comparison(_Node):
    """A comparison of two values of one type."""

    operator: Operator
    left: Expression
    right: Expression


@dataclass(frozen=True, slots=True)
class IsNull(_Node):
    """True if the operand is null, else false; for a boolean operand `IS UNKNOWN`."""

    operand: Expression


@dataclass(frozen=True, slots=True)
class IsTrue(_Node):
    """True if the operand is true, else false."""

    operand: Expression


@dataclass(frozen=True, slots=True, eq=False)
class In(_Node):
    """Whether the operand equals one of the constants; null if none matches and one is null."""

    operand: Expression
    values: pa.Array

    def __eq__(self, other: object) -> bool:
        """Compare the operand and the ordered values, including NaN."""
        return (
            isinstance(other, In)
            and self.operand == other.operand
            and self.values.type == other.values.type
            and bool(self.values.equals(other.values) or self._texts() == other._texts())
        )

    def __hash__(self) -> int:
        """Return a hash consistent with equality."""
        return hash((self.operand, len(self.values), str(self.values.type)))

    def _texts(self) -> list[str]:
        return [text_of_scalar(scalar) for scalar in self.values]


@dataclass(frozen=True, slots=True)
class Like(_Node):
    """Whether text matches a pattern of `%` (any sequence) and `_` (any character)."""

    operand: Expression
    pattern: Expression
    escape: str = "\\"
    ignore_case: bool = False


@dataclass(frozen=True, slots=True)
class Call(_Node):
    """A call of a function or an arithmetic operator, named by its sign (`+`, `%`, `||`, ...)."""

    function: str
    arguments: tuple[Expression, ...]


@dataclass(frozen=True, slots=True)
class Case(_Node):
    """The value of the first branch with a true condition, else `otherwise`."""

    branches: tuple[tuple[Expression, Expression], ...]
    otherwise: Expression


@dataclass(frozen=True, slots=True)
class Cast(_Node):
    """The operand converted to a type; failed conversions raise, or return null if `or_null`."""

    operand: Expression
    data_type: pa.DataType
    or_null: bool = False


@dataclass(frozen=True, slots=True)
class Member(_Node):
    """A field of a computed struct: `items[1].price`."""

    operand: Expression
    name: str


Expression: TypeAlias = (
    Column
    | Literal
    | And
    | Or
    | Not
    | Comparison
    | IsNull
    | IsTrue
    | In
    | Like
    | Call
    | Case
    | Cast
    | Member
)

# Creating scalars from Python values would import pandas, which takes longer than this package.
_FALSE_AND_TRUE: Final = pa.Array.from_buffers(pa.bool_(), 2, [None, pa.py_buffer(b"\x02")])
TRUE = Literal(_FALSE_AND_TRUE[1])
FALSE = Literal(_FALSE_AND_TRUE[0])
NULL = Literal(pa.nulls(1)[0])


def column(path: str) -> Column:
    """Return the column at a dotted path without quoted names.

    >>> column("a.b").path
    ('a', 'b')
    """
    return Column(tuple(path.split(".")))


def literal(value: object, data_type: pa.DataType | None = None) -> Literal:
    """Create a constant of an inferred or given Arrow type.

    >>> literal(1.5).data_type
    DataType(double)
    """
    return Literal(scalar_of(value, data_type))


def text_of_scalar(scalar: pa.Scalar) -> str:
    """Return a text that uniquely identifies a value within its Arrow type."""
    if not scalar.is_valid:
        return "null"
    ticks = getattr(scalar, "value", None)
    if isinstance(ticks, int):  # temporal values may exceed the range of Python
        return str(ticks)
    if pa.types.is_float16(scalar.type):
        return str(float(scalar.as_py()))
    return repr(scalar.as_py())


# --- printing --------------------------------------------------------------------------------

# Operator precedence; operands of lower precedence are parenthesized.
OR, AND, NOT, COMPARE, CONCAT, BIT_OR, BIT_XOR, BIT_AND, SHIFT, ADD, MULTIPLY, UNARY, ATOM = range(
    13
)

BINARY_SIGNS: Final = {
    "||": CONCAT,
    "|": BIT_OR,
    "#": BIT_XOR,
    "&": BIT_AND,
    "<<": SHIFT,
    ">>": SHIFT,
    "+": ADD,
    "-": ADD,
    "*": MULTIPLY,
    "/": MULTIPLY,
    "%": MULTIPLY,
}
"""The precedence of binary operators that are calls."""

_PLAIN_NAME: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
RESERVED: Final = frozenset(
    word
    for line in (
        "and any array as between by case cast date distinct else end escape except exists",
        "extract false from group having ilike in intersect interval is join like limit not",
        "null offset on or order position regexp rlike select similar some substring table then",
        "time timestamp trim true try_cast union unknown when where with",
    )
    for word in line.split()
)
"""Keywords that must be quoted as column names."""


def print_sql(expression: Expression) -> str:
    """Return SQL that can be parsed back to the same tree.

    >>> print_sql(And((column("a"), Or((column("b.c"), Not(column("d")))))))
    'a AND (b.c OR NOT d)'
    """
    return _print(expression)[1]


def quote_name(name: str) -> str:
    """Quote a name for SQL; plain names that are not reserved remain unquoted."""
    if _PLAIN_NAME.fullmatch(name) and name.lower() not in RESERVED:
        return name
    return "`" + name.replace("`", "``") + "`"


def _operand(expression: Expression, needed: int) -> str:
    level, text = _print(expression)
    return text if level >= needed else f"({text})"


def _print(expression: Expression) -> tuple[int, str]:
    match expression:
        case Column(path):
            return ATOM, ".".join(quote_name(name) for name in path)
        case Literal(scalar):
            text = print_scalar(scalar)
            return (UNARY if text.startswith("-") else ATOM), text
        case And(operands):
            return AND, " AND ".join(_operand(part, NOT) for part in operands)
        case Or(operands):
            return OR, " OR ".join(_operand(part, AND) for part in operands)
        case Not(IsNull(operand)):
            return COMPARE, f"{_operand(operand, CONCAT)} IS NOT NULL"
        case Not(In(operand, values)):
            return COMPARE, f"{_operand(operand, CONCAT)} NOT IN ({_print_values(values)})"
        case Not(Like() as like):
            return COMPARE, _print_like(like, "NOT ")
        case Not(operand):
            return NOT, f"NOT {_operand(operand, NOT)}"
        case IsNull(operand):
            return COMPARE, f"{_operand(operand, CONCAT)} IS NULL"
        case IsTrue(operand):
            return COMPARE, f"{_operand(operand, CONCAT)} IS TRUE"
        case In(operand, values):
            return COMPARE, f"{_operand(operand, CONCAT)} IN ({_print_values(values)})"
        case Comparison(operator, left, right):
            sides = _operand(left, CONCAT), _operand(right, CONCAT)
            # Other engines parse everything after IS DISTINCT FROM as its operand, including AND
            # and OR.
            extends_right = operator in {Operator.DISTINCT, Operator.NOT_DISTINCT}
            return (OR if extends_right else COMPARE), f"{sides[0]} {operator.value} {sides[1]}"
        case Like():
            return COMPARE, _print_like(expression, "")
        case Call():
            return _print_call(expression)
        case Case(branches, otherwise):
            pairs = (f"WHEN {when} THEN {then}" for when, then in branches)
            return ATOM, f"CASE {' '.join(pairs)} ELSE {otherwise} END"
        case Cast(operand, data_type, or_null):
            return ATOM, _print_cast(operand, data_type, or_null)
        case Member(operand, name):
            # A dot after a number would be parsed as a part of the number.
            operand_text = (
                f"({operand})" if isinstance(operand, Literal) else _operand(operand, ATOM)
            )
            return ATOM, f"{operand_text}.{quote_name(name)}"
        case _:
            assert_never(expression)


def _print_values(values: pa.Array) -> str:
    return ", ".join(print_scalar(value) for value in values)


def _print_like(like: Like, negation: str) -> str:
    keyword = "ILIKE" if like.ignore_case else "LIKE"
    escape = "" if like.escape == "\\" else f" ESCAPE {quote_text(like.escape)}"
    sides = _operand(like.operand, CONCAT), _operand(like.pattern, CONCAT)
    return f"{sides[0]} {negation}{keyword} {sides[1]}{escape}"


def _print_call(call: Call) -> tuple[int, str]:
    arguments = call.arguments
    if call.function == "||":
        return CONCAT, " || ".join(_operand(part, CONCAT + 1) for part in arguments)
    if call.function in BINARY_SIGNS and len(arguments) == 2:
        level = BINARY_SIGNS[call.function]
        left, right = _operand(arguments[0], level), _operand(arguments[1], level + 1)
        return level, f"{left} {call.function} {right}"
    if call.function in {"-", "~"}:
        # A sign before a number would be parsed as a part of the number.
        inner = str(arguments[0])
        wrap = isinstance(arguments[0], Literal) or _print(arguments[0])[0] < ATOM
        return UNARY, f"{call.function} ({inner})" if wrap else f"{call.function} {inner}"
    return ATOM, f"{call.function}({', '.join(str(part) for part in arguments)})"


def _print_cast(operand: Expression, data_type: pa.DataType, or_null: bool) -> str:
    name = print_sql_type(data_type)
    if name is not None:
        return f"{'TRY_CAST' if or_null else 'CAST'}({operand} AS {name})"
    function = "arrow_try_cast" if or_null else "arrow_cast"
    return f"{function}({operand}, {quote_text(print_arrow_type(data_type))})"


@dataclass(frozen=True, slots=True)
class Bound:
    """A bound expression and its type."""

    expression: Expression
    data_type: pa.DataType
