r"""String functions.

Positions count characters from 1, as SQL does: `substr('abcd', 2, 2)` is 'bc', and
`substr('abcd', 0, 2)` is 'a', since position 0 precedes the first character.

Regular expressions have the syntax of RE2 and the flags i, m, s and g.

    regexp_like('abc', '^A', 'i')             true
    regexp_match('a1b2', '([a-z])(\d)')       ['a', '1']: the groups of the first match
    regexp_replace('a1b2', '\d', '#', 'g')    'a#b#'

Without groups, the result has the whole match as its only item. RE2 runs in linear time.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from lancelet.expr.coercion import CoercionError
from lancelet.expr.functions.base import (
    Compute,
    Function,
    Value,
    check_output,
    constant,
    first,
    integer,
    num_rows_of,
    of_arrow,
    on_arrays,
    per_distinct,
    printable,
    text,
    text_bytes,
    text_or_bytes,
)
from lancelet.expr.functions.lists import element_at
from lancelet.expr.strings import are_many_strings, characters, contains

_SLICE_END: Final = 2**31 - 1
_TOKEN: Final = re.compile(r"[^\W_]+")

_REFERENCE: Final = re.compile(r"\\[0-9]")

_FLAGS: Final = frozenset("imsg")
# An escaped character, a character class, a capturing group (named or not), or another character.
_PATTERN_PART: Final = re.compile(
    r"\\.|\[\^?\]?(?:\\.|[^\]\\])*\]|(?P<open>\((?:\?P?<\w+>|(?!\?)))|.", re.DOTALL
)


def join(*texts: Value) -> Value:
    """Concatenate strings; null if any is null."""
    _check_joined("||", texts, pa.scalar(""))
    return pc.binary_join_element_wise(*texts, pa.scalar("", texts[0].type))


def with_constants(name: str, gives: pa.DataType | None = None) -> Callable[[Compute], Compute]:
    """Wrap a function of a string and constants; the result is null if a constant is null.

    Columns are accepted in place of constants. `name` describes the constants in errors; `gives` is
    the result type, by default the type of the string.
    """

    def decorate(compute: Compute) -> Compute:
        def call(values: Value, *arguments: Value) -> Value:
            constants = [constant(argument, name) for argument in arguments]
            if any(each is None for each in constants):
                return pa.scalar(None, gives or values.type)
            return compute(values, *constants)

        return per_distinct(name, call)

    return decorate


@with_constants("the start and the length of substr")
def _substr(values: Value, start: int, length: int | None = None) -> Value:
    if length is not None and length < 0:
        raise CoercionError("the length of substr cannot be negative")
    stop = _SLICE_END if length is None else max(0, start - 1 + length)
    return pc.utf8_slice_codeunits(values, max(0, start - 1), min(stop, _SLICE_END))


@with_constants("the length of left")
def _left(values: Value, length: int) -> Value:
    return pc.utf8_slice_codeunits(values, 0, length)


@with_constants("the length of right")
def _right(values: Value, length: int) -> Value:
    if length == 0:
        return pc.utf8_slice_codeunits(values, 0, 0)
    return pc.utf8_slice_codeunits(values, -length, _SLICE_END)


def _concat(*values: Value) -> Value:
    """Concatenate strings, treating nulls as empty strings, unlike `||`."""
    _check_joined("concat", values, pa.scalar(""))
    return pc.binary_join_element_wise(
        *values, pa.scalar("", values[0].type), null_handling="replace", null_replacement=""
    )


def _check_joined(name: str, values: Sequence[Value], separator: Value) -> None:
    rows = num_rows_of((*values, separator))
    parts = [*values, *[separator] * (len(values) - 1)]
    sizes = [text_bytes(each) * (rows if isinstance(each, pa.Scalar) else 1) for each in parts]
    check_output(name, sum(sizes), *values, separator)


def _concat_ws(separator: Value, *values: Value) -> Value:
    _check_joined("concat_ws", values, separator)
    return pc.binary_join_element_wise(*values, separator, null_handling="skip")


def _trimmer(kernel: Any) -> Compute:
    @with_constants("the characters to trim")
    def trim(values: Value, characters: str = " ") -> Value:
        return kernel(values, characters=characters)

    return trim


@with_constants("the searched text", pa.int32())
def _strpos(values: Value, substring: str) -> Value:
    """Return the position in characters; Arrow's kernel counts bytes."""
    if not substring:
        return pc.if_else(pc.is_valid(values), 1, pa.scalar(None, pa.int32())).cast(pa.int32())
    before = pc.list_element(pc.split_pattern(values, pattern=substring, max_splits=1), 0)
    position = pc.add(pc.utf8_length(before).cast(pa.int32()), pa.scalar(1, pa.int32()))
    found = pc.match_substring(values, substring)
    return pc.if_else(found, position, pa.scalar(0, pa.int32()))


