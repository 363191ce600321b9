"""What indices of text know of characters: which make up words, their lower case, their plain form.

    words     every letter and digit of any script; a blank, a hyphen or a dash ends a word
    cases     É is upper, é is lower, ʕ and 中 are neither
    lower     É -> é, one character at a time
    folded    é -> e, ß -> ss, ﬁ -> fi

The tables are data of this package and not those of the interpreter, whose version of Unicode may
be another one: an index must find what it was built of.
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
"""The line of words that are kept where the language is not known."""

_BLANKS: Final = " \t\n\f\r"


@cache
def letters_and_digits() -> Bytes:
    """Return a bit for each character, set for those that words are made of."""
    member = np.zeros(_NUM_CHARACTERS, np.bool_)
    for line in _lines("alphanumeric.txt"):
        first, last = (int(number, 16) for number in line.split())
        member[first : last + 1] = True
    return np.packbits(member, bitorder="little")


@cache
def identifier_characters() -> Bytes:
    """Return a bit for each character, set for those that names in programs are made of."""
    bits = letters_and_digits().copy()
    bits[ord("_") >> 3] |= 1 << (ord("_") & 7)
    return bits


def class_ranges() -> Iterator[tuple[str, list[tuple[int, int]]]]:
    """Yield what characters are to the ends of words, and the first and last of each range."""
    return _ranges("word_breaks.txt")


@cache
def letters_of_case(case: str) -> frozenset[str]:
    """Return the letters whose case is `upper` or `lower`; most scripts have none.

    >>> "É" in letters_of_case("upper"), "ß" in letters_of_case("lower")
    (True, True)
    """
    ranges = dict(_ranges("letter_cases.txt"))[case]
    return frozenset(chr(code) for first, last in ranges for code in range(first, last + 1))


@cache
def no_blanks() -> Bytes:
    """Return a bit for each character, set for all but blanks."""
    member = np.ones(_NUM_CHARACTERS, np.bool_)
    member[[ord(blank) for blank in _BLANKS]] = False
    return np.packbits(member, bitorder="little")


def lower(text: str) -> str:
    """Return a text in lower case.

    >>> lower("Straße ΟΔΟΣ")
    'straße οδοσ'
    """
    return text.lower() if text.isascii() else text.translate(_table("lowercase.txt"))


def fold(text: str) -> str:
    """Return a text with plain letters in place of those with marks.

    >>> fold("naïve ﬁn")
    'naive fin'
    """
    return text if text.isascii() else text.translate(_table("folding.txt"))


@cache
def stop_words(language: str) -> frozenset[str]:
    """Return the words of a language that say nothing, none if it has no list."""
    for line in _lines("stop_words.txt"):
        name, *words = line.split()
        if name == language:
            return frozenset(words)
    return frozenset()


@cache
def stop_words_of_all() -> frozenset[str]:
    """Return the words of all languages, and of those that put no blanks between words.

    Some say nothing in one language and much in another; they are not among them.

    >>> {"the", "der", "的"} <= stop_words_of_all(), "dog" in stop_words_of_all()
    (True, False)
    """
    lines = [line.split() for line in _lines("stop_words.txt")]
    found = {word for name, *words in lines if name != _AMBIGUOUS for word in words}
    return frozenset(found - stop_words(_AMBIGUOUS))


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
        ends = ([int(end, 16) for end in one.split("-")] for one in ranges)
        yield title, [(first, last[0] if last else first) for first, *last in ends]


def _lines(name: str) -> list[str]:
    file = resources.files("lancelet.index.text") / "tables" / name
    return file.read_text(encoding="utf-8").splitlines()
