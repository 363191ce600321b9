"""Random tables and predicates, and a reference evaluation of predicates in plain Python.

`expected_value` evaluates an expression for one row, with SQL's three-valued logic and floats in
total order. It reads unbound expressions, so it also checks that binding preserves their meaning.

    row        {"i": 3, "f": nan, "s": None}
    f > i      True, since NaN is greater than every number
    s = 'x'    None
"""

from __future__ import annotations

import datetime as dt
import math
import random
import re
from collections.abc import Callable, Mapping
from decimal import Decimal
from functools import reduce
from typing import Any, Final, TypeAlias

import pyarrow as pa
from hypothesis import strategies as st

from lancelet.errors import InternalError
from lancelet.expr import expression as ex
from lancelet.expr.expression import Expression, Operator
from lancelet.expr.literal_text import parse_number

Row: TypeAlias = Mapping[str, Any]

SCHEMA: Final = pa.schema(
    [
        pa.field("i", pa.int32()),
        pa.field("u", pa.uint8()),
        pa.field("n", pa.int64()),
        pa.field("f", pa.float64()),
        pa.field("d", pa.decimal128(10, 2)),
        pa.field("s", pa.string()),
        pa.field("b", pa.bool_()),
        pa.field("day", pa.date32()),
        pa.field("ts", pa.timestamp("us")),
        pa.field("st", pa.struct([pa.field("x", pa.int32()), pa.field("y", pa.string())])),
        pa.field("l", pa.list_(pa.int32())),
    ]
)
"""The columns of every random table."""

_TOKENS: Final = ("", "a", "ab", "abc", "B", "b%", "a_", "é", "aé", "z")
_INTEGERS: Final = tuple(range(-3, 13))
_DAYS: Final = tuple(dt.date(2020, 1, day) for day in range(1, 7))
_TIMES: Final = tuple(dt.datetime(2020, 1, day, hour) for day in range(1, 6) for hour in (0, 12))  # noqa: DTZ001
_FLOATS: Final = (-1.5, -0.0, 0.0, 0.1, 2.0, 7.25, math.nan, math.inf, -math.inf)
_LISTS: Final[tuple[list[int | None], ...]] = (
    [],
    [1],
    [2, 3],
    [3, None],
    [None],
    [1, 1, 5],
    [-3, 12],
)
_POOLS: Final[dict[str, tuple[Any, ...]]] = {
    "i": _INTEGERS,
    "u": tuple(range(13)),
    "n": _INTEGERS,
    "f": _FLOATS,
    "d": tuple(Decimal(cents).scaleb(-2) for cents in range(-300, 1200, 25)),
    "s": _TOKENS,
    "b": (True, False),
    "day": _DAYS,
    "ts": _TIMES,
    "st": tuple({"x": x, "y": y} for x in (None, 0, 3) for y in (None, *_TOKENS)),
    "l": _LISTS,
}


def random_batch(num_rows: int, *, seed: int) -> pa.RecordBatch:
    """Return a batch of `SCHEMA`; a fifth of the values is null."""
    chance = random.Random(seed)
    arrays = [
        pa.array(
            [
                None if chance.random() < 0.2 else chance.choice(_POOLS[field.name])
                for _ in range(num_rows)
            ],
            field.type,
        )
        for field in SCHEMA
    ]
    return pa.RecordBatch.from_arrays(arrays, schema=SCHEMA)


@st.composite
def batches(draw: st.DrawFn, *, max_rows: int = 12) -> pa.RecordBatch:
    """Draw a batch of `SCHEMA` with nulls in every column."""
    num_rows = draw(st.integers(0, max_rows))
    arrays = []
    for field in SCHEMA:
        values = st.lists(
            st.sampled_from((*_POOLS[field.name], None)), min_size=num_rows, max_size=num_rows
        )
        arrays.append(pa.array(draw(values), field.type))
    return pa.RecordBatch.from_arrays(arrays, schema=SCHEMA)


# --- predicates ------------------------------------------------------------------------------

_OPERATORS: Final = st.sampled_from(tuple(Operator))


def _constants(values: st.SearchStrategy[Any], data_type: pa.DataType) -> st.SearchStrategy[Any]:
    return values.map(lambda value: ex.literal(value, data_type))


