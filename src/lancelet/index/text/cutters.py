"""Cutting texts into pieces, before anything is done to a piece.

simple       can't stop    ->  can 0, t 1, stop 2
whitespace   can't stop    ->  can't 0, stop 1
raw          can't stop    ->  can't stop 0
ngram        stop          ->  sto 0, top 0
code         getName a_b   ->  getName 0, a_b 1         see `programs`
jieba/...    others know the words of a language        see `models`

A cutter takes texts and returns their pieces, the position of each and how many each text has.
"""

from __future__ import annotations

from functools import partial

import numpy as np
import pyarrow as pa

from lancelet.buffers import Int64s, Slices
from lancelet.index.text.characters import letters_and_digits, no_blanks
from lancelet.index.text.models import model_cutter
from lancelet.index.text.options import TextOptions
from lancelet.index.text.pieces import Cutter, Pieces, cut_words, places_within, texts_of
from lancelet.index.text.programs import program_cutter


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