@with_constants("the replaced text and the replacement")
def _replace(values: Value, substring: str, by: str) -> Value:
    if not substring:
        return values
    found = pc.count_substring(values, substring).cast(pa.int64())
    count = (found if isinstance(found, pa.Scalar) else pc.sum(found)).as_py() or 0
    check_output("replace", text_bytes(values) + count * len(by.encode()), values)
    return pc.replace_substring(values, substring, by)


def _padder(kernel: Any, join_padding: Callable[[str, str], str]) -> Compute:
    @with_constants("the length and the padding")
    def pad(values: Value, length: int, padding: str = " ") -> Value:
        if length <= 0 or not padding:
            return pc.utf8_slice_codeunits(values, 0, max(0, length))
        padded = num_rows_of([values]) * max(0, length) * len(padding.encode())
        check_output("lpad and rpad", text_bytes(values) + padded, values)
        if len(padding) == 1:
            return pc.utf8_slice_codeunits(kernel(values, length, padding), 0, length)
        filler = padding * (length // len(padding) + 1)

        @on_arrays
        def padded_with(texts: pa.Array) -> pa.Array:
            found = [
                None if each is None else join_padding(each, filler[: max(0, length - len(each))])
                for each in texts.to_pylist()
            ]
            return pc.utf8_slice_codeunits(pa.array(found, texts.type), 0, length)

        return padded_with(values)

    return pad


@with_constants("the number of repetitions")
def _repeat(values: Value, times: int) -> Value:
    check_output("repeat", text_bytes(values) * max(0, times), values)
    return pc.binary_repeat(values, max(0, times))


@with_constants("the delimiter and the position of split_part")
def _split_part(values: Value, delimiter: str, position: int) -> Value:
    if not position:
        raise CoercionError("the position of split_part must be at least 1")
    parts = pc.split_pattern(values, pattern=delimiter)
    found = pc.fill_null(element_at(parts, pa.scalar(position)), "")
    return pc.if_else(pc.is_valid(values), found, pa.scalar(None, values.type))


@with_constants("the tokens", pa.bool_())
def _contains_tokens(values: Value, text: str) -> Value:
    """Return whether a string contains all tokens of a constant as whole tokens."""
    found: Value = pc.is_valid(values)
    for token in dict.fromkeys(_TOKEN.findall(text)):
        pattern = rf"(?:^|[^\pL\pN]){re.escape(token)}(?:[^\pL\pN]|$)"
        found = pc.and_(found, pc.match_substring_regex(values, pattern))
    return pc.if_else(pc.is_valid(values), found, pa.scalar(None, pa.bool_()))


def _as_int32(kernel: Any, factor: int = 1) -> Callable[[Value], Value]:
    return lambda values: pc.multiply(
        kernel(values).cast(pa.int32()), pa.scalar(factor, pa.int32())
    )


def _contains(values: Value, part: str) -> Value:
    if are_many_strings(values):
        return contains(values, part.encode())
    return pc.match_substring(values, part)


def _length(values: Value) -> Value:
    return characters(values) if are_many_strings(values) else pc.utf8_length(values)


def _prefix_test(kernel: Any, name: str) -> Compute:
    return with_constants(name, pa.bool_())(kernel)


TEXT_FUNCTIONS: Final = (
    Function(("||",), (printable, printable), first, join, unify=True, repeats=True),
    Function(("lower",), (text,), first, of_arrow("utf8_lower")),
    Function(("upper",), (text,), first, of_arrow("utf8_upper")),
    Function(("initcap",), (text,), first, of_arrow("utf8_title")),
    Function(("reverse",), (text,), first, of_arrow("utf8_reverse")),
    Function(
        ("length", "char_length", "character_length"),
        (text,),
        pa.int32(),
        _as_int32(_length),
    ),
    Function(("octet_length",), (text_or_bytes,), pa.int32(), _as_int32(of_arrow("binary_length"))),
    Function(
        ("bit_length",), (text_or_bytes,), pa.int32(), _as_int32(of_arrow("binary_length"), 8)
    ),
    Function(("substr", "substring"), (text, integer, integer), first, _substr, optional=1),
    Function(("left",), (printable, integer), first, _left),
    Function(("right",), (printable, integer), first, _right),
    Function(("concat",), (printable,), first, _concat, repeats=True, unify=True),
    Function(("concat_ws",), (printable, printable), first, _concat_ws, repeats=True, unify=True),
    Function(("btrim", "trim"), (text, text), first, _trimmer(of_arrow("utf8_trim")), optional=1),
    Function(("ltrim",), (text, text), first, _trimmer(of_arrow("utf8_ltrim")), optional=1),
    Function(("rtrim",), (text, text), first, _trimmer(of_arrow("utf8_rtrim")), optional=1),
    Function(
        ("starts_with",),
        (text, text),
        pa.bool_(),
        _prefix_test(of_arrow("starts_with"), "the prefix"),
    ),
    Function(
        ("ends_with",), (text, text), pa.bool_(), _prefix_test(of_arrow("ends_with"), "the suffix")
    ),
    Function(
        ("contains",),
        (text, text),
        pa.bool_(),
        _prefix_test(_contains, "the text"),
    ),
    Function(("contains_tokens",), (text, text), pa.bool_(), _contains_tokens),
    Function(("strpos", "instr"), (text, text), pa.int32(), _strpos),
    Function(("replace",), (text, text, text), first, _replace),
    Function(
        ("lpad",),
        (printable, integer, printable),
        first,
        _padder(of_arrow("utf8_lpad"), lambda value, padding: padding + value),
        optional=1,
    ),
    Function(
        ("rpad",),
        (printable, integer, printable),
        first,
        _padder(of_arrow("utf8_rpad"), lambda value, padding: value + padding),
        optional=1,
    ),
    Function(("repeat",), (text, integer), first, _repeat),
    Function(("split_part",), (text, text, integer), first, _split_part),
)
"""All string functions, except for regular expressions."""


def _with_flags(pattern: str, flags: str) -> str:
    if set(flags) - _FLAGS:
        raise CoercionError(f"unknown regular expression flags {flags!r}; expected i, m, s or g")
    inline = flags.replace("g", "")
    return f"(?{inline}){pattern}" if inline else pattern


@with_constants("a regular expression", pa.bool_())
def _regexp_like(values: Value, pattern: str, flags: str = "") -> Value:
    return pc.match_substring_regex(values, _with_flags(pattern, flags))


@with_constants("a regular expression")
def _regexp_replace(values: Value, pattern: str, by: str, flags: str = "") -> Value:
    most = None if "g" in flags else 1
    rows, size = num_rows_of([values]), text_bytes(values)
    # At most one match starts at each character, and one at the end.
    matches = size + rows if most is None else rows
    references = len(_REFERENCE.findall(by))
    check_output("regexp_replace", size * (1 + references) + matches * len(by.encode()), values)
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
    """Name the capturing groups of a pattern g0, g1, ..., and return their number.

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
"""All functions of regular expressions."""
