"""Cutting texts into pieces, before anything is done to a piece.

simple       can't stop    ->  can 0, t 1, stop 2
whitespace   can't stop    ->  can't 0, stop 1
raw          can't stop    ->  can't stop 0
ngram        stop          ->  sto 0, top 0
code         getName a_b   ->  getName 0, a_b 1         see `program_cutter`
jieba/...    others know the words of a language        see `models`

A cutter takes texts and returns their pieces, the position of each and how many each text has.

Cutting programs into names, the parts of names, and operators.

    getName(a_b) -> c      getName 0   a_b 1   c 2
    split_identifiers      getName 0   get 0   Name 1   a_b 2   a 2   b 3   c 4
    index_operators        getName 0   a_b 1   -> 2     c 3

A name is cut where a capital letter follows a small one, before the last of several capital
letters that a small one follows, at underscores, and, unless `split_on_numerics` is off, where
digits begin and end. Operators are those of the reference, the longest first.
"""

from __future__ import annotations

import re
from functools import lru_cache, partial
from itertools import pairwise
from typing import Final

import numpy as np
import pyarrow as pa

from lancelet.buffers import Int64s, Slices
from lancelet.index.text.characters import (
    identifier_characters,
    letters_and_digits,
    letters_of_case,
    no_blanks,
)
from lancelet.index.text.models import model_cutter
from lancelet.index.text.options import TextOptions
from lancelet.index.text.pieces import Cutter, Pieces, cut_words, places_within, texts_of
from lancelet.kernels import find_words

_OPERATORS: Final = (
    ">>>= !== &&= **= //= <<= <=> === >>= >>> ??= ||= "
    "!= %= && &= ** *= ++ += -- -= -> // /= :: := <- << <= == => >= >> ?? ^= |= |> || ~= "
    "! % & * + - / : < = > ? ^ | ~"
)
_OPERATOR: Final = re.compile(b"|".join(map(re.escape, _OPERATORS.encode().split())))
_NAMES_KNOWN: Final = 65536
"""Where so many names are cut is remembered."""


def cutter_of(options: TextOptions) -> Cutter:
    """Return what cuts texts as options say."""
    match options.base_tokenizer:
        case "simple":
            return partial(cut_words, letters_and_digits())
        case "whitespace":
            return partial(cut_words, no_blanks())
        case "raw":
            return _whole
        case "ngram":
            return partial(_ngrams, options)
        case "code":
            return program_cutter(options)
        case other:
            return model_cutter(other)


def _whole(texts: pa.Array) -> Pieces:
    offsets, data = texts_of(texts)
    is_text = texts.is_valid().to_numpy(zero_copy_only=False)
    counts = is_text.astype(np.int64)
    pieces = Slices(data, offsets[:-1][is_text], np.diff(offsets)[is_text])
    return pieces, np.zeros(len(pieces), np.uint32), counts


def _ngrams(options: TextOptions, texts: pa.Array) -> Pieces:
    offsets, data = texts_of(texts)
    begins = (data[offsets[0] : offsets[-1]] & 0xC0) != 0x80
    starts = np.append(np.flatnonzero(begins) + offsets[0], offsets[-1])
    first = np.searchsorted(starts, offsets)
    characters = np.diff(first)
    found: list[tuple[Int64s, Int64s, Int64s]] = []
    for length in range(options.min_ngram_length, options.max_ngram_length + 1):
        counts = np.maximum(characters - length + 1, 0)
        if options.prefix_only:
            counts = np.minimum(counts, 1)
        own = np.repeat(np.arange(len(counts)), counts)
        place = first[:-1][own] + places_within(counts)
        found.append((own, starts[place], starts[place + length] - starts[place]))
    texts_found, position, size = (np.concatenate(parts) for parts in zip(*found, strict=True))
    order = np.lexsort((size, position, texts_found))
    counts = np.bincount(texts_found, minlength=len(texts)).astype(np.int64)
    pieces = Slices(data, position[order], size[order])
    return pieces, np.zeros(len(pieces), np.uint32), counts


def program_cutter(options: TextOptions) -> Cutter:
    """Return what cuts programs as options say."""
    if options.split_identifiers or options.index_operators:
        return partial(_cut, options)
    return partial(cut_words, identifier_characters())


def _cut(options: TextOptions, texts: pa.Array) -> Pieces:
    offsets, data = texts_of(texts)
    found, counts = find_words(offsets, data, identifier_characters())
    source = data.tobytes()
    if options.index_operators:
        found, counts = _with_operators(found, counts, offsets, source)
    position: list[int] = []
    size: list[int] = []
    positions: list[int] = []
    new_counts: list[int] = []
    places = iter(zip(found.position.tolist(), found.size.tolist(), strict=True))
    for count in counts.tolist():
        before, at = len(position), 0
        for _ in range(count):
            start, length = next(places)
            parts = (
                parts_of(source[start : start + length].decode(), options.split_on_numerics)
                if options.split_identifiers
                else ()
            )
            if len(parts) < 2 or options.preserve_original:
                position.append(start)
                size.append(length)
                positions.append(at)
            if len(parts) > 1:
                for step, (first, last) in enumerate(parts):
                    position.append(start + first)
                    size.append(last - first)
                    positions.append(at + step)
            at += max(1, len(parts))
        new_counts.append(len(position) - before)
    pieces = Slices(data, np.array(position, np.int64), np.array(size, np.int64))
    return pieces, np.array(positions, np.uint32), np.array(new_counts, np.int64)


def _with_operators(
    words: Slices, counts: Int64s, offsets: Int64s, source: bytes
) -> tuple[Slices, Int64s]:
    """Return words and operators in the order in which they stand, and how many each text has."""
    spans = [
        [match.span() for match in _OPERATOR.finditer(source, start, stop)]
        for start, stop in pairwise(offsets.tolist())
    ]
    own = np.array([span for each in spans for span in each], np.int64).reshape(-1, 2)
    position = np.concatenate([words.position, own[:, 0]])
    size = np.concatenate([words.size, own[:, 1] - own[:, 0]])
    order = np.argsort(position, kind="stable")
    both = counts + np.array([len(each) for each in spans], np.int64)
    return Slices(words.source, position[order], size[order]), both


@lru_cache(maxsize=_NAMES_KNOWN)
def parts_of(name: str, with_numerics: bool) -> tuple[tuple[int, int], ...]:
    """Return where the parts of a name begin and end, in bytes.

    >>> [("HTTPServer2"[first:last]) for first, last in parts_of("HTTPServer2", True)]
    ['HTTP', 'Server', '2']
    """
    found: list[tuple[int, int]] = []
    start = at = 0
    for place, letter in enumerate(name):
        if place and _is_cut(name, place, with_numerics=with_numerics):
            found.append((start, at))
            start = at
        at += len(letter.encode())
        if letter == "_":
            start = at
    found.append((start, at))
    return tuple((first, last) for first, last in found if first < last)


def _is_cut(name: str, place: int, *, with_numerics: bool) -> bool:
    """Return whether a part of a name ends before a letter."""
    before, letter, behind = name[place - 1], name[place], name[place + 1 : place + 2]
    if letter == "_":
        return True
    upper, lower = letters_of_case("upper"), letters_of_case("lower")
    if letter in upper and (before in lower or (before in upper and behind in lower)):
        return True
    return with_numerics and (before in _DIGITS) != (letter in _DIGITS) and before != "_"


_DIGITS: Final = frozenset("0123456789")
