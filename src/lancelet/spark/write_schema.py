"""The Arrow schema of the rows of a data frame in an existing or a new table.

    data frame   id bigint, v array<float>
    table        id int64,  v fixed_size_list<float16>[128]     rows are converted to this schema
    no table     id int64,  v fixed_size_list<float32>[128]     if an option or metadata sets 128
                            v list<float32>                     otherwise

A column of a data frame fits the column with its name, ignoring case, if Spark's store assignment
converts its type without a cast, as in INSERT. A blob is written as bytes, or as a string with the
URI of its content. All differences are reported before any task runs.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import pyarrow as pa
from pyspark.sql import types as spark

from lancelet.change.fit import check_new_schema
from lancelet.errors import (
    InvalidInputError,
    SchemaMismatchError,
    UnsupportedError,
    similar_names,
)
from lancelet.format.blob_values import BlobType
from lancelet.format.extension import BLOB_V2
from lancelet.format.field import BLOB_KEY
from lancelet.format.logical_type import storage_of
from lancelet.format.schema import Schema
from lancelet.spark.fitting import depends_on_session, has_same_names, is_storable
from lancelet.spark.frames import find_name
from lancelet.spark.options import WriteSettings, unused
from lancelet.spark.types import (
    DIMENSION_KEY,
    ENCODING_PREFIX,
    JSON_KEY,
    is_json_type,
    spark_field,
    spark_schema,
    stored_field,
    uncollated,
)
from lancelet.table.snapshot import Snapshot


def schema_for_table(
    table: Schema,
    frame: spark.StructType,
    *,
    is_case_sensitive: bool = False,
    is_cast_by_spark: bool = False,
) -> pa.Schema:
    """Return the Arrow schema of a data frame's rows in an existing table, in the frame's order.

    Unless Spark casts the rows first, tasks convert them, which know nothing of the session.

    Raises:
        SchemaMismatchError: The data frame does not fit; the message lists the differences.
    """
    table_fields = {field.name: field.to_arrow() for field in table.fields}
    all_names = list(table_fields)
    names = [
        find_name(all_names, each, is_exact=is_case_sensitive) or each
        for each in frame.fieldNames()
    ]
    differences = list(_differences(table_fields, frame, names, is_cast_by_spark=is_cast_by_spark))
    if differences:
        raise SchemaMismatchError(
            "the data frame does not fit the table: " + "; ".join(differences),
            expected=all_names,
            found=frame.fieldNames(),
        )
    return pa.schema(
        [
            _written_field(table_fields[name], field.dataType)
            for name, field in zip(names, frame, strict=True)
        ]
    )


def new_fields(table: Schema, frame: spark.StructType, settings: WriteSettings) -> list[pa.Field]:
    """Return the Arrow fields of the columns of a data frame that a table does not have."""
    names = [field.name for field in table.fields]
    return [new_field(each, settings) for each in frame if find_name(names, each.name) is None]


def target_schema(
    snapshot: Snapshot, source_schema: spark.StructType | None = None
) -> spark.StructType:
    """Return the schema of rows that are written to a table.

    Blobs are binary, or strings with URIs if the source contains strings.
    """
    types = {} if source_schema is None else {field.name: field.dataType for field in source_schema}
    fields = [
        brought_field(field.to_arrow(), types.get(field.name)) for field in snapshot.schema.fields
    ]
    return spark_schema(pa.schema(fields))


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
    made = pa.schema([new_field(field, settings) for field in frame])
    check_new_schema(made)
    return made


def _differences(
    table_fields: Mapping[str, pa.Field],
    frame: spark.StructType,
    names: Sequence[str],
    *,
    is_cast_by_spark: bool,
) -> Iterator[str]:
    for name in dict.fromkeys(names):
        if names.count(name) > 1:
            yield f"`{name}` occurs twice"
    for name, field in table_fields.items():
        if name not in names and not field.nullable:
            yield f"`{name}` is missing, but the column is not nullable"
    for name, own in zip(names, frame, strict=True):
        field = table_fields.get(name)
        if field is None:
            missing = [each for each in table_fields if each not in names]
            yield f"`{own.name}` is not in the table{similar_names(own.name, missing)}"
            continue
        expected = spark_field(brought_field(field, own.dataType)).dataType
        if is_json_type(field.type) and isinstance(
            own.dataType, spark.VariantType | spark.StringType
        ):
            continue
        # As in Spark, the collation of the table's column applies to all stored values.
        stored, given = uncollated(expected), uncollated(own.dataType)
        if stored.simpleString() == given.simpleString():
            continue
        shown = f"`{name}` should have type {expected.simpleString()} but is {given.simpleString()}"
        if not (has_same_names(given, stored) and is_storable(given, stored, by_name=True)):
            yield shown
        elif not is_cast_by_spark and depends_on_session(given, stored):
            yield f"{shown}; cast it, or use lancelet.spark.write"


def refuse_blobs(snapshot: Snapshot, values: Mapping[str, Any] | None) -> None:
    """Raise if rows with blobs would be rewritten without new blobs; None sets all columns."""
    blobs = [each.name for each in snapshot.schema.fields if each.is_blob]
    unchanged = [] if values is None else [each for each in blobs if each not in values]
    if unchanged:
        raise UnsupportedError(
            "rows with blobs can only be updated if the statement sets them too", columns=unchanged
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


def new_field(field: spark.StructField, settings: WriteSettings) -> pa.Field:
    """Return the Arrow field of a new column, with the vector size and encoding of the settings."""
    name = field.name.lower()
    made = stored_field(field)
    size = settings.dimensions.get(name, field.metadata.get(DIMENSION_KEY))
    if size is not None:
        made = made.with_type(_fixed(made, int(size)))
    if field.metadata.get(JSON_KEY):
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
