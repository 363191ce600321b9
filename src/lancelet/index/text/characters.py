"""Unicode tables for text analysis: token characters, case, lower case and ASCII folding.

    tokens    letters and digits of any script; whitespace, hyphens and dashes are separators
    cases     É is upper, é is lower, ʕ and 中 are neither
    lower     É -> é, one character at a time
    folded    é -> e, ß -> ss, ﬁ -> fi

The tables are part of this package and independent of the Unicode version of the interpreter, so
queries are analyzed like the texts at build time.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from importlib import resources
from typing import Final

import numpy as np

from lancelet.buffers import Bytes

_NUM_CHARACTERS: Final = 0x110000
_AMBIGUOUS: Final = "Ambiguous"
"""Name of the line of stop words that are retained if the language is unknown."""

_BLANKS: Final = " \t\n\f\r"


@cache
def letters_and_digits() -> Bytes:
    """Return a bitmap over all characters, set for letters and digits."""
    member = np.zeros(_NUM_CHARACTERS, np.bool_)
    for line in _lines("alphanumeric.txt"):
        first, last = (int(number, 16) for number in line.split())
        member[first : last + 1] = True
    return np.packbits(member, bitorder="little")


@cache
def identifier_characters() -> Bytes:
    """Return a bitmap over all characters, set for those allowed in identifiers."""
    bits = letters_and_digits().copy()
    bits[ord("_") >> 3] |= 1 << (ord("_") & 7)
    return bits


def class_ranges() -> Iterator[tuple[str, list[tuple[int, int]]]]:
    """Yield the name and character ranges of each word break class."""
    return _ranges("word_breaks.txt")


@cache
def letters_of_case(case: str) -> frozenset[str]:
    """Return the letters with the case `upper` or `lower`. Most scripts have no case.

    >>> "É" in letters_of_case("upper"), "ß" in letters_of_case("lower")
    (True, True)
    """
    ranges = dict(_ranges("letter_cases.txt"))[case]
    return frozenset(chr(code) for first, last in ranges for code in range(first, last + 1))


@cache
def non_whitespace_mask() -> Bytes:
    """Return a bitmap over all characters, set for all except whitespace."""
    member = np.ones(_NUM_CHARACTERS, np.bool_)
    member[[ord(blank) for blank in _BLANKS]] = False
    return np.packbits(member, bitorder="little")


def lower(text: str) -> str:
    """Convert a text to lower case.

    >>> lower("Straße ΟΔΟΣ")
    'straße οδοσ'
    """
    return text.lower() if text.isascii() else text.translate(_table("lowercase.txt"))


def fold(text: str) -> str:
    """Replace letters with diacritics and ligatures by plain letters.

    >>> fold("naïve ﬁn")
    'naive fin'
    """
    return text if text.isascii() else text.translate(_table("folding.txt"))


@cache
def stop_words(language: str) -> frozenset[str]:
    """Return the stop words of a language; empty if it has no list."""
    for line in _lines("stop_words.txt"):
        name, *language_words = line.split()
        if name == language:
            return frozenset(language_words)
    return frozenset()


@cache
def all_stop_words() -> frozenset[str]:
    """Return the stop words of all languages, including those written without spaces.

    Stop words of one language that are meaningful words of another are excluded.

    >>> {"the", "der", "的"} <= all_stop_words(), "dog" in all_stop_words()
    (True, False)
    """
    lines = [line.split() for line in _lines("stop_words.txt")]
    all_tokens = {token for name, *tokens in lines if name != _AMBIGUOUS for token in tokens}
    return frozenset(all_tokens - stop_words(_AMBIGUOUS))


@cache
def _table(name: str) -> dict[int, str]:
    table: dict[int, str] = {}
    for line in _lines(name):
        code, *becomes = (int(number, 16) for number in line.split())
        table[code] = "".join(map(chr, becomes))
    return table


def _ranges(name: str) -> Iterator[tuple[str, list[tuple[int, int]]]]:
    for line in _lines(name):
        title, *ranges = line.split()
        ends = ([int(end, 16) for end in part.split("-")] for part in ranges)
        yield title, [(first, last[0] if last else first) for first, *last in ends]


def _lines(name: str) -> list[str]:
    file = resources.files("lancelet.index.text") / "tables" / name
    return file.read_text(encoding="utf-8").splitlines()
