"""Tokenizers that split texts into raw tokens.

    simple       can't stop    ->  can 0, t 1, stop 2
    whitespace   can't stop    ->  can't 0, stop 1
    raw          can't stop    ->  can't stop 0
    ngram        stop          ->  sto 0, top 0
    code         getName a_b   ->  getName 0, a_b 1
    jieba/...    dictionary-based, see `models`

A tokenizer returns the raw tokens of texts, their positions, and the number of tokens per text.
"""

from __future__ import annotations

import re
from functools import lru_cache, partial
from itertools import pairwise
from typing import Final

import numpy as np
import pyarrow as pa

from lancelet.buffers import ByteSlices, Int64s
from lancelet.index.kernels import find_tokens
from lancelet.index.text.characters import (
    identifier_characters,
    letters_and_digits,
    letters_of_case,
    non_whitespace_mask,
)
from lancelet.index.text.models import make_model_tokenizer
from lancelet.index.text.options import TextOptions
from lancelet.index.text.tokenizer_base import (
    RawTokens,
    Tokenizer,
    positions_in_groups,
    text_buffers,
    tokenize_by_characters,
)

_OPERATORS: Final = (
    ">>>= !== &&= **= //= <<= <=> === >>= >>> ??= ||= "
    "!= %= && &= ** *= ++ += -- -= -> // /= :: := <- << <= == => >= >> ?? ^= |= |> || ~= "
    "! % & * + - / : < = > ? ^ | ~"
)
_OPERATOR: Final = re.compile(b"|".join(map(re.escape, _OPERATORS.encode().split())))
_IDENTIFIERS_CACHED: Final = 65536
"""Number of identifiers whose parts are cached."""


def make_tokenizer(options: TextOptions) -> Tokenizer:
    """Return the tokenizer configured by the options."""
    match options.base_tokenizer:
        case "simple":
            return partial(tokenize_by_characters, letters_and_digits())
        case "whitespace":
            return partial(tokenize_by_characters, non_whitespace_mask())
        case "raw":
            return _tokenize_raw
        case "ngram":
            return partial(_tokenize_ngrams, options)
        case "code":
            return make_code_tokenizer(options)
        case other:
            return make_model_tokenizer(other)


def _tokenize_raw(texts: pa.Array) -> RawTokens:
    offsets, data = text_buffers(texts)
    is_text = texts.is_valid().to_numpy(zero_copy_only=False)
    counts = is_text.astype(np.int64)
    raw_tokens = ByteSlices(data, offsets[:-1][is_text], np.diff(offsets)[is_text])
    return raw_tokens, np.zeros(len(raw_tokens), np.uint32), counts


def _tokenize_ngrams(options: TextOptions, texts: pa.Array) -> RawTokens:
    offsets, data = text_buffers(texts)
    is_start = (data[offsets[0] : offsets[-1]] & 0xC0) != 0x80
    starts = np.append(np.flatnonzero(is_start) + offsets[0], offsets[-1])
    first = np.searchsorted(starts, offsets)
    characters = np.diff(first)
    parts_by_length: list[tuple[Int64s, Int64s, Int64s]] = []
    for length in range(options.min_ngram_length, options.max_ngram_length + 1):
        counts = np.maximum(characters - length + 1, 0)
        if options.prefix_only:
            counts = np.minimum(counts, 1)
        text_indices = np.repeat(np.arange(len(counts)), counts)
        first_characters = first[:-1][text_indices] + positions_in_groups(counts)
        parts_by_length.append(
            (
                text_indices,
                starts[first_characters],
                starts[first_characters + length] - starts[first_characters],
            )
        )
    text_index, position, size = (
        np.concatenate(parts) for parts in zip(*parts_by_length, strict=True)
    )
    order = np.lexsort((size, position, text_index))
    counts = np.bincount(text_index, minlength=len(texts)).astype(np.int64)
    raw_tokens = ByteSlices(data, position[order], size[order])
    return raw_tokens, np.zeros(len(raw_tokens), np.uint32), counts


