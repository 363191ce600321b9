"""Expressions of pyarrow, both ways.

An expression of pyarrow has no public parts, but it can be pickled, and what it pickles to is
an Arrow file: constants and options are its columns, the tree is its schema's metadata.

    pc.field("a") > 5       call: greater   field_ref: a   literal: 0   end: greater
                            column 0: [5]

This keeps every type and every function, where Substrait, the other way out, has no words for
nanoseconds, durations, casts, LIKE or the types of vectors. pyarrow hides repeated metadata
keys, so they are read from the file's first message, whose layout Arrow specifies.

Names mean ours: comparisons of floats are in total order, not by IEEE.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator
from math import isnan
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc

from lancelet.errors import ExpressionError, UnsupportedError
from lancelet.query import expression as ex
from lancelet.query.expression import Expression, Operator

_FILE_MAGIC_BYTES: Final = 8


class ArrowExpressionError(
    ExpressionError,
    pa.ArrowInvalid,  # type: ignore[misc]  # pyarrow has no types
    pa.ArrowNotImplementedError,  # type: ignore[misc]  # the same
):
    """An expression of pyarrow does not fit the columns: a name or a type is wrong.

    The reference lets pyarrow fit it first, which raises one for names and the other for types.
    """


def from_arrow(expression: pc.Expression) -> Expression:
    """Return an expression of pyarrow as one of ours, not yet bound.

    >>> str(from_arrow((pc.field("a") > 5) & pc.field("s", "x").is_valid()))
    'a > 5 AND s.x IS NOT NULL'
    """
    try:
        buffer = pa.py_buffer(expression.__reduce__()[1][0])
    except pa.ArrowNotImplementedError as error:
        raise ExpressionError(f"columns are given by name, as in pc.field('a'): {error}") from error
    words = _words(pa.ipc.read_message(buffer.slice(_FILE_MAGIC_BYTES)).metadata.to_pybytes())
    constants = pa.ipc.open_file(buffer).get_batch(0)
    return _Reader(words, constants).expression(next(words))


class _Reader:
    """Reads the tree from its words: each call, its arguments, its options, its end."""

    def __init__(self, words: Iterator[tuple[str, str]], constants: pa.RecordBatch) -> None:
        self.words = words
        self.constants = constants

    def expression(self, word: tuple[str, str]) -> Expression:
        match word:
            case "literal", index:
                return ex.Literal(self.constants.column(int(index))[0])
            case "field_ref", name:
                return ex.Column((name,))
            case "nested_field_ref", count:
                return ex.Column(tuple(next(self.words)[1] for _ in range(int(count))))
            case "call", function:
                return self._call(function)
        raise UnsupportedError(
            "this release of pyarrow writes expressions in another way; write the filter as SQL",
            word=word[0],
            pyarrow=pa.__version__,
        )

    def _call(self, function: str) -> Expression:
        arguments: list[Expression] = []
        options: dict[str, Any] = {}
        for word in self.words:
            if word[0] == "end":
                break
            if word[0] == "options":
                scalar = self.constants.column(int(word[1]))[0]
                options = {field.name: scalar[field.name] for field in scalar.type}
            else:
                arguments.append(self.expression(word))
        return _meaning(function, tuple(arguments), options)


# --- meaning ---------------------------------------------------------------------------------

_COMPARISONS: Final = {
    "equal": Operator.EQUAL,
    "not_equal": Operator.NOT_EQUAL,
    "less": Operator.LESS,
    "less_equal": Operator.LESS_EQUAL,
    "greater": Operator.GREATER,
    "greater_equal": Operator.GREATER_EQUAL,
    "xor": Operator.NOT_EQUAL,
}
_SIGNS: Final = {
    "add": "+",
    "subtract": "-",
    "multiply": "*",
    "divide": "/",
    "negate": "-",
    "bit_wise_and": "&",
    "bit_wise_or": "|",
    "bit_wise_xor": "#",
    "bit_wise_not": "~",
    "shift_left": "<<",
    "shift_right": ">>",
}
_NAMES: Final = {
    "utf8_lower": "lower",
    "ascii_lower": "lower",
    "utf8_upper": "upper",
    "ascii_upper": "upper",
    "utf8_length": "length",
    "binary_length": "octet_length",
    "utf8_reverse": "reverse",
    "utf8_title": "initcap",
    "utf8_trim_whitespace": "btrim",
    "utf8_ltrim_whitespace": "ltrim",
    "utf8_rtrim_whitespace": "rtrim",
    "is_nan": "isnan",
    "list_value_length": "array_length",
    "max_element_wise": "greatest",
    "min_element_wise": "least",
    "logb": "log",
    **{
        name: name
        for name in (
            *("abs", "sqrt", "exp", "ln", "log10", "log2", "sin", "cos", "tan", "asin", "acos"),
            *("atan", "atan2", "floor", "ceil", "trunc", "power", "sign", "coalesce"),
            *("year", "quarter", "month", "day", "hour", "minute", "second"),
        )
    },
}
_MATCH_NULLS, _SKIP_NULLS = 0, 1


def _meaning(
    function: str, arguments: tuple[Expression, ...], options: dict[str, Any]
) -> Expression:
    name = function.removesuffix("_checked").removesuffix("_kleene")
    if name in _COMPARISONS and len(arguments) == 2:
        return ex.Comparison(_COMPARISONS[name], *arguments)
    if name in _SIGNS:
        return ex.Call(_SIGNS[name], arguments)
    if name in _NAMES:
        return ex.Call(_NAMES[name], arguments)
    if name in _SPECIAL:
        return _SPECIAL[name](arguments, options)
    raise UnsupportedError(
        "this function of pyarrow has no counterpart in filters; write the filter as SQL",
        function=function,
    )


def _is_null(arguments: tuple[Expression, ...], options: dict[str, Any]) -> Expression:
    null = ex.IsNull(arguments[0])
    if "nan_is_null" in options and options["nan_is_null"].as_py():
        return ex.Or((null, ex.Call("isnan", arguments)))
    return null


def _is_in(arguments: tuple[Expression, ...], options: dict[str, Any]) -> Expression:
    """Pyarrow finds null in a list that has it, and says false, not null, for what is missing."""
    values: pa.Array = options["value_set"].values
    behavior = options["null_matching_behavior"].as_py()
    if behavior not in {_MATCH_NULLS, _SKIP_NULLS}:
        raise UnsupportedError("is_in treats nulls in an unknown way", behavior=behavior)
    found = ex.IsTrue(ex.In(arguments[0], values.drop_null()))
    if behavior == _MATCH_NULLS and values.null_count:
        return ex.Or((found, ex.IsNull(arguments[0])))
    return found


def _cast(arguments: tuple[Expression, ...], options: dict[str, Any]) -> Expression:
    return ex.Cast(arguments[0], options["to_type"].type)


def _if_else(arguments: tuple[Expression, ...], options: dict[str, Any]) -> Expression:
    del options
    condition, then, otherwise = arguments
    chosen = ex.Case(((condition, then),), otherwise)
    unknown = ex.IsNull(condition)
    return ex.Case(((unknown, ex.Literal(pa.scalar(None))),), chosen)


def _matcher(make: Callable[[Expression, str, bool], Expression]) -> Callable[..., Expression]:
    def match(arguments: tuple[Expression, ...], options: dict[str, Any]) -> Expression:
        ignore_case = bool(options["ignore_case"].as_py())
        return make(arguments[0], options["pattern"].as_py(), ignore_case)

    return match


def _like(operand: Expression, pattern: str, ignore_case: bool) -> Expression:
    return ex.Like(operand, ex.literal(pattern), "\\", ignore_case)


def _affix(function: str, shape: str) -> Callable[[Expression, str, bool], Expression]:
    def make(operand: Expression, text: str, ignore_case: bool) -> Expression:
        if not ignore_case:
            return ex.Call(function, (operand, ex.literal(text)))
        quoted = text.replace("\\", "\\\\").replace("%", "\\%").replace("_", "\\_")
        return _like(operand, shape.format(quoted), ignore_case)

    return make


def _regex(operand: Expression, pattern: str, ignore_case: bool) -> Expression:
    flags = (ex.literal("i"),) if ignore_case else ()
    return ex.Call("regexp_like", (operand, ex.literal(pattern), *flags))


def _list_element(arguments: tuple[Expression, ...], options: dict[str, Any]) -> Expression:
    """Pyarrow counts from 0, SQL from 1."""
    del options
    return ex.Call("array_element", (arguments[0], ex.Call("+", (arguments[1], ex.literal(1)))))


_SPECIAL: Final[dict[str, Callable[..., Expression]]] = {
    "and": lambda arguments, _: ex.And(arguments),
    "or": lambda arguments, _: ex.Or(arguments),
    "and_not": lambda arguments, _: ex.And((arguments[0], ex.Not(arguments[1]))),
    "invert": lambda arguments, _: ex.Not(arguments[0]),
    "is_valid": lambda arguments, _: ex.Not(ex.IsNull(arguments[0])),
    "is_null": _is_null,
    "is_in": _is_in,
    "cast": _cast,
    "if_else": _if_else,
    "match_like": _matcher(_like),
    "match_substring": _matcher(_affix("contains", "%{}%")),
    "starts_with": _matcher(_affix("starts_with", "{}%")),
    "ends_with": _matcher(_affix("ends_with", "%{}")),
    "match_substring_regex": _matcher(_regex),
    "list_element": _list_element,
}


# --- the file's first message ----------------------------------------------------------------

# Field numbers of Arrow's Message.fbs and Schema.fbs.
_MESSAGE_HEADER, _SCHEMA_METADATA, _KEY, _VALUE = 2, 2, 0, 1


def _words(message: bytes) -> Iterator[tuple[str, str]]:
    """Yield the pairs of a schema message's metadata, in order, repeated keys too."""
    (root,) = struct.unpack_from("<I", message, 0)
    schema = _follow(message, root, _MESSAGE_HEADER)
    vector = _follow(message, schema, _SCHEMA_METADATA)
    (count,) = struct.unpack_from("<I", message, vector)
    for index in range(count):
        place = vector + 4 + 4 * index
        pair = place + struct.unpack_from("<I", message, place)[0]
        yield _text(message, pair, _KEY), _text(message, pair, _VALUE)


