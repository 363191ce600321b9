"""BM25: how well a document answers a token.

    idf    ln((N - n + 0.5) / (n + 0.5) + 1)              n of N documents have the token
    score  idf * 2.2 f / (f + 1.2 (0.25 + 0.75 l / L))    f times, l of L tokens on average

N, n and L are those of all partitions of an index, so that scores of different partitions can be
compared. Everything but the idf is in 32 bits, as the reference has it.

Lengths of documents in a byte: exact below 8, else the four highest bits.

length    5    19 = 10011b     code 5,  0b0010001 = 17     read as 5, 18
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
    """How many documents there are, and how many tokens they have."""

    num_docs: int
    num_tokens: int

    def __add__(self, other: Corpus) -> Corpus:
        """Return the documents of both."""
        return Corpus(self.num_docs + other.num_docs, self.num_tokens + other.num_tokens)

    @property
    def mean_length(self) -> float:
        """How many tokens a document has on average."""
        return self.num_tokens / self.num_docs if self.num_docs else 1.0

    def idf(self, num_docs: int) -> float:
        """Return how much a token says that so many documents have."""
        return math.log((self.num_docs - num_docs + 0.5) / (num_docs + 0.5) + 1)


def norms_of(lengths: npt.NDArray[np.number], mean_length: float) -> Float32s:
    """Return what is added to the frequency below the line, for documents of these lengths."""
    ratio = lengths.astype(np.float32) / np.float32(mean_length)
    norms: Float32s = np.float32(K1) * (np.float32(1 - B) + np.float32(B) * ratio)
    return norms


def weights(freqs: UInt32s, norms: Float32s) -> Float32s:
    """Return what is multiplied with the idf, for tokens of these frequencies."""
    often = freqs.astype(np.float32)
    found: Float32s = np.float32(K1 + 1) * often / (often + norms)
    return found


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
    """Return the smallest length with the same code, for each length."""
    bits = np.frexp(lengths.astype(np.float64))[1]
    shift = np.maximum(bits - 4, 0).astype(np.uint32)
    found: UInt32s = lengths >> shift << shift
    return found
