"""Compare the entries of vector and text indices with the rows they cover.

Vector indices: each row once, with the code of its vector.

    table     rows 0 1 2, row 1 without a vector
    index     partition 0: row 2    partition 1: row 0      OK
    index     partition 0: row 2    partition 1: row 2      row 2 is duplicated, row 0 is missing

All partitions and graphs are read. Codes are recomputed from the vectors; since rounding differs
between machines, a small share of differences is tolerated.

Text indices: each token of each row, with its frequency.

    table     row 0 = 'red fox'         row 1 = 'fox, fox'
    index     red: 0    fox: 0, 1 twice      OK
    index     red: 0    fox: 0, 1            a token of row 1 has a wrong frequency

Texts are tokenized with the parameters of the segment; tokens of deleted rows are ignored. Token
positions are not compared.
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
from lancelet.index.inverted.kind import TEXTS_PER_BATCH, InvertedSegment
from lancelet.index.text.analyzer import Vocabulary
from lancelet.index.text.elements import list_elements, texts_per_row
from lancelet.index.vector.kind import IVF, EncodedRows, concatenate_codes, encode_parts
from lancelet.index.vector.quantizers.base import Codes
from lancelet.index.vector.quantizers.pq import ProductCodes
from lancelet.index.vector.segment import IvfSegment
from lancelet.rowids.address import NO_ADDRESS, UInt64s
from lancelet.scan.indexing.segments import TableSegment, kind_of, table_segment
from lancelet.table.snapshot import Snapshot
from lancelet.upkeep.check.finding import Finding, Severity
from lancelet.upkeep.indexing.rows import rows_to_index
from lancelet.values import dataclass

Differences: TypeAlias = Callable[[Snapshot, TableSegment], Iterator[str]]
"""Yields the differences between a segment and the rows that it covers."""

_ROUNDED_SHARE: Final = 0.1
"""Maximum share of rows whose codes may differ because of rounding."""


@dataclass(frozen=True, slots=True)
class SegmentChecker:
    """Checks segments of some index types against the rows that they cover."""

    kinds: frozenset[str]
    differences: Differences

    def supports(self, index: IndexMetadata) -> bool:
        """Return whether the index type and version are supported."""
        kind = kind_of(index.details)
        if kind is None or kind.name not in self.kinds:
            return False
        return (index.index_version or 0) <= kind.newest_version

    def findings(self, snapshot: Snapshot, index: IndexMetadata) -> Iterator[Finding]:
        """Yield the differences of a segment; raise if it cannot be read."""
        segment = table_segment(snapshot, index)
        if segment is None or not segment.covered:
            return
        for message in self.differences(snapshot, segment):
            yield Finding(
                Severity.ERROR,
                index.directory,
                f"{index.name}: {message}",
                "optimize the indices with retrain=True",
                index=index.name,
            )


def covered_rows(snapshot: Snapshot, segment: TableSegment, *, by_address: bool) -> IndexedRows:
    """Return the rows of the indexed column in the covered fragments."""
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
    assert isinstance(opened, IvfSegment), "guaranteed by the index type"
    rows = covered_rows(snapshot, segment, by_address=not segment.is_by_id)
    computed = _concatenate(list(encode_parts(rows, opened.model, opened.quantizer)))
    numbers, labels, codes = _read_entries(segment, opened)
    missing = np.setdiff1d(computed.numbers, numbers)
    if len(missing):
        yield f"it lacks {len(missing)} rows that have a vector"
    live = np.concatenate([np.empty(0, np.uint64), *(part[1] for part in rows.parts)])
    unexpected = np.setdiff1d(np.intersect1d(numbers, live), computed.numbers)
    if len(unexpected):
        yield f"it has {len(unexpected)} rows that have no vector"
    if len(np.unique(computed.numbers)) < len(computed.numbers):
        return  # Multivector rows occur several times.
    unique_numbers, entries = np.unique(numbers, return_index=True)
    if len(unique_numbers) < len(numbers):
        yield f"it has {len(numbers) - len(unique_numbers)} duplicate rows"
    shared, entry_positions, computed_positions = np.intersect1d(
        unique_numbers, computed.numbers, return_indices=True
    )
    if not len(shared):
        return
    entries = entries[entry_positions]
    same = labels[entries] == computed.labels[computed_positions]
    if (~same).sum() > _ROUNDED_SHARE * len(shared):
        yield f"{(~same).sum()} rows are in the wrong partition"
    slack = 0 if isinstance(opened.quantizer, ProductCodes) else 1
    wrong = _count_differences(
        _take(codes, entries[same]), _take(computed.codes, computed_positions[same]), slack
    )
    if wrong > _ROUNDED_SHARE * len(shared):
        yield f"{wrong} rows have wrong codes"


VECTOR_INDICES: Final = SegmentChecker(frozenset({IVF.name}), _vector_differences)


def _concatenate(parts: list[EncodedRows]) -> EncodedRows:
    return EncodedRows(
        np.concatenate([np.empty(0, np.uint64), *(part.numbers for part in parts)]),
        np.concatenate([np.empty(0, np.int64), *(part.labels for part in parts)]),
        concatenate_codes([part.codes for part in parts]),
    )


def _read_entries(
    segment: TableSegment, opened: IvfSegment
) -> tuple[UInt64s, npt.NDArray[np.int64], Codes]:
    """Return the live rows of all partitions, with their partitions and codes."""
    numbers: list[UInt64s] = [np.empty(0, np.uint64)]
    labels: list[npt.NDArray[np.int64]] = [np.empty(0, np.int64)]
    codes: list[Codes] = []
    for partition in range(opened.model.partitions):
        opened.graph(partition)
        partition_numbers, partition_codes = opened.codes(partition)
        moved = segment.renumber(partition_numbers, by_address=not segment.is_by_id)
        live = np.flatnonzero(moved != NO_ADDRESS)
        numbers.append(moved[live])
        labels.append(np.full(len(live), partition))
        codes.append(_take(partition_codes, live))
    return np.concatenate(numbers), np.concatenate(labels), concatenate_codes(codes)


def _take(codes: Codes, rows: npt.NDArray[np.integer]) -> Codes:
    return {key: values[rows] for key, values in codes.items()}


def _count_differences(actual: Codes, expected: Codes, slack: int) -> int:
    """Count differing rows: integers by more than `slack`, others by 0.1 percent."""
    differs = np.zeros(len(next(iter(actual.values()), ())), np.bool_)
    for key, values in actual.items():
        left, right = (values.reshape(len(values), -1), expected[key].reshape(len(values), -1))
        difference = np.abs(left.astype(np.float64) - right)
        allowed = slack if left.dtype.kind == "u" else 1e-3 * np.maximum(np.abs(right), 1)
        differs |= (difference > allowed).any(axis=1)
    return int(differs.sum())


def _text_differences(snapshot: Snapshot, segment: TableSegment) -> Iterator[str]:
    opened = segment.open()
    assert isinstance(opened, InvertedSegment), "guaranteed by the index type"
    rows = covered_rows(snapshot, segment, by_address=not segment.is_by_id)
    vocabulary = Vocabulary()
    live, computed = _compute_tokens(rows, opened, vocabulary)
    indexed, wrong_lengths = _read_tokens(segment, opened, vocabulary, live)
    if wrong_lengths:
        yield f"it has a wrong number of tokens for {wrong_lengths} documents"
    computed_pairs, counts = _count_pairs(computed, len(vocabulary.tokens))
    indexed_pairs, indexed_counts = _count_pairs(indexed, len(vocabulary.tokens))
    shared, computed_positions, indexed_positions = np.intersect1d(
        computed_pairs, indexed_pairs, assume_unique=True, return_indices=True
    )
    if len(shared) < len(computed_pairs):
        yield f"it lacks {len(computed_pairs) - len(shared)} tokens of rows"
    if len(shared) < len(indexed_pairs):
        yield f"it has {len(indexed_pairs) - len(shared)} wrong tokens of rows"
    differs = int((counts[computed_positions] != indexed_counts[indexed_positions]).sum())
    if differs:
        yield f"it has {differs} tokens with a wrong frequency"


TEXT_INDICES: Final = SegmentChecker(frozenset({"INVERTED"}), _text_differences)


class _TokenCounts:
    """Tokens of rows, by row index and token id."""

    def __init__(self) -> None:
        self.rows: list[Int64s] = [np.empty(0, np.int64)]
        self.tokens: list[Int64s] = [np.empty(0, np.int64)]
        self.counts: list[Int64s] = [np.empty(0, np.int64)]

    def add(self, rows: Int64s, tokens: npt.NDArray[np.integer], counts: Int64s) -> None:
        """Add tokens with their frequencies."""
        self.rows.append(rows)
        self.tokens.append(tokens.astype(np.int64))
        self.counts.append(counts)


def _compute_tokens(
    rows: IndexedRows, opened: InvertedSegment, vocabulary: Vocabulary
) -> tuple[UInt64s, _TokenCounts]:
    """Return the row numbers and the tokens of all rows."""
    token_counts, numbers, before = _TokenCounts(), [np.empty(0, np.uint64)], 0
    for values, part_numbers in rows.parts:
        for start in range(0, len(values), TEXTS_PER_BATCH):
            texts, text_rows = _extract_texts(values.slice(start, TEXTS_PER_BATCH), opened)
            analyzed = opened.analyzer.analyze(texts, vocabulary)
            token_rows = np.repeat(text_rows + (before + start), analyzed.counts)
            token_counts.add(token_rows, analyzed.ids, np.ones(len(token_rows), np.int64))
        numbers.append(part_numbers)
        before += len(values)
    return np.concatenate(numbers), token_counts


def _extract_texts(values: pa.Array, opened: InvertedSegment) -> tuple[pa.Array, Int64s]:
    """Return the documents of rows, and the row index of each document."""
    if not opened.by_element:
        return texts_per_row(values), np.arange(len(values))
    elements = list_elements(values)
    return elements.texts, elements.rows


def _read_tokens(
    segment: TableSegment, opened: InvertedSegment, vocabulary: Vocabulary, live: UInt64s
) -> tuple[_TokenCounts, int]:
    """Return the tokens of live rows, and the number of documents with a wrong length."""
    order = np.argsort(live)
    token_counts, wrong = _TokenCounts(), 0
    for partition in opened.partitions:
        tokens, postings = partition.read_all()
        freqs = postings.freqs.astype(np.int64)
        sums = np.bincount(postings.docs, freqs, minlength=len(partition.numbers))
        wrong += int((sums != partition.lengths).sum())
        moved = segment.renumber(partition.numbers, by_address=not segment.is_by_id)
        row_indices = np.searchsorted(live, moved, sorter=order)
        row_indices = order[np.minimum(row_indices, len(order) - 1)] if len(order) else row_indices
        is_live = np.isin(moved, live)
        is_live_posting = is_live[postings.docs]
        ids = _token_ids(tokens, vocabulary)[postings.tokens[is_live_posting]]
        token_counts.add(row_indices[postings.docs[is_live_posting]], ids, freqs[is_live_posting])
    return token_counts, wrong


def _token_ids(tokens: Sequence[str], vocabulary: Vocabulary) -> Int64s:
    return np.fromiter((vocabulary.number(token) for token in tokens), np.int64, len(tokens))


def _count_pairs(tokens: _TokenCounts, num_tokens: int) -> tuple[Int64s, Int64s]:
    """Return the sorted, distinct pairs of row and token as numbers, with their frequencies."""
    pairs = np.concatenate(tokens.rows) * max(num_tokens, 1) + np.concatenate(tokens.tokens)
    distinct, positions = np.unique(pairs, return_inverse=True)
    counts = np.bincount(positions, np.concatenate(tokens.counts), minlength=len(distinct))
    return distinct, counts.astype(np.int64)
