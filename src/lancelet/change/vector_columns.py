"""Store float lists of equal length as vectors in a new table.

    {"id": 1, "vector": [0.5, 0.25, ..]}   list<double>    ->  fixed_size_list<double>[384]
    {"id": 1, "prices": [1.0, 2.5]}        list<double>    ->  unchanged: few items, another name

Only columns without explicit types are converted: rows of dicts, dataclasses and Pydantic models,
dicts of columns, and data frames. The type of the items does not change: Python floats are float64,
and items of NumPy arrays have the type of the array.
"""

from __future__ import annotations

import dataclasses
import itertools
import re
from collections.abc import Iterator, Sequence
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc

from lancelet.change.rows import RowStream
from lancelet.errors import SchemaMismatchError

_DIMENSION_MIN: Final = 8
"""Shorter lists are vectors only if the column is named like one."""
_VECTOR_NAME: Final = re.compile(r"vector|embedding|(^|_)(v|vec|emb)$", re.IGNORECASE)


def with_vector_columns(rows: RowStream) -> RowStream:
    """Return rows whose untyped columns of equally long float lists are vectors.

    >>> from lancelet.change.rows import read_rows
    >>> with_vector_columns(read_rows([{"vector": [0.5, 0.25]}])).schema.field("vector").type
    FixedSizeListType(fixed_size_list<item: double>[2])
    """
    names = [name for name in rows.untyped if _is_float_list(rows.schema.field(name).type)]
    if not names:
        return rows
    if rows.is_in_memory:
        first = list(rows.batches)
        rest: Iterator[pa.RecordBatch] = iter(())
    else:
        first, rest = list(itertools.islice(rows.batches, 1)), rows.batches
    schema = rows.schema
    for name in names:
        arrays = [batch.column(name) for batch in first]
        dimension = _dimension_of(arrays)
        is_named = _VECTOR_NAME.search(name) is not None
        if dimension is None or dimension < (2 if is_named else _DIMENSION_MIN):
            continue
        index = schema.get_field_index(name)
        vector_type = pa.list_(schema.field(index).type.value_type, dimension)
        schema = schema.set(index, schema.field(index).with_type(vector_type))
    batches = itertools.chain(first, rest)
    if schema is rows.schema:
        return dataclasses.replace(rows, batches=batches)
    return RowStream(schema, (_converted(batch, schema) for batch in batches), rows.is_in_memory)


def _is_float_list(data_type: pa.DataType) -> bool:
    is_list = pa.types.is_list(data_type) or pa.types.is_large_list(data_type)
    return bool(is_list and pa.types.is_floating(data_type.value_type))


def _dimension_of(arrays: Sequence[pa.Array]) -> int | None:
    """Return the common length of all lists, or None; items must not be null."""
    lengths: set[int] = set()
    for array in arrays:
        found = pc.min_max(pc.list_value_length(array)).as_py()
        lengths |= {found["min"], found["max"]} - {None}
        if len(lengths) > 1 or array.flatten().null_count:
            return None
    return lengths.pop() if lengths else None


def _converted(batch: pa.RecordBatch, schema: pa.Schema) -> pa.RecordBatch:
    columns = []
    for field, array in zip(schema, batch.columns, strict=True):
        if array.type == field.type:
            columns.append(array)
            continue
        lengths = pc.unique(pc.list_value_length(array).drop_null()).to_pylist()
        if lengths not in ([], [field.type.list_size]):
            raise SchemaMismatchError(
                "a vector has another dimension than the preceding ones; pass a schema with a "
                "list type to store lists of several lengths",
                column=field.name,
                dimension=field.type.list_size,
                found=lengths,
            )
        columns.append(array.cast(field.type))
    return pa.RecordBatch.from_arrays(columns, schema=schema)
