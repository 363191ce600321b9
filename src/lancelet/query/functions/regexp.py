r"""Regular expressions, in RE2's syntax, with the flags i, m, s and g.

    regexp_like('abc', '^A', 'i')             true
    regexp_match('a1b2', '([a-z])(\d)')       ['a', '1']: the groups of the first match
    regexp_replace('a1b2', '\d', '#', 'g')    'a#b#'

Without groups the match itself is the one item. RE2 takes time linear in the text.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from lancelet.query.coercion import CoercionError
from lancelet.query.functions.base import Function, Value, first, text
from lancelet.query.functions.text import with_constants

_KNOWN_FLAGS: Final = frozenset("imsg")
# An escaped character, a character class, a group that captures (by name or not), or any other.
_PATTERN_PART: Final = re.compile(
    r"\\.|\[\^?\]?(?:\\.|[^\]\\])*\]|(?P<open>\((?:\?P?<\w+>|(?!\?)))|.", re.DOTALL
)


def _with_flags(pattern: str, flags: str) -> str:
    if set(flags) - _KNOWN_FLAGS:
        raise CoercionError(f"unknown flags {flags!r} of a regular expression; known are i m s g")
    inline = flags.replace("g", "")
    return f"(?{inline}){pattern}" if inline else pattern


@with_constants("a regular expression", pa.bool_())
def _regexp_like(values: Value, pattern: str, flags: str = "") -> Value:
    return pc.match_substring_regex(values, _with_flags(pattern, flags))


@with_constants("a regular expression")
def _regexp_replace(values: Value, pattern: str, by: str, flags: str = "") -> Value:
    most = None if "g" in flags else 1
    return pc.replace_substring_regex(
        values, _with_flags(pattern, flags), by, max_replacements=most
    )


@with_constants("a regular expression", pa.int64())
def _regexp_count(values: Value, pattern: str) -> Value:
    return pc.fill_null(pc.count_substring_regex(values, pattern).cast(pa.int64()), 0)


def _regexp_match(values: Value, pattern: Value, flags: Value | None = None) -> Value:
    result = pa.list_(values.type)
    if not pattern.is_valid or (flags is not None and not flags.is_valid):
        return pa.scalar(None, result)
    if isinstance(values, pa.Scalar):
        return _regexp_match(pa.array([values], values.type), pattern, flags)[0]
    letters = "" if flags is None else flags.as_py()
    named, groups = _name_groups(pattern.as_py())
    found = pc.extract_regex(values, _with_flags(named, letters))
    columns = [pc.struct_field(found, [f"g{index}"]) for index in range(groups)]
    order = np.arange(groups * len(found)).reshape(groups, len(found)).T.ravel()
    items = pa.concat_arrays([column.cast(values.type) for column in columns]).take(pa.array(order))
    lists = pa.FixedSizeListArray.from_arrays(items, groups).cast(result)
    return pc.if_else(found.is_valid(), lists, pa.scalar(None, result))


def _name_groups(pattern: str) -> tuple[str, int]:
    """Return a pattern whose capturing groups are named g0, g1, ..., and how many there are.

    >>> _name_groups("a(b)(?:c)"), _name_groups("abc")
    (('a(?P<g0>b)(?:c)', 1), ('(?P<g0>abc)', 1))
    """
    count = 0
    parts: list[str] = []
    for part, opens in _parts(pattern):
        parts.append(f"(?P<g{count}>" if opens else part)
        count += opens
    return ("".join(parts), count) if count else (f"(?P<g0>{pattern})", 1)


def _parts(pattern: str) -> Iterator[tuple[str, bool]]:
    for match in _PATTERN_PART.finditer(pattern):
        yield match.group(), match.group("open") is not None


REGEXP_FUNCTIONS: Final = (
    Function(("regexp_like",), (text, text, text), pa.bool_(), _regexp_like, optional=1),
    Function(("regexp_replace",), (text, text, text, text), first, _regexp_replace, optional=1),
    Function(("regexp_count",), (text, text), pa.int64(), _regexp_count),
    Function(
        ("regexp_match",),
        (text, text, text),
        lambda types: pa.list_(types[0]),
        _regexp_match,
        optional=1,
    ),
)
"""Every function of regular expressions."""
