"""Field paths: field names from the top level down, joined by dots.

    a.b        the field b within a
    `a.b`.c    the field c within a field whose name contains a dot

Within quotes, a back-tick is doubled.
"""

from __future__ import annotations

from collections.abc import Sequence

from lancelet.errors import InvalidInputError


def parse_path(path: str) -> tuple[str, ...]:
    """Split a path into names.

    >>> parse_path("a.`b.c`.d")
    ('a', 'b.c', 'd')
    """
    names: list[str] = []
    position = 0
    while True:
        name, position = _parse_name(path, position)
        names.append(name)
        if position == len(path):
            return tuple(names)
        if path[position] != ".":
            raise InvalidInputError(
                "a quoted name must be followed by a dot", path=path, at=position
            )
        position += 1


def format_path(names: Sequence[str]) -> str:
    """Join names into a path; the inverse of `parse_path`.

    >>> format_path(["a", "b.c"])
    'a.`b.c`'
    """
    return ".".join(_format_name(name) for name in names)


def _parse_name(path: str, start: int) -> tuple[str, int]:
    if start < len(path) and path[start] == "`":
        return _parse_quoted(path, start + 1)
    stop = path.find(".", start)
    stop = len(path) if stop < 0 else stop
    return path[start:stop], stop


def _parse_quoted(path: str, start: int) -> tuple[str, int]:
    parts: list[str] = []
    while True:
        stop = path.find("`", start)
        if stop < 0:
            raise InvalidInputError("a field path has an unterminated back-tick", path=path)
        parts.append(path[start:stop])
        if not path.startswith("``", stop):
            return "".join(parts), stop + 1
        parts.append("`")
        start = stop + 2


def _format_name(name: str) -> str:
    if "." in name or "`" in name:
        return "`" + name.replace("`", "``") + "`"
    return name
