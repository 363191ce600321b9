"""Logical types: the strings that represent Arrow types in manifests.

    int32                                int32
    timestamp(us, tz=+05:30)             timestamp:us:+05:30       a zone may contain colons
    fixed_size_list<float>[4]            fixed_size_list:float:4   no child field
    dictionary<int8, string>             dict:string:int8:false    value type first
    list<struct<..>>                     list.struct               the struct is a child field

Types with child fields (struct, list, map, and fixed-size lists of structs) need them to restore
the Arrow type. All other strings determine it alone.
"""

from __future__ import annotations

from collections.abc import Callable
from enum import IntEnum
from typing import Final

import pyarrow as pa

from lancelet.errors import CorruptDataError, UnsupportedError

STRUCT: Final = "struct"
MAP: Final = "map"
JSON: Final = "json"
BFLOAT16: Final = "lance.bfloat16"
LISTS: Final = frozenset({"list", "list.struct"})
LARGE_LISTS: Final = frozenset({"large_list", "large_list.struct"})

_FIXED_SIZE_LIST: Final = "fixed_size_list:"
_VALUE_BITS_MAX: Final = 2**31 - 1
_FIXED_SIZE_BINARY: Final = "fixed_size_binary:"
_LIST_SIZE_MAX: Final = 2**31 - 1
_NESTING_MAX: Final = 32

_SIMPLE: Final[dict[str, pa.DataType]] = {
    "null": pa.null(),
    "bool": pa.bool_(),
    "int8": pa.int8(),
    "uint8": pa.uint8(),
    "int16": pa.int16(),
    "uint16": pa.uint16(),
    "int32": pa.int32(),
    "uint32": pa.uint32(),
    "int64": pa.int64(),
    "uint64": pa.uint64(),
    "halffloat": pa.float16(),
    "float": pa.float32(),
    "double": pa.float64(),
    "string": pa.string(),
    "large_string": pa.large_string(),
    "binary": pa.binary(),
    "large_binary": pa.large_binary(),
    "date32:day": pa.date32(),
    "date64:ms": pa.date64(),
    "time32:s": pa.time32("s"),
    "time32:ms": pa.time32("ms"),
    "time64:us": pa.time64("us"),
    "time64:ns": pa.time64("ns"),
    "duration:s": pa.duration("s"),
    "duration:ms": pa.duration("ms"),
    "duration:us": pa.duration("us"),
    "duration:ns": pa.duration("ns"),
    JSON: pa.large_binary(),
    BFLOAT16: pa.binary(2),
}
_NAMES: Final = {
    data_type: name for name, data_type in _SIMPLE.items() if name not in (JSON, BFLOAT16)
}
_USER_TYPES: Final = {
    name: data_type for name, data_type in _SIMPLE.items() if name not in (JSON, BFLOAT16, "null")
}
_PLAIN_NAMES: Final = {
    data_type.id: name
    for data_type, name in _NAMES.items()
    if pa.types.is_integer(data_type)
    or pa.types.is_floating(data_type)
    or name in ("bool", "string", "binary", "large_string", "large_binary")
}
_NORMALIZED: Final = {pa.string_view(): pa.string(), pa.binary_view(): pa.binary()}
_DICTIONARY_KEYS: Final = frozenset(
    {"int8", "uint8", "int16", "uint16", "int32", "uint32", "int64", "uint64"}
)
_VARIABLE: Final = frozenset({"string", "large_string", "binary", "large_binary", JSON})


class Encoding(IntEnum):
    """The encoding of a field in a 0.1 file. Later versions write it but do not read it."""

    NONE = 0
    PLAIN = 1
    VAR_BINARY = 2
    DICTIONARY = 3
    RLE = 4


def encoding_of(logical_type: str) -> Encoding:
    """Return the encoding that a schema records for a logical type.

    >>> encoding_of("string").name, encoding_of("fixed_size_list:float:4").name
    ('VAR_BINARY', 'PLAIN')
    """
    if logical_type in (STRUCT, "null"):
        return Encoding.NONE
    if logical_type in _VARIABLE:
        return Encoding.VAR_BINARY
    return Encoding.DICTIONARY if logical_type.startswith("dict:") else Encoding.PLAIN


