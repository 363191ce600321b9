"""Format values as indented text.

Fragment {
id: 0,
files: [
DataFile {
path: "a.lance",
...
"""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Iterable, Iterator, Mapping
from enum import Enum
from typing import Any, Final

_STEP: Final = "    "
_BYTES_SHOWN: Final = 16


@dataclasses.dataclass(frozen=True, slots=True)
class Titled:
    """A value with a title and members that differ from its class."""

    title: str
    members: Mapping[str, Any]


@dataclasses.dataclass(frozen=True, slots=True)
class Wrapped:
    """A value wrapped in a name: `LogicalType("int64")`."""

    title: str
    value: Any


def outline(value: Any, indent: str = "") -> str:
    """Format a value as text; nested values are indented.

    >>> print(outline({"a": (1, "x")}))
    {
        "a": [
            1,
            "x",
        ],
    }
    """
    match value:
        case str():
            return json.dumps(value)
        case bytes():
            rest = ".." if len(value) > _BYTES_SHOWN else ""
            return f"{len(value)} bytes {value[:_BYTES_SHOWN].hex()}{rest}"
        case Enum():
            return value.name
        case Titled(title, members):
            named = (f"{name}: {outline(own, indent + _STEP)}" for name, own in members.items())
            return _block(f"{title} {{", named, "}", indent)
        case Wrapped(title, own):
            return _block(f"{title}(", [outline(own, indent + _STEP)], ")", indent)
        case Mapping():
            parts = (
                f"{outline(key)}: {outline(own, indent + _STEP)}" for key, own in value.items()
            )
            return _block("{", parts, "}", indent)
    if isinstance(value, Iterable):
        return _block("[", (outline(each, indent + _STEP) for each in value), "]", indent)
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return _block(f"{type(value).__name__} {{", _members(value, indent), "}", indent)
    return str(value)


def _members(value: Any, indent: str) -> Iterator[str]:
    for field in dataclasses.fields(value):
        yield f"{field.name}: {outline(getattr(value, field.name), indent + _STEP)}"


def _block(opening: str, parts: Iterable[str], closing: str, indent: str) -> str:
    lines = [f"{indent}{_STEP}{part}," for part in parts]
    if not lines:
        return opening + closing
    return "\n".join([opening, *lines, indent + closing])
