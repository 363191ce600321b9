"""Mapping of types between tables and Spark.

    table                         Spark                  back
    uint8, uint16, uint32         smallint, int, bigint  int16, int32, int64
    uint64                        decimal(20,0)          decimal128(20,0)
    float16                       float                  float32
    fixed_size_list<float>[128]   array<float>           the same, from field metadata
    dictionary<string>            string                 string
    json                          string                 the same, from field metadata
    string, collated              string collate ...     the same, from field metadata
    string of char(3)             string                 the same, from field metadata
    struct<value, metadata>       variant                within other types, from field metadata
    json                          variant                a whole column, from field metadata
    duration                      interval hour          the same, from field metadata

Types that Spark lacks are widened to the narrowest type that holds every value. Rows appended to a
table are converted to the types of its columns; the last column applies to new tables. The original
type is stored in the metadata of the field. Spark preserves the metadata of a column that is
selected or renamed, and drops it for computed columns.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from importlib import import_module
from typing import Any, Final

import pyarrow as pa
import pyarrow.types as kinds
from pyspark.sql import types as spark

from lancelet.errors import UnsupportedError

DIMENSION_KEY: Final = "arrow.fixed-size-list.size"
"""The metadata key of the list size, shared with the JVM connector."""

JSON_KEY: Final = "lance.json"
"""The metadata key of strings stored as JSON."""

COLLATION_KEY: Final = "spark.collation"
"""The metadata key of the collation of a text column of a table."""

TYPE_KEY: Final = "spark.type"
"""The metadata key of the Spark type of a table's field, if the Arrow type does not imply it."""

LENGTH_KEY: Final = "__CHAR_VARCHAR_TYPE_STRING"
"""The metadata key of Spark for the type of CHAR and VARCHAR columns, which are read as STRING."""

ENCODING_PREFIX: Final = "lance-"
"""Metadata keys that are passed between a table's field and Spark."""

SESSION_ZONE: Final = "UTC"
"""The time zone of timestamps in batches for Spark; values are instants in any zone."""

_TEXTS: Final = (pa.string(), pa.large_string(), pa.string_view())
_LENGTH: Final = re.compile(r"(var)?char\((\d+)\)")
_INTERVAL: Final = re.compile(r"interval (\w+)(?: to (\w+))?")
_INTERVAL_UNITS: Final = ("day", "hour", "minute", "second")
_TIME: Final = re.compile(r"time\((\d)\)")
_BINARY_COLLATION: Final = "UTF8_BINARY"
_USER_TYPES: Final = ("pyspark.ml.linalg.VectorUDT", "pyspark.ml.linalg.MatrixUDT")
"""User-defined types of Spark that are restored; others are structs, as metadata names no code."""
_TIME_DIGITS: Final = 6
_U64_DIGITS: Final = 20
_DECIMAL_DIGITS_MAX: Final = 38

_PLAIN: Final[dict[pa.DataType, Callable[[], spark.DataType]]] = {
    pa.null(): spark.NullType,
    pa.bool_(): spark.BooleanType,
    pa.int8(): spark.ByteType,
    pa.int16(): spark.ShortType,
    pa.int32(): spark.IntegerType,
    pa.int64(): spark.LongType,
    pa.uint8(): spark.ShortType,
    pa.uint16(): spark.IntegerType,
    pa.uint32(): spark.LongType,
    pa.uint64(): lambda: spark.DecimalType(_U64_DIGITS, 0),
    pa.float16(): spark.FloatType,
    pa.float32(): spark.FloatType,
    pa.float64(): spark.DoubleType,
    pa.string(): spark.StringType,
    pa.large_string(): spark.StringType,
    pa.string_view(): spark.StringType,
    pa.binary(): spark.BinaryType,
    pa.large_binary(): spark.BinaryType,
    pa.binary_view(): spark.BinaryType,
    pa.date32(): spark.DateType,
    pa.date64(): spark.DateType,
}


