"""Vectorized list functions, computed on the flattened items of all lists.

    lists    [1, 2]  []  null  [3]        items [1 2 3]      stops [2 2 2 3]
    array_has(lists, 1)      hits [1 0 0] -> running total 0 1 1 1 -> true false null false

Positions count from 1, negative ones from the end; positions out of range return null.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from lancelet.buffers import Int64s
from lancelet.expr.coercion import CoercionError, common_type, plain
from lancelet.expr.data_types import is_any_list
from lancelet.expr.functions.base import (
    Function,
    Value,
    a_list,
    anything,
    constant,
    integer,
    on_arrays,
    per_distinct,
    printable,
)


def items_of(lists: pa.Array) -> pa.Array:
    """Return the flattened items of all lists, in their plain type."""
    flat = lists.flatten()
    storage = flat.storage if isinstance(flat, pa.ExtensionArray) else flat
    return storage.cast(plain(storage.type))


def bounds_of(lists: pa.Array) -> tuple[pa.Array, pa.Array]:
    """Return the start and stop of each list in `items_of`."""
    lengths = pc.fill_null(pc.list_value_length(lists), 0).cast(pa.int64())
    stops = pc.cumulative_sum(lengths)
    return pc.subtract(stops, lengths), stops


def _counts(lists: pa.Array, hits: pa.Array) -> pa.Array:
    """Return the number of hits per list, null for null lists."""
    zero = pa.array([0], pa.int64())
    totals = pa.concat_arrays([zero, pc.cumulative_sum(pc.fill_null(hits, False).cast(pa.int64()))])
    starts, stops = bounds_of(lists)
    counts = pc.subtract(totals.take(stops), totals.take(starts))
    return pc.if_else(lists.is_valid(), counts, pa.scalar(None, pa.int64()))


def _row_of_item(lists: pa.Array) -> pa.Array:
    """Return the row of each item; unlike Arrow's kernel, without items of null lists."""
    lengths = pc.fill_null(pc.list_value_length(lists), 0).to_numpy(zero_copy_only=False)
    return pa.array(np.repeat(np.arange(len(lists)), lengths))


@on_arrays
def _length(lists: pa.Array) -> pa.Array:
    return pc.list_value_length(lists).cast(pa.uint64())


@on_arrays
def _is_empty(lists: pa.Array) -> pa.Array:
    return pc.equal(pc.list_value_length(lists), 0)


@on_arrays
def _has(lists: pa.Array, values: pa.Array) -> pa.Array:
    hits = pc.equal(items_of(lists), values.take(_row_of_item(lists)))
    found = pc.greater(_counts(lists, hits), 0)
    return pc.if_else(values.is_valid(), found, pa.scalar(None, pa.bool_()))


def _has_any(lists: Value, items: Value) -> Value:
    values = _constant_items(items)
    if values is None:
        return pa.scalar(None, pa.bool_())
    return _any_of(lists, values)


def _any_of(lists: Value, values: pa.Array) -> Value:
    @on_arrays
    def compute(arrays: pa.Array) -> pa.Array:
        hits = pc.is_in(items_of(arrays), value_set=values)
        return pc.greater(_counts(arrays, hits), 0)

    return compute(lists)


def _has_all(lists: Value, items: Value) -> Value:
    values = _constant_items(items)
    if values is None:
        return pa.scalar(None, pa.bool_())
    found: Value = pc.fill_null(pc.is_valid(lists), True)
    found = pc.if_else(found, True, pa.scalar(None, pa.bool_()))
    for value in values.unique():
        found = pc.and_(found, _any_of(lists, pa.array([value], values.type)))
    return found


def _constant_items(items: Value) -> pa.Array | None:
    if not isinstance(items, pa.Scalar):
        raise CoercionError("the searched items must be a constant list")
    if not items.is_valid:
        return None
    return items_of(pa.array([items], items.type))


@on_arrays
def element_at(lists: pa.Array, position: pa.Array) -> pa.Array:
    """Return the items at positions, which count from 1, or from the end if negative."""
    starts, stops = bounds_of(lists)
    forward = pc.add(starts, pc.subtract(position, 1))
    index = pc.if_else(pc.less(position, 0), pc.add(stops, position), forward)
    inside = pc.and_(pc.greater_equal(index, starts), pc.less(index, stops))
    inside = pc.and_(pc.fill_null(inside, False), pc.not_equal(pc.fill_null(position, 0), 0))
    return lists.flatten().take(pc.if_else(inside, index, pa.scalar(None, pa.int64())))


