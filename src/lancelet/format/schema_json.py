"""JSON representation of Arrow schemas, compatible with the reference.

    {"fields": [{"name": "x", "type": {"type": "list", "fields": [..]}, "nullable": true}],
     "metadata": {"k": "v"}}

Type names are those of manifests, except that nested types contain their fields, and fixed-size
types their length, so no detail of the Arrow type is lost.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

import pyarrow as pa

from lancelet.errors import InvalidInputError, LanceletError
from lancelet.format.extension import extension_entries, restore_extensions
from lancelet.format.field import decode_metadata, encode_metadata
from lancelet.format.logical_type import logical_type_of, storage_of, storage_type_of

_NESTING_MAX: Final = 100


def schema_to_json(schema: pa.Schema) -> dict[str, Any]:
    """Convert a schema to JSON.

    >>> schema_to_json(pa.schema([pa.field("x", pa.int8(), nullable=False)]))
    {'fields': [{'name': 'x', 'type': {'type': 'int8'}, 'nullable': False}]}
    """
    return _with_metadata({"fields": [_field_to_json(field) for field in schema]}, schema.metadata)


def json_to_schema(schema_json: Mapping[str, Any]) -> pa.Schema:
    """Convert JSON to a schema, with extension types restored."""
    try:
        fields = [restore_extensions(_field_from_json(field, 0)) for field in schema_json["fields"]]
        return pa.schema(fields, encode_metadata(schema_json.get("metadata") or {}))
    except KeyError as error:
        raise InvalidInputError("a schema in JSON lacks an entry", missing=error.args[0]) from error
    except (TypeError, AttributeError, ValueError) as error:
        if isinstance(error, LanceletError):
            raise
        raise InvalidInputError("a schema in JSON has an entry of the wrong type") from error


def _field_to_json(field: pa.Field) -> dict[str, Any]:
    metadata = decode_metadata(field.metadata)
    if isinstance(field.type, pa.BaseExtensionType):
        metadata |= extension_entries(field.type)
    form = {
        "name": field.name,
        "type": _type_to_json(storage_of(field.type)),
        "nullable": field.nullable,
    }
    return _with_metadata(form, encode_metadata(metadata))


def _with_metadata(form: dict[str, Any], metadata: Mapping[bytes, bytes] | None) -> dict[str, Any]:
    return {**form, "metadata": decode_metadata(metadata)} if metadata else form


def _type_to_json(data_type: pa.DataType) -> dict[str, Any]:
    types = pa.types
    if types.is_struct(data_type):
        parts = [data_type.field(index) for index in range(data_type.num_fields)]
        return {"type": "struct", "fields": [_field_to_json(part) for part in parts]}
    if types.is_list(data_type) or types.is_large_list(data_type):
        kind = "list" if types.is_list(data_type) else "large_list"
        return {"type": kind, "fields": [_field_to_json(data_type.value_field)]}
    if types.is_fixed_size_list(data_type):
        items = [_field_to_json(data_type.value_field)]
        return {"type": "fixed_size_list", "fields": items, "length": data_type.list_size}
    if types.is_map(data_type):
        parts = [_field_to_json(data_type.key_field), _field_to_json(data_type.item_field)]
        return {"type": "map", "fields": parts}
    if types.is_fixed_size_binary(data_type) and not types.is_decimal(data_type):
        return {"type": "fixed_size_binary", "length": data_type.byte_width}
    return {"type": logical_type_of(data_type)}


def _field_from_json(form: Mapping[str, Any], depth: int) -> pa.Field:
    if depth > _NESTING_MAX:
        raise InvalidInputError("a schema exceeds the nesting limit", field=form["name"])
    data_type = _type_from_json(form["type"], depth)
    metadata = encode_metadata(form.get("metadata") or {})
    return pa.field(form["name"], data_type, _check_bool(form["nullable"]), metadata)


def _check_bool(value: object) -> bool:
    if not isinstance(value, bool):
        raise TypeError(value)
    return value


def _type_from_json(form: Mapping[str, Any], depth: int) -> pa.DataType:
    kind = form["type"]
    maker = _NESTED.get(kind)
    if maker is not None:
        parts = [_field_from_json(part, depth + 1) for part in form["fields"]]
        return maker(parts, form.get("length"))
    if kind == "fixed_size_binary":
        return pa.binary(form["length"])
    return storage_type_of(kind)


def _only_field(parts: list[pa.Field]) -> pa.Field:
    if len(parts) != 1:
        raise InvalidInputError("a list must have one field", found=len(parts))
    return parts[0]


def _make_map(parts: list[pa.Field], _length: int | None) -> pa.DataType:
    if len(parts) != 2:
        raise InvalidInputError("a map must have two fields", found=len(parts))
    return pa.map_(parts[0], parts[1])


_NESTED: Final[Mapping[str, Callable[[list[pa.Field], int | None], pa.DataType]]] = {
    "struct": lambda parts, _: pa.struct(parts),
    "list": lambda parts, _: pa.list_(_only_field(parts)),
    "large_list": lambda parts, _: pa.large_list(_only_field(parts)),
    "fixed_size_list": lambda parts, length: pa.list_(_only_field(parts), length),
    "map": _make_map,
}
