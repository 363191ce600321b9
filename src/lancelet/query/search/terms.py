"""Scores of the documents of one partition, for the words of a query.

    red fox     red: {0: 1.1, 3: 0.4}    fox: {3: 0.9}
    any         0: 1.1, 3: 1.3           all    3: 1.3

A word that may differ in some letters stands for every token of the index that is near enough.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from lancelet.index.inverted.bm25 import Corpus, weights
from lancelet.index.inverted.partition import Partition
from lancelet.index.inverted.phrase import phrase_documents
from lancelet.index.inverted.quantized import quantized_lengths
from lancelet.index.text.analyzer import Token

UInt32s = npt.NDArray[np.uint32]
Float32s = npt.NDArray[np.float32]


@dataclass(frozen=True, slots=True)
class Statistics:
    """What scores depend on beside the document: the corpus, and in how many each token is."""

    corpus: Corpus
    num_docs_with: Mapping[str, int]

    @staticmethod
    def of(partitions: Sequence[Partition], tokens: Sequence[str]) -> Statistics:
        """Return the statistics of all partitions of an index together."""
        corpus = sum((each.corpus for each in partitions), Corpus(0, 0))
        counts = dict.fromkeys(tokens, 0)
        for partition in partitions:
            for token in counts:
                number = partition.tokens.find(token)
                if number is not None:
                    counts[token] += partition.num_docs_with(number)
        return Statistics(corpus, counts)

    def idf(self, token: str) -> np.float32:
        """Return how much a token says."""
        return np.float32(self.corpus.idf(self.num_docs_with[token]))

    def norms(self, partition: Partition) -> Float32s:
        """Return the norms of the documents of a partition."""
        lengths = partition.lengths
        if partition.block_docs == 256:
            lengths = quantized_lengths(lengths)
        return self.corpus.norms(lengths)


def score_words(
    partition: Partition,
    groups: Sequence[Sequence[str]],
    statistics: Statistics,
    norms: Float32s,
    *,
    needs_all: bool,
) -> tuple[UInt32s, Float32s]:
    """Return documents and scores for words, each given as the tokens it stands for."""
    scores = np.zeros(partition.corpus.num_docs, np.float32)
    met: npt.NDArray[Any] = np.zeros(
        partition.corpus.num_docs, np.uint16 if needs_all else np.bool_
    )
    for tokens in groups:
        found = np.zeros(0, np.uint32)
        for token in tokens:
            number = partition.tokens.find(token)
            if number is None:
                continue
            postings = partition.postings(number)
            own = weights(postings.freqs, norms[postings.docs])
            scores[postings.docs] += statistics.idf(token) * own
            found = postings.docs if not len(found) else np.union1d(found, postings.docs)
        if needs_all:
            met[found] += 1
        else:
            met[found] = True
    docs = np.flatnonzero(met == len(groups) if needs_all else met).astype(np.uint32)
    return docs, scores[docs]


def score_phrase(
    partition: Partition,
    tokens: Sequence[Token],
    statistics: Statistics,
    norms: Float32s,
    *,
    slop: int,
) -> tuple[UInt32s, Float32s]:
    """Return documents and scores for words that stand in order."""
    numbers = [partition.tokens.find(token.text) for token in tokens]
    if not numbers or any(number is None for number in numbers):
        return np.empty(0, np.uint32), np.empty(0, np.float32)
    lists = [
        partition.postings(number, with_position=True) for number in numbers if number is not None
    ]
    docs = phrase_documents(lists, [token.position for token in tokens], slop)
    scores = np.zeros(len(docs), np.float32)
    for token, postings in zip(tokens, lists, strict=True):
        freqs = postings.freqs[np.searchsorted(postings.docs, docs)]
        scores += statistics.idf(token.text) * weights(freqs, norms[docs])
    return docs, scores


def expand(
    partitions: Sequence[Partition],
    token: str,
    *,
    fuzziness: int,
    prefix_length: int,
    expansions_max: int,
) -> list[str]:
    """Return the tokens of an index that differ from one in so many letters at most."""
    prefix = token[:prefix_length]
    found: dict[str, None] = {}
    for partition in partitions:
        for other, _ in partition.tokens.starting_with(prefix):
            if len(found) >= expansions_max:
                return list(found)
            if abs(len(other) - len(token)) <= fuzziness and is_within(token, other, fuzziness):
                found[other] = None
    return list(found)


def is_within(first: str, second: str, most: int) -> bool:
    """Return whether texts differ by at most so many insertions, deletions and replacements.

    >>> is_within("fox", "foxes", 2), is_within("fox", "ax", 1)
    (True, False)
    """
    row = list(range(len(second) + 1))
    for place, letter in enumerate(first, 1):
        before, row[0] = row[0], place
        for other, against in enumerate(second, 1):
            before, row[other] = (
                row[other],
                min(row[other] + 1, row[other - 1] + 1, before + (letter != against)),
            )
        if min(row) > most:
            return False
    return row[-1] <= most
