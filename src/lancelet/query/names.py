"""Names in expressions and the columns they mean.

A name means the column spelled exactly so, else the only one spelled so in any case. A path
goes into structs, and by key into maps of text. Names with dots or spaces are quoted with
back-ticks.
"""

from __future__ import annotations

import difflib
from collections.abc import Sequence

import pyarrow as pa

from lancelet.query.coercion import CoercionError
from lancelet.values import dataclass

_JSON_NAMES = frozenset({"arrow.json", "lance.json"})


@dataclass(frozen=True, slots=True)
class Resolved:
    """A path as the schema spells it, and the type at its end."""

    path: tuple[str, ...]
    data_type: pa.DataType


def resolve(path: tuple[str, ...], schema: pa.Schema) -> Resolved:
    """Return what a path means in a schema, or raise `CoercionError`.

    >>> resolve(("A", "b"), pa.schema([("a", pa.struct([("b", pa.int8())]))]))
    Resolved(path=('a', 'b'), data_type=DataType(int8))
    """
    names = schema.names
    if len(path) > 1 and _find(path[0], names) is None and ".".join(path) in names:
        path = (".".join(path),)
    found = [_require(path[0], names, "")]
    data_type = schema.field(found[0]).type
    for name in path[1:]:
        if isinstance(data_type, pa.BaseExtensionType):
            data_type = data_type.storage_type
        if pa.types.is_map(data_type):
            found.append(name)
            data_type = data_type.item_type
            continue
        if not pa.types.is_struct(data_type):
            raise CoercionError(f"{'.'.join(found)} is {data_type} and has no field {name!r}")
        fields = {field.name: field.type for field in data_type}
        found.append(_require(name, list(fields), f" in {'.'.join(found)}"))
        data_type = fields[found[-1]]
    return Resolved(tuple(found), data_type)


def _require(name: str, names: Sequence[str], where: str) -> str:
    found = _find(name, names)
    if found is None:
        raise CoercionError(f"No field named {name}{where}; {_suggestion(name, names)}")
    return found


def _find(name: str, names: Sequence[str]) -> str | None:
    if name in names:
        return name
    alike = [each for each in names if each.lower() == name.lower()]
    if len(alike) > 1:
        raise CoercionError(f"{name!r} may mean any of {', '.join(alike)}; quote it exactly")
    return alike[0] if alike else None


def _suggestion(name: str, names: Sequence[str]) -> str:
    close = _close(name, names, 3)
    if close:
        return f"did you mean {' or '.join(close)}?"
    shown = ", ".join(names[:20])
    return f"there are {shown}{', ...' if len(names) > 20 else ''}"


def _close(name: str, names: Sequence[str], most: int) -> list[str]:
    spelled = {each.lower(): each for each in names}
    return [spelled[each] for each in difflib.get_close_matches(name.lower(), spelled, n=most)]


def extension_at(path: tuple[str, ...], schema: pa.Schema) -> str:
    """Return the name of the extension type of a column, "" if it has none.

    A type that pyarrow does not know is noted with its field.
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
    """Whether a path ends at a JSON column, stored as text or as JSONB."""
    try:
        found = resolve(path, schema)
    except CoercionError:
        return False
    if isinstance(found.data_type, pa.BaseExtensionType):
        return found.data_type.extension_name in _JSON_NAMES
    metadata = schema.field(found.path[0]).metadata or {} if len(found.path) == 1 else {}
    return metadata.get(b"ARROW:extension:name", b"").decode() in _JSON_NAMES
