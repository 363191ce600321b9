"""The expression tree of filters and computed columns.

An expression says what a row must satisfy, or which value to compute from it. It is a closed
union of small values, so whoever walks it handles each case or mypy complains.

    text     age > 30 AND name IS NOT NULL
    tree     And(Comparison(GREATER, Column(age), Literal(30)), Not(IsNull(Column(name))))

Many spellings share few nodes: BETWEEN becomes two comparisons, `IS FALSE` becomes
`IsTrue(Not(...))`, `x NOT IN (...)` becomes `Not(In(...))`. The truth values are SQL's three:
true, false and null (unknown). A tree fresh from the parser has literals typed by how they are
written; `bind` returns a tree whose literals and casts fit a schema.

`str` of an expression is SQL that parses back to the same tree.
"""

from __future__ import annotations

import re
from enum import Enum
from typing import Final, TypeAlias, assert_never

import pyarrow as pa

from lancelet.query.data_types import print_arrow_type, print_sql_type
from lancelet.query.literal_text import print_scalar, quote_text, scalar_of
from lancelet.values import dataclass


class Operator(Enum):
    """How two values are compared; floats are in total order, every NaN equal and greatest."""

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
        """The operator that is false where this one is true, and null where this one is null."""
        return _NEGATED[self]

    @property
    def mirrored(self) -> Operator:
        """The operator that gives the same answer with its sides exchanged."""
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


class _Printed:
    """Gives every node `str` as SQL."""

    __slots__ = ()

    def __str__(self) -> str:
        """Return SQL that parses back to the same tree."""
        return print_sql(self)  # type: ignore[arg-type]  # only nodes of the union derive from this


@dataclass(frozen=True, slots=True)
class Column(_Printed):
    """A column, or a field nested in struct columns: `a`, `a.b`."""

    path: tuple[str, ...]


@dataclass(frozen=True, slots=True, eq=False)
class Literal(_Printed):
    """A constant. Two are equal when type and bits are, so NaN equals NaN and 0.0 is not -0.0."""

    scalar: pa.Scalar

    @property
    def data_type(self) -> pa.DataType:
        """The Arrow type of the constant."""
        return self.scalar.type

    @property
    def is_null(self) -> bool:
        """Whether this is NULL."""
        return not self.scalar.is_valid

    def __eq__(self, other: object) -> bool:
        """Compare type and value, NaN included."""
        return isinstance(other, Literal) and self._key() == other._key()

    def __hash__(self) -> int:
        """Agree with equality."""
        return hash(self._key())

    def _key(self) -> tuple[str, str]:
        return str(self.scalar.type), text_of_scalar(self.scalar)


@dataclass(frozen=True, slots=True)
class And(_Printed):
    """True where all are, false where any is false."""

    operands: tuple[Expression, ...]


@dataclass(frozen=True, slots=True)
class Or(_Printed):
    """True where any is, false where all are false."""

    operands: tuple[Expression, ...]


@dataclass(frozen=True, slots=True)
class Not(_Printed):
    """Exchanges true and false, keeps null."""

    operand: Expression


@dataclass(frozen=True, slots=True)
class Comparison(_Printed):
    """Compares two values of one type."""

    operator: Operator
    left: Expression
    right: Expression


@dataclass(frozen=True, slots=True)
class IsNull(_Printed):
    """True where the operand is null, else false; for a boolean operand `IS UNKNOWN`."""

    operand: Expression


@dataclass(frozen=True, slots=True)
class IsTrue(_Printed):
    """True where the operand is true, else false."""

    operand: Expression


@dataclass(frozen=True, slots=True, eq=False)
class In(_Printed):
    """Whether the operand equals one of many constants; null if none matched and one is null."""

    operand: Expression
    values: pa.Array

    def __eq__(self, other: object) -> bool:
        """Compare the operand and the values, in order, NaN included."""
        return (
            isinstance(other, In)
            and self.operand == other.operand
            and self.values.type == other.values.type
            and bool(self.values.equals(other.values) or self._texts() == other._texts())
        )

    def __hash__(self) -> int:
        """Agree with equality."""
        return hash((self.operand, len(self.values), str(self.values.type)))

    def _texts(self) -> list[str]:
        return [text_of_scalar(scalar) for scalar in self.values]


@dataclass(frozen=True, slots=True)
class Like(_Printed):
    """Whether text matches a pattern of `%` (any run) and `_` (any character)."""

    operand: Expression
    pattern: Expression
    escape: str = "\\"
    ignore_case: bool = False


@dataclass(frozen=True, slots=True)
class Call(_Printed):
    """A function, or an arithmetic operator under its sign (`+`, `%`, `||`, ...)."""

    function: str
    arguments: tuple[Expression, ...]


