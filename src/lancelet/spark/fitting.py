"""Storing values of a data frame in columns of a table that have other types.

    struct<b: int, a: int>        {b: 2, a: 1}
    struct<a: bigint, b: bigint>  {a: 1, b: 2}      by name, and {a: 2, b: 1} by place

What does not fit is an error, whether or not the session computes by the ANSI standard.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

from pyspark.sql import Column
from pyspark.sql import functions as F  # noqa: N812 - the name everybody knows it by
from pyspark.sql.types import ArrayType, DataType, MapType, StructField, StructType


def fitted(
    value: Column, found: DataType, wanted: DataType, message: Column, *, by_name: bool
) -> Column:
    """Return a value as another type; one that does not fit, or a part of it, is an error."""
    if found.simpleString() == wanted.simpleString():
        return value
    cast = partial(fitted, message=message, by_name=by_name)
    match found, wanted:
        case ArrayType(), ArrayType():
            items = found.elementType, wanted.elementType
            return F.transform(value, lambda item: cast(item, *items))
        case MapType(), MapType():
            keys, values = (found.keyType, wanted.keyType), (found.valueType, wanted.valueType)
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
                for one, two in paired(found, wanted, by_name=by_name)
            ]
            return F.when(value.isNotNull(), F.struct(*fields))
    made = F.coalesce(value.try_cast(wanted), F.raise_error(message).cast(wanted))
    return F.when(value.isNull(), F.lit(None).cast(wanted)).otherwise(made)


def paired(
    found: StructType, wanted: StructType, *, by_name: bool
) -> Iterator[tuple[StructField, StructField]]:
    """Yield fields of a type with those of another that they are stored as."""
    exact = {each.name: each for each in found}
    named = {each.name.lower(): each for each in found}
    for place, two in enumerate(wanted):
        one = exact.get(two.name) or named[two.name.lower()] if by_name else found[place]
        yield one, two


def has_names(found: DataType, wanted: DataType) -> bool:
    """Say whether the fields in a type have the names of those in another, in any order."""
    match found, wanted:
        case ArrayType(), ArrayType():
            return has_names(found.elementType, wanted.elementType)
        case MapType(), MapType():
            is_named = has_names(found.keyType, wanted.keyType)
            return is_named and has_names(found.valueType, wanted.valueType)
        case StructType(), StructType():
            names = [sorted(map(str.lower, each.fieldNames())) for each in (found, wanted)]
            return names[0] == names[1] and all(
                has_names(one.dataType, two.dataType)
                for one, two in paired(found, wanted, by_name=True)
            )
    return True