def logical_type_of(data_type: pa.DataType) -> str:
    """Return the logical type of an Arrow storage type. Raise if the format does not support it.

    >>> logical_type_of(pa.list_(pa.list_(pa.int8(), 2), 3))
    'fixed_size_list:fixed_size_list:int8:2:3'
    """
    data_type = _NORMALIZED.get(data_type, data_type)
    name = _NAMES.get(data_type)
    if name is not None:
        return name
    if pa.types.is_timestamp(data_type):
        return f"timestamp:{data_type.unit}:{data_type.tz or '-'}"
    if pa.types.is_fixed_size_binary(data_type):
        return f"{_FIXED_SIZE_BINARY}{data_type.byte_width}"
    if pa.types.is_decimal128(data_type) or pa.types.is_decimal256(data_type):
        return f"decimal:{data_type.bit_width}:{data_type.precision}:{data_type.scale}"
    if pa.types.is_struct(data_type):
        return STRUCT
    if pa.types.is_map(data_type):
        if data_type.keys_sorted:
            raise UnsupportedError(
                "the format cannot record that a map is sorted by its keys: keys_sorted=true is "
                "not supported"
            )
        return MAP
    if pa.types.is_list(data_type):
        return "list.struct" if pa.types.is_struct(storage_of(data_type.value_type)) else "list"
    if pa.types.is_large_list(data_type):
        is_struct = pa.types.is_struct(storage_of(data_type.value_type))
        return "large_list.struct" if is_struct else "large_list"
    if pa.types.is_fixed_size_list(data_type):
        return f"{_FIXED_SIZE_LIST}{_item_name(data_type)}:{data_type.list_size}"
    if pa.types.is_dictionary(data_type):
        return _dictionary_name(data_type)
    raise UnsupportedError("the format does not support this type", arrow_type=str(data_type))


def plain_name_of(data_type: pa.DataType) -> str | None:
    """Return the logical type of a number or string type, or None for all other types.

    >>> plain_name_of(pa.int32()), plain_name_of(pa.date32())
    ('int32', None)
    """
    return _PLAIN_NAMES.get(data_type.id)


def storage_type_of(logical_type: str) -> pa.DataType:
    """Return the Arrow type of a logical type without child fields.

    >>> storage_type_of("fixed_size_list:timestamp:us:-:8")
    FixedSizeListType(fixed_size_list<item: timestamp[us]>[8])
    """
    return _parse(logical_type, depth=0)


def simple_type_of(logical_type: str) -> pa.DataType | None:
    """Return the Arrow type of a parameterless logical type that users see as stored, or None.

    >>> simple_type_of("int32"), simple_type_of("json"), simple_type_of("list")
    (DataType(int32), None, None)
    """
    return _USER_TYPES.get(logical_type)


def list_size_of(logical_type: str) -> int | None:
    """Return the list size of a fixed-size list of structs, or None for other types.

    >>> list_size_of("fixed_size_list:struct:3"), list_size_of("fixed_size_list:float:3")
    (3, None)
    """
    head = f"{_FIXED_SIZE_LIST}{STRUCT}:"
    if not logical_type.startswith(head):
        return None
    return _parse_size(logical_type.removeprefix(head), logical_type, largest=_LIST_SIZE_MAX)


def storage_of(data_type: pa.DataType) -> pa.DataType:
    """Return the storage type of an extension type; return other types unchanged."""
    return data_type.storage_type if isinstance(data_type, pa.BaseExtensionType) else data_type


def _item_name(data_type: pa.FixedSizeListType) -> str:
    item = data_type.value_type
    if isinstance(item, pa.BaseExtensionType) and item.extension_name == BFLOAT16:
        return BFLOAT16
    item = storage_of(item)
    name = logical_type_of(item)
    if name in LISTS or name in LARGE_LISTS or name == MAP or name.endswith(f":{STRUCT}"):
        raise UnsupportedError(
            "a fixed-size list cannot contain lists or maps", arrow_type=str(data_type)
        )
    if list_size_of(name) is not None:
        raise UnsupportedError(
            "fixed-size lists of structs cannot be nested", arrow_type=str(data_type)
        )
    return name


