"""Parts of a text column (index partitions and tokenized rows), grouped by scoring statistics.

  group 1   partitions of the index     statistics of the index
  group 2   unindexed rows              statistics of the index and of these rows

Versions are immutable, so token statistics are computed once and cached.

Unindexed rows are read and tokenized in batches of 65,536 rows, and only posting lists are
retained. For rows read for a single query, only the postings of its tokens and the document lengths
are retained.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import field
from typing import Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from lancelet.buffers import Int64s
from lancelet.encodings.base import RowRange
from lancelet.errors import CorruptDataError, ObjectNotFoundError, UnsupportedError
from lancelet.format.field_path import format_path
from lancelet.index.inverted.bm25 import Corpus
from lancelet.index.inverted.partition import MemoryPartition, Partition
from lancelet.index.inverted.postings import Postings, invert, join
from lancelet.index.text.analyzer import AnalyzedTexts, Analyzer, Vocabulary
from lancelet.index.text.elements import (
    ElementIndices,
    list_elements,
    lists_of_texts,
    texts_per_row,
)
from lancelet.rowids.address import UInt64s, addresses_of
from lancelet.scan.nodes.source import FragmentSource, sources
from lancelet.scan.plan import ScanPlan, projection_of
from lancelet.search.matches import Matches
from lancelet.search.terms import Statistics, num_docs_with
from lancelet.search.text_indices import BrokenSegmentError, Target, TextSegment
from lancelet.search.text_targets import split_path
from lancelet.values import dataclass

_UNREADABLE: Final = (CorruptDataError, ObjectNotFoundError, UnsupportedError)

_COUNTED_BYTES: Final = 512
_COUNTED_MAX: Final = 4096
"""Maximum number of queries with cached statistics."""

ALL_SHOWN: Final = np.empty(0, np.uint8)
"""Value of `TextPart.hidden` if all documents are searchable."""

ROWS_TOGETHER: Final = 64 * 1024
"""Number of rows per read."""


@dataclass(frozen=True, slots=True)
class Blamed:
    """Context manager that raises `BrokenSegmentError` if the segment cannot be read."""

    segment: TextSegment | None

    def __enter__(self) -> None:
        pass

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: object
    ) -> None:
        """Wrap read errors with the segment."""
        if self.segment is not None and isinstance(error, _UNREADABLE):
            raise BrokenSegmentError(self.segment, error) from error


@dataclass(frozen=True, slots=True, eq=False)
class TextPart:
    """A partition with the row addresses of its documents and a mask of hidden documents.

    `keys` identify matches: row addresses, or document numbers if rows have several documents.
    Matches need not be sorted if `keys` are in ascending order.
    """

    partition: Partition
    addresses: UInt64s
    hidden: npt.NDArray[np.uint8]
    keys: UInt64s
    segment: TextSegment | None = None
    ascends: bool = False
    blamed: Blamed = field(init=False)

    def __post_init__(self) -> None:
        """Create the error context of the segment."""
        object.__setattr__(self, "blamed", Blamed(self.segment))

    @property
    def memory_bytes(self) -> int:
        """The size in bytes, including the partition."""
        own = self.addresses, self.hidden, self.keys
        return sum(each.nbytes for each in own) + self.partition.memory_bytes

    def matches(self, docs: npt.NDArray[np.uint32], scores: npt.NDArray[np.float32]) -> Matches:
        """Return matches for ascending document numbers and their scores."""
        keys = self.keys[docs]
        return Matches(keys, scores) if self.ascends else Matches.of(keys, scores)

    def shown(self, docs: npt.NDArray[np.uint32]) -> npt.NDArray[np.bool_]:
        """Return a mask of the searchable documents."""
        return self.hidden[docs] == 0 if len(self.hidden) else np.ones(len(docs), np.bool_)


class TextGroup:
    """Parts that share scoring statistics."""

    def __init__(
        self,
        parts: Sequence[TextPart],
        counted: Sequence[TextPart],
        base_statistics: Statistics | None = None,
    ) -> None:
        """Score `parts` with the statistics of `counted` plus `base_statistics`."""
        self.parts, self.counted, self._counted_before = (
            tuple(parts),
            tuple(counted),
            base_statistics,
        )
        self._cache: dict[tuple[str, ...], Statistics] = {}

    @property
    def memory_bytes(self) -> int:
        """The size of the parts and cached statistics in bytes."""
        return sum(each.memory_bytes for each in self.parts) + _COUNTED_BYTES * len(self._cache)

    def statistics(self, tokens: tuple[str, ...]) -> Statistics:
        """Return the statistics of tokens."""
        found = self._cache.get(tokens)
        if found is None:
            if len(self._cache) >= _COUNTED_MAX:
                self._cache = {}
            found = statistics_of(self.counted, tokens)
            if self._counted_before is not None:
                found += self._counted_before
            self._cache[tokens] = found
        return found


def statistics_of(parts: Sequence[TextPart], tokens: Sequence[str]) -> Statistics:
    """Return the corpus size of parts and the document frequency of each token."""
    counts = dict.fromkeys(tokens, 0)
    corpus = Corpus(0, 0)
    for part in parts:
        with part.blamed:
            corpus += part.partition.corpus
            for token in counts:
                counts[token] += num_docs_with(part.partition, token)
    return Statistics(corpus, counts)


def read_unindexed(
    plan: ScanPlan,
    target: Target,
    analyzer: Analyzer,
    *,
    covered: frozenset[int],
    rows: Mapping[int, Int64s] | None,
    only: frozenset[str] | None,
) -> MemoryPartition | None:
    """Read the rows of uncovered fragments into a partition; None if there are no rows.

    Args:
      plan: The plan with the version and the fragments to read.
      target: The column and its document granularity.
      analyzer: The analyzer of the texts.
      covered: The indexed fragments.
      rows: The row offsets to read, by fragment; by default all.
      only: The tokens to index, by default all.
    """
    vocabulary = Vocabulary()
    parts: list[Postings] = []
    numbers: list[UInt64s] = []
    lengths: list[Int64s] = []
    element_indices: list[ElementIndices] = []
    num_docs = 0
    for texts, own in _documents(plan, target, covered, rows, element_indices):
        met = vocabulary if only is None else Vocabulary()
        analyzed = analyzer.analyze(texts.cast(pa.large_string()), met)
        has_tokens = (analyzed.counts > 0) | target.by_element
        numbers.append(own[has_tokens])
        lengths.append(analyzed.counts[has_tokens])
        if only is not None:
            analyzed = _with_only(analyzed, met, only, vocabulary)
        analyzed = AnalyzedTexts(analyzed.ids, analyzed.positions, analyzed.counts[has_tokens])
        parts.append(invert(analyzed, len(vocabulary.tokens), num_docs, with_position=True))
        num_docs += len(analyzed.counts)
    if not parts:
        return None
    return MemoryPartition(
        vocabulary.tokens,
        join(parts, len(vocabulary.tokens)),
        np.concatenate(numbers),
        np.concatenate(lengths).astype(np.uint32),
        np.concatenate(element_indices) if element_indices else None,
    )


def _documents(
    plan: ScanPlan,
    target: Target,
    covered: frozenset[int],
    rows: Mapping[int, Int64s] | None,
    element_indices: list[ElementIndices],
) -> Iterator[tuple[pa.Array, UInt64s]]:
    """Yield documents with their row addresses; append to `element_indices`."""
    for values, addresses in _read_values(plan, target, covered, rows):
        if target.by_element:
            found = list_elements(values)
            element_indices.append(found.element_indices)
            yield found.texts, addresses[found.rows]
        else:
            yield texts_per_row(values), addresses


def _read_values(
    plan: ScanPlan, target: Target, covered: frozenset[int], rows: Mapping[int, Int64s] | None
) -> Iterator[tuple[pa.Array, UInt64s]]:
    """Yield column values with their row addresses."""
    above, within = split_path(plan.snapshot.schema, target.path)
    projection = projection_of(plan.snapshot, (format_path(above),))
    names = [field.name for field in projection.fields]
    for source in sources(plan.snapshot, plan.options.fragments):
        fragment_id = int(source.fragment.id)
        if fragment_id in covered:
            continue
        selected = None if rows is None else rows.get(fragment_id, np.empty(0, np.int64))
        for start in range(0, source.num_rows, ROWS_TOGETHER):
            whole = RowRange(start, min(start + ROWS_TOGETHER, source.num_rows))
            offsets = _offsets(source, whole, selected)
            if offsets is not None and not len(offsets):
                continue
            read = source.read(projection.fields, whole, offsets)
            (values,) = projection.compute(pa.RecordBatch.from_arrays(read, names)).columns
            own = np.arange(whole.start, whole.stop) if offsets is None else offsets
            yield lists_of_texts(values, within), addresses_of(source.fragment.id, own)


def _offsets(source: FragmentSource, whole: RowRange, selected: Int64s | None) -> Int64s | None:
    """Return the row offsets to read in a range, or None for all."""
    if selected is None:
        return source.visible(whole)
    first, stop = np.searchsorted(selected, [whole.start, whole.stop])
    return selected[first:stop]


def _with_only(
    analyzed: AnalyzedTexts, met: Vocabulary, only: frozenset[str], vocabulary: Vocabulary
) -> AnalyzedTexts:
    """Return the occurrences of selected tokens, with the token ids of another vocabulary."""
    numbers = np.full(len(met.tokens), -1, np.int64)
    for token in only:
        if token in met.ids:
            numbers[met.ids[token]] = vocabulary.number(token)
    made = numbers[analyzed.ids]
    mask = made >= 0
    num_selected = np.concatenate([np.zeros(1, np.int64), np.cumsum(mask)])
    ends = np.cumsum(analyzed.counts)
    counts = num_selected[ends] - num_selected[ends - analyzed.counts]
    return AnalyzedTexts(made[mask].astype(np.uint32), analyzed.positions[mask], counts)