def spark_schema(schema: pa.Schema) -> spark.StructType:
    """Return the Spark schema of a table.

    >>> table = pa.schema([("a", pa.uint8()), ("v", pa.list_(pa.float32(), 4))])
    >>> spark_schema(table).simpleString()
    'struct<a:smallint,v:array<float>>'
    """
    return spark.StructType([spark_field(field) for field in schema])


def spark_field(field: pa.Field) -> spark.StructField:
    """Return the Spark field of a field of a table."""
    return spark.StructField(
        field.name, _spark_type_of(field, field.name), field.nullable, _metadata_of(field)
    )


def spark_type(data_type: pa.DataType, *, path: str = "") -> spark.DataType:
    """Return the Spark type of a table's type; errors name `path`."""
    if isinstance(data_type, pa.BaseExtensionType):
        return spark_type(data_type.storage_type, path=path)
    plain = _PLAIN.get(data_type)
    if plain is not None:
        return plain()
    if kinds.is_dictionary(data_type):
        return spark_type(data_type.value_type, path=path)
    if kinds.is_fixed_size_binary(data_type):
        return spark.BinaryType()
    if kinds.is_timestamp(data_type):
        return spark.TimestampNTZType() if data_type.tz is None else spark.TimestampType()
    if kinds.is_time(data_type):
        return _time_type(path)
    if kinds.is_duration(data_type):
        return spark.DayTimeIntervalType()
    if kinds.is_decimal(data_type) and data_type.precision <= _DECIMAL_DIGITS_MAX:
        return spark.DecimalType(data_type.precision, data_type.scale)
    if kinds.is_map(data_type):
        return spark.MapType(
            _spark_type_of(data_type.key_field, f"{path}.key"),
            _spark_type_of(data_type.item_field, f"{path}.value"),
            data_type.item_field.nullable,
        )
    if is_list(data_type):
        item = data_type.value_field
        return spark.ArrayType(_spark_type_of(item, f"{path}.item"), item.nullable)
    if kinds.is_struct(data_type):
        return spark.StructType([spark_field(child) for child in data_type])
    raise UnsupportedError(
        "Spark has no type for the values of this column; select other columns with `columns`",
        column=path,
        type=str(data_type),
    )


def collation_of(field: pa.Field) -> str | None:
    """Return the collation of a text column, or None if values are compared by their bytes.

    >>> collation_of(pa.field("s", pa.string(), metadata={COLLATION_KEY: "UTF8_LCASE"}))
    'UTF8_LCASE'
    """
    name = (field.metadata or {}).get(COLLATION_KEY.encode())
    return name.decode() if name is not None and _value_type(field.type) in _TEXTS else None


def has_collation(field: pa.Field) -> bool:
    """Return whether a column or one of its fields has a collation."""
    return collation_of(field) is not None or any(map(has_collation, _children(field)))


def has_spark_type(field: pa.Field) -> bool:
    """Return whether the metadata of a column or of its fields determines its Spark type."""
    keys = field.metadata or {}
    is_own = COLLATION_KEY.encode() in keys or TYPE_KEY.encode() in keys
    return is_own or any(map(has_spark_type, _children(field)))


def length_of(field: pa.Field) -> tuple[int, bool] | None:
    """Return the length of a CHAR or VARCHAR column and whether values are padded to it.

    >>> length_of(pa.field("s", pa.string(), metadata={TYPE_KEY: "char(3)"}))
    (3, True)
    """
    match = _LENGTH.fullmatch(_declared(field))
    return None if match is None else (int(match[2]), not match[1])


def _declared(field: pa.Field) -> str:
    return str((field.metadata or {}).get(TYPE_KEY.encode(), b"").decode())


def _children(field: pa.Field) -> list[pa.Field]:
    data_type = field.type
    if isinstance(data_type, pa.BaseExtensionType):
        return []
    return [data_type.field(index) for index in range(data_type.num_fields)]