_NUMBERS: Final = st.one_of(
    st.integers(-300, 300).map(str), st.integers(-300, 1200).map(lambda tenths: f"{tenths / 10}")
).map(lambda text: ex.Literal(parse_number(text)))
_COLUMNS: Final[dict[str, tuple[str, ...]]] = {
    "number": ("i", "u", "n", "f", "d", "st.x"),
    "text": ("s", "st.y"),
    "time": ("day", "ts"),
}


def _columns(kind: str) -> st.SearchStrategy[Expression]:
    return st.sampled_from(_COLUMNS[kind]).map(ex.column)


_DAY_CONSTANTS: Final = _constants(st.sampled_from(_DAYS), pa.date32())
_TIME_CONSTANTS: Final = _constants(st.sampled_from(_TIMES), pa.timestamp("us"))
_TEXT_CONSTANTS: Final = _constants(st.sampled_from(_TOKENS), pa.string())
_SUMS: Final = st.builds(
    lambda sign, column, number: ex.Call(sign, (ex.column(column), ex.literal(number))),
    st.sampled_from(("+", "-", "*", "%")),
    st.sampled_from(("i", "n")),
    st.integers(1, 5),
)
_MEASURES: Final = st.sampled_from(
    (
        ex.Call("length", (ex.column("s"),)),
        ex.Call("array_length", (ex.column("l"),)),
        ex.Call("array_element", (ex.column("l"), ex.literal(1))),
        ex.Call("coalesce", (ex.column("i"), ex.column("n"))),
    )
)


def _compared(
    left: st.SearchStrategy[Any], right: st.SearchStrategy[Any]
) -> st.SearchStrategy[Any]:
    return st.builds(ex.Comparison, _OPERATORS, left, right)


def _listed(
    column: st.SearchStrategy[Any], values: st.SearchStrategy[Any]
) -> st.SearchStrategy[Any]:
    lists = st.lists(values, min_size=1, max_size=4)
    arrays = lists.map(lambda items: pa.array(sorted(items, key=lambda item: item is None)))
    return st.builds(ex.In, column, arrays)


_PATTERNS: Final = st.lists(st.sampled_from("ab%_é"), max_size=4).map("".join)
LEAVES: Final[st.SearchStrategy[Expression]] = st.one_of(
    _compared(_columns("number"), _NUMBERS),
    _compared(_NUMBERS, _columns("number")),
    _compared(st.just(ex.column("f")), _constants(st.sampled_from(_FLOATS), pa.float64())),
    _compared(_columns("number"), _columns("number")),
    _compared(_SUMS | _MEASURES, _NUMBERS),
    _compared(_columns("text"), _TEXT_CONSTANTS),
    _compared(_columns("text"), _columns("text")),
    _compared(_columns("time"), _DAY_CONSTANTS | _TIME_CONSTANTS),
    _listed(_columns("number"), st.sampled_from((*_INTEGERS, None))),
    _listed(_columns("text"), st.sampled_from(_TOKENS)),
    st.builds(ex.Like, _columns("text"), _PATTERNS.map(ex.literal), st.just("\\"), st.booleans()),
    st.builds(
        lambda name, text: ex.Call(name, (ex.column("s"), text)),
        st.sampled_from(("starts_with", "ends_with", "contains")),
        _TEXT_CONSTANTS,
    ),
    st.builds(
        lambda number: ex.Call("array_has", (ex.column("l"), ex.literal(number))),
        st.sampled_from(_INTEGERS),
    ),
    st.sampled_from([ex.IsNull(ex.column(field.name)) for field in SCHEMA]),
    st.just(ex.column("b")),
    st.booleans().map(ex.literal),
)
"""Predicates without AND, OR and NOT."""


def _grown(smaller: st.SearchStrategy[Expression]) -> st.SearchStrategy[Expression]:
    several = st.lists(smaller, min_size=2, max_size=3).map(tuple)
    return st.one_of(
        st.builds(ex.And, several),
        st.builds(ex.Or, several),
        st.builds(ex.Not, smaller),
        st.builds(ex.IsNull, smaller),
        st.builds(ex.IsTrue, smaller),
        st.builds(
            lambda when, then, other: ex.Case(((when, then),), other), smaller, smaller, smaller
        ),
    )


PREDICATES: Final[st.SearchStrategy[Expression]] = st.recursive(LEAVES, _grown, max_leaves=8)
"""Random predicates over `SCHEMA`, written as SQL would write them."""


# --- meaning ---------------------------------------------------------------------------------


