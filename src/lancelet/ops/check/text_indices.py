"""Checking what text indices say of rows: each word of each row, and how often it is there.

    table     row 0 = 'red fox'         row 1 = 'fox, fox'
    index     red: 0    fox: 0, 1 twice      sound
    index     red: 0    fox: 0, 1            row 1 has a word more often than the index says

Texts are cut into words anew, as the segment was asked to; words of rows that were deleted since
are passed over. Where the words stand within a text is not compared.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from lancelet.buffers import Int64s
from lancelet.index.base import IndexedRows
from lancelet.index.inverted.kind import TEXTS_TOGETHER, InvertedSegment
from lancelet.index.text.analyzer import Vocabulary
from lancelet.index.text.elements import elements_of, texts_per_row
from lancelet.ops.check.segments import SegmentChecker, covered_rows
from lancelet.query.indexing.segments import TableSegment
from lancelet.rowids.address import UInt64s
from lancelet.table.snapshot import Snapshot


def _differences(snapshot: Snapshot, segment: TableSegment) -> Iterator[str]:
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


TEXT_INDICES: Final = SegmentChecker(frozenset({"INVERTED"}), _differences)


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