def uncollated(data_type: spark.DataType) -> spark.DataType:
    """Return a type without collations."""
    match data_type:
        case spark.ArrayType():
            return spark.ArrayType(uncollated(data_type.elementType), data_type.containsNull)
        case spark.MapType():
            key, value = uncollated(data_type.keyType), uncollated(data_type.valueType)
            return spark.MapType(key, value, data_type.valueContainsNull)
        case spark.StructType():
            fields = [
                spark.StructField(each.name, uncollated(each.dataType), each.nullable)
                for each in data_type
            ]
            return spark.StructType(fields)
        case spark.StringType():
            return spark.StringType()
    return data_type


def _spark_type_of(field: pa.Field, path: str) -> spark.DataType:
    collation = collation_of(field)
    if collation is not None:
        return spark.StringType(collation)
    declared = _declared_type(field)
    return spark_type(field.type, path=path) if declared is None else declared


def _declared_type(field: pa.Field) -> spark.DataType | None:
    """Return the Spark type in the metadata of a field, if its values can have it."""
    text, data_type = _declared(field), field.type
    if not text:
        return None
    if text == "variant" and (is_json_type(data_type) or _is_variant(data_type)):
        return spark.VariantType()
    interval = _INTERVAL.fullmatch(text)
    if interval is not None and kinds.is_duration(data_type):
        bounds = [_INTERVAL_UNITS.index(each) for each in interval.groups() if each]
        return spark.DayTimeIntervalType(*bounds)
    time = _TIME.fullmatch(text)
    if time is not None and kinds.is_time(data_type):
        return spark.TimeType(int(time[1]))
    if text in _USER_TYPES and kinds.is_struct(data_type):
        module, _, name = text.rpartition(".")
        made: spark.UserDefinedType = getattr(import_module(module), name)()
        return made
    return None


def _is_variant(data_type: pa.DataType) -> bool:
    return bool(kinds.is_struct(data_type)) and [each.name for each in data_type] == VARIANT.names


def _value_type(data_type: pa.DataType) -> pa.DataType:
    return data_type.value_type if kinds.is_dictionary(data_type) else data_type


def arrow_schema(schema: spark.StructType) -> pa.Schema:
    """Return the exact Arrow schema of batches that Spark expects for a schema."""
    return pa.schema([arrow_field(field) for field in schema])


def arrow_field(field: spark.StructField) -> pa.Field:
    """Return the Arrow field of a Spark field."""
    return pa.field(field.name, arrow_type(field.dataType), field.nullable)


def stored_field(field: spark.StructField) -> pa.Field:
    """Return the Arrow field of a new table for a Spark field, including its Spark type."""
    made = _with_spark_types(arrow_field(field), field.dataType)
    length = field.metadata.get(LENGTH_KEY, "")
    if _LENGTH.fullmatch(length):
        return made.with_metadata({TYPE_KEY: length})
    if isinstance(field.dataType, spark.VariantType):
        made = made.with_type(pa.json_())
    return made


def _with_spark_types(field: pa.Field, data_type: spark.DataType) -> pa.Field:
    match data_type:
        case spark.ArrayType():
            item = _with_spark_types(field.type.value_field, data_type.elementType)
            return field.with_type(pa.list_(item))
        case spark.MapType():
            key = _with_spark_types(field.type.key_field, data_type.keyType)
            value = _with_spark_types(field.type.item_field, data_type.valueType)
            return field.with_type(pa.map_(key, value))
        case spark.StructType():
            children = [
                _with_spark_types(child, each.dataType)
                for child, each in zip(field.type, data_type, strict=True)
            ]
            return field.with_type(pa.struct(children))
        case spark.UserDefinedType():
            made = _with_spark_types(field, data_type.sqlType())
            name = f"{data_type.module()}.{type(data_type).__name__}"
            return made.with_metadata({TYPE_KEY: name}) if name in _USER_TYPES else made
        case spark.VariantType():
            return field.with_metadata({TYPE_KEY: "variant"})
        case spark.DayTimeIntervalType() if data_type != spark.DayTimeIntervalType():
            return field.with_metadata({TYPE_KEY: data_type.simpleString()})
        case spark.TimeType(precision=int(precision)) if precision != _TIME_DIGITS:
            return field.with_metadata({TYPE_KEY: data_type.simpleString()})
        case spark.StringType(collation=str(name)) if name != _BINARY_COLLATION:
            return field.with_metadata({COLLATION_KEY: name})
    return field


