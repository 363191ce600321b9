"""Evaluate bound expressions over batches, column by column.

    batch        a [1, 2, null]        b ["x", "y", "z"]
    a > 1        [false, true, null]
    a > 1 OR b = 'x'        [true, true, null]        (unknown or false is unknown)

Constants remain scalars, and pyarrow kernels compute whole columns. Expressions that can fail
(divisions, casts, arithmetic that may overflow) are evaluated only for rows that need their value:
`b <> 0 AND a / b > 2` never divides by zero.

Floats are compared in total order: all NaN are equal and greater than infinity, and -0.0 equals
0.0.
"""

from __future__ import annotations

import enum
import math
import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, Final, TypeAlias, assert_never

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from lancelet.encodings.arrow import to_numpy
from lancelet.errors import ExpressionError, InvalidInputError
from lancelet.expr import expression as ex
from lancelet.expr.coercion import CoercionError, plain
from lancelet.expr.data_types import is_any_list
from lancelet.expr.expression import Expression, Operator
from lancelet.expr.functions.arithmetic import compute_arithmetic, negate
from lancelet.expr.functions.base import Value, broadcast, constant
from lancelet.expr.functions.casting import cast
from lancelet.expr.functions.registry import FUNCTIONS
from lancelet.expr.strings import are_many_strings, compare_strings, contains
from lancelet.expr.traversal import walk
from lancelet.values import dataclass

Rows: TypeAlias = "pa.RecordBatch | pa.StructArray"
_NUMBERS_MIN: Final = 1024
_WORD_BYTES: Final = np.dtype(np.intp).itemsize
_BLOCK_ROWS: Final = 1 << 15
"""Rows whose temporary arrays fit into the cache."""
_ESCAPED: Final = re.compile(r"[%_\\]")


def evaluate(expression: Expression, rows: Rows) -> pa.Array:
    """Return the value of a bound expression for each row.

    A bare column is returned as stored; computed values have a plain type.
    """
    batch = _Batch.of(rows)
    with _with_expression(expression):
        if isinstance(expression, ex.Column):
            return batch.stored(expression.path)
        return broadcast(_value(expression, batch), batch.num_rows)


@contextmanager
def _with_expression(expression: Expression) -> Iterator[None]:
    """Add the expression to errors of kernels."""
    try:
        yield
    except (pa.ArrowInvalid, CoercionError, OverflowError) as error:
        hint = "; cast to a wider type first" if "overflow" in str(error) else ""
        raise ExpressionError(f"cannot compute {_shortened(expression)}: {error}{hint}") from error
    except pa.ArrowCapacityError as error:
        raise ExpressionError(
            f"a value of {_shortened(expression)} exceeds 2 GiB: {error}"
        ) from error
    except pa.ArrowNotImplementedError as error:
        raise ExpressionError(
            f"cannot compute {_shortened(expression)}: pyarrow has no kernel for it: {error}"
        ) from error


def evaluate_filter(expression: Expression, rows: Rows) -> pa.BooleanArray:
    """Return a mask of the rows for which a bound filter is true, without nulls.

    Operands that can fail are evaluated only for rows that pass all other operands.
    """
    parts = [expression]
    if isinstance(expression, ex.And):
        parts = sorted(expression.operands, key=can_fail)
    batch = _Batch.of(rows)
    mask: pa.BooleanArray | None = None
    for part in parts:
        with _with_expression(part):
            value = _value(part, batch) if mask is None else _where(part, mask, batch)
        passes = broadcast(value, batch.num_rows)
        if passes.null_count:
            passes = pc.fill_null(passes, False)
        mask = passes if mask is None else pc.and_(mask, passes)
    assert mask is not None, "a conjunction requires operands"
    return mask


def project(expressions: Mapping[str, Expression], rows: Rows) -> pa.RecordBatch:
    """Evaluate expressions to a record batch."""
    arrays = [evaluate(expression, rows) for expression in expressions.values()]
    return pa.RecordBatch.from_arrays(arrays, list(expressions))


def can_fail(expression: Expression) -> bool:
    """Return whether evaluating an expression may raise for some values."""
    return any(_node_can_fail(node) for node in walk(expression))


def depends_on_values_only(expression: Expression) -> bool:
    """Return whether equal values always have equal results, and none raises."""
    return not any(_node_can_fail(node) or is_per_row(node) for node in walk(expression))


def is_per_row(node: Expression) -> bool:
    """Return whether a node is a call like `random()`, with another value in each row."""
    return (
        isinstance(node, ex.Call)
        and node.function in FUNCTIONS
        and FUNCTIONS[node.function].per_row
    )


