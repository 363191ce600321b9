"""Cast data frame columns to the table schema, by the rules of Spark's store assignment.

    decimal(9,2)                  from any number; decimals are rounded, numbers must fit
    string                        from any atomic type but binary
    int                           not from string: a cast says what is meant

    struct<b: int, a: int>        {b: 2, a: 1}
    struct<a: bigint, b: bigint>  {a: 1, b: 2} by name, {a: 2, b: 1} by position

Values that do not fit are errors, with and without the session's ANSI mode.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import NoReturn

from pyspark.sql import Column
from pyspark.sql import functions as F  # noqa: N812 - the customary alias
from pyspark.sql import types as spark_types
from pyspark.sql.types import ArrayType, DataType, MapType, StructField, StructType


def fit_value(
    value: Column,
    found: DataType,
    field: StructField,
    fail: Callable[[str], NoReturn],
    *,
    by_name: bool,
) -> Column:
    """Cast a value to the type of a column; calls `fail` if Spark does not store the type there."""
    expected = field.dataType.simpleString()
    if by_name and not has_same_names(found, field.dataType):
        fail(
            f"`{field.name}` has type {expected}; its fields differ from those of "
            f"{found.simpleString()}"
        )
    if not is_storable(found, field.dataType, by_name=by_name):
        fail(
            f"`{field.name}` has type {expected}, which cannot store values of type "
            f"{found.simpleString()}; add a cast"
        )
    message = F.lit(f"a value does not fit `{field.name}`, which has type {expected}")
    return cast_or_raise(value, found, field.dataType, message, by_name=by_name)


def is_storable(found: DataType, target: DataType, *, by_name: bool = False) -> bool:
    """Return whether Spark stores values of a type in a column of another without a cast."""
    storable = partial(is_storable, by_name=by_name)
    number, text = spark_types.NumericType, spark_types.StringType
    times = (spark_types.DateType, spark_types.TimestampType, spark_types.TimestampNTZType)
    match found, target:
        case spark_types.NullType(), _:
            return True
        case ArrayType(), ArrayType():
            return storable(found.elementType, target.elementType)
        case MapType(), MapType():
            is_key = storable(found.keyType, target.keyType)
            return is_key and storable(found.valueType, target.valueType)
        case StructType(), StructType():
            return len(found) == len(target) and all(
                storable(one.dataType, two.dataType)
                for one, two in pair_fields(found, target, by_name=by_name)
            )
    if isinstance(found, number) and isinstance(target, number):
        return True
    if isinstance(found, times) and isinstance(target, times):
        return True
    is_plain = not isinstance(found, ArrayType | MapType | StructType | spark_types.BinaryType)
    return found == target or (isinstance(target, text) and is_plain)


def depends_on_session(found: DataType, target: DataType) -> bool:
    """Return whether a conversion depends on the session: its time zone, or how it shows values."""
    match found, target:
        case ArrayType(), ArrayType():
            return depends_on_session(found.elementType, target.elementType)
        case MapType(), MapType():
            is_key = depends_on_session(found.keyType, target.keyType)
            return is_key or depends_on_session(found.valueType, target.valueType)
        case StructType(), StructType():
            pairs = pair_fields(found, target, by_name=True)
            return any(depends_on_session(one.dataType, two.dataType) for one, two in pairs)
    if type(found) is type(target) or isinstance(found, spark_types.NullType):
        return False
    is_number = isinstance(found, spark_types.NumericType)
    if isinstance(target, spark_types.StringType):
        has_one_text = (spark_types.IntegralType, spark_types.BooleanType, spark_types.DateType)
        return not isinstance(found, has_one_text)
    return not (is_number and isinstance(target, spark_types.NumericType))


def cast_or_raise(
    value: Column, source: DataType, target: DataType, message: Column, *, by_name: bool
) -> Column:
    """Cast a value to another type; values that do not fit raise an error in Spark."""
    if source.simpleString() == target.simpleString():
        return value
    cast = partial(cast_or_raise, message=message, by_name=by_name)
    match source, target:
        case ArrayType(), ArrayType():
            items = source.elementType, target.elementType
            return F.transform(value, lambda item: cast(item, *items))
        case MapType(), MapType():
            keys, values = (source.keyType, target.keyType), (source.valueType, target.valueType)
            entries = F.transform(
                F.map_entries(value),
                lambda entry: F.struct(
                    cast(entry.getField("key"), *keys).alias("key"),
                    cast(entry.getField("value"), *values).alias("value"),
                ),
            )
            return F.map_from_entries(entries)
        case StructType(), StructType():
            fields = [
                cast(value.getField(one.name), one.dataType, two.dataType).alias(two.name)
                for one, two in pair_fields(source, target, by_name=by_name)
            ]
            return F.when(value.isNotNull(), F.struct(*fields))
    made = F.coalesce(value.try_cast(target), F.raise_error(message).cast(target))
    return F.when(value.isNull(), F.lit(None).cast(target)).otherwise(made)


def pair_fields(
    source: StructType, target: StructType, *, by_name: bool
) -> Iterator[tuple[StructField, StructField]]:
    """Yield each source field with the target field that stores it."""
    exact = {each.name: each for each in source}
    named = {each.name.lower(): each for each in source}
    for position, target_field in enumerate(target):
        field = (
            exact.get(target_field.name) or named[target_field.name.lower()]
            if by_name
            else source[position]
        )
        yield field, target_field


def has_same_names(source: DataType, target: DataType) -> bool:
    """Return whether both types have the same field names, in any order."""
    match source, target:
        case ArrayType(), ArrayType():
            return has_same_names(source.elementType, target.elementType)
        case MapType(), MapType():
            is_named = has_same_names(source.keyType, target.keyType)
            return is_named and has_same_names(source.valueType, target.valueType)
        case StructType(), StructType():
            names = [sorted(map(str.lower, each.fieldNames())) for each in (source, target)]
            return names[0] == names[1] and all(
                has_same_names(one.dataType, two.dataType)
                for one, two in pair_fields(source, target, by_name=True)
            )
    return True
