"""Equality of lists and structs, row by row, without a Python loop.

    [1, 2] = [1, 2]       true        [1, null] = [1, null]      true: inside, nulls are values
    [1]    = [1, 2]       false       null = [1]                 null

Lists of equal length are laid end to end and their items compared at once; a running sum of
the differences then says in which rows there is one.
"""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from lancelet.query.coercion import CoercionError, plain
from lancelet.query.functions.base import Value, spread
from lancelet.query.kinds import is_any_list


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