def _node_can_fail(node: Expression) -> bool:
    if isinstance(node, ex.Cast):
        return not node.or_null
    if isinstance(node, ex.Call):
        return node.function not in FUNCTIONS or FUNCTIONS[node.function].can_fail
    return False


def _shortened(expression: Expression) -> str:
    text = str(expression)
    return text if len(text) <= 200 else f"{text[:200]}..."


@dataclass(frozen=True, slots=True)
class _Batch:
    """Columns by name, with `num_rows` rows each."""

    columns: Mapping[str, pa.Array]
    num_rows: int

    @staticmethod
    def of(rows: Rows) -> _Batch:
        if isinstance(rows, pa.RecordBatch):
            names, arrays = rows.schema.names, rows.columns
        else:
            names = [field.name for field in rows.type]
            arrays = rows.flatten()
        return _Batch(dict(zip(names, arrays, strict=True)), len(rows))

    def stored(self, path: tuple[str, ...]) -> pa.Array:
        if path[0] not in self.columns:
            raise InvalidInputError(
                "the batch does not contain a column of the expression",
                column=path[0],
                columns=list(self.columns),
            )
        array = self.columns[path[0]]
        for name in path[1:]:
            array = _storage(array)
            is_map = pa.types.is_map(array.type)
            array = (
                pc.map_lookup(array, name, "first") if is_map else pc.struct_field(array, [name])
            )
        return array

    def where(self, mask: pa.Array) -> _Batch:
        columns = {name: array.filter(mask) for name, array in self.columns.items()}
        return _Batch(columns, pc.sum(mask, min_count=0).as_py())

    def only(self, names: set[str]) -> _Batch:
        return _Batch({name: self.columns[name] for name in names}, self.num_rows)


def _storage(array: pa.Array) -> pa.Array:
    return array.storage if isinstance(array, pa.ExtensionArray) else array


def _plain(value: Value) -> Value:
    """Convert values to the type used for computations."""
    if isinstance(value, pa.ExtensionArray):
        return _plain(value.storage)
    target = plain(value.type)
    if value.type == target:
        return value
    if isinstance(value, pa.DictionaryScalar):
        return _plain(value.value if value.is_valid else pa.scalar(None, value.type.value_type))
    if pa.types.is_dictionary(value.type):
        return _plain(value.cast(value.type.value_type))
    return value.cast(target)


def _value(expression: Expression, batch: _Batch) -> Value:
    match expression:
        case ex.Column(path):
            return _plain(batch.stored(path))
        case ex.Literal(scalar):
            return _plain(scalar)
        case ex.And(operands):
            return _combine_all(operands, batch, pc.and_kleene, deciding=False)
        case ex.Or(operands):
            return _combine_all(operands, batch, pc.or_kleene, deciding=True)
        case ex.Not(operand):
            return pc.invert(_value(operand, batch))
        case ex.IsNull(operand):
            return pc.is_null(_value(operand, batch))
        case ex.IsTrue(operand):
            return pc.fill_null(_value(operand, batch), False)
        case ex.Comparison(operator, left, right):
            return compare(operator, _value(left, batch), _value(right, batch))
        case ex.In(operand, values):
            return _is_in(_value(operand, batch), values)
        case ex.Like():
            sides = _value(expression.operand, batch), _value(expression.pattern, batch)
            return match_like(*sides, expression.escape, ignore_case=expression.ignore_case)
        case ex.Call():
            return _call(expression, batch)
        case ex.Case():
            return _case(expression, batch)
        case ex.Cast(operand, data_type, or_null):
            return cast(_value(operand, batch), data_type, or_null=or_null)
        case ex.Member(operand, name):
            return _plain(pc.struct_field(_value(operand, batch), [name]))
        case _:
            assert_never(expression)


# --- boolean operators -----------------------------------------------------------------------


def _combine_all(
    operands: tuple[Expression, ...],
    batch: _Batch,
    combine: Callable[[Value, Value], Value],
    *,
    deciding: bool,
) -> Value:
    """Combine operands; those that can fail are evaluated only for undecided rows."""
    safe = [operand for operand in operands if not can_fail(operand)]
    risky = [operand for operand in operands if can_fail(operand)]
    result: Value = (ex.FALSE if deciding else ex.TRUE).scalar
    for operand in safe:
        result = combine(result, _value(operand, batch))
    for operand in risky:
        result = _combine_undecided(result, operand, batch, combine, deciding=deciding)
    return result