def expected_value(expression: Expression, row: Row) -> Any:
    """Return the value of an expression for one row; None is null."""
    match expression:
        case ex.Column(path):
            return reduce(lambda value, name: None if value is None else value[name], path, row)
        case ex.Literal(scalar):
            return scalar.as_py()
        case ex.And(operands):
            return _all(expected_value(operand, row) for operand in operands)
        case ex.Or(operands):
            return _negated(_all(_negated(expected_value(operand, row)) for operand in operands))
        case ex.Not(operand):
            return _negated(expected_value(operand, row))
        case ex.IsNull(operand):
            return expected_value(operand, row) is None
        case ex.IsTrue(operand):
            return expected_value(operand, row) is True
        case ex.Comparison(operator, left, right):
            return _compare(operator, expected_value(left, row), expected_value(right, row))
        case ex.In(operand, values):
            found = [
                _compare(Operator.EQUAL, expected_value(operand, row), value)
                for value in values.to_pylist()
            ]
            return _negated(_all(_negated(each) for each in found))
        case ex.Like(operand, pattern, escape, ignore_case):
            return _like(
                expected_value(operand, row), expected_value(pattern, row), escape, ignore_case
            )
        case ex.Case(branches, otherwise):
            taken = (then for when, then in branches if expected_value(when, row) is True)
            return expected_value(next(taken, otherwise), row)
        case ex.Call(function, arguments):
            return _call(function, [expected_value(argument, row) for argument in arguments])
    raise InternalError("unsupported expression", expression=str(expression))


def _negated(value: Any) -> Any:
    return None if value is None else not value


def _all(truths: Any) -> Any:
    found = list(truths)
    if False in found:
        return False
    return None if None in found else True


def _compare(operator: Operator, left: Any, right: Any) -> Any:
    if operator is Operator.NOT_DISTINCT:
        if left is None or right is None:
            return left is right
        operator = Operator.EQUAL
    if operator is Operator.DISTINCT:
        return not _compare(Operator.NOT_DISTINCT, left, right)
    if left is None or right is None:
        return None
    if isinstance(left, float) or isinstance(right, float):
        left, right = (_total(float(side)) for side in (left, right))
    if isinstance(left, dt.date) and isinstance(right, dt.date):
        left, right = _instant(left), _instant(right)
    return _PYTHON[operator](left, right)


_PYTHON: Final[dict[Operator, Callable[[Any, Any], bool]]] = {
    Operator.EQUAL: lambda left, right: left == right,
    Operator.NOT_EQUAL: lambda left, right: left != right,
    Operator.LESS: lambda left, right: left < right,
    Operator.LESS_EQUAL: lambda left, right: left <= right,
    Operator.GREATER: lambda left, right: left > right,
    Operator.GREATER_EQUAL: lambda left, right: left >= right,
}


def _total(value: float) -> tuple[bool, float]:
    """Return a sort key that treats all NaNs as one value, ordered last."""
    return math.isnan(value), 0.0 if math.isnan(value) else value


def _instant(value: dt.date) -> dt.datetime:
    if isinstance(value, dt.datetime):
        return value
    return dt.datetime.combine(value, dt.time())


def _like(text: Any, pattern: Any, escape: str, ignore_case: bool) -> Any:
    if text is None or pattern is None:
        return None
    assert escape not in pattern, "escapes are not supported"
    parts = {"%": ".*", "_": "."}
    regular = "".join(parts.get(character, re.escape(character)) for character in pattern)
    flags = re.DOTALL | (re.IGNORECASE if ignore_case else 0)
    return re.fullmatch(regular, text, flags) is not None


def _call(function: str, values: list[Any]) -> Any:
    if function == "coalesce":
        return next((value for value in values if value is not None), None)
    if any(value is None for value in values):
        return None
    return _FUNCTIONS[function](*values)


_FUNCTIONS: Final[dict[str, Callable[..., Any]]] = {
    "+": lambda left, right: left + right,
    "-": lambda left, right: left - right,
    "*": lambda left, right: left * right,
    "%": lambda left, right: int(math.fmod(left, right)),
    "length": len,
    "array_length": len,
    "array_element": lambda items, position: (
        items[position - 1] if position <= len(items) else None
    ),
    "array_has": lambda items, item: item in items,
    "starts_with": lambda text, part: text.startswith(part),
    "ends_with": lambda text, part: text.endswith(part),
    "contains": lambda text, part: part in text,
}
