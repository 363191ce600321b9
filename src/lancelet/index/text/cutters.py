"""Cutting texts into pieces, before anything is done to a piece.

    simple       can't stop    ->  can 0, t 1, stop 2
    whitespace   can't stop    ->  can't 0, stop 1
    raw          can't stop    ->  can't stop 0
    ngram        stop          ->  sto 0, top 0
    code         getName a_b   ->  getName 0, get 0, Name 1, a_b 2, a 2, b 3

A cutter takes an array of texts and returns its pieces, the position of each and how many each
text has. Pieces lie in the bytes of the texts wherever they can.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import partial
from typing import Final, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from lancelet.buffers import Bytes, Int64s, Slices
from lancelet.errors import UnsupportedError
from lancelet.index.text.characters import (
    identifier_characters,
    letters_and_digits,
    no_blanks,
)
from lancelet.index.text.options import TextOptions
from lancelet.kernels import find_words

UInt32s = npt.NDArray[np.uint32]
Pieces: TypeAlias = tuple[Slices, UInt32s, Int64s]
Cutter: TypeAlias = Callable[[pa.Array], Pieces]

_PARTS: Final = re.compile(r"[A-Z]+(?![^\W\dA-Z_])|[A-Z]?[^\W\dA-Z_]+|\d+")


def cutter_of(options: TextOptions) -> Cutter:
    """Return what cuts texts as options say."""
    match options.base_tokenizer:
        case "simple":
            return partial(_words, letters_and_digits())
        case "whitespace":
            return partial(_words, no_blanks())
        case "raw":
            return _whole
        case "ngram":
            return partial(_ngrams, options)
        case "code" if not options.index_operators:
            return (
                _identifiers
                if options.split_identifiers
                else partial(_words, identifier_characters())
            )
        case other:
            raise UnsupportedError(
                "texts cannot be cut by this tokenizer here; simple, whitespace, raw, ngram and "
                "code are built in",
                base_tokenizer=other,
                index_operators=options.index_operators,
            )


def texts_of(texts: pa.Array) -> tuple[Int64s, Bytes]:
    """Return where texts begin and end, and their bytes; a null is an empty text."""
    texts = texts.cast(pa.large_string())
    if texts.null_count:
        texts = texts.fill_null("")
    _, offsets, data = texts.buffers()
    if offsets is None:
        return np.zeros(1, np.int64), np.empty(0, np.uint8)
    ends = np.frombuffer(offsets, np.int64)[texts.offset : texts.offset + len(texts) + 1]
    source = np.empty(0, np.uint8) if data is None else np.frombuffer(data, np.uint8)
    return ends, source


def _words(members: Bytes, texts: pa.Array) -> Pieces:
    offsets, data = texts_of(texts)
    words, counts = find_words(offsets, data, members)
    return words, places_within(counts), counts


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


def _identifiers(texts: pa.Array) -> Pieces:
    """Cut names of programs, and their parts where there are several."""
    offsets, data = texts_of(texts)
    words, counts = find_words(offsets, data, identifier_characters())
    source = data.tobytes()
    position: list[int] = []
    size: list[int] = []
    positions: list[int] = []
    new_counts: list[int] = []
    ends = np.cumsum(counts).tolist()
    starts, sizes = words.position.tolist(), words.size.tolist()
    done = 0
    for end in ends:
        before, at = len(position), 0
        for start, length in zip(starts[done:end], sizes[done:end], strict=True):
            parts = _parts(source[start : start + length].decode())
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
        done = end
    pieces = Slices(data, np.array(position, np.int64), np.array(size, np.int64))
    return pieces, np.array(positions, np.uint32), np.array(new_counts, np.int64)


def _parts(name: str) -> list[tuple[int, int]]:
    """Return where the parts of a name begin and end, in bytes."""
    found = []
    for part in _PARTS.finditer(name):
        first = len(name[: part.start()].encode())
        found.append((first, first + len(part.group().encode())))
    return found


def places_within(counts: Int64s) -> UInt32s:
    """Return 0, 1, 2, ... for each of the groups of these sizes.

    >>> places_within(np.array([2, 0, 3])).tolist()
    [0, 1, 0, 1, 2]
    """
    ends = np.cumsum(counts)
    total = int(ends[-1]) if len(ends) else 0
    return (np.arange(total) - np.repeat(ends - counts, counts)).astype(np.uint32)
