"""Signatures of texts: the more words two texts share, the more numbers their signatures share.

    text         a b c d
    shingles     "a b c", "b c d"          words are joined by a byte that no word has
    hashed       x0, x1
    signature    number i: of a_i * x + b_i the least, mixed, the upper 16 bits

The chance that two texts agree in a number is the share of their shingles that they have in common.
A signature is cut into bands. Texts that agree in a whole band are worth comparing; a band with its
place is one key of 64 bits.

How texts are compared: what a caller may choose, and how it is kept with an index.

num_hashes 128, num_bands 16      a signature has 16 bands of 8 numbers each
shingle_size 3                    three words that stand together count as one
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import field
from functools import lru_cache
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from lancelet.buffers import Int64s
from lancelet.errors import InvalidInputError, UnsupportedError
from lancelet.format.protos import index_details_pb, index_pb
from lancelet.format.wire import parse_message, render_message
from lancelet.index.text.analyzer import TextAnalyzer, Vocabulary
from lancelet.index.text.options import TextOptions
from lancelet.kernels import xxh64_many
from lancelet.rowids.address import UInt64s
from lancelet.values import dataclass

UInt16s = npt.NDArray[np.uint16]

_SEED: Final = 42
_BETWEEN_WORDS: Final = b"\x1f"
_SIGNATURE_SHIFT: Final = np.uint64(48)
_BAND_SHIFT: Final = np.uint64(56)
_BAND_MASK: Final = np.uint64((1 << 56) - 1)
_GAMMA: Final = 0x9E3779B97F4A7C15
_WORD: Final = (1 << 64) - 1
_TOGETHER: Final = 1 << 16
"""So many shingles are hashed at once, which keeps them in the cache."""

_HASHES_MAX: Final = 4096
_BANDS_MAX: Final = 256
_BLOCK_DOCS: Final = 128
_POSTINGS: Final = 2
"""What the details say of postings, of which there are none."""


class Signer:
    """Makes signatures of texts."""

    def __init__(self, settings: Settings) -> None:
        """Prepare for texts of an index; raise if what cuts them into words is missing."""
        self.settings = settings
        self._analyzer = TextAnalyzer(settings.text)
        self._vocabulary = Vocabulary()

    def sign(self, texts: pa.Array) -> tuple[UInt16s, Int64s]:
        """Return a signature for each text that has words, and the places of these texts.

        >>> signer = Signer(Settings(num_hashes=2, num_bands=1))
        >>> signatures, places = signer.sign(pa.array(["a b", None, "A, b!", ""]))
        >>> places.tolist(), bool((signatures[0] == signatures[1]).all())
        ([0, 2], True)
        """
        words = self._analyzer.analyze(texts, self._vocabulary)
        tokens = pa.array(self._vocabulary.tokens, pa.large_binary()).take(pa.array(words.ids))
        counts = np.asarray(words.counts, np.int64)
        places = np.flatnonzero(counts)
        signatures = np.empty((len(places), self.settings.num_hashes), np.uint16)
        counts = counts[places]
        if not len(places):
            return signatures, places
        starts = np.cumsum(counts) - counts
        first = 0
        shingles = np.maximum(counts - self.settings.shingle_size + 1, 1)
        before = np.cumsum(shingles)
        while first < len(places):
            limit = (before[first - 1] if first else 0) + _TOGETHER
            stop = max(first + 1, int(before.searchsorted(limit, "right")))
            part = slice(first, stop)
            hashed = self._hashed(tokens, starts[part], counts[part])
            signatures[part] = _signed(hashed, shingles[part], self.settings.num_hashes)
            first = stop
        return signatures, places

    def _hashed(self, tokens: pa.Array, starts: Int64s, counts: Int64s) -> UInt64s:
        """Return the hashes of the shingles of texts, text by text."""
        size = self.settings.shingle_size
        lengths = np.minimum(counts, size)
        shingles = np.maximum(counts - size + 1, 1)
        ends = np.cumsum(shingles)
        hashes = np.empty(int(ends[-1]), np.uint64)
        text = np.repeat(np.arange(len(starts)), shingles)
        at = starts[text] + np.arange(len(text)) - (ends - shingles)[text]
        for length in np.unique(lengths).tolist():
            own = np.flatnonzero(lengths[text] == length)
            parts = [tokens.take(pa.array(at[own] + place)) for place in range(length)]
            joined = pc.binary_join_element_wise(
                *parts, pa.scalar(_BETWEEN_WORDS, pa.large_binary())
            )
            hashes[own] = _hash(joined)
        return hashes


def band_keys(signatures: UInt16s, num_bands: int) -> UInt64s:
    """Return the keys of the bands of signatures, a row for each."""
    data = np.ascontiguousarray(signatures, "<u2").reshape(-1).view(np.uint8)
    band_bytes = 2 * (signatures.shape[1] // num_bands)
    offsets = np.arange(len(signatures) * num_bands + 1, dtype=np.int64) * band_bytes
    hashes = xxh64_many(offsets, data, _SEED)
    keys = hashes.reshape(len(signatures), num_bands) & _BAND_MASK
    keys |= np.arange(num_bands, dtype=np.uint64) << _BAND_SHIFT
    return keys


def distances(signatures: UInt16s, other: UInt16s) -> npt.NDArray[np.float32]:
    """Return the share of numbers in which each of some signatures differs from another."""
    same = (signatures == other).sum(axis=1).astype(np.float32)
    found: npt.NDArray[np.float32] = np.float32(1) - same / np.float32(signatures.shape[1])
    return found


def _hash(values: pa.Array) -> UInt64s:
    offsets = np.frombuffer(values.buffers()[1], np.int64)[values.offset :][: len(values) + 1]
    return xxh64_many(offsets, np.frombuffer(values.buffers()[2] or b"", np.uint8), _SEED)


def _signed(hashes: UInt64s, counts: Int64s, num_hashes: int) -> UInt16s:
    """Return the signatures of texts, given the hashes of the shingles of each."""
    factors, summands, mixers = _coefficients(num_hashes)
    starts = np.cumsum(counts) - counts
    signatures = np.empty((len(counts), num_hashes), np.uint16)
    values = np.empty_like(hashes)
    for place in range(num_hashes):
        np.multiply(hashes, factors[place], out=values)
        values += summands[place]
        least = np.minimum.reduceat(values, starts)
        signatures[:, place] = (least * mixers[place]) >> _SIGNATURE_SHIFT
    return signatures


@lru_cache(maxsize=8)
def _coefficients(num_hashes: int) -> tuple[UInt64s, UInt64s, UInt64s]:
    """Return what hashes are multiplied with, what is added, and what the least is mixed by."""
    drawn = _random_words(3 * num_hashes)
    factors = drawn[: 2 * num_hashes : 2] | np.uint64(1)
    return factors, drawn[1 : 2 * num_hashes : 2], drawn[2 * num_hashes :] | np.uint64(1)


def _random_words(count: int) -> UInt64s:
    """Return the numbers that the generator SplitMix64 makes of the seed."""
    words: list[int] = []
    state = _SEED
    for _ in range(count):
        state = (state + _GAMMA) & _WORD
        mixed = ((state ^ state >> 30) * 0xBF58476D1CE4E5B9) & _WORD
        mixed = ((mixed ^ mixed >> 27) * 0x94D049BB133111EB) & _WORD
        words.append(mixed ^ mixed >> 31)
    return np.array(words, np.uint64)


def _plain_words() -> TextOptions:
    return TextOptions(stem=False, remove_stop_words=False)


@dataclass(frozen=True, slots=True)
class Settings:
    """How signatures are made of texts.

    Attributes:
        num_hashes: How many numbers a signature has.
        num_bands: How many parts it is cut into; texts that agree in one of them are compared.
        shingle_size: How many words that stand together count as one.
        text: How texts are cut into words.
    """

    num_hashes: int = 128
    num_bands: int = 16
    shingle_size: int = 3
    text: TextOptions = field(default_factory=_plain_words)

    def __post_init__(self) -> None:
        """Refuse what means nothing."""
        if not 1 <= self.num_hashes <= _HASHES_MAX:
            raise InvalidInputError(
                f"MinHash LSH index requires 1 <= num_hashes <= {_HASHES_MAX}",
                num_hashes=self.num_hashes,
            )
        if not 1 <= self.num_bands <= _BANDS_MAX:
            raise InvalidInputError(
                f"MinHash LSH index requires 1 <= num_bands <= {_BANDS_MAX}",
                num_bands=self.num_bands,
            )
        if self.num_hashes % self.num_bands:
            raise InvalidInputError(
                "MinHash LSH index requires num_hashes to be a multiple of num_bands",
                num_hashes=self.num_hashes,
                num_bands=self.num_bands,
            )
        if self.shingle_size < 1:
            raise InvalidInputError(
                "MinHash LSH index requires shingle_size > 0", shingle_size=self.shingle_size
            )

    @staticmethod
    def of(given: Mapping[str, Any]) -> Settings:
        """Return the settings of parameters by name."""
        known = {"num_hashes", "num_bands", "shingle_size", "tokenizer"}
        unknown = sorted(set(given) - known)
        if unknown:
            raise InvalidInputError(
                "invalid MinHash LSH index params: unknown field",
                unknown=unknown,
                known=sorted(known),
            )
        numbers = {name: value for name, value in given.items() if name != "tokenizer"}
        wrong = {name: value for name, value in numbers.items() if type(value) is not int}
        if wrong:
            raise InvalidInputError(
                "invalid MinHash LSH index params: a number is expected", found=wrong
            )
        tokenizer = given.get("tokenizer") or {}
        if not isinstance(tokenizer, Mapping):
            raise InvalidInputError(
                "invalid MinHash LSH index params: tokenizer is a map of options", found=tokenizer
            )
        plain = {"stem": False, "remove_stop_words": False}
        return Settings(**numbers, text=TextOptions.of({**plain, **tokenizer}))

    @staticmethod
    def parse(details: bytes) -> Settings:
        """Return the settings that the details of an index keep."""
        found = parse_message(index_pb.MinHashLshIndexDetails, details)
        if found.signature_version:
            raise UnsupportedError(
                "signatures are of a version that this release does not know",
                found=found.signature_version,
            )
        text = found.tokenizer
        options = {
            "base_tokenizer": text.base_tokenizer or "simple",
            "language": json.loads(text.language) if text.language else "English",
            "max_token_length": text.max_token_length
            if text.HasField("max_token_length")
            else None,
            "lower_case": text.lower_case,
            "stem": text.stem,
            "remove_stop_words": text.remove_stop_words,
            "ascii_folding": text.ascii_folding,
            "min_ngram_length": text.min_ngram_length or 3,
            "max_ngram_length": text.max_ngram_length or 3,
            "prefix_only": text.prefix_only,
        }
        return Settings(
            found.num_hashes, found.num_bands, found.shingle_size, TextOptions.of(options)
        )

    def render(self) -> bytes:
        """Return the settings as the details of an index keep them."""
        text = self.text
        tokenizer = index_details_pb.InvertedIndexDetails(
            base_tokenizer=text.base_tokenizer,
            language=json.dumps(text.language),
            lower_case=text.lower_case,
            stem=text.stem,
            remove_stop_words=text.remove_stop_words,
            ascii_folding=text.ascii_folding,
            min_ngram_length=text.min_ngram_length,
            max_ngram_length=text.max_ngram_length,
            prefix_only=text.prefix_only,
            block_size=_BLOCK_DOCS,
            posting_format_version=_POSTINGS,
        )
        if text.max_token_length is not None:
            tokenizer.max_token_length = text.max_token_length
        return render_message(
            index_pb.MinHashLshIndexDetails(
                num_hashes=self.num_hashes,
                num_bands=self.num_bands,
                shingle_size=self.shingle_size,
                tokenizer=tokenizer,
            )
        )
