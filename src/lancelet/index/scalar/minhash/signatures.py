"""MinHash signatures: the fraction of equal values estimates the Jaccard similarity of two texts.

    text         a b c d
    shingles     "a b c", "b c d"          tokens joined by a byte that no token contains
    hashes       x0, x1
    signature    value i: minimum of a_i * x + b_i, mixed, upper 16 bits

The probability that a value is equal is the fraction of common shingles. A signature is split into
bands, and texts that share a whole band are compared. A band and its number form a 64-bit key.

The settings are stored in the details of the index:

    num_hashes 128, num_bands 16      16 bands of 8 values
    shingle_size 3                    three consecutive tokens per shingle
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
_TOKEN_SEPARATOR: Final = b"\x1f"
_SIGNATURE_SHIFT: Final = np.uint64(48)
_BAND_SHIFT: Final = np.uint64(56)
_BAND_MASK: Final = np.uint64((1 << 56) - 1)
_GAMMA: Final = 0x9E3779B97F4A7C15
_UINT64_MASK: Final = (1 << 64) - 1
_SHINGLES_PER_BATCH: Final = 1 << 16
"""Number of shingles hashed per batch, so that they fit in the CPU cache."""

_HASHES_MAX: Final = 4096
_BANDS_MAX: Final = 256
_BLOCK_DOCS: Final = 128
_POSTINGS: Final = 2
"""Posting format version in the details, although the index has no postings."""


class Signer:
    """Computes signatures of texts."""

    def __init__(self, settings: Settings) -> None:
        """Create a signer. Raise if a package required by the tokenizer is missing."""
        self.settings = settings
        self._analyzer = TextAnalyzer(settings.text)
        self._vocabulary = Vocabulary()

    def sign(self, texts: pa.Array) -> tuple[UInt16s, Int64s]:
        """Return the signatures of all texts with tokens, and the indices of these texts.

        >>> signer = Signer(Settings(num_hashes=2, num_bands=1))
        >>> signatures, indices = signer.sign(pa.array(["a b", None, "A, b!", ""]))
        >>> indices.tolist(), bool((signatures[0] == signatures[1]).all())
        ([0, 2], True)
        """
        analyzed = self._analyzer.analyze(texts, self._vocabulary)
        tokens = pa.array(self._vocabulary.tokens, pa.large_binary()).take(pa.array(analyzed.ids))
        counts = np.asarray(analyzed.counts, np.int64)
        indices = np.flatnonzero(counts)
        signatures = np.empty((len(indices), self.settings.num_hashes), np.uint16)
        counts = counts[indices]
        if not len(indices):
            return signatures, indices
        starts = np.cumsum(counts) - counts
        first = 0
        shingles = np.maximum(counts - self.settings.shingle_size + 1, 1)
        shingle_ends = np.cumsum(shingles)
        while first < len(indices):
            limit = (shingle_ends[first - 1] if first else 0) + _SHINGLES_PER_BATCH
            stop = max(first + 1, int(shingle_ends.searchsorted(limit, "right")))
            part = slice(first, stop)
            hashed = self._hash_shingles(tokens, starts[part], counts[part])
            signatures[part] = _min_hashes(hashed, shingles[part], self.settings.num_hashes)
            first = stop
        return signatures, indices

    def _hash_shingles(self, tokens: pa.Array, starts: Int64s, counts: Int64s) -> UInt64s:
        """Return the hashes of the shingles of texts, in text order."""
        size = self.settings.shingle_size
        lengths = np.minimum(counts, size)
        shingles = np.maximum(counts - size + 1, 1)
        ends = np.cumsum(shingles)
        hashes = np.empty(int(ends[-1]), np.uint64)
        text = np.repeat(np.arange(len(starts)), shingles)
        token_indices = starts[text] + np.arange(len(text)) - (ends - shingles)[text]
        for length in np.unique(lengths).tolist():
            selected = np.flatnonzero(lengths[text] == length)
            parts = [
                tokens.take(pa.array(token_indices[selected] + offset)) for offset in range(length)
            ]
            joined = pc.binary_join_element_wise(
                *parts, pa.scalar(_TOKEN_SEPARATOR, pa.large_binary())
            )
            hashes[selected] = _hash(joined)
        return hashes


def band_keys(signatures: UInt16s, num_bands: int) -> UInt64s:
    """Return the keys of the bands of each signature."""
    data = np.ascontiguousarray(signatures, "<u2").reshape(-1).view(np.uint8)
    band_bytes = 2 * (signatures.shape[1] // num_bands)
    offsets = np.arange(len(signatures) * num_bands + 1, dtype=np.int64) * band_bytes
    hashes = xxh64_many(offsets, data, _SEED)
    keys = hashes.reshape(len(signatures), num_bands) & _BAND_MASK
    keys |= np.arange(num_bands, dtype=np.uint64) << _BAND_SHIFT
    return keys


def distances(signatures: UInt16s, other: UInt16s) -> npt.NDArray[np.float32]:
    """Return the fraction of values in which each signature differs from another."""
    same = (signatures == other).sum(axis=1).astype(np.float32)
    result: npt.NDArray[np.float32] = np.float32(1) - same / np.float32(signatures.shape[1])
    return result


def _hash(values: pa.Array) -> UInt64s:
    offsets = np.frombuffer(values.buffers()[1], np.int64)[values.offset :][: len(values) + 1]
    return xxh64_many(offsets, np.frombuffer(values.buffers()[2] or b"", np.uint8), _SEED)


def _min_hashes(hashes: UInt64s, counts: Int64s, num_hashes: int) -> UInt16s:
    """Return the signatures of texts from the hashes of their shingles."""
    factors, summands, mixers = _coefficients(num_hashes)
    starts = np.cumsum(counts) - counts
    signatures = np.empty((len(counts), num_hashes), np.uint16)
    values = np.empty_like(hashes)
    for index in range(num_hashes):
        np.multiply(hashes, factors[index], out=values)
        values += summands[index]
        minimum = np.minimum.reduceat(values, starts)
        signatures[:, index] = (minimum * mixers[index]) >> _SIGNATURE_SHIFT
    return signatures


@lru_cache(maxsize=8)
def _coefficients(num_hashes: int) -> tuple[UInt64s, UInt64s, UInt64s]:
    """Return the factors, summands and mixers of the hash functions."""
    random_numbers = _random_numbers(3 * num_hashes)
    factors = random_numbers[: 2 * num_hashes : 2] | np.uint64(1)
    return (
        factors,
        random_numbers[1 : 2 * num_hashes : 2],
        random_numbers[2 * num_hashes :] | np.uint64(1),
    )


def _random_numbers(count: int) -> UInt64s:
    """Return numbers of the SplitMix64 generator with the seed."""
    numbers: list[int] = []
    state = _SEED
    for _ in range(count):
        state = (state + _GAMMA) & _UINT64_MASK
        mixed = ((state ^ state >> 30) * 0xBF58476D1CE4E5B9) & _UINT64_MASK
        mixed = ((mixed ^ mixed >> 27) * 0x94D049BB133111EB) & _UINT64_MASK
        numbers.append(mixed ^ mixed >> 31)
    return np.array(numbers, np.uint64)


def _default_text_options() -> TextOptions:
    return TextOptions(stem=False, remove_stop_words=False)


@dataclass(frozen=True, slots=True)
class Settings:
    """Settings of MinHash signatures.

    Attributes:
        num_hashes: The number of values in a signature.
        num_bands: The number of bands. Texts that share a band are compared.
        shingle_size: The number of consecutive tokens per shingle.
        text: The options of the tokenizer.
    """

    num_hashes: int = 128
    num_bands: int = 16
    shingle_size: int = 3
    text: TextOptions = field(default_factory=_default_text_options)

    def __post_init__(self) -> None:
        """Raise for values out of range."""
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
    def from_parameters(parameters: Mapping[str, Any]) -> Settings:
        """Return settings from index parameters."""
        supported = {"num_hashes", "num_bands", "shingle_size", "tokenizer"}
        unknown = sorted(set(parameters) - supported)
        if unknown:
            raise InvalidInputError(
                "invalid MinHash LSH index params: unknown field",
                unknown=unknown,
                expected=sorted(supported),
            )
        numbers = {name: value for name, value in parameters.items() if name != "tokenizer"}
        invalid = {name: value for name, value in numbers.items() if type(value) is not int}
        if invalid:
            raise InvalidInputError(
                "invalid MinHash LSH index params: expected an integer", found=invalid
            )
        tokenizer = parameters.get("tokenizer") or {}
        if not isinstance(tokenizer, Mapping):
            raise InvalidInputError(
                "invalid MinHash LSH index params: tokenizer must be a dictionary of options",
                found=tokenizer,
            )
        plain = {"stem": False, "remove_stop_words": False}
        return Settings(**numbers, text=TextOptions.from_params({**plain, **tokenizer}))

    @staticmethod
    def parse(details: bytes) -> Settings:
        """Parse the settings in the details of an index."""
        message = parse_message(index_pb.MinHashLshIndexDetails, details)
        if message.signature_version:
            raise UnsupportedError(
                "unsupported MinHash signature version",
                found=message.signature_version,
            )
        text = message.tokenizer
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
            message.num_hashes,
            message.num_bands,
            message.shingle_size,
            TextOptions.from_params(options),
        )

    def render(self) -> bytes:
        """Encode the settings for the details of an index."""
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