def _combine_undecided(
    result: Value,
    operand: Expression,
    batch: _Batch,
    combine: Callable[[Value, Value], Value],
    *,
    deciding: bool,
) -> Value:
    if isinstance(result, pa.Scalar):
        decided = result.is_valid and result.as_py() is deciding
        return result if decided else combine(result, _value(operand, batch))
    undecided = pc.fill_null(pc.not_equal(result, deciding), True)
    return combine(result, _where(operand, undecided, batch))


def _where(expression: Expression, mask: pa.Array, batch: _Batch) -> Value:
    """Evaluate an expression for the rows of a mask; the other rows are null."""
    if not can_fail(expression) or pc.all(mask, min_count=0).as_py():
        return _value(expression, batch)
    names = {node.path[0] for node in walk(expression) if isinstance(node, ex.Column)}
    selected = batch.only(names).where(mask) if names else _Batch({}, pc.sum(mask).as_py() or 0)
    if not selected.num_rows:
        # The type is required to combine the result.
        return pa.nulls(batch.num_rows, _value(expression, selected).type)
    return _scatter(broadcast(_value(expression, selected), selected.num_rows), mask)


def _scatter(values: pa.Array, mask: pa.Array) -> pa.Array:
    """Expand values to the rows of a mask, with nulls elsewhere."""
    position = pc.subtract(pc.cumulative_sum(mask.cast(pa.int64())), 1)
    return values.take(pc.if_else(mask, position, pa.scalar(None, pa.int64())))


# --- comparison ------------------------------------------------------------------------------


def compare(operator: Operator, left: Value, right: Value) -> Value:
    """Compare plain values of one type; nulls compare as in SQL, floats in total order."""
    is_ordered = operator not in {Operator.DISTINCT, Operator.NOT_DISTINCT}
    if is_ordered and isinstance(right, pa.Scalar) and right.is_valid and are_many_strings(left):
        return compare_strings(operator, left, right.as_buffer().to_pybytes())
    match operator:
        case Operator.EQUAL:
            return _equal(left, right)
        case Operator.NOT_EQUAL:
            return pc.invert(_equal(left, right))
        case Operator.LESS:
            return pc.invert(_less_equal(right, left))
        case Operator.LESS_EQUAL:
            return _less_equal(left, right)
        case Operator.GREATER:
            return pc.invert(_less_equal(left, right))
        case Operator.GREATER_EQUAL:
            return _less_equal(right, left)
        case Operator.DISTINCT:
            return pc.invert(_not_distinct(left, right))
        case Operator.NOT_DISTINCT:
            return _not_distinct(left, right)
        case _:
            assert_never(operator)


def _equal(left: Value, right: Value) -> Value:
    if pa.types.is_nested(left.type):
        return nested_equal(left, right)
    is_equal = pc.equal(left, right)
    if pa.types.is_floating(left.type) and not (_is_plain_number(left) or _is_plain_number(right)):
        return pc.or_(is_equal, pc.and_(pc.is_nan(left), pc.is_nan(right)))
    return is_equal


def _less_equal(left: Value, right: Value) -> Value:
    is_at_most = pc.less_equal(left, right)
    if pa.types.is_floating(left.type) and not _is_plain_number(right):
        return pc.or_(is_at_most, pc.and_(pc.is_nan(right), pc.is_valid(left)))
    return is_at_most


def _is_plain_number(value: Value) -> bool:
    """Return whether a value is a constant other than null and NaN."""
    if not isinstance(value, pa.Scalar) or not value.is_valid:
        return False
    return not (pa.types.is_floating(value.type) and math.isnan(value.as_py()))


def _not_distinct(left: Value, right: Value) -> Value:
    both_null = pc.and_(pc.is_null(left), pc.is_null(right))
    return pc.or_(both_null, pc.fill_null(_equal(left, right), False))


def _is_in(operand: Value, values: pa.Array) -> Value:
    found = _found_by_number(operand, values)
    if found is not None:
        return found
    if pa.types.is_floating(operand.type):
        # Adding zero converts -0.0, which has a different hash, to 0.0.
        operand, values = pc.add(operand, pa.scalar(0, operand.type)), pc.add(_plain(values), 0)
    is_in = pc.is_in(operand, value_set=_plain(values).drop_null())
    if pa.types.is_floating(operand.type) and pc.any(pc.is_nan(values)).as_py():
        # NaN values with different bits have different hashes.
        is_in = pc.or_(is_in, pc.fill_null(pc.is_nan(operand), False))
    if values.null_count:
        is_in = pc.if_else(is_in, True, pa.nulls(1, pa.bool_())[0])
    return pc.if_else(pc.is_valid(operand), is_in, pa.nulls(1, pa.bool_())[0])


