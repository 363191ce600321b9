"""A row set for each distinct value: the file that BITMAP and LABEL_LIST share.

    values   b a null b      rows 0 1 2 3
    keys     null  a    b
    bitmaps  {2}   {1}  {0, 3}

Keys are in order, null first; -0.0 and 0.0 are keys apart, and so are NaN of different bits.
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
from lancelet.index.parts.spans import SortedValues, Span, spans_of
from lancelet.index.question import Question
from lancelet.rowids.address import UInt64s
from lancelet.rowids.selection import NO_ROWS, RowSet

KEY_SETS: Final = "bitmap_page_lookup.lance"
_KEYS_CHECKED: Final = 1 << 16
"""Up to so many keys are looked at in full: whether they are in order, and not just nulls."""


class KeySets:
    """An open file of keys and row sets; the keys are in memory."""

    def __init__(self, folder: SegmentFolder) -> None:
        """Read the keys."""
        self._file = file = folder.open(KEY_SETS)
        self._loads = folder.loads
        (keys,) = file.read(["keys"])
        self._order = order_of(keys.type)
        # Other writers may put the null key last when they merge.
        self._stored_at = _places_in_order(keys, self._order)
        self.keys = keys if self._stored_at is None else keys.take(pa.array(self._stored_at))
        self._sorted = SortedValues(
            self.keys.type, len(self.keys), self.keys.null_count, self._places
        )
        self._kept = folder.kept

    @property
    def memory_bytes(self) -> int:
        """How much memory the keys take."""
        return int(self.keys.nbytes)

    @property
    def metadata(self) -> Mapping[str, str]:
        """The metadata of the file."""
        return self._file.metadata

    @property
    def data_type(self) -> pa.DataType:
        """The type of the keys."""
        return self.keys.type

    def spans(self, question: Question) -> tuple[Span, ...] | None:
        """Return where the keys are that answer a question, None if it is none about keys."""
        found = spans_of(question, self._sorted)
        return None if found is None else tuple(span for span in found if span[0] < span[1])

    def union(self, spans: Iterable[Span]) -> RowSet:
        """Return the rows of all keys in spans."""
        return self._union(tuple(spans))

    def note_compared(self, count: int) -> None:
        """Take note that so many keys were compared with what was asked."""
        self._loads.count(comparisons=count)

    def num_rows(self, spans: Iterable[Span]) -> int:
        """Return how many rows the keys in spans have; whether they were in memory is noted."""
        spans, read = tuple(spans), self._loads.parts
        rows = self._union(spans).num_listed
        if self._loads.parts == read:
            self._loads.count(found=sum(stop - start for start, stop in spans))
        return rows

    def null_key(self) -> RowSet:
        """Return the rows of the key that is null."""
        return self.union([(0, self.keys.null_count)])

    def entries(self) -> tuple[pa.Array, UInt64s]:
        """Return a key and the number of a row for every row of every key."""
        numbers = [rows.listed() for rows in self.sets()]
        places = np.repeat(np.arange(len(numbers)), [len(each) for each in numbers])
        joined = np.concatenate([np.empty(0, np.uint64), *numbers])
        return self.keys.take(pa.array(places, pa.int64())), joined

    def sets(self, start: int = 0, stop: int | None = None) -> list[RowSet]:
        """Return the row sets of some keys, by default of every one."""
        return self._read(start, len(self.keys) if stop is None else stop)

    def global_buffer(self, number: str) -> bytes:
        """Return a buffer of the file."""
        return self._file.global_buffer(number)

    def _places(self, values: pa.Array, side: Side) -> Int64s:
        first = self.keys.null_count
        places: Int64s = self._order.search(self.keys.slice(first), values, side)
        places += first
        return places

    def _union(self, spans: tuple[Span, ...]) -> RowSet:
        return self._kept.get_or_make(spans, lambda: self._read_union(spans))

    def _read_union(self, spans: tuple[Span, ...]) -> RowSet:
        rows = NO_ROWS
        for start, stop in spans:
            for found in self._read(start, stop):
                rows |= found
        return rows

    def _read(self, start: int, stop: int) -> list[RowSet]:
        if start >= stop:
            return []
        self._loads.count(parts=stop - start)
        if self._stored_at is None:
            (bitmaps,) = self._file.read(["bitmaps"], RowRange(start, stop))
        else:
            wanted = self._stored_at[start:stop]
            (read,) = self._file.read(["bitmaps"], RowIndices(np.sort(wanted)))
            bitmaps = read.take(pa.array(np.argsort(np.argsort(wanted))))
        return [RowSet.parse(bitmap.as_py() or bytes(4)) for bitmap in bitmaps]


def _places_in_order(keys: pa.Array, order: Order) -> Int64s | None:
    """Return where the keys are in their order, or None if they are stored in it."""
    starts_with_null = not keys.null_count or not keys[0].is_valid
    if starts_with_null and len(keys) > _KEYS_CHECKED:
        return None
    places = order.sort(keys)
    return None if bool((np.diff(places) > 0).all()) else places
