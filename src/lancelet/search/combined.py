"""BM25F: score several columns as one weighted text.

  first   "ada"        weight 2        ada: frequency 2 * 1 + 0
  last    "lovelace"   weight 1        length 2 * 1 + 1

The document frequency of a token and the number of documents are the maxima over all columns.
Repeated query tokens count once. Unindexed rows contribute like indexed rows.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from lancelet.index.inverted.bm25 import K1, B, Corpus
from lancelet.rowids.address import UInt64s, distinct
from lancelet.search.matches import NO_MATCHES, Matches
from lancelet.search.text_column import TextColumn
from lancelet.values import dataclass

Float64s = npt.NDArray[np.float64]


@dataclass(frozen=True, slots=True, eq=False)
class WeightedColumn:
    """A column and the weight of its tokens.

    `counted` covers all rows of the column if the search is limited to some rows.
    """

    column: TextColumn
    weight: float
    counted: TextColumn


def find_combined(
    columns: Sequence[WeightedColumn], tokens: Sequence[str], *, needs_all: bool
) -> Matches:
    """Return the rows that contain any or all tokens in any of the columns."""
    found = {token: _rows_with(columns, token) for token in tokens}
    rows = distinct(np.concatenate([np.empty(0, np.uint64), *(own for own, _ in found.values())]))
    if not len(rows):
        return NO_MATCHES
    corpora = [each.counted.corpus for each in columns]
    most = max(corpus.num_docs for corpus in corpora)
    pairs = zip(columns, corpora, strict=True)
    mean = sum(each.weight * corpus.num_tokens for each, corpus in pairs) / most
    norms = K1 * (1 - B + B * _lengths(columns, rows) / mean)
    scores = np.zeros(len(rows))
    has_all = np.ones(len(rows), np.bool_)
    for token, (own, often) in found.items():
        freqs = np.zeros(len(rows))
        np.add.at(freqs, np.searchsorted(rows, own), often)
        num_docs = max(each.counted.num_docs_with(token) for each in columns)
        idf = Corpus(most, 0).idf(num_docs)
        scores += idf * (K1 + 1) * freqs / (freqs + norms)
        has_all &= freqs > 0
    all_rows = Matches(rows, scores.astype(np.float32))
    return all_rows.where(has_all) if needs_all else all_rows


def _rows_with(columns: Sequence[WeightedColumn], token: str) -> tuple[UInt64s, Float64s]:
    """Return the rows that contain a token, once per column, with weighted frequencies."""
    parts = [
        (addresses, freqs * each.weight)
        for each in columns
        for addresses, freqs in each.column.occurrences(token)
    ]
    return (
        np.concatenate([np.empty(0, np.uint64), *(addresses for addresses, _ in parts)]),
        np.concatenate([np.empty(0), *(freqs for _, freqs in parts)]),
    )


def _lengths(columns: Sequence[WeightedColumn], rows: UInt64s) -> Float64s:
    """Return the weighted number of tokens of each row."""
    found = np.zeros(len(rows))
    for each in columns:
        for addresses, lengths in each.column.lengths():
            indices = np.minimum(np.searchsorted(rows, addresses), len(rows) - 1)
            is_hit = rows[indices] == addresses
            np.add.at(found, indices[is_hit], lengths[is_hit] * each.weight)
    return found
