"""BM25 scoring.

    idf    ln((N - n + 0.5) / (n + 0.5) + 1)              n of N documents contain the token
    score  idf * 2.2 f / (f + 1.2 (0.25 + 0.75 l / L))    frequency f, length l, mean length L

N, n and L are totals over all partitions of an index, so that scores of different partitions are
comparable. Everything except the idf uses 32-bit floats, as in the reference.

Document lengths are quantized to a byte: exact below 8, otherwise the four highest bits.

    length    5    19 = 10011b     code 5,  0b0010001 = 17     decoded as 5, 18
"""

from __future__ import annotations

import math
from typing import Final

import numpy as np
import numpy.typing as npt

from lancelet.values import dataclass

UInt32s = npt.NDArray[np.uint32]
Float32s = npt.NDArray[np.float32]

K1: Final = 1.2
B: Final = 0.75


@dataclass(frozen=True, slots=True)
class Corpus:
    """Numbers of documents and tokens in a corpus."""

    num_docs: int
    num_tokens: int

    def __add__(self, other: Corpus) -> Corpus:
        """Return the combined corpus."""
        return Corpus(self.num_docs + other.num_docs, self.num_tokens + other.num_tokens)

    @property
    def mean_length(self) -> float:
        """Mean number of tokens per document."""
        return self.num_tokens / self.num_docs if self.num_docs else 1.0

    def idf(self, num_docs: int) -> float:
        """Return the inverse document frequency of a token in `num_docs` documents."""
        return math.log((self.num_docs - num_docs + 0.5) / (num_docs + 0.5) + 1)


def norms_of(lengths: npt.NDArray[np.number], mean_length: float) -> Float32s:
    """Return the length norms of documents, the terms added to the frequency in the denominator."""
    ratio = lengths.astype(np.float32) / np.float32(mean_length)
    norms: Float32s = np.float32(K1) * (np.float32(1 - B) + np.float32(B) * ratio)
    return norms


def weights(freqs: UInt32s, norms: Float32s) -> Float32s:
    """Return the BM25 weights of token frequencies, which the idf is multiplied by."""
    frequencies = freqs.astype(np.float32)
    values: Float32s = np.float32(K1 + 1) * frequencies / (frequencies + norms)
    return values


def length_codes(lengths: UInt32s) -> UInt32s:
    """Return the code of each length.

    >>> length_codes(np.array([5, 8, 19], np.uint32)).tolist()
    [5, 8, 17]
    """
    bits = np.frexp(lengths.astype(np.float64))[1]
    shift = np.maximum(bits - 4, 0).astype(np.uint32)
    large = lengths >= 8
    codes = (lengths >> shift & 7) | (shift + 1) << 3
    return np.where(large, codes, lengths).astype(np.uint32)


def quantized_lengths(lengths: UInt32s) -> UInt32s:
    """Round each length down to the smallest length with the same code."""
    bits = np.frexp(lengths.astype(np.float64))[1]
    shift = np.maximum(bits - 4, 0).astype(np.uint32)
    rounded: UInt32s = lengths >> shift << shift
    return rounded