def arrow_type(data_type: spark.DataType) -> pa.DataType:
    """Return the Arrow type of a Spark type."""
    match data_type:
        case spark.ArrayType():
            item = arrow_type(data_type.elementType)
            return pa.list_(pa.field("element", item, data_type.containsNull))
        case spark.MapType():
            key = pa.field("key", arrow_type(data_type.keyType), nullable=False)
            value = arrow_type(data_type.valueType)
            return pa.map_(key, pa.field("value", value, data_type.valueContainsNull))
        case spark.StructType():
            return pa.struct([arrow_field(child) for child in data_type])
        case spark.DecimalType():
            return pa.decimal128(data_type.precision, data_type.scale)
        case spark.VariantType():
            return VARIANT
        case spark.UserDefinedType():
            return arrow_type(data_type.sqlType())
    made = _ARROW.get(type(data_type).__name__)
    if made is None:
        instead = _REPLACEMENTS.get(type(data_type).__name__, "cast the column first")
        raise UnsupportedError(
            f"values of this Spark type cannot be stored; {instead}",
            type=data_type.simpleString(),
        )
    return made


_REPLACEMENTS: Final = {
    "YearMonthIntervalType": "store a number of months: "
    "extract(YEAR FROM c) * 12 + extract(MONTH FROM c)",
    "CalendarIntervalType": "store an interval of days to seconds, such as make_dt_interval(days)",
    "GeometryType": "store its bytes: st_asbinary(c), which st_geomfromwkb reads",
    "GeographyType": "store its bytes: st_asbinary(c), which st_geogfromwkb reads",
}
"""What to store instead of values of a type."""


VARIANT: Final = pa.struct(
    [
        pa.field("value", pa.binary(), nullable=False),
        pa.field("metadata", pa.binary(), nullable=False, metadata={"variant": "true"}),
    ]
)
"""The representation of VARIANT values in Arrow batches of Spark."""

_ARROW: Final[Mapping[str, pa.DataType]] = {
    "NullType": pa.null(),
    "BooleanType": pa.bool_(),
    "ByteType": pa.int8(),
    "ShortType": pa.int16(),
    "IntegerType": pa.int32(),
    "LongType": pa.int64(),
    "FloatType": pa.float32(),
    "DoubleType": pa.float64(),
    "StringType": pa.string(),
    "CharType": pa.string(),
    "VarcharType": pa.string(),
    "BinaryType": pa.binary(),
    "DateType": pa.date32(),
    "TimestampType": pa.timestamp("us", SESSION_ZONE),
    "TimestampNTZType": pa.timestamp("us"),
    "TimeType": pa.time64("ns"),
    "DayTimeIntervalType": pa.duration("us"),
}


def is_list(data_type: pa.DataType) -> bool:
    """Return whether a type is a list of any layout."""
    return bool(
        kinds.is_list(data_type)
        or kinds.is_large_list(data_type)
        or kinds.is_fixed_size_list(data_type)
        or kinds.is_list_view(data_type)
        or kinds.is_large_list_view(data_type)
    )


def is_json_type(data_type: pa.DataType) -> bool:
    """Return whether the values of a type are JSON."""
    return getattr(data_type, "extension_name", None) == "arrow.json"


def _time_type(path: str) -> spark.DataType:
    made = getattr(spark, "TimeType", None)
    if made is None:
        raise UnsupportedError("this release of Spark has no time type", column=path)
    found: spark.DataType = made()
    return found


def _metadata_of(field: pa.Field) -> dict[str, Any]:
    metadata = {key.decode(): value.decode() for key, value in (field.metadata or {}).items()}
    found: dict[str, Any] = {
        key: value for key, value in metadata.items() if key.startswith(ENCODING_PREFIX)
    }
    if kinds.is_fixed_size_list(field.type):
        found[DIMENSION_KEY] = field.type.list_size
    if is_json_type(field.type):
        found[JSON_KEY] = True
    if length_of(field) is not None:
        found[LENGTH_KEY] = _declared(field)
    return found
