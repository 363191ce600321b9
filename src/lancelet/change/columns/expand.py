"""Extend values of live rows to all rows, including deleted ones.

    live      yes no yes yes no
    values    a      b   c
    spread    a   a  b   c   c       deleted rows repeat a neighbouring value

Lists of deleted rows have the same lengths as in other files of the fragment, because readers
combine the fields of structs in lists item by item.
"""

from __future__ import annotations

from typing import Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from lancelet.encodings.take import take_rows
from lancelet.format import logical_type
from lancelet.format.field import Field

_LISTS: Final = {*logical_type.LISTS, *logical_type.LARGE_LISTS}

Mask = npt.NDArray[np.bool_]


def expand_rows(batch: pa.RecordBatch, live: Mask) -> pa.RecordBatch:
    """Extend a batch of live rows to all rows; at least one row must be live.

    >>> expand_rows(pa.record_batch({"a": [1, 2]}), np.array([False, True, True, False]))["a"]
    <pyarrow.lib.Int64Array object at ...>
    [
      1,
      1,
      2,
      2
    ]
    """
    indices = _neighbours(live)
    arrays = [take_rows(column, indices) for column in batch.columns]
    return pa.RecordBatch.from_arrays(arrays, schema=batch.schema)


def expand_field(field: Field, values: pa.Array, present: pa.Array | None, live: Mask) -> pa.Array:
    """Extend values of live rows to all rows, with the list lengths of `present`.

    `present` has all rows; None if the field itself is new.
    """
    if present is None or len(values) == len(live):
        return _expand_leaf(field, values, live)
    if isinstance(present, pa.ExtensionArray):
        present = present.storage
    mask = present.is_null() if present.null_count else None
    if field.logical_type == logical_type.STRUCT:
        children = [
            expand_field(child, own, _child(present, child.name), live)
            for child, own in zip(field.children, _children(values), strict=True)
        ]
        fields = [values.type.field(index) for index in range(len(children))]
        return pa.StructArray.from_arrays(children, fields=fields, mask=mask)
    if field.logical_type not in _LISTS:
        return _expand_leaf(field, values, live)
    lengths = pc.fill_null(pc.list_value_length(present), 0).to_numpy()
    (item,) = field.children
    items = expand_field(
        item, pc.list_flatten(values), pc.list_flatten(present), np.repeat(live, lengths)
    )
    return with_items(present, items, item)


def with_items(lists: pa.Array, items: pa.Array, item: Field) -> pa.Array:
    """Return lists with the same lengths and validity but other items."""
    lengths = pc.fill_null(pc.list_value_length(lists), 0)
    is_large = pa.types.is_large_list(lists.type)
    number = pa.int64() if is_large else pa.int32()
    offsets = pa.concat_arrays([pa.array([0], number), pc.cumulative_sum(lengths.cast(number))])
    own = pa.field(item.name, items.type, item.nullable)
    kind = pa.large_list(own) if is_large else pa.list_(own)
    mask = lists.is_null() if lists.null_count else None
    maker = pa.LargeListArray if is_large else pa.ListArray
    return maker.from_arrays(offsets, items, type=kind, mask=mask)


def _expand_leaf(field: Field, values: pa.Array, live: Mask) -> pa.Array:
    if len(values) == len(live):
        return values
    if not len(values):
        return _blank(field, values.type, len(live))
    return take_rows(values, _neighbours(live))


def _neighbours(live: Mask) -> pa.Array:
    """Return for each row the index of the same or the preceding live row."""
    return pa.array(np.maximum(np.cumsum(live) - 1, 0))


def _blank(field: Field, data_type: pa.DataType, count: int) -> pa.Array:
    """Return placeholder values for deleted rows without a neighbour to repeat."""
    nulls = pa.nulls(count, data_type)
    if all(node.nullable for node in field.walk()):
        return nulls
    if pa.types.is_struct(data_type):
        fields = [data_type.field(index) for index in range(data_type.num_fields)]
        children = [
            _blank(child, own.type, count)
            for child, own in zip(field.children, fields, strict=True)
        ]
        return pa.StructArray.from_arrays(children, fields=fields)
    if pa.types.is_nested(data_type):
        return pa.array([[]] * count, data_type)
    return pa.Array.from_buffers(data_type, count, [None, *nulls.buffers()[1:]])


def _child(present: pa.StructArray, name: str) -> pa.Array | None:
    index = present.type.get_field_index(name)
    return None if index < 0 else present.field(index)


def _children(values: pa.StructArray) -> list[pa.Array]:
    return [values.field(index) for index in range(values.type.num_fields)]