def _follow(message: bytes, table: int, field: int) -> int:
    """Return where the value of a table's field lies: FlatBuffers keep offsets in a side table."""
    offsets = table - struct.unpack_from("<i", message, table)[0]
    (offset,) = struct.unpack_from("<H", message, offsets + 4 + 2 * field)
    (distance,) = struct.unpack_from("<I", message, table + offset)
    return int(table + offset + distance)


def _text(message: bytes, table: int, field: int) -> str:
    start = _follow(message, table, field)
    (size,) = struct.unpack_from("<I", message, start)
    return message[start + 4 : start + 4 + size].decode()


# --- the other way ---------------------------------------------------------------------------

_BACK: Final[dict[Operator, Callable[[Any, Any], Any]]] = {
    Operator.EQUAL: lambda left, right: left == right,
    Operator.NOT_EQUAL: lambda left, right: left != right,
    Operator.LESS: lambda left, right: left < right,
    Operator.LESS_EQUAL: lambda left, right: left <= right,
    # NaN is greater than every constant: what is not at most one is above it.
    Operator.GREATER: lambda left, right: ~(left <= right),
    Operator.GREATER_EQUAL: lambda left, right: ~(left < right),
}


def to_arrow(expression: Expression) -> pc.Expression | None:
    """Return a bound filter as an expression of pyarrow that is true for the same rows, or None.

    >>> str(to_arrow(ex.Comparison(Operator.LESS, ex.column("a.b"), ex.literal(5))))
    '(FieldRef.Nested(FieldRef.Name(a) FieldRef.Name(b)) < 5)'
    """
    match expression:
        case ex.Column(path):
            return pc.field(*path)
        case ex.Literal(scalar):
            return pc.scalar(scalar)
        case ex.And(operands):
            return _joined(operands, lambda left, right: left & right)
        case ex.Or(operands):
            return _joined(operands, lambda left, right: left | right)
        case ex.Not(operand):
            inner = to_arrow(operand)
            return None if inner is None else ~inner
        case ex.IsNull(operand):
            inner = to_arrow(operand)
            return None if inner is None else inner.is_null()
        case ex.Comparison(operator, ex.Column(path), ex.Literal(scalar)):
            return _comparison(operator, pc.field(*path), scalar)
        case ex.In(ex.Column(path), values) if not values.null_count:
            field = pc.field(*path)
            return pc.if_else(field.is_valid(), field.isin(values), pc.scalar(None))
    return None


def _joined(
    operands: tuple[Expression, ...], join: Callable[[Any, Any], Any]
) -> pc.Expression | None:
    parts = [to_arrow(operand) for operand in operands]
    found = parts[0]
    for part in parts[1:]:
        if found is None or part is None:
            return None
        found = join(found, part)
    return found


def _comparison(
    operator: Operator, field: pc.Expression, scalar: pa.Scalar
) -> pc.Expression | None:
    is_nan = pa.types.is_floating(scalar.type) and scalar.is_valid and isnan(scalar.as_py())
    if operator not in _BACK or pa.types.is_nested(scalar.type) or is_nan:
        return None
    return _BACK[operator](field, pc.scalar(scalar))
