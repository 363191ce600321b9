"""Text analysis: split texts into raw tokens, then filter each distinct raw token once.

    texts         "The cat, the Cat"
    raw tokens    The cat the Cat          ids 0 1 2 3
    tokens        -   cat -   cat          The and the are stop words, cat and Cat are equal
    result        ids [1 1]   positions [1 3]

Each distinct raw token is filtered once per build. Removed tokens leave gaps in the positions.

The filters are, in order: maximum length, lower case, stemming, stop words, ASCII folding.

    raw token   lower case   stemmed   result
    Running     running      run       run
    The         the          the       removed as a stop word
    Thé         thé          thé       the, since stop words are removed before folding
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import field
from functools import lru_cache
from typing import Final, Protocol

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from lancelet.buffers import ByteSlices, Int64s
from lancelet.errors import UnsupportedError
from lancelet.index.kernels import assign_token_ids
from lancelet.index.kernels.tokens import TokenTable
from lancelet.index.text.characters import all_stop_words, fold, lower, stop_words
from lancelet.index.text.options import TextOptions
from lancelet.index.text.tokenizer_base import Tokenizer
from lancelet.index.text.tokenizers import make_tokenizer
from lancelet.values import dataclass

UInt32s = npt.NDArray[np.uint32]
_REMOVED = -1
_QUERIES_CACHED: Final = 256
"""Number of queries whose tokens are cached."""


@dataclass(frozen=True, slots=True)
class Token:
    """A token and its position in the text."""

    text: str
    position: int


@dataclass(frozen=True, slots=True, eq=False)
class AnalyzedTexts:
    """The tokens of a batch of texts: ids, positions, and the number of tokens per text."""

    ids: UInt32s
    positions: UInt32s
    counts: Int64s


@dataclass(slots=True)
class Vocabulary:
    """Tokens with ids in the order of first occurrence."""

    tokens: list[str] = field(default_factory=list)
    ids: dict[str, int] = field(default_factory=dict)
    _raw_tokens: TokenTable = field(default_factory=TokenTable)
    _token_ids: Int64s = field(default_factory=lambda: np.empty(0, np.int64))
    """The token id of each raw token, or -1 if it was removed."""

    def number(self, token: str) -> int:
        """Return the id of a token, adding it if necessary."""
        token_id = self.ids.setdefault(token, len(self.tokens))
        if token_id == len(self.tokens):
            self.tokens.append(token)
        return token_id

    def numbers(self, raw_tokens: ByteSlices, make: Callable[[str], str | None]) -> Int64s:
        """Return the token id of each raw token after `make`, or -1 if it is removed."""
        num_before = len(self._raw_tokens)
        ids = assign_token_ids(raw_tokens, self._raw_tokens)
        tokens = [
            make(token.decode(errors="replace")) for token in self._raw_tokens.tokens(num_before)
        ]
        token_ids = [_REMOVED if token is None else self.number(token) for token in tokens]
        self._token_ids = np.concatenate([self._token_ids, np.array(token_ids, np.int64)])
        return self._token_ids[ids]


class Analyzer(Protocol):
    """Converts the values of a column to tokens."""

    options: TextOptions

    def analyze(self, texts: pa.Array, vocabulary: Vocabulary) -> AnalyzedTexts:
        """Return the tokens of column values. A null has none."""

    def tokens(self, text: str) -> list[Token]:
        """Return the tokens of a query in order, with positions relative to the first token."""


class TextAnalyzer:
    """Converts texts to tokens."""

    def __init__(self, options: TextOptions) -> None:
        """Create an analyzer. Raise if a required package is missing."""
        self.options = options
        self._tokenize: Tokenizer = make_tokenizer(options)
        self._filter: Callable[[str], str | None] = token_filter(options)
        self._cached_tokens = lru_cache(maxsize=_QUERIES_CACHED)(self._tokens)

    def analyze(self, texts: pa.Array, vocabulary: Vocabulary) -> AnalyzedTexts:
        """Return the tokens of texts. A null has none."""
        raw_tokens, positions, counts = self._tokenize(texts)
        token_ids = vocabulary.numbers(raw_tokens, self._filter)
        is_retained = token_ids != _REMOVED
        if is_retained.all():
            return AnalyzedTexts(token_ids.astype(np.uint32), positions, counts)
        ends = np.cumsum(counts)
        num_retained = np.concatenate([np.zeros(1, np.int64), np.cumsum(is_retained)])
        return AnalyzedTexts(
            token_ids[is_retained].astype(np.uint32),
            positions[is_retained],
            num_retained[ends] - num_retained[ends - counts],
        )

    def tokens(self, text: str) -> list[Token]:
        """Return the tokens of a text in order, with positions relative to the first token."""
        return list(self._cached_tokens(text))

    def _tokens(self, text: str) -> tuple[Token, ...]:
        vocabulary = Vocabulary()
        analyzed = self.analyze(pa.array([text], pa.string()), vocabulary)
        first = int(analyzed.positions[0]) if len(analyzed.positions) else 0
        return tuple(
            Token(vocabulary.tokens[number], position - first)
            for number, position in zip(
                analyzed.ids.tolist(), analyzed.positions.tolist(), strict=True
            )
        )

    def token_ranges(self, texts: pa.Array) -> Iterator[tuple[int, int, str]]:
        """Yield the byte position, byte size and token of each raw token that is not removed."""
        vocabulary = Vocabulary()
        raw_tokens, _, _ = self._tokenize(texts)
        token_ids = vocabulary.numbers(raw_tokens, self._filter).tolist()
        ranges = zip(raw_tokens.position.tolist(), raw_tokens.size.tolist(), token_ids, strict=True)
        for position, size, number in ranges:
            if number != _REMOVED:
                yield position, size, vocabulary.tokens[number]


try:
    import Stemmer
except ImportError:
    Stemmer = None


_ICU: Final = "icu"


class _Stemmer(Protocol):
    def stemWord(self, word: str) -> str: ...  # noqa: N802 - PyStemmer's name


def token_filter(options: TextOptions) -> Callable[[str], str | None]:
    """Return a function that converts a raw token to a token, or to None if it is removed."""
    bytes_max = options.max_token_length
    stem = _stemmer(options.language).stemWord if options.stem else None
    removed: frozenset[str] = frozenset()
    if options.remove_stop_words:
        custom = options.custom_stop_words
        if custom is not None:
            removed = frozenset(custom)
        elif options.base_tokenizer.partition("/")[0] == _ICU:
            # Texts for this tokenizer may be in any language.
            removed = all_stop_words()
        else:
            removed = stop_words(options.language)

    def make(raw_token: str) -> str | None:
        if bytes_max is not None and len(raw_token.encode()) >= bytes_max:
            return None
        token = lower(raw_token) if options.lower_case else raw_token
        if stem is not None:
            token = stem(token)
        if token in removed:
            return None
        return fold(token) if options.ascii_folding else token

    return make


def _stemmer(language: str) -> _Stemmer:
    if Stemmer is None:
        raise UnsupportedError(
            "stemming requires the package PyStemmer; install it or pass stem=False",
            language=language,
        )
    stemmer: _Stemmer = Stemmer.Stemmer(language.lower())
    return stemmer