@on_arrays
def _position(lists: pa.Array, values: pa.Array) -> pa.Array:
    """Return the first position of an item, counted from 1."""
    rows = _row_of_item(lists)
    hits = pc.fill_null(pc.equal(items_of(lists), values.take(rows)), False)
    starts, _ = bounds_of(lists)
    hit_indices = pc.indices_nonzero(hits).cast(pa.int64())
    hit_rows = rows.take(hit_indices)
    within = pc.add(pc.subtract(hit_indices, starts.take(hit_rows)), 1)
    return _reduced(within, hit_rows, len(lists), "min").cast(pa.uint64())


def _extreme(kind: str) -> Callable[..., Value]:
    @on_arrays
    def compute(lists: pa.Array) -> pa.Array:
        return _reduced(items_of(lists), _row_of_item(lists), len(lists), kind)

    return compute


def _reduced(values: pa.Array, rows: pa.Array, num_rows: int, kind: str) -> pa.Array:
    """Return the minimum or maximum per row, null for rows without values."""
    table = pa.table({"row": rows.cast(pa.int64()), "value": values})
    grouped = table.group_by("row").aggregate([("value", kind)])
    found = grouped.column(f"value_{kind}").combine_chunks()
    every = pa.array(np.arange(num_rows))
    where = pc.index_in(every, value_set=grouped.column("row").combine_chunks())
    return found.take(where)


def _to_string(lists: Value, separator: Value, null: Value | None = None) -> Value:
    between = constant(separator, "the separator")
    for_null = None if null is None else constant(null, "the text for null")
    if between is None:
        return pa.scalar(None, pa.string())

    @on_arrays
    def compute(arrays: pa.Array) -> pa.Array:
        texts = arrays.cast(pa.list_(pa.string()))
        if for_null is not None:
            _, stops = bounds_of(texts)
            offsets = pa.concat_arrays([pa.array([0], pa.int64()), stops]).cast(pa.int32())
            items = pc.fill_null(texts.flatten(), for_null)
            texts = pa.ListArray.from_arrays(offsets, items)
        is_valid = pc.is_valid(texts.flatten())
        counts = pc.fill_null(_counts(texts, is_valid), 0)
        offsets = pa.concat_arrays([pa.array([0], pa.int64()), pc.cumulative_sum(counts)])
        without_nulls = pa.ListArray.from_arrays(
            offsets.cast(pa.int32()), texts.flatten().filter(is_valid)
        )
        joined = pc.binary_join(without_nulls, between)
        return pc.if_else(arrays.is_valid(), joined, pa.scalar(None, pa.string()))

    return compute(lists)


def _list_or_null(data_type: pa.DataType) -> pa.DataType | None:
    return pa.list_(pa.null()) if pa.types.is_null(data_type) else a_list(data_type)


