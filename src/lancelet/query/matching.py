r"""LIKE: patterns of `%` (any run of characters) and `_` (any one).

    'a%'          starts with a            'a\%'     the text a%
    'a!%' ESCAPE '!'                       the text a% too

Patterns reach Arrow's kernel with the backslash as their escape, whatever it was.
"""

from __future__ import annotations

import pyarrow as pa
import pyarrow.compute as pc

from lancelet.query.functions.base import Value, constant


def match_like(values: Value, pattern: Value, escape: str, *, ignore_case: bool) -> Value:
    """Return whether texts or byte strings match a constant pattern."""
    wanted = constant(pattern, "the pattern of LIKE")
    if wanted is None:
        return pa.scalar(None, pa.bool_())
    if isinstance(wanted, bytes):
        wanted = wanted.decode("utf-8", "surrogateescape")
    return pc.match_like(values, with_backslashes(wanted, escape), ignore_case=ignore_case)


def with_backslashes(pattern: str, escape: str) -> str:
    r"""Return a pattern that means the same with the backslash as its escape.

    >>> with_backslashes("10!% of \\_", "!")
    '10\\% of \\\\_'
    """
    parts: list[str] = []
    characters = iter(pattern)
    for character in characters:
        if character == escape:
            # At the end there is nothing to escape, so it stands for itself.
            escaped = next(characters, escape)
            parts.append(f"\\{escaped}" if escaped in "%_\\" else escaped)
        else:
            parts.append("\\\\" if character == "\\" else character)
    return "".join(parts)


def literal_prefix(pattern: str, escape: str) -> tuple[str, bool]:
    r"""Return the text that every match starts with, and whether that is the whole pattern.

    >>> literal_prefix("ab%c", "\\"), literal_prefix("a\\%b", "\\")
    (('ab', False), ('a%b', True))
    """
    parts: list[str] = []
    characters = iter(pattern)
    for character in characters:
        if character == escape:
            parts.append(next(characters, escape))
        elif character in "%_":
            return "".join(parts), False
        else:
            parts.append(character)
    return "".join(parts), True
