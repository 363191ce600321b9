"""Search of one partition for the best documents of a query.

  red fox     red: {0: 1.1, 3: 0.4}    fox: {3: 0.9}
  any         3: 1.3, 0: 1.1           all    3: 1.3

A fuzzy token matches all index tokens within its edit distance.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Final, NamedTuple

import numpy as np
import numpy.typing as npt

from lancelet.index.inverted.bm25 import Corpus
from lancelet.index.inverted.partition import Partition
from lancelet.index.inverted.phrases import docs_with_phrase, occurrences
from lancelet.index.kernels import search_phrase, search_postings
from lancelet.index.kernels.postings import Ranking
from lancelet.index.text.analyzer import Token
from lancelet.values import cached_property, dataclass

UInt32s = npt.NDArray[np.uint32]
Float32s = npt.NDArray[np.float32]
_NONE: Final = (np.empty(0, np.uint32), np.empty(0, np.float32))


@dataclass(frozen=True)
class Statistics:
    """Corpus statistics for scoring: corpus size and document frequency of each token."""

    corpus: Corpus
    num_docs_with: Mapping[str, int]

    def __add__(self, other: Statistics) -> Statistics:
        """Return the combined statistics, for the tokens of the left operand."""
        counts = {
            token: count + other.num_docs_with.get(token, 0)
            for token, count in self.num_docs_with.items()
        }
        return Statistics(self.corpus + other.corpus, counts)

    @cached_property
    def idf(self) -> Mapping[str, np.float32]:
        """Inverse document frequency of each token."""
        return {
            token: np.float32(self.corpus.idf(count)) for token, count in self.num_docs_with.items()
        }

    @cached_property
    def mean_length(self) -> float:
        """Mean number of tokens per document."""
        return self.corpus.mean_length


class SearchLimits(NamedTuple):
    """The maximum number of documents to return, and a mask of hidden documents."""

    most: int
    hidden: npt.NDArray[np.uint8]


def find_tokens(
    partition: Partition,
    groups: Sequence[Sequence[str]],
    statistics: Statistics,
    limits: SearchLimits,
    *,
    needs_all: bool,
) -> tuple[UInt32s, Float32s]:
    """Return the best documents for groups of alternative tokens."""
    norms = partition.norms(statistics.mean_length)
    if len(groups) == 1 and len(groups[0]) == 1:
        return _find_word(partition, groups[0][0], statistics, limits, norms)
    times = Counter(token for group in groups for token in group)
    numbers = {token: number for token in times if (number := number_of(partition, token)) >= 0}
    if not numbers or (needs_all and not all(any(map(numbers.__contains__, g)) for g in groups)):
        return _NONE
    idf = np.array([statistics.idf[token] * times[token] for token in numbers], np.float32)
    lists = partition.lists(list(numbers.values()), norms)
    needs_all = needs_all and len(groups) > 1
    if not needs_all or all(len(group) == 1 for group in groups):
        ranking = Ranking(idf, norms, limits.most, limits.hidden)
        return search_postings(lists, ranking, needs_all=needs_all)
    docs, scores = search_postings(lists, Ranking(idf, norms, len(norms), limits.hidden))
    for group in groups:
        own = [partition.postings_of(numbers[token])[0] for token in group if token in numbers]
        has = np.isin(docs, np.concatenate(own))
        docs, scores = docs[has], scores[has]
    return docs, scores


def _find_word(
    partition: Partition, token: str, statistics: Statistics, limits: SearchLimits, norms: Float32s
) -> tuple[UInt32s, Float32s]:
    """Return the best documents for one token."""
    number = number_of(partition, token)
    if number < 0:
        return _NONE
    idf = np.array([statistics.idf[token]])
    ranking = Ranking(idf, norms, limits.most, limits.hidden)
    return search_postings(partition.lists((number,), norms), ranking)


def find_phrase(
    partition: Partition,
    tokens: Sequence[Token],
    statistics: Statistics,
    limits: SearchLimits,
    *,
    slop: int,
    needs_each: bool = False,
) -> tuple[UInt32s, Float32s]:
    """Return the best documents that contain a phrase.

    Tokens at the same position, such as a name and its parts, are alternatives unless `needs_each`.
    """
    is_plain = len({token.position for token in tokens}) == len(tokens)
    if not (is_plain or needs_each):
        return _find_alternatives(partition, tokens, statistics, limits, slop)
    numbers = [number_of(partition, token.text) for token in tokens]
    if min(numbers) < 0:
        return _NONE
    norms = partition.norms(statistics.mean_length)
    idf = np.array([statistics.idf[token.text] for token in tokens], np.float32)
    return search_phrase(
        partition.lists(numbers, norms, with_position=True),
        Ranking(idf, norms, limits.most, limits.hidden),
        np.array([token.position for token in tokens], np.int64),
        slop=slop,
    )


def _find_alternatives(
    partition: Partition,
    tokens: Sequence[Token],
    statistics: Statistics,
    limits: SearchLimits,
    slop: int,
) -> tuple[UInt32s, Float32s]:
    """Return the best documents with one token per position in order, scored by all tokens."""
    texts_by_position: dict[int, dict[str, None]] = {}
    for token in tokens:
        texts_by_position.setdefault(token.position, {})[token.text] = None
    groups = [(text,) for texts in texts_by_position.values() for text in texts]
    if len(texts_by_position) > 1:
        norms = partition.norms(statistics.mean_length)
        numbers = {text: number_of(partition, text) for (text,) in groups}
        present = [text for text, number in numbers.items() if number >= 0]
        if not all(
            any(numbers[text] >= 0 for text in texts) for texts in texts_by_position.values()
        ):
            return _NONE
        lists = partition.lists([numbers[text] for text in present], norms, with_position=True)
        of_text = dict(zip(present, occurrences(lists), strict=True))
        alternatives = [
            [of_text[text] for text in texts if text in of_text]
            for texts in texts_by_position.values()
        ]
        docs = docs_with_phrase(alternatives, list(texts_by_position), slop=slop)
        hidden = np.ones(len(norms), np.uint8)
        hidden[docs] = limits.hidden[docs] if len(limits.hidden) else 0
        limits = SearchLimits(limits.most, hidden)
    return find_tokens(partition, groups, statistics, limits, needs_all=False)


def number_of(partition: Partition, token: str) -> int:
    """Return the number of a token in a partition, or -1 if no document contains it."""
    number = partition.tokens.find(token)
    return -1 if number is None or not partition.doc_frequency(number) else number


def num_docs_with(partition: Partition, token: str) -> int:
    """Return the number of documents of a partition that contain a token."""
    number = partition.tokens.find(token)
    return 0 if number is None else partition.doc_frequency(number)


def expand(
    partition: Partition,
    token: str,
    found: dict[str, None],
    *,
    fuzziness: int,
    prefix_length: int,
    expansions_max: int,
) -> None:
    """Add the index tokens within an edit distance of `fuzziness` to `found`."""
    for other, _ in partition.tokens.starting_with(token[:prefix_length]):
        if len(found) >= expansions_max:
            return
        if abs(len(other) - len(token)) <= fuzziness and is_within(token, other, fuzziness):
            found[other] = None


def is_within(first: str, second: str, most: int) -> bool:
    """Return whether the edit distance of two texts is at most `most`.

    >>> is_within("fox", "foxes", 2), is_within("fox", "ax", 1)
    (True, False)
    """
    row = list(range(len(second) + 1))
    for row_index, letter in enumerate(first, 1):
        before, row[0] = row[0], row_index
        for other, against in enumerate(second, 1):
            before, row[other] = (
                row[other],
                min(row[other] + 1, row[other - 1] + 1, before + (letter != against)),
            )
        if min(row) > most:
            return False
    return row[-1] <= most
