"""Resolve names in expressions to columns.

A name matches the column with exactly the same spelling, else the only one that matches ignoring
case. A path refers to fields of structs and to keys of string maps. Names with dots or spaces are
quoted with backticks.
"""

from __future__ import annotations

import difflib
from collections.abc import Sequence

import pyarrow as pa

from lancelet.expr.coercion import CoercionError
from lancelet.values import dataclass

_JSON_NAMES = frozenset({"arrow.json", "lance.json"})


@dataclass(frozen=True, slots=True)
class Resolved:
    """A path in the spelling of the schema, and its type."""

    path: tuple[str, ...]
    data_type: pa.DataType


def resolve(path: tuple[str, ...], schema: pa.Schema) -> Resolved:
    """Resolve a path in a schema, or raise `CoercionError`.

    >>> resolve(("A", "b"), pa.schema([("a", pa.struct([("b", pa.int8())]))]))
    Resolved(path=('a', 'b'), data_type=DataType(int8))
    """
    if schema.get_field_index(path[0]) < 0:
        names = schema.names
        if len(path) > 1 and _find(path[0], names) is None and ".".join(path) in names:
            path = (".".join(path),)
        path = (_require(path[0], names, ""), *path[1:])
    resolved = [path[0]]
    data_type = schema.field(path[0]).type
    for name in path[1:]:
        if isinstance(data_type, pa.BaseExtensionType):
            data_type = data_type.storage_type
        if pa.types.is_map(data_type):
            resolved.append(name)
            data_type = data_type.item_type
            continue
        if not pa.types.is_struct(data_type):
            raise CoercionError(f"{'.'.join(resolved)} is {data_type} and has no field {name!r}")
        fields = {field.name: field.type for field in data_type}
        resolved.append(_require(name, list(fields), f" in {'.'.join(resolved)}"))
        data_type = fields[resolved[-1]]
    return Resolved(tuple(resolved), data_type)


def _require(name: str, names: Sequence[str], where: str) -> str:
    match = _find(name, names)
    if match is None:
        raise CoercionError(f"No field named {name}{where}; {_suggestion(name, names)}")
    return match


def _find(name: str, names: Sequence[str]) -> str | None:
    if name in names:
        return name
    matches = [each for each in names if each.lower() == name.lower()]
    if len(matches) > 1:
        raise CoercionError(
            f"ambiguous name {name!r}: matches {', '.join(matches)}; quote it exactly"
        )
    return matches[0] if matches else None


def _suggestion(name: str, names: Sequence[str]) -> str:
    close = _close_matches(name, names, 3)
    if close:
        return f"did you mean {' or '.join(close)}?"
    listed = ", ".join(names[:20])
    return f"valid names are {listed}{', ...' if len(names) > 20 else ''}"


def _close_matches(name: str, names: Sequence[str], limit: int) -> list[str]:
    spelled = {each.lower(): each for each in names}
    return [spelled[each] for each in difflib.get_close_matches(name.lower(), spelled, n=limit)]


def extension_at(path: tuple[str, ...], schema: pa.Schema) -> str:
    """Return the extension type name of a column, "" if it has none.

    The name of a type that is not registered with pyarrow is in the field metadata.
    """
    field = schema.field(path[0])
    for name in path[1:]:
        if not pa.types.is_struct(field.type):
            return ""
        field = field.type.field(name)
    if isinstance(field.type, pa.BaseExtensionType):
        return str(field.type.extension_name)
    return str((field.metadata or {}).get(b"ARROW:extension:name", b"").decode())


def is_json(path: tuple[str, ...], schema: pa.Schema) -> bool:
    """Return whether a path is a JSON column, stored as text or as JSONB."""
    try:
        resolved = resolve(path, schema)
    except CoercionError:
        return False
    if isinstance(resolved.data_type, pa.BaseExtensionType):
        return resolved.data_type.extension_name in _JSON_NAMES
    metadata = schema.field(resolved.path[0]).metadata or {} if len(resolved.path) == 1 else {}
    return metadata.get(b"ARROW:extension:name", b"").decode() in _JSON_NAMES
