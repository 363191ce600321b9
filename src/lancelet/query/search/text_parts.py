"""What a column of texts is searched in: partitions, in groups that are scored alike.

    group 1   partitions of the index     statistics of the index
    group 2   rows that no index has      statistics of the index and of these rows

A version never changes, so what is counted for the tokens of a query is counted once.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import field
from typing import Final

import numpy as np
import numpy.typing as npt

from lancelet.errors import CorruptDataError, ObjectNotFoundError, UnsupportedError
from lancelet.index.inverted.bm25 import Corpus
from lancelet.index.inverted.partition import Partition
from lancelet.query.search.matches import Matches
from lancelet.query.search.terms import Statistics, num_docs_with
from lancelet.query.search.text_indices import BrokenSegmentError, TextSegment
from lancelet.rowids.address import UInt64s
from lancelet.values import dataclass

_UNREADABLE: Final = (CorruptDataError, ObjectNotFoundError, UnsupportedError)

_COUNTED_BYTES: Final = 512
_COUNTED_MAX: Final = 4096
"""The statistics of so many queries are remembered."""

ALL_SHOWN: Final = np.empty(0, np.uint8)
"""What is hidden of a partition whose documents may all be found."""


@dataclass(frozen=True, slots=True)
class Blamed:
    """Says which segment it is that cannot be read."""

    segment: TextSegment | None

    def __enter__(self) -> None:
        """Begin to read."""

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: object
    ) -> None:
        """Name the segment in an error."""
        if self.segment is not None and isinstance(error, _UNREADABLE):
            raise BrokenSegmentError(self.segment, error) from error


@dataclass(frozen=True, slots=True, eq=False)
class TextPart:
    """A partition, where its documents are, and which of them are not to be found.

    What is found are `keys`: addresses of rows, or numbers of documents where a row has several.
    Where these are known to ascend, what is found need not be sorted.
    """

    partition: Partition
    addresses: UInt64s
    hidden: npt.NDArray[np.uint8]
    keys: UInt64s
    segment: TextSegment | None = None
    ascends: bool = False
    blamed: Blamed = field(init=False)

    def __post_init__(self) -> None:
        """Prepare to blame the segment."""
        object.__setattr__(self, "blamed", Blamed(self.segment))

    @property
    def memory_bytes(self) -> int:
        """How much memory it takes, with its partition."""
        own = self.addresses, self.hidden, self.keys
        return sum(each.nbytes for each in own) + self.partition.memory_bytes

    def matches(self, docs: npt.NDArray[np.uint32], scores: npt.NDArray[np.float32]) -> Matches:
        """Return documents that were found, which ascend, and their scores by their keys."""
        keys = self.keys[docs]
        return Matches(keys, scores) if self.ascends else Matches.of(keys, scores)

    def shown(self, docs: npt.NDArray[np.uint32]) -> npt.NDArray[np.bool_]:
        """Return which documents may be found."""
        return self.hidden[docs] == 0 if len(self.hidden) else np.ones(len(docs), np.bool_)


class TextGroup:
    """Parts that are scored with the same statistics."""

    def __init__(
        self,
        parts: Sequence[TextPart],
        counted: Sequence[TextPart],
        known: Statistics | None = None,
    ) -> None:
        """Score parts by what is counted in some that may be others, and by what is known."""
        self.parts, self.counted, self._counted_before = tuple(parts), tuple(counted), known
        self._known: dict[tuple[str, ...], Statistics] = {}

    @property
    def memory_bytes(self) -> int:
        """How much memory its parts take, and what was counted for queries."""
        return sum(each.memory_bytes for each in self.parts) + _COUNTED_BYTES * len(self._known)

    def statistics(self, tokens: tuple[str, ...]) -> Statistics:
        """Return the statistics of tokens."""
        found = self._known.get(tokens)
        if found is None:
            if len(self._known) >= _COUNTED_MAX:
                self._known = {}
            found = statistics_of(self.counted, tokens)
            if self._counted_before is not None:
                found += self._counted_before
            self._known[tokens] = found
        return found


def statistics_of(parts: Sequence[TextPart], tokens: Sequence[str]) -> Statistics:
    """Return how many documents and tokens parts have, and in how many each token is."""
    counts = dict.fromkeys(tokens, 0)
    corpus = Corpus(0, 0)
    for part in parts:
        with part.blamed:
            corpus += part.partition.corpus
            for token in counts:
                counts[token] += num_docs_with(part.partition, token)
    return Statistics(corpus, counts)