def _found_by_number(operand: Value, values: pa.Array) -> pa.BooleanArray | None:
    """Return whether each integer is one of `values`, or None if their range is too wide.

    Flags of all numbers in the range are looked up, without hashes.
    """
    is_plain = isinstance(operand, pa.Array) and pa.types.is_integer(operand.type)
    if not is_plain or values.type != operand.type or values.null_count or operand.null_count:
        return None
    if not len(values) or len(operand) < _NUMBERS_MIN:
        return None
    numbers, listed = to_numpy(operand), to_numpy(values)
    low = listed.min()
    span = int(listed.max()) - int(low)
    if span >= len(operand):
        return None
    unsigned = np.dtype(f"u{numbers.dtype.itemsize}")
    first = low.view(unsigned)
    flags = np.zeros(span + 2, np.bool_)
    flags[listed.view(unsigned) - first] = True
    beyond = unsigned.type(min(span + 1, np.iinfo(unsigned).max))
    rows = numbers.view(unsigned)
    found = np.empty(len(rows), np.bool_)
    for start in range(0, len(rows), _BLOCK_ROWS):
        slots = rows[start : start + _BLOCK_ROWS] - first  # wraps below the first number
        np.minimum(slots, beyond, out=slots)
        indices = slots.view(np.intp) if slots.itemsize == _WORD_BYTES else slots.astype(np.intp)
        flags.take(indices, out=found[start : start + _BLOCK_ROWS], mode="wrap")
    return pa.array(found)


# --- calls -----------------------------------------------------------------------------------


def _call(call: ex.Call, batch: _Batch) -> Value:
    arguments = [_value(argument, batch) for argument in call.arguments]
    function = FUNCTIONS.get(call.function)
    if function is not None:
        return function.compute(*([batch.num_rows] if function.per_row else arguments))
    if len(arguments) == 1:
        return negate(arguments[0]) if call.function == "-" else pc.bit_wise_not(arguments[0])
    return compute_arithmetic(call.function, *arguments)


def _case(case: ex.Case, batch: _Batch) -> Value:
    """Evaluate a CASE; each branch is evaluated only for rows that no earlier branch matched."""
    remaining = pa.repeat(pa.scalar(True), batch.num_rows)
    conditions: list[pa.Array] = []
    values: list[pa.Array] = []
    for when, then in case.branches:
        is_true = pc.fill_null(_where(when, remaining, batch), False)
        matched = pc.and_(remaining, is_true)
        conditions.append(matched)
        values.append(broadcast(_where(then, matched, batch), batch.num_rows))
        remaining = pc.and_not(remaining, matched)
    values.append(broadcast(_where(case.otherwise, remaining, batch), batch.num_rows))
    return pc.case_when(pc.make_struct(*conditions), *values)


def nested_equal(left: Value, right: Value) -> Value:
    """Return whether lists or structs are equal; null where an operand is null.

    Nulls within lists and structs are equal values:

        [1, 2] = [1, 2]       true        [1, null] = [1, null]      true
        [1]    = [1, 2]       false       null = [1]                 null
    """
    if isinstance(left, pa.Scalar) and isinstance(right, pa.Scalar):
        return nested_equal(pa.array([left], left.type), pa.array([right], right.type))[0]
    num_rows = len(right) if isinstance(left, pa.Scalar) else len(left)
    sides = (broadcast(left, num_rows), broadcast(right, num_rows))
    both = pc.and_(sides[0].is_valid(), sides[1].is_valid())
    return pc.if_else(both, _same(*sides), pa.scalar(None, pa.bool_()))


def _same(left: pa.Array, right: pa.Array) -> pa.Array:
    """Return whether values are equal; nulls are equal to each other, and no result is null."""
    both_null = pc.and_(left.is_null(), right.is_null())
    both_valid = pc.and_(left.is_valid(), right.is_valid())
    return pc.or_(both_null, pc.and_(both_valid, pc.fill_null(_same_valid(left, right), False)))


def _same_valid(left: pa.Array, right: pa.Array) -> pa.Array:
    if pa.types.is_struct(left.type):
        return _same_structs(left, right)
    if is_any_list(left.type):
        return _same_lists(left, right)
    if pa.types.is_nested(left.type):
        raise CoercionError(f"values of type {left.type} cannot be compared")
    sides = [side.cast(plain(side.type)) for side in (left, right)]
    is_equal = pc.equal(*sides)
    if pa.types.is_floating(sides[0].type):
        is_equal = pc.or_(is_equal, pc.and_(pc.is_nan(sides[0]), pc.is_nan(sides[1])))
    return is_equal