@on_arrays
def _slice(
    lists: pa.Array, begin: pa.Array, end: pa.Array, stride: pa.Array | None = None
) -> pa.Array:
    """Return the items between two positions, both inclusive, with a stride."""
    steps = pa.repeat(pa.scalar(1, pa.int64()), len(lists)) if stride is None else stride
    present = lists.is_valid()
    for argument in (begin, end, steps):
        present = pc.and_(present, argument.is_valid())
    step = _numbers(steps, 1)
    if not step.all():
        raise CoercionError("the stride of a slice must not be 0")
    starts, _ = bounds_of(lists)
    lengths = _numbers(pc.list_value_length(lists).cast(pa.int64()), 0)
    first_, last = (
        np.where(each < 0, each + lengths, np.maximum(each - 1, 0))
        for each in (_numbers(begin, 1), _numbers(end, 0))
    )
    last = np.where(_numbers(end, 0) == 0, -1, last)
    first_ = np.maximum(first_, 0)
    last = np.where(step > 0, np.minimum(last, lengths - 1), np.maximum(last, 0))
    distances = np.where(step > 0, last - first_, first_ - last)
    counts = np.where((first_ < lengths) & (distances >= 0), distances // np.abs(step) + 1, 0)
    counts = np.where(present.to_numpy(zero_copy_only=False), counts, 0)
    stops = np.cumsum(counts)
    within = np.arange(stops[-1] if len(stops) else 0) - np.repeat(stops - counts, counts)
    index = np.repeat(starts.to_numpy() + first_, counts) + within * np.repeat(step, counts)
    offsets = pa.array(np.append(0, stops), pa.int32())
    items = lists.flatten().take(pa.array(index))
    sliced = pa.ListArray.from_arrays(offsets, items)
    return pc.if_else(present, sliced, pa.scalar(None, sliced.type))


def _numbers(values: pa.Array, fill_value: int) -> Int64s:
    found: Int64s = pc.fill_null(values, fill_value).to_numpy(zero_copy_only=False).astype(np.int64)
    return found


@on_arrays
def _make(*items: pa.Array) -> pa.Array:
    count, num_rows = len(items), len(items[0])
    order = np.arange(count * num_rows).reshape(count, num_rows).T.ravel()
    values = pa.concat_arrays(items).take(pa.array(order))
    return pa.FixedSizeListArray.from_arrays(values, count).cast(pa.list_(values.type))


# --- types -----------------------------------------------------------------------------------


def _item(types: Sequence[pa.DataType]) -> pa.DataType:
    return plain(types[0].value_type)


class _WithItem(Function):
    """A function of a list and a value or list, with a common item type."""

    __slots__ = ()

    def signature(
        self, types: Sequence[pa.DataType]
    ) -> tuple[tuple[pa.DataType, ...], pa.DataType]:
        """Return the argument types with the common item type, and the result type."""
        converted, gives = super().signature(types)
        items, item = plain(converted[0].value_type), converted[1]
        inner = plain(item.value_type) if is_any_list(item) else item
        shared = common_type(items, inner)
        lists = converted[0] if shared == items else pa.large_list(shared)
        return (lists, pa.list_(shared) if is_any_list(item) else shared), gives


def _halved(types: Sequence[pa.DataType]) -> pa.DataType:
    lists = types[0]
    if pa.types.is_fixed_size_list(lists):
        return pa.list_(pa.float16(), lists.list_size)
    return pa.list_(pa.float16())


@on_arrays
def _to_halves(lists: pa.Array) -> pa.Array:
    return lists.cast(_halved([lists.type]))


LIST_FUNCTIONS: Final = (
    Function(("_cast_list_f16",), (a_list,), _halved, _to_halves),
    Function(("array_length", "list_length", "cardinality"), (a_list,), pa.uint64(), _length),
    Function(("empty", "array_empty", "list_empty"), (a_list,), pa.bool_(), _is_empty),
    _WithItem(
        ("array_has", "array_contains", "list_has", "list_contains"),
        (a_list, anything),
        pa.bool_(),
        _has,
    ),
    _WithItem(
        ("array_has_any", "list_has_any", "arrays_overlap"),
        (_list_or_null, _list_or_null),
        pa.bool_(),
        per_distinct("array_has_any", _has_any),
    ),
    _WithItem(
        ("array_has_all", "list_has_all"),
        (_list_or_null, _list_or_null),
        pa.bool_(),
        per_distinct("array_has_all", _has_all),
    ),
    _WithItem(
        ("array_position", "list_position", "array_indexof", "list_indexof"),
        (a_list, anything),
        pa.uint64(),
        _position,
    ),
    Function(
        ("array_element", "list_element", "array_extract", "list_extract"),
        (a_list, integer),
        lambda types: types[0].value_type,
        element_at,
    ),
    Function(("array_min", "list_min"), (a_list,), _item, _extreme("min")),
    Function(("array_max", "list_max"), (a_list,), _item, _extreme("max")),
    Function(
        ("array_to_string", "list_to_string", "array_join", "list_join"),
        (a_list, printable, printable),
        pa.string(),
        per_distinct("array_to_string", _to_string),
        optional=1,
    ),
    Function(
        ("array_slice", "list_slice"),
        (a_list, integer, integer, integer),
        lambda types: pa.list_(types[0].value_type),
        _slice,
        optional=1,
    ),
    Function(
        ("make_array", "make_list"),
        (anything,),
        lambda types: pa.list_(types[0]),
        _make,
        repeats=True,
        unify=True,
    ),
)
"""All vectorized list functions."""
