"""Full-text search of one column through its index and a scan of unindexed rows.

  indexed       partitions of documents, scored with the statistics of the whole index
  not indexed   rows of fragments not covered by a segment, tokenized when read

Unindexed rows are scored with the combined statistics of the index and these rows. Each partition
returns only as many documents as requested.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import groupby
from operator import itemgetter
from typing import Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from lancelet.buffers import Int64s
from lancelet.errors import CorruptDataError, InvalidInputError
from lancelet.format.field_path import format_path
from lancelet.index.inverted.bm25 import Corpus, weights
from lancelet.index.inverted.partition import Partition
from lancelet.index.text.analyzer import Analyzer, Token
from lancelet.index.text.documents import fuzzy_analyzer, make_analyzer, path_length
from lancelet.index.text.elements import ElementIndices
from lancelet.index.text.options import TextOptions
from lancelet.rowids.address import UInt64s, addresses_of, fragments_of, offsets_of
from lancelet.scan.nodes.source import sources
from lancelet.scan.plan import ScanPlan
from lancelet.search.full_text import (
    FullTextOperator,
    FullTextQuery,
    MatchQuery,
    PhraseQuery,
    leaf_queries,
)
from lancelet.search.matches import NO_MATCHES, Matches
from lancelet.search.terms import (
    SearchLimits,
    Statistics,
    expand,
    find_phrase,
    find_tokens,
    number_of,
)
from lancelet.search.text_indices import Target, TextSegment, text_indices
from lancelet.search.text_parts import (
    ALL_SHOWN,
    Blamed,
    TextGroup,
    TextPart,
    read_unindexed,
    statistics_of,
)
from lancelet.search.text_targets import target_of
from lancelet.table.snapshot import Snapshot
from lancelet.values import dataclass

_UNINDEXED: Final = TextOptions(stem=False, remove_stop_words=False, ascii_folding=False)
"""Tokenizer options of a column without an index."""

_CACHED_ROWS_MAX: Final = 100_000
"""Maximum number of unindexed rows whose tokens are cached between searches."""


@dataclass(frozen=True)
class TermScore:
    """The contribution of a token to the score of a row.

    Attributes:
      token: The token.
      frequency: Number of occurrences in the row.
      length: Number of tokens in the row.
      num_docs_with: Number of documents that contain the token.
      num_docs: Number of documents.
      idf: Inverse document frequency of the token.
      score: Contribution to the score.
    """

    token: str
    frequency: int
    length: int
    num_docs_with: int
    num_docs: int
    idf: float
    score: float


class TextColumn:
    """A searchable text column of a version."""

    def __init__(
        self,
        plan: ScanPlan,
        target: Target,
        rows: Mapping[int, Int64s] | None,
        analyzer: Analyzer | None = None,
        only: frozenset[str] | None = None,
        unindexed: Statistics | None = None,
    ) -> None:
        """Open the index of a column and read the unindexed rows; `rows` limits both.

        `analyzer` tokenizes a column without an index. `only` lists all tokens that will be
        searched. `unindexed` holds the statistics of all unindexed rows if only some are read here.
        """
        self._plan, self._target, self._rows = plan, target, rows
        segments = text_indices(plan.snapshot).segments(target) or ()
        self._analyzer = analyzer or analyzer_of_column(plan.snapshot, target)
        stored = [
            self._shown(number, segment, partition)
            for number, (segment, partition) in enumerate(
                (segment, each) for segment in segments for each in segment.opened.partitions
            )
        ]
        self._groups = [TextGroup(stored, stored)]
        if not plan.options.indexed_only:
            covered = frozenset().union(*(segment.table.covered for segment in segments))
            rest = read_unindexed(
                plan, target, self._analyzer, covered=covered, rows=rows, only=only
            )
            if rest is not None:
                keys = self._keys(len(stored), rest.numbers)
                part = TextPart(rest, rest.numbers, ALL_SHOWN, keys)
                together = [part, *stored]
                if (
                    target.by_element
                ):  # the reference implementation scores elements as one corpus, but not rows
                    self._groups = [TextGroup([*stored, part], together)]
                elif unindexed is not None:
                    self._groups.append(TextGroup([part], stored, unindexed))
                else:
                    self._groups.append(TextGroup([part], together))

    @property
    def memory_bytes(self) -> int:
        """The size of the partitions and cached statistics in bytes."""
        return sum(group.memory_bytes for group in self._groups)

    @property
    def analyzer(self) -> Analyzer:
        """The analyzer that tokenizes the texts."""
        return self._analyzer

    @property
    def corpus(self) -> Corpus:
        """The number of documents and tokens, indexed or not."""
        return statistics_of(list(self._parts()), []).corpus

    def unindexed(self, tokens: Sequence[str]) -> Statistics:
        """Return the statistics of the rows that were read because they are not indexed."""
        parts = [part for part in self._parts() if part.segment is None]
        return statistics_of(parts, tokens)

    def num_docs_with(self, token: str) -> int:
        """Return the number of documents that contain a token, indexed or not."""
        return statistics_of(list(self._parts()), [token]).num_docs_with[token]

    def elements(self, keys: UInt64s) -> tuple[UInt64s, ElementIndices]:
        """Return the row addresses and element indices of documents found by element."""
        parts = [part for group in self._groups for part in group.parts]
        numbers, docs = fragments_of(keys), offsets_of(keys)
        addresses = np.empty(len(keys), np.uint64)
        depth = max((part.partition.element_indices.shape[1] for part in parts), default=0)
        element_indices = np.zeros((len(keys), depth), np.uint32)
        for number in np.unique(numbers).tolist():
            part, chosen = parts[number], numbers == number
            addresses[chosen] = part.addresses[docs[chosen]]
            with part.blamed:
                element_indices[chosen] = part.partition.element_indices[docs[chosen]]
        return addresses, element_indices

    def occurrences(self, token: str) -> Iterator[tuple[UInt64s, npt.NDArray[np.uint32]]]:
        """Yield rows that contain a token, with its frequency in each."""
        for part in self._parts():
            with part.blamed:
                number = number_of(part.partition, token)
                if number < 0:
                    continue
                docs, freqs = part.partition.postings_of(number)
                shown = part.shown(docs)
                yield part.addresses[docs[shown]], freqs[shown]

    def lengths(self) -> Iterator[tuple[UInt64s, npt.NDArray[np.uint32]]]:
        """Yield rows with their number of tokens."""
        for part in self._parts():
            with part.blamed:
                yield part.addresses, part.partition.lengths

    def explain(self, query: MatchQuery | PhraseQuery, key: int) -> Iterator[TermScore]:
        """Yield the contribution of each token of a query to the score of a row or element."""
        for group in self._groups:
            token_groups = self._token_groups(query, self._tokens(query), group)
            tokens = [token for each in token_groups for token in each]
            for part in group.parts:
                docs = np.flatnonzero(part.keys == key)
                if len(docs):
                    statistics = group.statistics(tuple(tokens))
                    with part.blamed:
                        yield from _terms(part.partition, int(docs[0]), tokens, statistics, query)

    def _parts(self) -> Iterator[TextPart]:
        for group in self._groups:
            yield from group.parts

    def matches(self, query: MatchQuery | PhraseQuery, count: int | None) -> Matches:
        """Return the matches of a query of this column, or the `count` best of each partition."""
        found = NO_MATCHES
        for group in self._groups:
            own = self._matches(query, group, count)
            found = own if not len(found.addresses) else Matches.either(found, own)
        return found

    def _matches(
        self, query: MatchQuery | PhraseQuery, group: TextGroup, count: int | None
    ) -> Matches:
        tokens = self._tokens(query)
        if not tokens:
            return NO_MATCHES
        token_groups = self._token_groups(query, tokens, group)
        statistics = group.statistics(tuple([token for each in token_groups for token in each]))
        found = []
        for part in group.parts:
            with part.blamed:
                docs, scores = self._search(query, tokens, token_groups, statistics, part, count)
            found.append(part.matches(docs, scores))
        return found[0] if len(found) == 1 else Matches.joined(found)

    def _tokens(self, query: MatchQuery | PhraseQuery) -> list[Token]:
        is_near = isinstance(query, MatchQuery) and query.fuzziness
        lance_tokenizer = self._analyzer.options.lance_tokenizer
        own = fuzzy_analyzer(lance_tokenizer) if is_near else self._analyzer
        return own.tokens(query.query)

    def _token_groups(
        self, query: MatchQuery | PhraseQuery, tokens: Sequence[Token], group: TextGroup
    ) -> list[tuple[str, ...]]:
        """Return groups of alternative tokens for a query.

        If all terms are required, tokens at the same position are alternatives, such as a name and
        its parts. Duplicates at one position count once, except in unindexed rows, as in the
        reference.
        """
        token_groups: list[tuple[str, ...]] = []
        if isinstance(query, MatchQuery) and query.fuzziness:
            left = query.max_expansions  # shared by all tokens of the query
            for token in tokens:
                token_groups.append(self._near(query, token.text, group, left))
                left -= len(token_groups[-1])
            return token_groups
        placed = [(token.position, token.text) for token in tokens]
        if group is self._groups[0]:
            placed = list(dict.fromkeys(placed))
        if isinstance(query, PhraseQuery) or query.operator is FullTextOperator.OR:
            return [(text,) for _, text in placed]
        return [tuple(text for _, text in each) for _, each in groupby(placed, itemgetter(0))]

    def _near(
        self, query: MatchQuery, token: str, group: TextGroup, expansions_max: int
    ) -> tuple[str, ...]:
        found: dict[str, None] = {}
        is_json = self._analyzer.options.lance_tokenizer == "json"
        prefix_length = query.prefix_length + (path_length(token) if is_json else 0)
        for part in group.counted:
            with part.blamed:
                expand(
                    part.partition,
                    token,
                    found,
                    fuzziness=query.fuzziness,
                    prefix_length=prefix_length,
                    expansions_max=expansions_max,
                )
        return tuple(found)

    def _search(
        self,
        query: MatchQuery | PhraseQuery,
        tokens: Sequence[Token],
        token_groups: Sequence[tuple[str, ...]],
        statistics: Statistics,
        part: TextPart,
        count: int | None,
    ) -> tuple[npt.NDArray[np.uint32], npt.NDArray[np.float32]]:
        partition = part.partition
        limits = SearchLimits(partition.corpus.num_docs if count is None else count, part.hidden)
        if isinstance(query, PhraseQuery):
            if not partition.has_positions:
                raise InvalidInputError(
                    "position is not found but required for phrase queries, try recreating the "
                    "index with position",
                    column=query.column,
                )
            needs_each = part.segment is None  # as in the reference
            return find_phrase(
                partition, tokens, statistics, limits, slop=query.slop, needs_each=needs_each
            )
        if query.boost <= 0:
            limits = SearchLimits(partition.corpus.num_docs, part.hidden)
        needs_all = query.operator is FullTextOperator.AND
        docs, own = find_tokens(partition, token_groups, statistics, limits, needs_all=needs_all)
        return docs, own * np.float32(query.boost)

    def _keys(self, number: int, addresses: UInt64s) -> UInt64s:
        """Return the match keys of a partition: row addresses, or document numbers."""
        if not self._target.by_element:
            return addresses
        return addresses_of(number, np.arange(len(addresses)))

    def _shown(self, number: int, segment: TextSegment, partition: Partition) -> TextPart:
        """Return a partition with current row addresses, cached for scans of the whole version."""

        def locate(*, is_cached: bool) -> TextPart:
            with Blamed(segment):
                addresses = segment.table.locate(partition.numbers)
                hidden, keys = self._hidden(addresses), self._keys(number, addresses)
                ascends = is_cached and bool((keys[1:] > keys[:-1]).all())
                return TextPart(partition, addresses, hidden, keys, segment, ascends)

        if self._rows is not None or self._plan.options.fragments is not None:
            return locate(is_cached=False)
        key = ("text documents", segment.table.metadata.uuid, id(partition), number)
        return self._plan.snapshot.version_cache.get_or_make(key, lambda: locate(is_cached=True))

    def _hidden(self, addresses: UInt64s) -> npt.NDArray[np.uint8]:
        """Return a mask of the addresses of deleted rows and of rows outside of the search."""
        hidden = np.ones(len(addresses), np.bool_)
        fragments, offsets = fragments_of(addresses), offsets_of(addresses)
        for source in sources(self._plan.snapshot, self._plan.options.fragments):
            fragment_id = int(source.fragment.id)
            indices = np.flatnonzero(fragments == fragment_id)
            if not len(indices):
                continue
            own = offsets[indices]
            if int(own.max()) >= source.num_rows:
                raise CorruptDataError(
                    "a text index refers to a row out of range of its fragment",
                    fragment_id=fragment_id,
                    num_rows=source.num_rows,
                )
            shown = np.ones(source.num_rows, np.bool_)
            if self._rows is not None:
                shown[:] = False
                shown[self._rows.get(fragment_id, np.empty(0, np.int64))] = True
            shown[source.hidden.to_array()] = False
            hidden[indices] = ~shown[own]
        return hidden.view(np.uint8) if hidden.any() else ALL_SHOWN


def _terms(
    partition: Partition,
    doc: int,
    tokens: Sequence[str],
    statistics: Statistics,
    query: MatchQuery | PhraseQuery,
) -> Iterator[TermScore]:
    boost = query.boost if isinstance(query, MatchQuery) else 1.0
    norms = partition.norms(statistics.corpus.mean_length)[doc : doc + 1]
    for token in tokens:
        number = number_of(partition, token)
        if number < 0:
            continue
        docs, freqs = partition.postings_of(number)
        own = freqs[docs == doc]
        if len(own):
            idf = statistics.idf[token]
            yield TermScore(
                token,
                int(own[0]),
                int(partition.lengths[doc]),
                statistics.num_docs_with[token],
                statistics.corpus.num_docs,
                float(idf),
                float(idf * weights(own, norms)[0] * np.float32(boost)),
            )


def analyzer_of_column(snapshot: Snapshot, target: Target) -> Analyzer:
    """Return the analyzer of a column, from its index if it has one."""
    own = text_indices(snapshot).analyzer(target)
    if own is not None:
        return own
    field = snapshot.schema.field_by_path(format_path(target.path))
    is_json = isinstance(field.arrow_type, pa.JsonType)
    return make_analyzer(replace(_UNINDEXED, lance_tokenizer="json" if is_json else "text"))


def tokens_of(snapshot: Snapshot, query: FullTextQuery, target: Target) -> frozenset[str] | None:
    """Return the tokens that a query searches in a column, or None if it is fuzzy."""
    tokens: set[str] = set()
    for leaf in leaf_queries(query):
        if target_of(snapshot, leaf.column, leaf.document_granularity) != target:
            continue
        if isinstance(leaf, MatchQuery) and leaf.fuzziness:
            return None
        tokens |= {token.text for token in analyzer_of_column(snapshot, target).tokens(leaf.query)}
    return frozenset(tokens)


def cached_text_column(plan: ScanPlan, target: Target, query: FullTextQuery) -> TextColumn:
    """Return a column with all rows, cached unless too many rows are unindexed.

    An uncached column contains only the tokens of the query.
    """
    snapshot, is_indexed_only = plan.snapshot, plan.options.indexed_only
    segments = text_indices(snapshot).segments(target)
    key = ("text column", target, is_indexed_only, segments)
    column = snapshot.version_cache.get_or_make(
        key, lambda: _small_column(plan, target, segments or ())
    )
    if column is None:
        column = TextColumn(plan, target, None, only=tokens_of(snapshot, query, target))
    return column


def _small_column(
    plan: ScanPlan, target: Target, segments: Sequence[TextSegment]
) -> TextColumn | None:
    """Return a column, or None if it has too many unindexed rows to be cached."""
    covered = frozenset().union(*(segment.table.covered for segment in segments))
    if (
        not plan.options.indexed_only
        and _num_rows_outside(plan.snapshot, covered) > _CACHED_ROWS_MAX
    ):
        return None
    return TextColumn(plan, target, None)


def _num_rows_outside(snapshot: Snapshot, covered: frozenset[int]) -> int:
    """Return the number of rows in fragments that are not covered."""
    return sum(
        snapshot.physical_rows(each) for each in snapshot.fragments if int(each.id) not in covered
    )