def _same_structs(left: pa.Array, right: pa.Array) -> pa.Array:
    is_equal = pa.repeat(pa.scalar(True), len(left))
    for child, other_child in zip(left.flatten(), right.flatten(), strict=True):
        is_equal = pc.and_(is_equal, _same(child, other_child))
    return is_equal


def _same_lists(left: pa.Array, right: pa.Array) -> pa.Array:
    """Compare lists of equal length by the running count of differing items in a flat array."""
    lengths = [
        pc.fill_null(pc.list_value_length(side), -1).cast(pa.int64()) for side in (left, right)
    ]
    comparable = pc.and_(pc.equal(*lengths), pc.greater_equal(lengths[0], 0))
    items = [side.filter(comparable).flatten() for side in (left, right)]
    differs = pc.invert(_same(*items)).cast(pa.int64())
    total = _running_total(differs)
    stops = _running_total(lengths[0].filter(comparable))
    per_row = pc.subtract(total.take(stops[1:]), total.take(stops[:-1]))
    position = pc.subtract(pc.cumulative_sum(comparable.cast(pa.int64())), 1)
    differences = per_row.take(pc.if_else(comparable, position, pa.scalar(None, pa.int64())))
    return pc.fill_null(pc.equal(differences, 0), False)


def _running_total(counts: pa.Array) -> Any:
    """Return the cumulative sum with a leading 0."""
    zero = pa.array([0], pa.int64())
    return pa.concat_arrays([zero, pc.cumulative_sum(counts)])


def match_like(values: Value, pattern: Value, escape: str, *, ignore_case: bool) -> Value:
    r"""Return whether strings or byte strings match a constant LIKE pattern.

    `%` matches any sequence of characters, `_` any one character:

        'a%'          starts with a            'a\%'     the text a%
        'a!%' ESCAPE '!'                       the text a% too
    """
    text = constant(pattern, "the pattern of LIKE")
    if text is None:
        return pa.scalar(None, pa.bool_())
    if isinstance(text, bytes):
        text = text.decode("utf-8", "surrogateescape")
    like = like_parts(text, escape)
    if len(like) == 3 and not ignore_case and are_many_strings(values):
        before, part, after = like
        if before is after is Wildcard.ANY and isinstance(part, str):
            return contains(values, part.encode("utf-8", "surrogateescape"))
    return pc.match_like(values, with_backslashes(text, escape), ignore_case=ignore_case)


class Wildcard(enum.Enum):
    """A wildcard of a LIKE pattern."""

    ANY = "%"
    ONE = "_"


def like_parts(pattern: str, escape: str) -> list[str | Wildcard]:
    r"""Split a LIKE pattern into literals and wildcards; `%%` is one wildcard.

    An escape character at the end of the pattern is a literal.

    >>> like_parts("10!%_%%", "!")
    ['10%', <Wildcard.ONE: '_'>, <Wildcard.ANY: '%'>]
    """
    parts: list[str | Wildcard] = []
    characters = iter(pattern)
    for character in characters:
        is_wildcard = character in "%_" and character != escape
        part = next(characters, escape) if character == escape else character
        last = parts[-1] if parts else None
        if is_wildcard:
            if character == "_" or last is not Wildcard.ANY:
                parts.append(Wildcard(character))
        elif isinstance(last, str):
            parts[-1] = last + part
        else:
            parts.append(part)
    return parts


def with_backslashes(pattern: str, escape: str) -> str:
    r"""Rewrite a LIKE pattern to use the backslash as its escape character.

    >>> with_backslashes("10!% of \\_", "!")
    '10\\% of \\\\_'
    """
    return "".join(
        _ESCAPED.sub(r"\\\g<0>", part) if isinstance(part, str) else part.value
        for part in like_parts(pattern, escape)
    )


def literal_prefix(pattern: str, escape: str) -> tuple[str, bool]:
    r"""Return the literal prefix of a LIKE pattern and whether it is the whole pattern.

    >>> literal_prefix("ab%c", "\\"), literal_prefix("a\\%b", "\\")
    (('ab', False), ('a%b', True))
    """
    match like_parts(pattern, escape):
        case []:
            return "", True
        case [str(prefix), *rest]:
            return prefix, not rest
        case _:
            return "", False
