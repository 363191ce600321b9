r"""Computing bound expressions over batches, a column at a time.

    batch        a [1, 2, null]        b ["x", "y", "z"]
    a > 1        [false, true, null]
    a > 1 OR b = 'x'        [true, true, null]        (unknown or false is unknown)

Constants stay scalars until the end, kernels of pyarrow do the work, and no Python loop runs
over rows. An expression that can fail (a division, a cast, arithmetic that may overflow) is
computed only for rows whose value matters: `b <> 0 AND a / b > 2` never divides by zero.

Floats compare in total order: all NaN are one value, greater than infinity, and -0.0 is 0.0.

Equality of lists and structs, row by row, without a Python loop.

    [1, 2] = [1, 2]       true        [1, null] = [1, null]      true: inside, nulls are values
    [1]    = [1, 2]       false       null = [1]                 null

Lists of equal length are laid end to end and their items compared at once; a running sum of
the differences then says in which rows there is one.

LIKE: patterns of `%` (any run of characters) and `_` (any one).

    'a%'          starts with a            'a\%'     the text a%
    'a!%' ESCAPE '!'                       the text a% too

Patterns reach Arrow's kernel with the backslash as their escape, whatever it was.
"""

from __future__ import annotations

import enum
import math
import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, Final, TypeAlias, assert_never

import pyarrow as pa
import pyarrow.compute as pc

from lancelet.errors import ExpressionError, InvalidInputError
from lancelet.query import expression as ex
from lancelet.query.coercion import CoercionError, plain
from lancelet.query.data_types import is_any_list
from lancelet.query.expression import Expression, Operator
from lancelet.query.functions.arithmetic import compute_arithmetic, negate
from lancelet.query.functions.base import Value, constant, spread
from lancelet.query.functions.casting import cast
from lancelet.query.functions.registry import FUNCTIONS
from lancelet.query.traversal import walk
from lancelet.values import dataclass

Rows: TypeAlias = "pa.RecordBatch | pa.StructArray"
_ESCAPED: Final = re.compile(r"[%_\\]")


def evaluate(expression: Expression, rows: Rows) -> pa.Array:
    """Return the value of a bound expression for each row.

    A bare column comes back as it is stored; anything computed is in a plain layout.
    """
    batch = _Batch.of(rows)
    with _explained(expression):
        if isinstance(expression, ex.Column):
            return batch.stored(expression.path)
        return spread(_value(expression, batch), batch.num_rows)


@contextmanager
def _explained(expression: Expression) -> Iterator[None]:
    """Turn errors of kernels into errors that name the expression."""
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
    """Return which rows a bound filter keeps: those where it is true, so there is no null.

    Parts that can fail are computed only for rows that every other part keeps.
    """
    parts = [expression]
    if isinstance(expression, ex.And):
        parts = sorted(expression.operands, key=can_fail)
    batch = _Batch.of(rows)
    kept: pa.BooleanArray | None = None
    for part in parts:
        with _explained(part):
            value = _value(part, batch) if kept is None else _where(part, kept, batch)
        truth = spread(value, batch.num_rows)
        if truth.null_count:
            truth = pc.fill_null(truth, False)
        kept = truth if kept is None else pc.and_(kept, truth)
    assert kept is not None, "a conjunction has parts"
    return kept


def project(expressions: Mapping[str, Expression], rows: Rows) -> pa.RecordBatch:
    """Return a batch of computed columns, in order."""
    arrays = [evaluate(expression, rows) for expression in expressions.values()]
    return pa.RecordBatch.from_arrays(arrays, list(expressions))


def can_fail(expression: Expression) -> bool:
    """Whether computing an expression may raise for some values."""
    return any(_node_can_fail(node) for node in walk(expression))


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
    """Columns by name, all of `num_rows` rows."""

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
                "the batch lacks a column that the expression reads",
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
        """Return the rows where a mask is true."""
        kept = {name: array.filter(mask) for name, array in self.columns.items()}
        return _Batch(kept, pc.sum(mask, min_count=0).as_py())

    def only(self, names: set[str]) -> _Batch:
        return _Batch({name: self.columns[name] for name in names}, self.num_rows)


def _storage(array: pa.Array) -> pa.Array:
    return array.storage if isinstance(array, pa.ExtensionArray) else array


