"""A row set for each distinct value, as stored by BITMAP and LABEL_LIST indices.

    values   b a null b      rows 0 1 2 3
    keys     null  a    b
    bitmaps  {2}   {1}  {0, 3}

Keys are sorted, nulls first. -0.0 and 0.0 are separate keys, and so are NaN values with different
bits.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final

import numpy as np
import pyarrow as pa

from lancelet.buffers import Int64s
from lancelet.encodings.base import RowIndices, RowRange
from lancelet.index.folder import SegmentFolder
from lancelet.index.parts.ordering import Order, Side, order_of
from lancelet.index.parts.spans import SortedValues, Span, row_ranges_of
from lancelet.index.query import ScalarQuery
from lancelet.rowids.address import UInt64s
from lancelet.rowids.selection import NO_ROWS, RowSet

KEY_SETS: Final = "bitmap_page_lookup.lance"
_SORT_CHECK_KEYS_MAX: Final = 1 << 16
"""Maximum number of keys whose order is verified in full; above it, only the null key is checked.
"""


class KeySets:
    """An open file of keys and row sets. The keys are in memory."""

    def __init__(self, folder: SegmentFolder) -> None:
        """Read the keys."""
        self._file = file = folder.open(KEY_SETS)
        self._loads = folder.loads
        (keys,) = file.read(["keys"])
        self._order = order_of(keys.type)
        # Merges by other writers may store the null key last.
        self._permutation = _sort_permutation(keys, self._order)
        self.keys = keys if self._permutation is None else keys.take(pa.array(self._permutation))
        self._sorted = SortedValues(
            self.keys.type, len(self.keys), self.keys.null_count, self._search
        )
        self._cache_scope = folder.cache_scope

    @property
    def memory_bytes(self) -> int:
        """Memory use of the keys in bytes."""
        return int(self.keys.nbytes)

    @property
    def metadata(self) -> Mapping[str, str]:
        """Metadata of the file."""
        return self._file.metadata

    @property
    def data_type(self) -> pa.DataType:
        """Type of the keys."""
        return self.keys.type

    def spans(self, query: ScalarQuery) -> tuple[Span, ...] | None:
        """Return the key ranges that match a query, or None if the query is not supported."""
        ranges = row_ranges_of(query, self._sorted)
        return None if ranges is None else tuple(span for span in ranges if span[0] < span[1])

    def union(self, spans: Iterable[Span]) -> RowSet:
        """Return the union of the row sets of the keys in these ranges."""
        return self._union(tuple(spans))

    def count_comparisons(self, count: int) -> None:
        """Count comparisons of keys with a query."""
        self._loads.count(comparisons=count)

    def num_rows(self, spans: Iterable[Span]) -> int:
        """Return the number of rows in these key ranges, and count cache hits."""
        spans, parts_read = tuple(spans), self._loads.parts
        rows = self._union(spans).num_listed
        if self._loads.parts == parts_read:
            self._loads.count(cache_hits=sum(stop - start for start, stop in spans))
        return rows

    def null_key(self) -> RowSet:
        """Return the rows of the null key."""
        return self.union([(0, self.keys.null_count)])

    def entries(self) -> tuple[pa.Array, UInt64s]:
        """Return the key and row number of every row."""
        numbers = [rows.listed() for rows in self.sets()]
        indices = np.repeat(np.arange(len(numbers)), [len(each) for each in numbers])
        joined = np.concatenate([np.empty(0, np.uint64), *numbers])
        return self.keys.take(pa.array(indices, pa.int64())), joined

    def sets(self, start: int = 0, stop: int | None = None) -> list[RowSet]:
        """Return the row sets of keys in `[start, stop)`; by default of all keys."""
        return self._read(start, len(self.keys) if stop is None else stop)

    def global_buffer(self, number: str) -> bytes:
        """Return a global buffer of the file."""
        return self._file.global_buffer(number)

    def _search(self, values: pa.Array, side: Side) -> Int64s:
        first = self.keys.null_count
        indices: Int64s = self._order.search(self.keys.slice(first), values, side)
        indices += first
        return indices

    def _union(self, spans: tuple[Span, ...]) -> RowSet:
        return self._cache_scope.get_or_make(spans, lambda: self._read_union(spans))

    def _read_union(self, spans: tuple[Span, ...]) -> RowSet:
        rows = NO_ROWS
        for start, stop in spans:
            for row_set in self._read(start, stop):
                rows |= row_set
        return rows

    def _read(self, start: int, stop: int) -> list[RowSet]:
        if start >= stop:
            return []
        self._loads.count(parts=stop - start)
        if self._permutation is None:
            (bitmaps,) = self._file.read(["bitmaps"], RowRange(start, stop))
        else:
            stored_rows = self._permutation[start:stop]
            (stored_bitmaps,) = self._file.read(["bitmaps"], RowIndices(np.sort(stored_rows)))
            bitmaps = stored_bitmaps.take(pa.array(np.argsort(np.argsort(stored_rows))))
        return [RowSet.parse(bitmap.as_py() or bytes(4)) for bitmap in bitmaps]


def _sort_permutation(keys: pa.Array, order: Order) -> Int64s | None:
    """Return the sorting permutation of the keys, or None if they are stored in order."""
    starts_with_null = not keys.null_count or not keys[0].is_valid
    if starts_with_null and len(keys) > _SORT_CHECK_KEYS_MAX:
        return None
    permutation = order.sort(keys)
    return None if bool((np.diff(permutation) > 0).all()) else permutation
