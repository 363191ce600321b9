"""Convert pyarrow expressions to filters and back.

A pyarrow expression has no public structure, but it can be pickled. The pickle contains an Arrow
file: constants and options are its columns, and the tree is stored in the metadata of its schema.

    pc.field("a") > 5       call: greater   field_ref: a   literal: 0   end: greater
                            column 0: [5]

This preserves all types and functions. Substrait, the alternative, cannot represent nanoseconds,
durations, casts, LIKE or vector types. pyarrow does not expose repeated metadata keys, so they are
parsed from the first message of the file, whose layout Arrow specifies.

Operators have the semantics of this package: floats are compared in total order, not by IEEE rules.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator
from math import isnan
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc

from lancelet.errors import ExpressionError, UnsupportedError
from lancelet.expr import expression as ex
from lancelet.expr.expression import Expression, Operator

_FILE_MAGIC_BYTES: Final = 8


class ArrowExpressionError(
    ExpressionError,
    pa.ArrowInvalid,  # type: ignore[misc]  # pyarrow has no types
    pa.ArrowNotImplementedError,  # type: ignore[misc]  # the same
):
    """A pyarrow expression does not match the columns: unknown name or wrong type.

    The reference binds it with pyarrow first, which raises a different error for each.
    """


def from_arrow(expression: pc.Expression) -> Expression:
    """Convert a pyarrow expression to an unbound expression.

    >>> str(from_arrow((pc.field("a") > 5) & pc.field("s", "x").is_valid()))
    'a > 5 AND s.x IS NOT NULL'
    """
    try:
        buffer = pa.py_buffer(expression.__reduce__()[1][0])
    except pa.ArrowNotImplementedError as error:
        raise ExpressionError(
            f"columns must be referenced by name, as in pc.field('a'): {error}"
        ) from error
    tokens = _metadata_pairs(
        pa.ipc.read_message(buffer.slice(_FILE_MAGIC_BYTES)).metadata.to_pybytes()
    )
    constants = pa.ipc.open_file(buffer).get_batch(0)
    return _Parser(tokens, constants).expression(next(tokens))


class _Parser:
    """Parses the tree from its tokens: calls, arguments, options and end markers."""

    def __init__(self, tokens: Iterator[tuple[str, str]], constants: pa.RecordBatch) -> None:
        self.tokens = tokens
        self.constants = constants

    def expression(self, token: tuple[str, str]) -> Expression:
        match token:
            case "literal", index:
                return ex.Literal(self.constants.column(int(index))[0])
            case "field_ref", name:
                return ex.Column((name,))
            case "nested_field_ref", count:
                return ex.Column(tuple(next(self.tokens)[1] for _ in range(int(count))))
            case "call", function:
                return self._call(function)
        raise UnsupportedError(
            "unsupported expression format of this pyarrow release; write the filter as SQL",
            word=token[0],
            pyarrow=pa.__version__,
        )

    def _call(self, function: str) -> Expression:
        arguments: list[Expression] = []
        options: dict[str, Any] = {}
        for token in self.tokens:
            if token[0] == "end":
                break
            if token[0] == "options":
                scalar = self.constants.column(int(token[1]))[0]
                options = {field.name: scalar[field.name] for field in scalar.type}
            else:
                arguments.append(self.expression(token))
        return _convert_call(function, tuple(arguments), options)


# --- functions -------------------------------------------------------------------------------

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


def _convert_call(
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
        "unsupported pyarrow function in a filter; write the filter as SQL",
        function=function,
    )


def _is_null(arguments: tuple[Expression, ...], options: dict[str, Any]) -> Expression:
    null = ex.IsNull(arguments[0])
    if "nan_is_null" in options and options["nan_is_null"].as_py():
        return ex.Or((null, ex.Call("isnan", arguments)))
    return null


def _is_in(arguments: tuple[Expression, ...], options: dict[str, Any]) -> Expression:
    """Convert `is_in`: pyarrow matches nulls in the list and returns false for null operands."""
    values: pa.Array = options["value_set"].values
    behavior = options["null_matching_behavior"].as_py()
    if behavior not in {_MATCH_NULLS, _SKIP_NULLS}:
        raise UnsupportedError("unsupported null matching behavior of is_in", behavior=behavior)
    matches = ex.IsTrue(ex.In(arguments[0], values.drop_null()))
    if behavior == _MATCH_NULLS and values.null_count:
        return ex.Or((matches, ex.IsNull(arguments[0])))
    return matches


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
    """Convert `list_element`: pyarrow indices start at 0, SQL indices at 1."""
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


# --- first message of the file ---------------------------------------------------------------

# Field numbers in Message.fbs and Schema.fbs of Arrow.
_MESSAGE_HEADER, _SCHEMA_METADATA, _KEY, _VALUE = 2, 2, 0, 1


def _metadata_pairs(message: bytes) -> Iterator[tuple[str, str]]:
    """Yield the metadata pairs of a schema message in order, including repeated keys."""
    (root,) = struct.unpack_from("<I", message, 0)
    schema = _follow(message, root, _MESSAGE_HEADER)
    vector = _follow(message, schema, _SCHEMA_METADATA)
    (count,) = struct.unpack_from("<I", message, vector)
    for index in range(count):
        position = vector + 4 + 4 * index
        pair = position + struct.unpack_from("<I", message, position)[0]
        yield _text(message, pair, _KEY), _text(message, pair, _VALUE)


def _follow(message: bytes, table: int, field: int) -> int:
    """Return the position of a field value, resolved through the FlatBuffers vtable."""
    offsets = table - struct.unpack_from("<i", message, table)[0]
    (offset,) = struct.unpack_from("<H", message, offsets + 4 + 2 * field)
    (distance,) = struct.unpack_from("<I", message, table + offset)
    return int(table + offset + distance)


def _text(message: bytes, table: int, field: int) -> str:
    start = _follow(message, table, field)
    (size,) = struct.unpack_from("<I", message, start)
    return message[start + 4 : start + 4 + size].decode()


# --- to pyarrow ------------------------------------------------------------------------------

_ARROW_OPERATORS: Final[dict[Operator, Callable[[Any, Any], Any]]] = {
    Operator.EQUAL: lambda left, right: left == right,
    Operator.NOT_EQUAL: lambda left, right: left != right,
    Operator.LESS: lambda left, right: left < right,
    Operator.LESS_EQUAL: lambda left, right: left <= right,
    # NaN is greater than every constant, so "greater" is the negation of "less or equal".
    Operator.GREATER: lambda left, right: ~(left <= right),
    Operator.GREATER_EQUAL: lambda left, right: ~(left < right),
}


def to_arrow(expression: Expression) -> pc.Expression | None:
    """Convert a bound filter to a pyarrow expression that is true for the same rows, or None.

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
    joined = parts[0]
    for part in parts[1:]:
        if joined is None or part is None:
            return None
        joined = join(joined, part)
    return joined


def _comparison(
    operator: Operator, field: pc.Expression, scalar: pa.Scalar
) -> pc.Expression | None:
    is_nan = pa.types.is_floating(scalar.type) and scalar.is_valid and isnan(scalar.as_py())
    if operator not in _ARROW_OPERATORS or pa.types.is_nested(scalar.type) or is_nan:
        return None
    return _ARROW_OPERATORS[operator](field, pc.scalar(scalar))
