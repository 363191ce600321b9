"""Datasets as DuckDB can read them: types that it does not have become the nearest that it has.

float16          float32
decimal256       float64, as it may have more digits than any other

A dataset without such columns is handed over as it is. Of others, columns are converted while they
stream, and conditions are tested afterwards, as they are about the converted values.

A dataset whose scans return row ids by default would return them beside what DuckDB asks for. Here
they are columns like others, returned if they are named.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import lru_cache
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset


def readable_by_duckdb(table: Any) -> Any:
    """Return a table that DuckDB can read, which is the table itself if it can.

    >>> readable_by_duckdb(pa.table({"a": pa.array([1.5]).cast(pa.float16())})).schema.field("a")
    pyarrow.Field<a: float>
    """
    schema = getattr(table, "schema", None)
    if not isinstance(schema, pa.Schema):
        return table
    is_scanned = _scan_schema(table, schema) is schema
    if is_scanned and _schema_for(schema) == schema and not _default_columns(table):
        return table
    if isinstance(table, pyarrow.dataset.Dataset):
        return _ConvertedDataset(table)
    converted = _schema_for(schema)
    if isinstance(table, pa.Table):
        return table.cast(converted)
    return pa.RecordBatchReader.from_batches(converted, _converted(table, converted))


class _ConvertedDataset(pyarrow.dataset.Dataset):  # type: ignore[misc]  # pyarrow has no types
    """A dataset some columns of which are converted as they are read."""

    def __init__(self, dataset: pyarrow.dataset.Dataset) -> None:
        self._dataset = dataset
        self._scanned = _scan_schema(dataset, dataset.schema)
        self._converted = _schema_for(self._scanned)

    @property
    def schema(self) -> pa.Schema:
        return self._converted

    def scanner(
        self,
        columns: Sequence[str] | None = None,
        filter: pc.Expression | None = None,  # noqa: A002 - pyarrow's name
        **options: Any,
    ) -> pyarrow.dataset.Scanner:
        """Return a scanner of converted columns."""
        names = list(self.schema.names if columns is None else columns)
        schema = pa.schema([self.schema.field(name) for name in names])
        options |= _default_columns(self._dataset)
        if schema == pa.schema([self._scanned.field(name) for name in names]):
            return self._dataset.scanner(columns=names, filter=filter, **options)
        batches = _converted(self._dataset.scanner(columns=names, **options).to_batches(), schema)
        return pyarrow.dataset.Scanner.from_batches(batches, schema=schema, filter=filter)


def _scan_schema(table: Any, schema: pa.Schema) -> pa.Schema:
    """Return what scans return, which differs from the schema where blobs are read as bytes."""
    if "blob_handling" not in getattr(table, "default_scan_options", {}):
        return schema
    found: pa.Schema = table.scanner(**_default_columns(table)).projected_schema
    return found


def _default_columns(table: Any) -> dict[str, bool]:
    """Return the options of a dataset that add columns to every scan, turned off."""
    defaults = getattr(table, "default_scan_options", {})
    return {name: False for name in ("with_row_id", "with_row_address") if defaults.get(name)}


def _converted(batches: Iterator[pa.RecordBatch], schema: pa.Schema) -> Iterator[pa.RecordBatch]:
    for batch in batches:
        arrays = [batch.column(field.name).cast(field.type) for field in schema]
        yield pa.RecordBatch.from_arrays(arrays, schema=schema)


@lru_cache(maxsize=256)
def _schema_for(schema: pa.Schema) -> pa.Schema:
    return pa.schema([_field_for(field) for field in schema], metadata=schema.metadata)


def _field_for(field: pa.Field) -> pa.Field:
    found = _type_for(field.type)
    return field if found == field.type else field.with_type(found)


def _type_for(data_type: pa.DataType) -> pa.DataType:
    if pa.types.is_float16(data_type):
        return pa.float32()
    if pa.types.is_decimal256(data_type):
        return pa.float64()
    if pa.types.is_struct(data_type):
        return pa.struct([_field_for(field) for field in data_type])
    if pa.types.is_fixed_size_list(data_type):
        return pa.list_(_field_for(data_type.value_field), data_type.list_size)
    if pa.types.is_large_list(data_type):
        return pa.large_list(_field_for(data_type.value_field))
    if pa.types.is_list(data_type):
        return pa.list_(_field_for(data_type.value_field))
    return data_type
