"""The Arrow schema of the rows of a data frame in an existing or a new table.

    data frame   id bigint, v array<float>
    table        id int64,  v fixed_size_list<float16>[128]     rows are converted to this schema
    no table     id int64,  v fixed_size_list<float32>[128]     if an option or metadata sets 128
                            v list<float32>                     otherwise

A data frame fits a table if each of its columns has the type that Spark reads for the table's
column. A blob is written as bytes, or as a string with the URI of its content. All differences are
reported before any task runs.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import pyarrow as pa
from pyspark.sql import types as spark

from lancelet.change.fit import check_new_schema
from lancelet.errors import InvalidInputError, SchemaMismatchError, similar_names
from lancelet.format.blob_values import BlobType
from lancelet.format.extension import BLOB_V2
from lancelet.format.field import BLOB_KEY
from lancelet.format.logical_type import storage_of
from lancelet.format.schema import Schema
from lancelet.spark.options import WriteSettings, unused
from lancelet.spark.types import (
    DIMENSION_KEY,
    ENCODING_PREFIX,
    JSON_KEY,
    is_json_type,
    spark_field,
    stored_field,
    uncollated,
)


def schema_for_table(table: Schema, frame: spark.StructType) -> pa.Schema:
    """Return the Arrow schema of a data frame's rows in an existing table.

    Raises:
        SchemaMismatchError: The data frame does not fit; the message lists the differences.
    """
    table_fields = {field.name: field.to_arrow() for field in table.fields}
    differences = list(_differences(table_fields, frame))
    if differences:
        raise SchemaMismatchError(
            "the data frame does not fit the table: " + "; ".join(differences),
            expected=list(table_fields),
            found=frame.fieldNames(),
        )
    return pa.schema([_written_field(table_fields[field.name], field.dataType) for field in frame])


def schema_for_new_table(frame: spark.StructType, settings: WriteSettings) -> pa.Schema:
    """Return the Arrow schema of a new table for a data frame.

    Raises:
        ReservedNameError: A column has the name of a virtual column such as `_rowid`.
    """
    for options in (settings.dimensions, settings.encodings):
        unknown = unused(options, frame.fieldNames())
        if unknown:
            raise InvalidInputError(
                "an option refers to a column that the data frame does not have",
                column=unknown[0],
                found=frame.fieldNames(),
            )
    made = pa.schema([_new_field(field, settings) for field in frame])
    check_new_schema(made)
    return made


def _differences(table_fields: Mapping[str, pa.Field], frame: spark.StructType) -> Iterator[str]:
    names = frame.fieldNames()
    for name in names:
        if names.count(name) > 1:
            yield f"`{name}` occurs twice"
    for name, field in table_fields.items():
        if name not in names and not field.nullable:
            yield f"`{name}` is missing, but the column is not nullable"
    for own in frame:
        field = table_fields.get(own.name)
        if field is None:
            missing = [name for name in table_fields if name not in names]
            yield f"`{own.name}` is not in the table{similar_names(own.name, missing)}"
            continue
        expected = spark_field(brought_field(field, own.dataType)).dataType
        if is_json_type(field.type) and isinstance(own.dataType, spark.VariantType):
            continue
        # As in Spark, the collation of the table's column applies to all stored values.
        if uncollated(expected).simpleString() != uncollated(own.dataType).simpleString():
            yield (
                f"`{own.name}` should have type {expected.simpleString()} but is "
                f"{own.dataType.simpleString()}"
            )


def brought_field(field: pa.Field, brought: spark.DataType | None = None) -> pa.Field:
    """Return the type in which values of a field are written: bytes or URI strings for blobs."""
    if not _is_blob(field):
        return field
    kind = pa.string() if isinstance(brought, spark.StringType) else pa.large_binary()
    return pa.field(field.name, kind, field.nullable, field.metadata)


def _written_field(field: pa.Field, brought: spark.DataType) -> pa.Field:
    made = brought_field(field, brought)
    if not (_is_blob(field) and pa.types.is_string(made.type)):
        return made
    return made.with_type(BlobType.__arrow_ext_deserialize__(storage_of(field.type), b""))


def _is_blob(field: pa.Field) -> bool:
    named = (field.metadata or {}).get(b"ARROW:extension:name", b"").decode()
    return bool(getattr(field.type, "extension_name", named) == BLOB_V2)


def _new_field(field: spark.StructField, settings: WriteSettings) -> pa.Field:
    name = field.name.lower()
    made = stored_field(field)
    size = settings.dimensions.get(name, field.metadata.get(DIMENSION_KEY))
    if size is not None:
        made = made.with_type(_fixed(made, int(size)))
    if field.metadata.get(JSON_KEY) or isinstance(field.dataType, spark.VariantType):
        made = made.with_type(pa.json_())
    metadata = _encoding_metadata(field.metadata) | dict(settings.encodings.get(name, {}))
    if BLOB_KEY in metadata and pa.types.is_string(made.type):
        del metadata[BLOB_KEY]
        made = made.with_type(BlobType())
    return made.with_metadata({**(made.metadata or {}), **metadata}) if metadata else made


def _fixed(field: pa.Field, size: int) -> pa.DataType:
    if not pa.types.is_list(field.type):
        raise InvalidInputError(
            "only array columns can have a dimension",
            column=field.name,
            type=str(field.type),
        )
    item = field.type.value_field
    return pa.list_(item.with_name("item"), size)


def _encoding_metadata(metadata: Mapping[str, Any]) -> dict[str, str]:
    return {key: str(value) for key, value in metadata.items() if key.startswith(ENCODING_PREFIX)}