def make_code_tokenizer(options: TextOptions) -> Tokenizer:
    """Return a tokenizer of source code into identifiers, parts of identifiers, and operators.

        getName(a_b) -> c      getName 0   a_b 1   c 2
        split_identifiers      getName 0   get 0   Name 1   a_b 2   a 2   b 3   c 4
        index_operators        getName 0   a_b 1   -> 2     c 3

    Operators are those of the reference; the longest match wins.
    """
    if options.split_identifiers or options.index_operators:
        return partial(_tokenize_code, options)
    return partial(tokenize_by_characters, identifier_characters())


def _tokenize_code(options: TextOptions, texts: pa.Array) -> RawTokens:
    offsets, data = text_buffers(texts)
    tokens, counts = find_tokens(offsets, data, identifier_characters())
    source = data.tobytes()
    if options.index_operators:
        tokens, counts = _with_operators(tokens, counts, offsets, source)
    position: list[int] = []
    size: list[int] = []
    positions: list[int] = []
    new_counts: list[int] = []
    ranges = iter(zip(tokens.position.tolist(), tokens.size.tolist(), strict=True))
    for count in counts.tolist():
        num_before, token_position = len(position), 0
        for _ in range(count):
            start, length = next(ranges)
            parts = (
                split_identifier(source[start : start + length].decode(), options.split_on_numerics)
                if options.split_identifiers
                else ()
            )
            if len(parts) < 2 or options.preserve_original:
                position.append(start)
                size.append(length)
                positions.append(token_position)
            if len(parts) > 1:
                for step, (first, last) in enumerate(parts):
                    position.append(start + first)
                    size.append(last - first)
                    positions.append(token_position + step)
            token_position += max(1, len(parts))
        new_counts.append(len(position) - num_before)
    raw_tokens = ByteSlices(data, np.array(position, np.int64), np.array(size, np.int64))
    return raw_tokens, np.array(positions, np.uint32), np.array(new_counts, np.int64)


def _with_operators(
    tokens: ByteSlices, counts: Int64s, offsets: Int64s, source: bytes
) -> tuple[ByteSlices, Int64s]:
    """Merge tokens with operators in text order; return them and the number per text."""
    ranges_by_text = [
        [match.span() for match in _OPERATOR.finditer(source, start, stop)]
        for start, stop in pairwise(offsets.tolist())
    ]
    operators = np.array([span for each in ranges_by_text for span in each], np.int64).reshape(
        -1, 2
    )
    position = np.concatenate([tokens.position, operators[:, 0]])
    size = np.concatenate([tokens.size, operators[:, 1] - operators[:, 0]])
    order = np.argsort(position, kind="stable")
    total_counts = counts + np.array([len(each) for each in ranges_by_text], np.int64)
    return ByteSlices(tokens.source, position[order], size[order]), total_counts


@lru_cache(maxsize=_IDENTIFIERS_CACHED)
def split_identifier(name: str, with_numerics: bool) -> tuple[tuple[int, int], ...]:
    """Return the byte ranges of the parts of an identifier.

    >>> [("HTTPServer2"[first:last]) for first, last in split_identifier("HTTPServer2", True)]
    ['HTTP', 'Server', '2']
    """
    parts: list[tuple[int, int]] = []
    start = at = 0
    for index, letter in enumerate(name):
        if index and _is_boundary(name, index, with_numerics=with_numerics):
            parts.append((start, at))
            start = at
        at += len(letter.encode())
        if letter == "_":
            start = at
    parts.append((start, at))
    return tuple((first, last) for first, last in parts if first < last)


def _is_boundary(name: str, index: int, *, with_numerics: bool) -> bool:
    """Return whether a part of an identifier ends before the letter at `index`."""
    before, letter, next_letter = name[index - 1], name[index], name[index + 1 : index + 2]
    if letter == "_":
        return True
    upper, lower = letters_of_case("upper"), letters_of_case("lower")
    if letter in upper and (before in lower or (before in upper and next_letter in lower)):
        return True
    return with_numerics and (before in _DIGITS) != (letter in _DIGITS) and before != "_"


_DIGITS: Final = frozenset("0123456789")