def _dictionary_name(data_type: pa.DictionaryType) -> str:
    value = logical_type_of(data_type.value_type)
    # Colons separate the parts, so a value type that contains one could not be parsed.
    if ":" in value or value not in _SIMPLE:
        raise UnsupportedError(
            "the format does not support dictionaries of this value type", arrow_type=str(data_type)
        )
    return f"dict:{value}:{logical_type_of(data_type.index_type)}:false"


def _parse(logical_type: str, *, depth: int) -> pa.DataType:
    if depth > _NESTING_MAX:
        raise CorruptDataError(
            "a logical type exceeds the nesting limit", logical_type=logical_type
        )
    if logical_type in _SIMPLE:
        return _SIMPLE[logical_type]
    kind, _, rest = logical_type.partition(":")
    parser = _PARSERS.get(kind)
    if parser is None or not rest:
        raise UnsupportedError("unknown logical type", logical_type=logical_type)
    try:
        return parser(rest, depth)
    except (ValueError, OverflowError) as error:
        raise CorruptDataError("a logical type is malformed", logical_type=logical_type) from error


def _parse_fixed_size_list(rest: str, depth: int) -> pa.DataType:
    item, _, size = rest.rpartition(":")
    item_type = _parse(item, depth=depth + 1)
    metadata = {"ARROW:extension:name": BFLOAT16} if item == BFLOAT16 else None
    count = _parse_size(size, rest, largest=_LIST_SIZE_MAX)
    if count * _value_bits(item_type) > _VALUE_BITS_MAX:
        raise CorruptDataError(
            "a value of a fixed-size list exceeds 256 MiB",
            logical_type=f"{_FIXED_SIZE_LIST}{rest}",
        )
    return pa.list_(pa.field("item", item_type, metadata=metadata), count)


def _value_bits(data_type: pa.DataType) -> int:
    if pa.types.is_fixed_size_list(data_type):
        return int(data_type.list_size) * _value_bits(data_type.value_type)
    try:
        return int(data_type.bit_width)
    except ValueError:  # Variable-width type.
        return 0


def _parse_fixed_size_binary(rest: str, _depth: int) -> pa.DataType:
    return pa.binary(_parse_size(rest, rest, largest=_LIST_SIZE_MAX))


def _parse_timestamp(rest: str, _depth: int) -> pa.DataType:
    unit, _, zone = rest.partition(":")
    return pa.timestamp(unit, None if zone in ("", "-") else zone)


def _parse_decimal(rest: str, _depth: int) -> pa.DataType:
    bits, precision, scale = rest.split(":")
    make: dict[str, Callable[[int, int], pa.DataType]] = {
        "128": pa.decimal128,
        "256": pa.decimal256,
    }
    if bits not in make:
        raise ValueError(bits)
    return make[bits](int(precision), int(scale))


def _parse_dictionary(rest: str, depth: int) -> pa.DataType:
    value, key, ordered = rest.rsplit(":", 2)
    if key not in _DICTIONARY_KEYS or ordered not in ("true", "false"):
        raise ValueError(rest)
    return pa.dictionary(_SIMPLE[key], _parse(value, depth=depth + 1), ordered=ordered == "true")


def _parse_size(text: str, logical_type: str, *, largest: int) -> int:
    if not (text.isascii() and text.isdigit()) or len(text) > 10 or int(text) > largest:
        raise CorruptDataError("a logical type has an invalid size", logical_type=logical_type)
    return int(text)


_PARSERS: Final[dict[str, Callable[[str, int], pa.DataType]]] = {
    "fixed_size_list": _parse_fixed_size_list,
    "fixed_size_binary": _parse_fixed_size_binary,
    "timestamp": _parse_timestamp,
    "decimal": _parse_decimal,
    "dict": _parse_dictionary,
}
