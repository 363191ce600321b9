"""Arrow types in the JSON form of the namespace API.

    float64      {"type": "float64"}
    list<int32>  {"type": "list", "fields": [{"name": "item", "type": {"type": "int32"}, ..}]}

The form has no time units and time zones; types without a unit are parsed as microseconds.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import pyarrow as pa
from lance_namespace import InvalidInputError

_DECIMAL: Final = 1000
_PLAIN: Final = {
    "null": pa.null(),
    "bool": pa.bool_(),
    **{
        f"{sign}int{bits}": getattr(pa, f"{sign}int{bits}")()
        for sign in ("", "u")
        for bits in (8, 16, 32, 64)
    },
    **{f"float{bits}": getattr(pa, f"float{bits}")() for bits in (16, 32, 64)},
    "utf8": pa.string(),
    "large_utf8": pa.large_string(),
    "binary": pa.binary(),
    "large_binary": pa.large_binary(),
    "date32": pa.date32(),
    "date64": pa.date64(),
    "timestamp": pa.timestamp("us"),
    "time32": pa.time32("ms"),
    "time64": pa.time64("us"),
    "duration": pa.duration("us"),
}
_NAMES: Final = {data_type: name for name, data_type in _PLAIN.items()}
_TIMES: Final = (
    (pa.types.is_timestamp, "timestamp"),
    (pa.types.is_time32, "time32"),
    (pa.types.is_time64, "time64"),
    (pa.types.is_duration, "duration"),
)


def schema_form(schema: pa.Schema) -> dict[str, Any]:
    """Convert a schema to its JSON form."""
    return {"fields": [_field_form(field) for field in schema]}


def type_form(data_type: pa.DataType) -> dict[str, Any]:
    """Convert a type to its JSON form.

    >>> type_form(pa.list_(pa.int8(), 3))["length"]
    3
    """
    if isinstance(data_type, pa.BaseExtensionType):
        return type_form(data_type.storage_type)
    if pa.types.is_dictionary(data_type):
        return type_form(data_type.value_type)
    if data_type in _NAMES:
        return {"type": _NAMES[data_type]}
    for is_kind, name in _TIMES:
        if is_kind(data_type):
            return {"type": name}
    if pa.types.is_decimal(data_type):
        length = data_type.precision * _DECIMAL + data_type.scale
        return {"type": f"decimal{data_type.bit_width}", "length": length}
    if pa.types.is_fixed_size_binary(data_type):
        return {"type": "fixed_size_binary", "length": data_type.byte_width}
    if pa.types.is_struct(data_type):
        return {"type": "struct", "fields": [_field_form(field) for field in data_type]}
    if pa.types.is_map(data_type):
        entries = pa.field("entries", pa.struct([data_type.key_field, data_type.item_field]), False)
        return {"type": "map", "fields": [_field_form(entries)]}
    if pa.types.is_fixed_size_list(data_type):
        item = _field_form(data_type.value_field)
        return {"type": "fixed_size_list", "length": data_type.list_size, "fields": [item]}
    name = "large_list" if pa.types.is_large_list(data_type) else "list"
    return {"type": name, "fields": [_field_form(data_type.value_field)]}


def parse_type(form: Mapping[str, Any]) -> pa.DataType:
    """Parse the JSON form of a type.

    >>> parse_type({"type": "decimal128", "length": 10002})
    Decimal128Type(decimal128(10, 2))
    """
    name, length = str(form.get("type", "")).lower(), form.get("length")
    fields = [_parse_field(field) for field in form.get("fields") or ()]
    match name, fields:
        case _ if name in _PLAIN:
            return _PLAIN[name]
        case (("decimal128" | "decimal256"), _) if length is not None:
            make = pa.decimal128 if name == "decimal128" else pa.decimal256
            return make(*divmod(int(length), _DECIMAL))
        case "fixed_size_binary", _ if length is not None:
            return pa.binary(int(length))
        case "struct", _:
            return pa.struct(fields)
        case "map", [entries] if pa.types.is_struct(entries.type):
            return pa.map_(*entries.type)
        case "fixed_size_list", [item] if length is not None:
            return pa.list_(item, int(length))
        case "large_list", [item]:
            return pa.large_list(item)
        case "list", [item]:
            return pa.list_(item)
    raise InvalidInputError(f"Invalid input: unknown type {dict(form)}")


def _field_form(field: pa.Field) -> dict[str, Any]:
    return {"name": field.name, "nullable": field.nullable, "type": type_form(field.type)}


def _parse_field(form: Mapping[str, Any]) -> pa.Field:
    return pa.field(form["name"], parse_type(form["type"]), form.get("nullable", True))
