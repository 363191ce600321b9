"""Searching texts: a query over columns, each with its index and the rows that the index lacks.

    segments    partitions of documents, scored with the statistics of the whole index
    elsewhere   rows of fragments that no segment covers, cut into tokens as they are read
    query       scores of the parts put together, the best rows first

Rows that no index has are scored with the statistics of the index and theirs together.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import reduce
from typing import Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from lancelet.buffers import Int64s
from lancelet.encodings.base import RowRange
from lancelet.errors import FieldNotFoundError, InvalidInputError
from lancelet.format.schema import Schema
from lancelet.index.inverted.kind import InvertedSegment, texts_per_row
from lancelet.index.inverted.partition import MemoryPartition, Partition
from lancelet.index.inverted.postings import invert
from lancelet.index.text.analyzer import Analyzer, Vocabulary, Words
from lancelet.index.text.options import TextOptions
from lancelet.query.full_text import (
    BooleanQuery,
    BoostQuery,
    FullTextOperator,
    FullTextQuery,
    MatchQuery,
    MultiMatchQuery,
    Occur,
    PhraseQuery,
    check_query,
    columns_of_query,
)
from lancelet.query.indexing.segments import ColumnIndex, TableSegment, column_indices
from lancelet.query.nodes.source import sources
from lancelet.query.plan import ScanPlan
from lancelet.query.search.hits import Hits
from lancelet.query.search.matches import NOTHING, Matches
from lancelet.query.search.terms import Statistics, expand, score_phrase, score_words
from lancelet.rowids.address import NO_ADDRESS, UInt64s, addresses_of, fragments_of, offsets_of
from lancelet.table.snapshot import Snapshot

_UNINDEXED: Final = TextOptions(stem=False, remove_stop_words=False, ascii_folding=False)
"""How texts are cut in a column that has no index."""


class NoTextColumnError(FieldNotFoundError, ValueError):
    """Texts are searched in a column that does not exist."""


class NoTextIndexError(InvalidInputError):
    """Texts are searched in a column that has no index for it."""


@dataclass(frozen=True, slots=True, eq=False)
class TextSearch:
    """A search for texts."""

    query: FullTextQuery

    is_batch = False

    @property
    def score_field(self) -> pa.Field:
        """The column of scores."""
        return pa.field("_score", pa.float32())

    def find(self, plan: ScanPlan, rows: Mapping[int, Int64s] | None) -> Hits:
        """Return the rows that match, the best first."""
        found = _Evaluation(plan, rows).matches(self.query)
        options = plan.options
        is_cut = not options.order_by and (rows is not None or not plan.is_filtered)
        if options.limit is not None and is_cut:
            found = found.where(_best(found.scores, options.offset + options.limit))
        order = np.lexsort((found.addresses, -found.scores))
        return Hits.of_query(found.addresses[order], found.scores[order])


def read_text_search(snapshot: Snapshot, wanted: object) -> TextSearch:
    """Return the search that a caller asked for: a query, or words for columns."""
    if isinstance(wanted, FullTextQuery):
        query = wanted
    elif isinstance(wanted, str):
        query = _words_query(snapshot, wanted, None)
    elif isinstance(wanted, Mapping) and isinstance(wanted.get("query"), FullTextQuery):
        query = wanted["query"]
    elif isinstance(wanted, Mapping) and "query" in wanted:
        query = _words_query(snapshot, wanted["query"], wanted.get("columns"))
    else:
        raise InvalidInputError(
            "a query of texts is words, a query, or a dict with `query` and `columns`",
            found=type(wanted).__name__,
        )
    check_query(query)
    for column in columns_of_query(query):
        _check_column(snapshot.schema, column)
    return TextSearch(query)


def _best(scores: npt.NDArray[np.float32], count: int) -> npt.NDArray[np.bool_]:
    """Return which scores are among the best; those that equal the last of them are too."""
    if len(scores) <= count:
        return np.ones(len(scores), np.bool_)
    if count == 0:
        return np.zeros(len(scores), np.bool_)
    last = np.partition(scores, len(scores) - count)[len(scores) - count]
    return np.asarray(scores >= last)


def _words_query(snapshot: Snapshot, words: str, columns: Sequence[str] | None) -> FullTextQuery:
    if not columns:
        columns = sorted({".".join(path) for path in _text_indices(snapshot)})
        if not columns:
            raise NoTextIndexError(
                "Cannot perform full text search unless an INVERTED index has been created on at "
                "least one column"
            )
    if len(columns) == 1:
        return MatchQuery(words, columns[0])
    return MultiMatchQuery(words, columns)


def _check_column(schema: Schema, column: str) -> None:
    try:
        data_type = schema.field_by_path(column).arrow_type
    except FieldNotFoundError as error:
        raise NoTextColumnError(
            "FTS field path does not exist in the dataset schema", column=column
        ) from error
    if pa.types.is_list(data_type) or pa.types.is_large_list(data_type):
        data_type = data_type.value_type
    if not (pa.types.is_string(data_type) or pa.types.is_large_string(data_type)):
        raise InvalidInputError(
            "texts are searched in columns of texts", column=column, found=str(data_type)
        )


def _text_indices(snapshot: Snapshot) -> dict[tuple[str, ...], ColumnIndex]:
    """Return the text index of each column that has one."""
    found: dict[tuple[str, ...], ColumnIndex] = {}
    for path, indices in column_indices(snapshot).items():
        for index in indices:
            if isinstance(index.segments[0].open(), InvertedSegment):
                found[path] = index
    return found


@dataclass(frozen=True, slots=True, eq=False)
class _Group:
    """Partitions that are scored with the same statistics, and where their documents are."""

    partitions: Sequence[Partition]
    addresses: Sequence[UInt64s]
    beside: Sequence[Partition] = ()
    """Partitions that count for the statistics, and are not searched."""


class _Evaluation:
    """Evaluates a query over a version."""

    def __init__(self, plan: ScanPlan, rows: Mapping[int, Int64s] | None) -> None:
        self._plan, self._rows = plan, rows
        self._snapshot = plan.snapshot
        self._indices = _text_indices(plan.snapshot)
        self._columns: dict[str, _Column] = {}

    def matches(self, query: FullTextQuery) -> Matches:
        """Return the rows that a query finds."""
        match query:
            case MatchQuery() | PhraseQuery():
                return self._column(query.column).matches(query)
            case BoostQuery():
                positive = self.matches(query.positive)
                less = np.float32(query.negative_boost) * self.matches(query.negative).among(
                    positive
                )
                return Matches(positive.addresses, positive.scores - less)
            case MultiMatchQuery():
                return reduce(Matches.better, (self.matches(each) for each in query.queries))
            case BooleanQuery():
                return self._boolean(query)
            case _:
                raise InvalidInputError("unknown query of texts", found=type(query).__name__)

    def _boolean(self, query: BooleanQuery) -> Matches:
        parts: dict[Occur, list[Matches]] = {occur: [] for occur in Occur}
        for occur, each in query.queries:
            parts[occur].append(self.matches(each))
        if parts[Occur.MUST]:
            found = reduce(Matches.both, parts[Occur.MUST])
            for other in parts[Occur.SHOULD]:
                found = Matches(found.addresses, found.scores + other.among(found))
        else:
            found = reduce(Matches.either, parts[Occur.SHOULD], NOTHING)
        for other in parts[Occur.MUST_NOT]:
            found = found.where(~other.has(found.addresses))
        return found

    def _column(self, name: str) -> _Column:
        if name not in self._columns:
            path = tuple(field.name for field in self._snapshot.schema.fields_on_path(name))
            self._columns[name] = _Column(self._plan, self._rows, path, self._indices.get(path))
        return self._columns[name]


class _Column:
    """A column: its index, and the rows that the index lacks."""

    def __init__(
        self,
        plan: ScanPlan,
        rows: Mapping[int, Int64s] | None,
        path: tuple[str, ...],
        index: ColumnIndex | None,
    ) -> None:
        self._plan, self._rows, self._path = plan, rows, path
        segments = () if index is None else index.segments
        opened = [segment.open() for segment in segments]
        stored = [each for each in opened if isinstance(each, InvertedSegment)]
        self._analyzer = stored[0].analyzer if stored else Analyzer(_UNINDEXED)
        partitions: list[Partition] = []
        addresses: list[UInt64s] = []
        for segment, own in zip(segments, stored, strict=True):
            for partition in own.partitions:
                partitions.append(partition)
                addresses.append(self._shown(segment, partition))
        self._groups = [_Group(partitions, addresses)]
        covered = frozenset() if index is None else index.covered
        if not (plan.options.indexed_only and index is not None):
            rest = self._unindexed(covered)
            if rest is not None:
                self._groups.append(_Group([rest], [rest.numbers], partitions))

    def matches(self, query: MatchQuery | PhraseQuery) -> Matches:
        """Return the rows that a query of this column finds."""
        found = NOTHING
        for group in self._groups:
            own = self._matches(query, group)
            found = own if not len(found.addresses) else Matches.either(found, own)
        return found

    def _matches(self, query: MatchQuery | PhraseQuery, group: _Group) -> Matches:
        if isinstance(query, PhraseQuery) and not all(
            partition.has_positions for partition in group.partitions
        ):
            raise InvalidInputError(
                "position is not found but required for phrase queries, try recreating the index "
                "with position",
                column=query.column,
            )
        tokens = self._analyzer.tokens(query.query)
        words: list[tuple[str, ...]] = [(token.text,) for token in tokens]
        searched = (*group.partitions, *group.beside)
        if isinstance(query, MatchQuery) and query.fuzziness:
            words = [
                tuple(
                    expand(
                        searched,
                        token.text,
                        fuzziness=query.fuzziness,
                        prefix_length=query.prefix_length,
                        expansions_max=query.max_expansions,
                    )
                )
                for token in tokens
            ]
        if not words:
            return NOTHING
        statistics = Statistics.of(searched, [token for group in words for token in group])
        addresses, scores = [np.empty(0, np.uint64)], [np.empty(0, np.float32)]
        for partition, where in zip(group.partitions, group.addresses, strict=True):
            norms = statistics.norms(partition)
            if isinstance(query, PhraseQuery):
                docs, own = score_phrase(partition, tokens, statistics, norms, slop=query.slop)
            else:
                needs_all = query.operator is FullTextOperator.AND
                docs, own = score_words(partition, words, statistics, norms, needs_all=needs_all)
                own *= np.float32(query.boost)
            visible = where[docs]
            kept = visible != NO_ADDRESS
            addresses.append(visible[kept])
            scores.append(own[kept])
        return Matches.of(np.concatenate(addresses), np.concatenate(scores))

    def _shown(self, segment: TableSegment, partition: Partition) -> UInt64s:
        """Return where the documents of a partition are, worked out once for a whole version."""

        def locate() -> UInt64s:
            return self._visible(segment.locate(partition.numbers))

        if self._rows is not None or self._plan.options.fragments is not None:
            return locate()
        key = ("text documents", segment.metadata.uuid, id(partition))
        return self._plan.snapshot.kept.get_or_make(key, locate)

    def _visible(self, addresses: UInt64s) -> UInt64s:
        """Return addresses with those of rows that are deleted or not asked for crossed out."""
        found = np.full(len(addresses), NO_ADDRESS, np.uint64)
        fragments, offsets = fragments_of(addresses), offsets_of(addresses)
        for source in sources(self._plan.snapshot, self._plan.options.fragments):
            fragment_id = int(source.fragment.id)
            places = np.flatnonzero(fragments == fragment_id)
            if not len(places):
                continue
            own = offsets[places]
            kept = ~np.isin(own, source.hidden.to_array())
            if self._rows is not None:
                kept &= np.isin(own, self._rows.get(fragment_id, np.empty(0, np.int64)))
            places = places[kept]
            found[places] = addresses[places]
        return found

    def _unindexed(self, covered: frozenset[int]) -> MemoryPartition | None:
        """Return the rows of fragments that the index lacks as a partition."""
        vocabulary = Vocabulary()
        field = self._plan.snapshot.schema.field_by_path(".".join(self._path))
        texts: list[pa.Array] = []
        where: list[UInt64s] = []
        for source in sources(self._plan.snapshot, self._plan.options.fragments):
            if int(source.fragment.id) in covered:
                continue
            whole = RowRange(0, source.num_rows)
            offsets = source.visible(whole)
            if self._rows is not None:
                offsets = self._rows.get(int(source.fragment.id), np.empty(0, np.int64))
            (values,) = source.read([field], whole, offsets)
            texts.append(texts_per_row(values).cast(pa.large_string()))
            where.append(
                addresses_of(
                    source.fragment.id, np.arange(len(whole)) if offsets is None else offsets
                )
            )
        if not texts:
            return None
        words = self._analyzer.analyze(pa.concat_arrays(texts), vocabulary)
        has_tokens = words.counts > 0
        words = Words(words.ids, words.positions, words.counts[has_tokens])
        postings = invert(words, len(vocabulary.tokens), 0, with_position=True)
        lengths = words.counts.astype(np.uint32)
        return MemoryPartition(
            vocabulary.tokens, postings, np.concatenate(where)[has_tokens], lengths
        )