@dataclass(frozen=True, slots=True)
class Case(_Printed):
    """The value of the first branch whose condition is true, else `otherwise`."""

    branches: tuple[tuple[Expression, Expression], ...]
    otherwise: Expression


@dataclass(frozen=True, slots=True)
class Cast(_Printed):
    """The operand as another type; what does not fit is an error, or null if `or_null`."""

    operand: Expression
    data_type: pa.DataType
    or_null: bool = False


@dataclass(frozen=True, slots=True)
class Member(_Printed):
    """A field of a struct that is itself computed: `items[1].price`."""

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

# Making scalars of values would import pandas, which takes longer than all of this package.
_FALSE_AND_TRUE: Final = pa.Array.from_buffers(pa.bool_(), 2, [None, pa.py_buffer(b"\x02")])
TRUE = Literal(_FALSE_AND_TRUE[1])
FALSE = Literal(_FALSE_AND_TRUE[0])
NULL = Literal(pa.nulls(1)[0])


def column(path: str) -> Column:
    """Return the column at a dotted path without quoted parts.

    >>> column("a.b").path
    ('a', 'b')
    """
    return Column(tuple(path.split(".")))


def literal(value: object, data_type: pa.DataType | None = None) -> Literal:
    """Return a constant of an inferred or given Arrow type.

    >>> literal(1.5).data_type
    DataType(double)
    """
    return Literal(scalar_of(value, data_type))


def text_of_scalar(scalar: pa.Scalar) -> str:
    """Return text that tells any two values of one Arrow type apart."""
    if not scalar.is_valid:
        return "null"
    ticks = getattr(scalar, "value", None)
    if isinstance(ticks, int):  # temporal values, which may lie outside of what Python can hold
        return str(ticks)
    if pa.types.is_float16(scalar.type):
        return str(float(scalar.as_py()))
    return repr(scalar.as_py())


# --- printing --------------------------------------------------------------------------------

# How tightly an operator holds its operands; an operand that holds less goes in parentheses.
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
"""The binary operators that are calls, and how tightly each holds."""

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
"""Words that a column of that name must be quoted for."""


def print_sql(expression: Expression) -> str:
    """Return SQL that parses back to the same tree.

    >>> print_sql(And((column("a"), Or((column("b.c"), Not(column("d")))))))
    'a AND (b.c OR NOT d)'
    """
    return _print(expression)[1]


def quote_name(name: str) -> str:
    """Return a name as SQL reads it back: bare if it is plain, else between back-ticks."""
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
            # Other readers let IS DISTINCT FROM take everything behind it, AND and OR too.
            swallows = operator in {Operator.DISTINCT, Operator.NOT_DISTINCT}
            return (OR if swallows else COMPARE), f"{sides[0]} {operator.value} {sides[1]}"
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
            # A dot behind a bare number belongs to the number.
            whole = f"({operand})" if isinstance(operand, Literal) else _operand(operand, ATOM)
            return ATOM, f"{whole}.{quote_name(name)}"
        case _:
            assert_never(expression)


def _print_values(values: pa.Array) -> str:
    return ", ".join(print_scalar(value) for value in values)


def _print_like(like: Like, negation: str) -> str:
    word = "ILIKE" if like.ignore_case else "LIKE"
    escape = "" if like.escape == "\\" else f" ESCAPE {quote_text(like.escape)}"
    sides = _operand(like.operand, CONCAT), _operand(like.pattern, CONCAT)
    return f"{sides[0]} {negation}{word} {sides[1]}{escape}"


def _print_call(call: Call) -> tuple[int, str]:
    arguments = call.arguments
    if call.function == "||":
        return CONCAT, " || ".join(_operand(part, CONCAT + 1) for part in arguments)
    if call.function in BINARY_SIGNS and len(arguments) == 2:
        level = BINARY_SIGNS[call.function]
        left, right = _operand(arguments[0], level), _operand(arguments[1], level + 1)
        return level, f"{left} {call.function} {right}"
    if call.function in {"-", "~"}:
        # Signs before a bare number belong to the number.
        inner = str(arguments[0])
        wrap = isinstance(arguments[0], Literal) or _print(arguments[0])[0] < ATOM
        return UNARY, f"{call.function} ({inner})" if wrap else f"{call.function} {inner}"
    return ATOM, f"{call.function}({', '.join(str(part) for part in arguments)})"


def _print_cast(operand: Expression, data_type: pa.DataType, or_null: bool) -> str:
    name = print_sql_type(data_type)
    if name is not None:
        return f"{'TRY_CAST' if or_null else 'CAST'}({operand} AS {name})"
    word = "arrow_try_cast" if or_null else "arrow_cast"
    return f"{word}({operand}, {quote_text(print_arrow_type(data_type))})"


@dataclass(frozen=True, slots=True)
class Bound:
    """A bound expression and the type it computes."""

    expression: Expression
    data_type: pa.DataType
