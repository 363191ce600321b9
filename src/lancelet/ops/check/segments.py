"""What checks of index segments have in common, whatever kind the index is of.

Checking what vector indices say of rows: each row once, in codes of its own vector.

    table     rows 0 1 2, row 1 without a vector
    index     partition 0: row 2    partition 1: row 0      sound
    index     partition 0: row 2    partition 1: row 2      row 2 is there twice, row 0 is missing

Every partition and every graph is read. Codes are worked out anew from the vectors; as sums are
rounded differently elsewhere, a few that differ are no fault.

Checking what text indices say of rows: each word of each row, and how often it is there.

    table     row 0 = 'red fox'         row 1 = 'fox, fox'
    index     red: 0    fox: 0, 1 twice      sound
    index     red: 0    fox: 0, 1            row 1 has a word more often than the index says

Texts are cut into words anew, as the segment was asked to; words of rows that were deleted since
are passed over. Where the words stand within a text is not compared.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Final, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from lancelet.buffers import Int64s
from lancelet.format.index_metadata import IndexMetadata
from lancelet.index.base import IndexedRows
from lancelet.index.inverted.kind import TEXTS_TOGETHER, InvertedSegment
from lancelet.index.text.analyzer import Vocabulary
from lancelet.index.text.elements import elements_of, texts_per_row
from lancelet.index.vector.kind import IVF, EncodedRows, concatenated_codes, encoded_parts
from lancelet.index.vector.quantizers.base import Codes
from lancelet.index.vector.quantizers.pq import ProductCodes
from lancelet.index.vector.segment import IvfSegment
from lancelet.ops.check.finding import Finding, Severity
from lancelet.ops.indexing.rows import rows_to_index
from lancelet.query.indexing.segments import TableSegment, kind_of, table_segment
from lancelet.rowids.address import NO_ADDRESS, UInt64s
from lancelet.table.snapshot import Snapshot
from lancelet.values import dataclass

Differences: TypeAlias = Callable[[Snapshot, TableSegment], Iterator[str]]
"""Yields where a segment and the rows that it covers disagree."""

_ROUNDED_SHARE: Final = 0.1
"""Up to this share of rows may have codes that are not quite those found anew."""


@dataclass(frozen=True, slots=True)
class SegmentChecker:
    """Checks segments of some kinds against the rows that they cover."""

    kinds: frozenset[str]
    differences: Differences

    def knows(self, index: IndexMetadata) -> bool:
        """Say whether a segment is of one of the kinds, in a version that is understood."""
        kind = kind_of(index.details)
        if kind is None or kind.name not in self.kinds:
            return False
        return (index.index_version or 0) <= kind.newest_version

    def findings(self, snapshot: Snapshot, index: IndexMetadata) -> Iterator[Finding]:
        """Yield what differs in a segment that covers rows; what cannot be read is raised."""
        segment = table_segment(snapshot, index)
        if segment is None or not segment.covered:
            return
        for what in self.differences(snapshot, segment):
            yield Finding(
                Severity.ERROR,
                index.directory,
                f"{index.name}: {what}",
                "optimize the indices with retrain=True",
                index=index.name,
            )


def covered_rows(snapshot: Snapshot, segment: TableSegment, *, by_address: bool) -> IndexedRows:
    """Return what the segment should be about: the column in the fragments that it covers."""
    path = snapshot.schema.path_of(segment.metadata.fields[0])
    return rows_to_index(
        snapshot,
        tuple(field.name for field in snapshot.schema.fields_on_path(path)),
        sorted(segment.covered),
        by_address=by_address,
        as_text=segment.kind.reads_json_text,
        within=segment.kind.json_path,
        value_type=segment.value_type,
    )


def _vector_differences(snapshot: Snapshot, segment: TableSegment) -> Iterator[str]:
    opened = segment.open()
    assert isinstance(opened, IvfSegment), "only these are known"
    rows = covered_rows(snapshot, segment, by_address=not segment.is_by_id)
    expected = _joined(list(encoded_parts(rows, opened.model, opened.quantizer)))
    numbers, labels, codes = _listed(segment, opened)
    lacking = np.setdiff1d(expected.numbers, numbers)
    if len(lacking):
        yield f"it lacks {len(lacking)} rows that have a vector"
    live = np.concatenate([np.empty(0, np.uint64), *(part[1] for part in rows.parts)])
    strange = np.setdiff1d(np.intersect1d(numbers, live), expected.numbers)
    if len(strange):
        yield f"it has {len(strange)} rows that have no vector"
    if len(np.unique(expected.numbers)) < len(expected.numbers):
        return  # rows of several vectors are there several times
    once, own = np.unique(numbers, return_index=True)
    if len(once) < len(numbers):
        yield f"it has {len(numbers) - len(once)} rows more than once"
    shared, places, found = np.intersect1d(once, expected.numbers, return_indices=True)
    if not len(shared):
        return
    own = own[places]
    same = labels[own] == expected.labels[found]
    if (~same).sum() > _ROUNDED_SHARE * len(shared):
        yield f"{(~same).sum()} rows are not in the partition of their vector"
    slack = 0 if isinstance(opened.quantizer, ProductCodes) else 1
    wrong = _different(_rows_of(codes, own[same]), _rows_of(expected.codes, found[same]), slack)
    if wrong > _ROUNDED_SHARE * len(shared):
        yield f"{wrong} rows have codes that are not those of their vector"


VECTOR_INDICES: Final = SegmentChecker(frozenset({IVF.name}), _vector_differences)


def _joined(parts: list[EncodedRows]) -> EncodedRows:
    return EncodedRows(
        np.concatenate([np.empty(0, np.uint64), *(part.numbers for part in parts)]),
        np.concatenate([np.empty(0, np.int64), *(part.labels for part in parts)]),
        concatenated_codes([part.codes for part in parts]),
    )


def _listed(
    segment: TableSegment, opened: IvfSegment
) -> tuple[UInt64s, npt.NDArray[np.int64], Codes]:
    """Return the rows of all partitions that still are, their partitions and their codes."""
    numbers: list[UInt64s] = [np.empty(0, np.uint64)]
    labels: list[npt.NDArray[np.int64]] = [np.empty(0, np.int64)]
    codes: list[Codes] = []
    for partition in range(opened.model.partitions):
        opened.graph(partition)
        listed, own = opened.codes(partition)
        moved = segment.renumber(listed, by_address=not segment.is_by_id)
        kept = np.flatnonzero(moved != NO_ADDRESS)
        numbers.append(moved[kept])
        labels.append(np.full(len(kept), partition))
        codes.append(_rows_of(own, kept))
    return np.concatenate(numbers), np.concatenate(labels), concatenated_codes(codes)


def _rows_of(codes: Codes, rows: npt.NDArray[np.integer]) -> Codes:
    return {key: each[rows] for key, each in codes.items()}


def _different(found: Codes, expected: Codes, slack: int) -> int:
    """Return how many rows differ: whole numbers by more than a slack, others by a thousandth."""
    differs = np.zeros(len(next(iter(found.values()), ())), np.bool_)
    for key, each in found.items():
        own, other = (each.reshape(len(each), -1), expected[key].reshape(len(each), -1))
        apart = np.abs(own.astype(np.float64) - other)
        allowed = slack if own.dtype.kind == "u" else 1e-3 * np.maximum(np.abs(other), 1)
        differs |= (apart > allowed).any(axis=1)
    return int(differs.sum())


def _text_differences(snapshot: Snapshot, segment: TableSegment) -> Iterator[str]:
    opened = segment.open()
    assert isinstance(opened, InvertedSegment), "only these are known"
    rows = covered_rows(snapshot, segment, by_address=not segment.is_by_id)
    vocabulary = Vocabulary()
    live, expected = _words_of(rows, opened, vocabulary)
    found, wrong_lengths = _words_listed(segment, opened, vocabulary, live)
    if wrong_lengths:
        yield f"it has {wrong_lengths} documents with another number of words than it says"
    own, counts = _counted(expected, len(vocabulary.tokens))
    other, listed = _counted(found, len(vocabulary.tokens))
    shared, places, others = np.intersect1d(own, other, assume_unique=True, return_indices=True)
    if len(shared) < len(own):
        yield f"it lacks {len(own) - len(shared)} words of rows"
    if len(shared) < len(other):
        yield f"it has {len(other) - len(shared)} words of rows that do not have them"
    differs = int((counts[places] != listed[others]).sum())
    if differs:
        yield f"it has {differs} words of rows another number of times than they are there"


TEXT_INDICES: Final = SegmentChecker(frozenset({"INVERTED"}), _text_differences)


class _Words:
    """Words of rows, by the place of the row among all and the number of the word."""

    def __init__(self) -> None:
        self.rows: list[Int64s] = [np.empty(0, np.int64)]
        self.tokens: list[Int64s] = [np.empty(0, np.int64)]
        self.counts: list[Int64s] = [np.empty(0, np.int64)]

    def add(self, rows: Int64s, tokens: npt.NDArray[np.integer], counts: Int64s) -> None:
        """Add words, each with how often it is there."""
        self.rows.append(rows)
        self.tokens.append(tokens.astype(np.int64))
        self.counts.append(counts)


def _words_of(
    rows: IndexedRows, opened: InvertedSegment, vocabulary: Vocabulary
) -> tuple[UInt64s, _Words]:
    """Return the numbers of all rows, and the words that their texts have."""
    found, numbers, before = _Words(), [np.empty(0, np.uint64)], 0
    for values, own in rows.parts:
        for start in range(0, len(values), TEXTS_TOGETHER):
            texts, places = _texts_of(values.slice(start, TEXTS_TOGETHER), opened)
            words = opened.analyzer.analyze(texts, vocabulary)
            at = np.repeat(places + (before + start), words.counts)
            found.add(at, words.ids, np.ones(len(at), np.int64))
        numbers.append(own)
        before += len(values)
    return np.concatenate(numbers), found


def _texts_of(values: pa.Array, opened: InvertedSegment) -> tuple[pa.Array, Int64s]:
    """Return the documents of rows, and the place of the row of each."""
    if not opened.by_element:
        return texts_per_row(values), np.arange(len(values))
    elements = elements_of(values)
    return elements.texts, elements.rows


def _words_listed(
    segment: TableSegment, opened: InvertedSegment, vocabulary: Vocabulary, live: UInt64s
) -> tuple[_Words, int]:
    """Return the words that a segment has of live rows, and how many documents lack some."""
    order = np.argsort(live)
    found, wrong = _Words(), 0
    for partition in opened.partitions:
        tokens, postings = partition.everything()
        freqs = postings.freqs.astype(np.int64)
        sums = np.bincount(postings.docs, freqs, minlength=len(partition.numbers))
        wrong += int((sums != partition.lengths).sum())
        moved = segment.renumber(partition.numbers, by_address=not segment.is_by_id)
        places = np.searchsorted(live, moved, sorter=order)
        places = order[np.minimum(places, len(order) - 1)] if len(order) else places
        lives = np.isin(moved, live)
        kept = lives[postings.docs]
        ids = _numbers_of(tokens, vocabulary)[postings.tokens[kept]]
        found.add(places[postings.docs[kept]], ids, freqs[kept])
    return found, wrong


def _numbers_of(tokens: Sequence[str], vocabulary: Vocabulary) -> Int64s:
    return np.fromiter((vocabulary.number(token) for token in tokens), np.int64, len(tokens))


def _counted(words: _Words, num_tokens: int) -> tuple[Int64s, Int64s]:
    """Return a number for each pair of row and word that there is, in order, and how often."""
    pairs = np.concatenate(words.rows) * max(num_tokens, 1) + np.concatenate(words.tokens)
    distinct, places = np.unique(pairs, return_inverse=True)
    counts = np.bincount(places, np.concatenate(words.counts), minlength=len(distinct))
    return distinct, counts.astype(np.int64)
