"""JSON paths: `$.a.b[0]`, with wildcards, lists and ranges of indices.

    $            the document            $.a, $["a"]    a member
    $[0]         an element, from 0      $[last], $[last-1]   from the end
    $[0,2]       several                 $[0 to 2]      a range, both ends included
    $.*          all members             $[*]           all elements

A step without a match returns no values. `[0]` and `[*]` match elements of arrays only.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from functools import lru_cache
from typing import Any, Final, TypeAlias

from lancelet.expr.coercion import CoercionError

Json: TypeAlias = "bool | int | float | str | list[Json] | dict[str, Json] | None"
"""A JSON document or a value within it."""

Step: TypeAlias = Callable[[Any], Iterator[Json]]

_STEP: Final = re.compile(
    r"""\s*(?:
        \.(?P<any>\*)
      | \.?(?P<name>[\w$-]+)
      | \.?(?P<quoted>"(?:[^"\\]|\\.)*")
      | \[\s*(?P<key>"(?:[^"\\]|\\.)*"|'[^']*')\s*\]
      | \[\s*(?P<items>[^\]"']+?)\s*\]
    )""",
    re.VERBOSE,
)
_INDEX: Final = re.compile(r"(?P<last>last)?\s*(?:(?P<sign>[+-])?\s*(?P<number>\d+))?")


@lru_cache(maxsize=256)
def parse_path(text: str) -> tuple[Step, ...]:
    """Return the steps of a path, or raise `CoercionError`."""
    stripped = text.strip()
    position = 1 if stripped.startswith("$") else 0
    steps: list[Step] = []
    while position < len(stripped):
        match = _STEP.match(stripped, position)
        bare = match is not None and match.group("name") and stripped[position] != "."
        if match is None or (bare and steps) or (bare and stripped[0] == "$"):
            raise CoercionError(f"{text!r} is not a JSON path; write for example '$.a[0].b'")
        steps.append(_step(match, text))
        position = match.end()
    return tuple(steps)


def keys_of_path(text: str) -> tuple[str, ...] | None:
    """Return the member names of a path, or None if it has other steps.

    >>> keys_of_path("$.a.b"), keys_of_path("x"), keys_of_path("$.a[0]")
    (('a', 'b'), ('x',), None)
    """
    parse_path(text)
    matches = list(_STEP.finditer(text.strip().removeprefix("$")))
    names = tuple(match.group("name") for match in matches)
    return None if not names or any(not name or name.isdigit() for name in names) else names


def find_values(document: Json, path: str) -> list[Json]:
    """Return all values that a path matches.

    >>> find_values({"a": [1, 2, 3]}, "$.a[0 to 1]")
    [1, 2]
    """
    found = [document]
    for step in parse_path(path):
        found = [value for each in found for value in step(each)]
    return found


def _step(match: re.Match[str], text: str) -> Step:
    if match.group("any"):
        return lambda value: iter(value.values() if isinstance(value, dict) else ())
    if match.group("items"):
        return _items(match.group("items"), text)
    name = match.group("name")
    if name is None:
        quoted = match.group("quoted") or match.group("key")
        name = quoted[1:-1] if quoted[0] == "'" else json.loads(quoted)
    return lambda value: iter((value[name],) if isinstance(value, dict) and name in value else ())


def _items(listed: str, text: str) -> Step:
    if listed == "*":
        return lambda value: iter(value if isinstance(value, list) else ())
    ranges = [_range(part, text) for part in listed.split(",")]

    def items(value: Json) -> Iterator[Json]:
        if isinstance(value, list):
            for first, last in ranges:
                low, high = _at(first, len(value)), _at(last, len(value))
                yield from value[max(0, low) : max(0, high + 1)] if high >= 0 else ()

    return items


def _at(index: tuple[bool, int], length: int) -> int:
    from_end, offset = index
    return length - 1 + offset if from_end else offset


def _range(part: str, text: str) -> tuple[tuple[bool, int], tuple[bool, int]]:
    ends = [_parse_index(end.strip(), text) for end in re.split(r"\s+to\s+", part.strip())]
    if len(ends) > 2:
        raise CoercionError(f"{part!r} in the JSON path {text!r} is not a range")
    return ends[0], ends[-1]


def _parse_index(end: str, text: str) -> tuple[bool, int]:
    match = _INDEX.fullmatch(end)
    if match is None or not end:
        raise CoercionError(f"{end!r} in the JSON path {text!r} is not an index")
    number = int(match.group("number") or 0)
    return bool(match.group("last")), -number if match.group("sign") == "-" else number