def _plain(value: Value) -> Value:
    """Return values in the layout they are computed in."""
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
            return _junction(operands, batch, pc.and_kleene, settled=False)
        case ex.Or(operands):
            return _junction(operands, batch, pc.or_kleene, settled=True)
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


# --- truth -----------------------------------------------------------------------------------


def _junction(
    operands: tuple[Expression, ...],
    batch: _Batch,
    combine: Callable[[Value, Value], Value],
    *,
    settled: bool,
) -> Value:
    """Combine truth values; operands that can fail see only rows that are not settled yet."""
    safe = [operand for operand in operands if not can_fail(operand)]
    risky = [operand for operand in operands if can_fail(operand)]
    found: Value = (ex.FALSE if settled else ex.TRUE).scalar
    for operand in safe:
        found = combine(found, _value(operand, batch))
    for operand in risky:
        found = _combine_open(found, operand, batch, combine, settled=settled)
    return found


def _combine_open(
    found: Value,
    operand: Expression,
    batch: _Batch,
    combine: Callable[[Value, Value], Value],
    *,
    settled: bool,
) -> Value:
    if isinstance(found, pa.Scalar):
        decided = found.is_valid and found.as_py() is settled
        return found if decided else combine(found, _value(operand, batch))
    still_open = pc.fill_null(pc.not_equal(found, settled), True)
    return combine(found, _where(operand, still_open, batch))


def _where(expression: Expression, mask: pa.Array, batch: _Batch) -> Value:
    """Compute an expression for the rows of a mask, and null for the others."""
    if not can_fail(expression) or pc.all(mask, min_count=0).as_py():
        return _value(expression, batch)
    names = {node.path[0] for node in walk(expression) if isinstance(node, ex.Column)}
    some = batch.only(names).where(mask) if names else _Batch({}, pc.sum(mask).as_py() or 0)
    if not some.num_rows:
        # The type still matters to whoever combines the result.
        return pa.nulls(batch.num_rows, _value(expression, some).type)
    return _scatter(spread(_value(expression, some), some.num_rows), mask)


def _scatter(values: pa.Array, mask: pa.Array) -> pa.Array:
    """Put values at the rows of a mask, in order, and nulls elsewhere."""
    position = pc.subtract(pc.cumulative_sum(mask.cast(pa.int64())), 1)
    return values.take(pc.if_else(mask, position, pa.scalar(None, pa.int64())))


# --- comparing -------------------------------------------------------------------------------


def compare(operator: Operator, left: Value, right: Value) -> Value:
    """Compare plain values of one type, nulls by SQL's rules and floats in total order."""
    match operator:
        case Operator.EQUAL:
            return _equal(left, right)
        case Operator.NOT_EQUAL:
            return pc.invert(_equal(left, right))
        case Operator.LESS:
            return pc.invert(_at_most(right, left))
        case Operator.LESS_EQUAL:
            return _at_most(left, right)
        case Operator.GREATER:
            return pc.invert(_at_most(left, right))
        case Operator.GREATER_EQUAL:
            return _at_most(right, left)
        case Operator.DISTINCT:
            return pc.invert(_not_distinct(left, right))
        case Operator.NOT_DISTINCT:
            return _not_distinct(left, right)
        case _:
            assert_never(operator)


def _equal(left: Value, right: Value) -> Value:
    if pa.types.is_nested(left.type):
        return nested_equal(left, right)
    found = pc.equal(left, right)
    if pa.types.is_floating(left.type) and not (_is_plain_number(left) or _is_plain_number(right)):
        return pc.or_(found, pc.and_(pc.is_nan(left), pc.is_nan(right)))
    return found


def _at_most(left: Value, right: Value) -> Value:
    found = pc.less_equal(left, right)
    if pa.types.is_floating(left.type) and not _is_plain_number(right):
        return pc.or_(found, pc.and_(pc.is_nan(right), pc.is_valid(left)))
    return found


def _is_plain_number(value: Value) -> bool:
    """Whether this is a constant that NaN can never equal nor be below."""
    if not isinstance(value, pa.Scalar) or not value.is_valid:
        return False
    return not (pa.types.is_floating(value.type) and math.isnan(value.as_py()))


def _not_distinct(left: Value, right: Value) -> Value:
    both_null = pc.and_(pc.is_null(left), pc.is_null(right))
    return pc.or_(both_null, pc.fill_null(_equal(left, right), False))


