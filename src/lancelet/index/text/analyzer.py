"""Texts to tokens, a batch at a time: cut all of them, then look at each different piece once.

    texts      "The cat, the Cat"
    pieces     The cat the Cat          numbers 0 1 2 3
    tokens     -   cat -   cat          The and the are left out, cat and Cat are one
    tokens     [1 1]   positions [1 3]  those left out leave gaps

What a filter does to a piece is done once for the whole build, whatever how often it is met.

What becomes of a token: too long, lower case, stem, stop word, plain letters, in this order.

Running   running   run
The       the       the     left out
Thé       thé       thé     the         a stop word only before its mark was taken off
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import field
from functools import lru_cache
from typing import Final, Protocol

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from lancelet.buffers import Int64s, Slices
from lancelet.errors import UnsupportedError
from lancelet.index.text.characters import fold, lower, stop_words, stop_words_of_all
from lancelet.index.text.cutters import cutter_of
from lancelet.index.text.options import TextOptions
from lancelet.index.text.pieces import Cutter
from lancelet.kernels import number_words
from lancelet.kernels.word_table import WordTable
from lancelet.values import dataclass

UInt32s = npt.NDArray[np.uint32]
_LEFT_OUT = -1
_QUERIES_KNOWN: Final = 256
"""The tokens of so many queries are remembered."""


@dataclass(frozen=True, slots=True)
class Token:
    """A token and its position in the text."""

    text: str
    position: int


@dataclass(frozen=True, slots=True, eq=False)
class Words:
    """The tokens of some texts: number and position of each, and how many each text has."""

    ids: UInt32s
    positions: UInt32s
    counts: Int64s


@dataclass(slots=True)
class Vocabulary:
    """Tokens, numbered in the order in which they are first met."""

    tokens: list[str] = field(default_factory=list)
    ids: dict[str, int] = field(default_factory=dict)
    _pieces: WordTable = field(default_factory=WordTable)
    _made: Int64s = field(default_factory=lambda: np.empty(0, np.int64))
    """The number of the token that each piece of text becomes, or -1."""

    def number(self, token: str) -> int:
        """Return the number of a token."""
        found = self.ids.setdefault(token, len(self.tokens))
        if found == len(self.tokens):
            self.tokens.append(token)
        return found

    def numbers(self, pieces: Slices, make: Callable[[str], str | None]) -> Int64s:
        """Return the number of the token that is made of each piece, -1 where it is left out."""
        before = len(self._pieces)
        ids = number_words(pieces, self._pieces)
        tokens = [make(piece.decode(errors="replace")) for piece in self._pieces.words(before)]
        found = [_LEFT_OUT if token is None else self.number(token) for token in tokens]
        self._made = np.concatenate([self._made, np.array(found, np.int64)])
        return self._made[ids]


class Analyzer(Protocol):
    """Makes tokens of what a column holds."""

    options: TextOptions

    def analyze(self, texts: pa.Array, vocabulary: Vocabulary) -> Words:
        """Return the tokens of the values of a column; a null has none."""

    def tokens(self, text: str) -> list[Token]:
        """Return the tokens of a query in order; the first has position 0."""


class TextAnalyzer:
    """Makes tokens of texts as options say."""

    def __init__(self, options: TextOptions) -> None:
        """Prepare what the options need; raise if a package is missing."""
        self.options = options
        self._cut: Cutter = cutter_of(options)
        self._filter: Callable[[str], str | None] = token_filter(options)
        self._known_tokens = lru_cache(maxsize=_QUERIES_KNOWN)(self._tokens)

    def analyze(self, texts: pa.Array, vocabulary: Vocabulary) -> Words:
        """Return the tokens of texts; a null has none."""
        pieces, positions, counts = self._cut(texts)
        made = vocabulary.numbers(pieces, self._filter)
        kept = made != _LEFT_OUT
        if kept.all():
            return Words(made.astype(np.uint32), positions, counts)
        ends = np.cumsum(counts)
        kept_before = np.concatenate([np.zeros(1, np.int64), np.cumsum(kept)])
        return Words(
            made[kept].astype(np.uint32),
            positions[kept],
            kept_before[ends] - kept_before[ends - counts],
        )

    def tokens(self, text: str) -> list[Token]:
        """Return the tokens of a text in order; the first has position 0, as in queries."""
        return list(self._known_tokens(text))

    def _tokens(self, text: str) -> tuple[Token, ...]:
        vocabulary = Vocabulary()
        words = self.analyze(pa.array([text], pa.string()), vocabulary)
        first = int(words.positions[0]) if len(words.positions) else 0
        return tuple(
            Token(vocabulary.tokens[number], position - first)
            for number, position in zip(words.ids.tolist(), words.positions.tolist(), strict=True)
        )

    def pieces(self, texts: pa.Array) -> Iterator[tuple[int, int, str]]:
        """Yield where each piece of texts that becomes a token begins, its size, and the token."""
        vocabulary = Vocabulary()
        pieces, _, _ = self._cut(texts)
        made = vocabulary.numbers(pieces, self._filter).tolist()
        places = zip(pieces.position.tolist(), pieces.size.tolist(), made, strict=True)
        for position, size, number in places:
            if number != _LEFT_OUT:
                yield position, size, vocabulary.tokens[number]


try:
    import Stemmer
except ImportError:
    Stemmer = None


_ICU: Final = "icu"


class _Stemmer(Protocol):
    def stemWord(self, word: str) -> str: ...  # noqa: N802 - PyStemmer's name


def token_filter(options: TextOptions) -> Callable[[str], str | None]:
    """Return what makes a token of a piece of text, or None where it is left out."""
    longest = options.max_token_length
    stem = _stemmer(options.language).stemWord if options.stem else None
    stopped: frozenset[str] = frozenset()
    if options.remove_stop_words:
        own = options.custom_stop_words
        if own is not None:
            stopped = frozenset(own)
        elif options.base_tokenizer.partition("/")[0] == _ICU:
            # Such texts may be of any language.
            stopped = stop_words_of_all()
        else:
            stopped = stop_words(options.language)

    def make(piece: str) -> str | None:
        if longest is not None and len(piece.encode()) >= longest:
            return None
        token = lower(piece) if options.lower_case else piece
        if stem is not None:
            token = stem(token)
        if token in stopped:
            return None
        return fold(token) if options.ascii_folding else token

    return make


def _stemmer(language: str) -> _Stemmer:
    if Stemmer is None:
        raise UnsupportedError(
            "stemming needs the package PyStemmer; install it or pass stem=False",
            language=language,
        )
    found: _Stemmer = Stemmer.Stemmer(language.lower())
    return found
