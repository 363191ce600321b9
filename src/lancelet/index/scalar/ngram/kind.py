"""The NGRAM index kind: maps trigrams of letters and digits to the rows that contain them.

    "Fox 7"      folded to "fox 7"; the only trigram without a space is fox
    fox          16 * 37**2 + 25 * 37 + 34 = 22863         0-9 are 1 to 10, a-z are 11 to 36
    contains 'ox 7fox'    rows with fox, which must be rechecked

Token 0 represents null. Substrings without a trigram are not supported.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Final

import numpy as np
import pyarrow as pa
from pyroaring import FrozenBitMap

from lancelet.buffers import Int64s
from lancelet.encodings.base import RowRange
from lancelet.errors import CorruptDataError
from lancelet.format.roaring import parse_treemap, render_treemap
from lancelet.index.base import (
    IndexedRows,
    Move,
    Parameters,
    ScalarKind,
    SearchResult,
)
from lancelet.index.folder import SegmentFolder
from lancelet.index.parts.grouping import Groups, group_rows, merge_groups, remap_groups
from lancelet.index.parts.sorted_runs import Part
from lancelet.index.parts.zones import concatenate_small
from lancelet.index.query import Contains, IsNull, ScalarQuery
from lancelet.index.text.characters import fold, lower
from lancelet.index.text.elements import is_text
from lancelet.rowids.selection import NO_ROWS, RowSet

_FILE: Final = "ngram_postings.lance"
_LETTERS: Final = 3
_BASE: Final = 37
_NULL: Final = 0
_TOKEN: Final = pa.uint32()
_TEXTS_READ: Final = 1 << 11
"""Texts per batch; small, because a text has about as many trigrams as characters."""
_LISTS_READ: Final = 256
_SCHEMA: Final = pa.schema(
    [
        pa.field("tokens", _TOKEN),
        pa.field(
            "posting_list",
            pa.binary(),
            nullable=False,
            metadata={"lance-encoding:compression": "none"},
        ),
    ]
)


def _letter_codes() -> np.ndarray[tuple[int], np.dtype[np.uint32]]:
    codes = np.zeros(256, np.uint32)
    codes[ord("0") : ord("9") + 1] = np.arange(1, 11)
    codes[ord("a") : ord("z") + 1] = np.arange(11, 37)
    return codes


_CODES: Final = _letter_codes()


class NGramSegment:
    """An open segment of an NGRAM index."""

    def __init__(self, folder: SegmentFolder) -> None:
        """Read the tokens."""
        self._file = folder.open(_FILE)
        self._loads = folder.loads
        self._cache = folder.cache_scope
        (column,) = self._file.read(["tokens"])
        self.tokens = column.fill_null(0).to_numpy()
        if np.any(self.tokens[1:] <= self.tokens[:-1]):
            raise CorruptDataError("unsorted tokens in an NGRAM index")

    def estimate(self, query: ScalarQuery) -> int | None:
        """Return the number of rows with all trigrams of a substring; None without trigrams."""
        match query:
            case Contains(text) if len(trigrams(text)):
                return self._search(query).rows.num_rows({})
            case IsNull():
                return self.nulls().num_rows({})
            case _:
                return None

    def search(self, query: ScalarQuery) -> SearchResult:
        """Return the rows that may contain a substring."""
        if isinstance(query, IsNull):
            return SearchResult(self.nulls())
        assert isinstance(query, Contains), "supported queries have an estimate"
        self._loads.count(comparisons=len(trigrams(query.text)))
        return self._search(query)

    def _search(self, query: Contains) -> SearchResult:
        rows: RowSet | None = None
        for token in trigrams(query.text).tolist():
            token_rows = self.rows_of(token)
            rows = token_rows if rows is None else rows & token_rows
            if not rows:
                break
        return SearchResult(rows or NO_ROWS, is_exact=False)

    def nulls(self) -> RowSet:
        """Return the rows with null values."""
        return self.rows_of(_NULL)

    def statistics(self) -> dict[str, Any]:
        """Return the number of tokens."""
        return {"num_ngrams": len(self.tokens)}

    def rows_of(self, token: int) -> RowSet:
        """Return the rows of a token."""
        index = int(np.searchsorted(self.tokens, token))
        if index == len(self.tokens) or self.tokens[index] != token:
            return NO_ROWS
        return self._cache.get_or_make(index, lambda: self._read(index))

    def _read(self, index: int) -> RowSet:
        (lists,) = self._file.read(["posting_list"], RowRange(index, index + 1))
        return RowSet(dict(parse_treemap(lists[0].as_py())))

    def groups(self) -> Iterator[Groups]:
        """Yield the tokens in order with their rows."""
        for start in range(0, len(self.tokens), _LISTS_READ):
            stop = min(start + _LISTS_READ, len(self.tokens))
            (lists,) = self._file.read(["posting_list"], RowRange(start, stop))
            sets = [RowSet(dict(parse_treemap(each.as_py()))) for each in lists]
            yield pa.array(self.tokens[start:stop], _TOKEN), sets


class NGram(ScalarKind[NGramSegment]):
    """The NGRAM index kind: a set of rows for each trigram."""

    name = "NGRAM"
    title = "NGram"
    type_url = "/lance.table.NGramIndexDetails"
    newest_version = 1
    unsupported_message = "an NGRAM index requires a string column"
    can_remap = True

    def is_exact(self, query: ScalarQuery) -> bool:
        """Return whether the query matches nulls. All other results must be rechecked."""
        return isinstance(query, IsNull)

    def supports_type(self, data_type: pa.DataType) -> bool:
        """Return whether the type is a string."""
        return is_text(data_type)

    def train(self, rows: IndexedRows, folder: SegmentFolder, parameters: Parameters) -> bytes:  # noqa: ARG002
        """Write the rows of each trigram."""
        _write(group_rows(_tokens_of(rows), _TOKEN), folder)
        return b""

    def open(self, folder: SegmentFolder, details: bytes) -> NGramSegment:  # noqa: ARG002
        """Open a segment."""
        return NGramSegment(folder)

    def merge(
        self,
        segments: Sequence[NGramSegment],
        moves: Sequence[Move],
        rows: IndexedRows,
        folder: SegmentFolder,
    ) -> bytes:
        """Merge the rows of each token."""
        parts = [group_rows(_tokens_of(rows), _TOKEN)]
        for segment, move in zip(segments, moves, strict=True):
            parts.append(remap_groups(segment.groups(), move))
        _write(merge_groups(parts, _TOKEN), folder)
        return b""


def trigrams(text: str) -> Int64s:
    """Return the distinct trigrams of a text as tokens.

    >>> trigrams("Fox 7").tolist()
    [22863]
    """
    tokens, _ = _trigrams_of([text])
    return np.unique(tokens)


def _trigrams_of(texts: Sequence[str | None]) -> tuple[Int64s, Int64s]:
    """Return the trigrams of texts as tokens, and the text index of each."""
    parts = [fold(lower(text or "")).encode() for text in texts]
    sizes = np.array([len(part) + 1 for part in parts], np.int64)
    # A zero byte after each text prevents trigrams across texts.
    codes = _CODES[np.frombuffer(b"\0".join([*parts, b""]), np.uint8)].astype(np.int64)
    if len(codes) < _LETTERS:
        return np.empty(0, np.int64), np.empty(0, np.int64)
    first, second, third = codes[:-2], codes[1:-1], codes[2:]
    starts = np.flatnonzero((first > 0) & (second > 0) & (third > 0))
    tokens = (first[starts] * _BASE + second[starts]) * _BASE + third[starts]
    return tokens, np.searchsorted(np.cumsum(sizes), starts, side="right")


def _tokens_of(rows: IndexedRows) -> Iterator[Part]:
    """Yield tokens with their row numbers. Null rows have the null token."""
    for values, numbers in rows.parts:
        for start in range(0, len(values), _TEXTS_READ):
            texts, batch_numbers = (
                values.slice(start, _TEXTS_READ),
                numbers[start : start + _TEXTS_READ],
            )
            tokens, text_indices = _trigrams_of(texts.to_pylist())
            yield pa.array(tokens.astype(np.uint32)), batch_numbers[text_indices]
            nulls = batch_numbers[texts.is_null().to_numpy(zero_copy_only=False)]
            yield pa.array(np.full(len(nulls), _NULL, np.uint32)), nulls


def _write(groups: Iterable[Groups], folder: SegmentFolder) -> None:
    """Write the posting lists of tokens with rows."""
    with folder.create(_FILE, _SCHEMA) as file:
        for table in concatenate_small(_posting_tables(groups)):
            file.write(table)


def _posting_tables(groups: Iterable[Groups]) -> Iterator[pa.Table]:
    for tokens, sets in groups:
        non_empty = [index for index, rows in enumerate(sets) if rows]
        lists = [render_treemap(_bitmaps(sets[index])) for index in non_empty]
        columns = [tokens.take(pa.array(non_empty, pa.int64())), pa.array(lists, pa.binary())]
        yield pa.Table.from_arrays(columns, schema=_SCHEMA)


def _bitmaps(rows: RowSet) -> dict[int, FrozenBitMap]:
    return {part: offsets for part, offsets in rows.parts.items() if offsets is not None}