def _is_in(operand: Value, values: pa.Array) -> Value:
    if pa.types.is_floating(operand.type):
        # Adding zero turns -0.0 into 0.0, which hash apart.
        operand, values = pc.add(operand, pa.scalar(0, operand.type)), pc.add(_plain(values), 0)
    found = pc.is_in(operand, value_set=_plain(values).drop_null())
    if pa.types.is_floating(operand.type) and pc.any(pc.is_nan(values)).as_py():
        # NaN of other bits hash apart too.
        found = pc.or_(found, pc.fill_null(pc.is_nan(operand), False))
    if values.null_count:
        found = pc.if_else(found, True, pa.nulls(1, pa.bool_())[0])
    return pc.if_else(pc.is_valid(operand), found, pa.nulls(1, pa.bool_())[0])


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
    """Choose between branches; each is computed for the rows that no earlier branch took."""
    remaining = pa.repeat(pa.scalar(True), batch.num_rows)
    conditions: list[pa.Array] = []
    values: list[pa.Array] = []
    for when, then in case.branches:
        holds = pc.fill_null(_where(when, remaining, batch), False)
        taken = pc.and_(remaining, holds)
        conditions.append(taken)
        values.append(spread(_where(then, taken, batch), batch.num_rows))
        remaining = pc.and_not(remaining, taken)
    values.append(spread(_where(case.otherwise, remaining, batch), batch.num_rows))
    return pc.case_when(pc.make_struct(*conditions), *values)


def nested_equal(left: Value, right: Value) -> Value:
    """Return whether lists or structs are equal; null where one of the two is null."""
    if isinstance(left, pa.Scalar) and isinstance(right, pa.Scalar):
        return nested_equal(pa.array([left], left.type), pa.array([right], right.type))[0]
    num_rows = len(right) if isinstance(left, pa.Scalar) else len(left)
    sides = (spread(left, num_rows), spread(right, num_rows))
    both = pc.and_(sides[0].is_valid(), sides[1].is_valid())
    return pc.if_else(both, _same(*sides), pa.scalar(None, pa.bool_()))


def _same(left: pa.Array, right: pa.Array) -> pa.Array:
    """Return whether values are the same, two nulls too; never null."""
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
    found = pc.equal(*sides)
    if pa.types.is_floating(sides[0].type):
        found = pc.or_(found, pc.and_(pc.is_nan(sides[0]), pc.is_nan(sides[1])))
    return found


def _same_structs(left: pa.Array, right: pa.Array) -> pa.Array:
    found = pa.repeat(pa.scalar(True), len(left))
    for one, other in zip(left.flatten(), right.flatten(), strict=True):
        found = pc.and_(found, _same(one, other))
    return found


def _same_lists(left: pa.Array, right: pa.Array) -> pa.Array:
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
    spread = per_row.take(pc.if_else(comparable, position, pa.scalar(None, pa.int64())))
    return pc.fill_null(pc.equal(spread, 0), False)


def _running_total(counts: pa.Array) -> Any:
    """Return the totals before each element and after the last: one more than there are."""
    zero = pa.array([0], pa.int64())
    return pa.concat_arrays([zero, pc.cumulative_sum(counts)])


def match_like(values: Value, pattern: Value, escape: str, *, ignore_case: bool) -> Value:
    """Return whether texts or byte strings match a constant pattern."""
    wanted = constant(pattern, "the pattern of LIKE")
    if wanted is None:
        return pa.scalar(None, pa.bool_())
    if isinstance(wanted, bytes):
        wanted = wanted.decode("utf-8", "surrogateescape")
    return pc.match_like(values, with_backslashes(wanted, escape), ignore_case=ignore_case)


class Wildcard(enum.Enum):
    """A wildcard of a LIKE pattern."""

    ANY = "%"
    ONE = "_"


def like_parts(pattern: str, escape: str) -> list[str | Wildcard]:
    r"""Return the literals and wildcards of a LIKE pattern; `%%` is one wildcard.

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
    r"""Return a pattern that means the same with the backslash as its escape.

    >>> with_backslashes("10!% of \\_", "!")
    '10\\% of \\\\_'
    """
    return "".join(
        _ESCAPED.sub(r"\\\g<0>", part) if isinstance(part, str) else part.value
        for part in like_parts(pattern, escape)
    )


def literal_prefix(pattern: str, escape: str) -> tuple[str, bool]:
    r"""Return the text that every match starts with, and whether that is the whole pattern.

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
