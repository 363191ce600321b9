"""The values of a page with sparse structure, which carry no levels.

slots 0 1 2 3, of which 1 is null
chunked     v v v v      one for each slot, whatever is under a null
zipped      v v v        one for each slot that is valid
indexed     0 - 1 0      for each slot the number of its value, and the values, zipped
constant    v            the same for all that are valid
none                     everything is null
"""

from __future__ import annotations

from typing import Any, Protocol

import numpy as np
import pyarrow as pa

from lancelet.buffers import Bytes, Int64s, Ranges, Reading
from lancelet.encodings import registry
from lancelet.encodings.base import RowIndices, RowRange, Rows, StoredPage
from lancelet.encodings.codecs.base import Encoding
from lancelet.encodings.constant.value import fixed_value, repeated
from lancelet.encodings.fullzip.read import FullZipPage
from lancelet.encodings.leaf import LeafContext, Picked, indices_of
from lancelet.encodings.miniblock.head import MiniBlockHead
from lancelet.encodings.miniblock.read import MiniBlockPages
from lancelet.encodings.v2_3.structure import (
    FixedListSet,
    Flags,
    ListSet,
    SparseLayers,
    ValiditySet,
    is_member,
)
from lancelet.errors import CorruptDataError
from lancelet.values import dataclass


class SparseValues(Protocol):
    """Values that are read by slot."""

    num_buffers: int
    """How many of the page's buffers are theirs, before those of the structure."""

    def read_head(self) -> Reading[Any]:
        """Read what every read of the page needs."""

    def read(
        self, head: Any, slots: Picked, valid: Flags | None, layers: SparseLayers
    ) -> Reading[pa.Array]:
        """Read the values of some slots, of which only those with a flag are valid."""


class ChunkedValues:
    """A value for each slot, in chunks."""

    def __init__(self, page: MiniBlockPages, *, num_buffers: int) -> None:
        """Take a mini-block page without levels."""
        self._page = page
        self.num_buffers = num_buffers

    def read_head(self) -> Reading[MiniBlockHead]:
        """Read where the chunks are, and the dictionary."""
        return (yield from self._page.read_head(RowRange(0, self._page.num_rows)))

    def read(
        self, head: MiniBlockHead, slots: Picked, valid: Flags | None, layers: SparseLayers
    ) -> Reading[pa.Array]:
        """Read the values of some slots."""
        del layers
        return (yield from self._page.read_slots(head, _rows(slots), _bits(valid)))


class ZippedValues:
    """A value for each slot that is valid, one by one."""

    def __init__(
        self,
        page: FullZipPage,
        leaf: LeafContext,
        *,
        num_items: int,
        num_slots: int,
        num_buffers: int,
    ) -> None:
        """Take a full-zip page without levels, of so many items for so many slots."""
        self._page = page
        self._num_items = num_items
        self._num_slots = num_slots
        self._leaf = leaf
        self.num_buffers = num_buffers

    def read_head(self) -> Reading[None]:
        """Read nothing: the row index is read where it is needed."""
        return _nothing()

    def read(
        self, head: None, slots: Picked, valid: Flags | None, layers: SparseLayers
    ) -> Reading[pa.Array]:
        """Read the values of those slots that are valid, and put nulls between them."""
        del head
        if isinstance(slots, slice):
            slots = np.arange(slots.start, slots.stop)
        items = self._ranks(layers, slots if valid is None else slots[valid])
        if not len(items):
            return pa.nulls(len(slots), self._leaf.data_type)
        is_run = int(items[-1]) - int(items[0]) == len(items) - 1
        rows = RowRange(int(items[0]), int(items[-1]) + 1) if is_run else RowIndices(items)
        zipped = yield from self._page.read(rows)
        if valid is None or valid.all():
            return zipped.values
        return zipped.values.take(pa.array(np.cumsum(valid) - 1, mask=~valid))

    def _ranks(self, layers: SparseLayers, slots: Int64s) -> Int64s:
        """Return how many valid slots are before each of some, all of which are valid."""
        nulls, valids = _innermost_sets(layers)
        num_valid = self._num_slots - len(nulls) if valids is None else len(valids)
        if num_valid != self._num_items:
            raise CorruptDataError(
                "a page does not have a value for each slot that is valid",
                expected=num_valid,
                found=self._num_items,
            )
        if valids is None:
            return slots - np.searchsorted(nulls, slots)
        return np.searchsorted(valids, slots)


@dataclass(frozen=True, slots=True, eq=False)
class SlotIndices:
    """The number of the value of each slot of a page; under nulls it may be anything."""

    each: Int64s


class IndexedValues:
    """The number of a value for each slot, and each different value once, one by one."""

    def __init__(
        self,
        page: StoredPage,
        indices: Encoding,
        items: FullZipPage,
        leaf: LeafContext,
        *,
        num_items: int,
        num_slots: int,
        num_buffers: int,
        index: int,
    ) -> None:
        """Take the encoding of the indices, whose bytes come first, and a page of the values."""
        self._indices = indices
        self._items = items
        self._leaf = leaf
        self._num_items = num_items
        self._num_slots = num_slots
        self._key = (leaf.column, index)
        first = slice(0, int(registry.owns_bytes(indices)))
        self._ranges = Ranges(page.position[first], page.size[first])
        self.num_buffers = num_buffers

    def read_head(self) -> Reading[SlotIndices]:
        """Read which value each slot has."""
        memo = self._leaf.memo
        found = None if memo is None else memo.get(self._key, SlotIndices)
        if found is None:
            data = np.empty(0, np.uint8)
            if len(self._ranges):
                data = (yield self._ranges).slice_bytes(0)
            block = registry.decode_block(self._indices, data, self._num_slots)
            # A copy, which outlives the bytes; what exceeds 63 bits turns negative.
            found = SlotIndices(indices_of(block).astype(np.int64))
            if memo is not None:
                memo.put(self._key, found, value_bytes=found.each.nbytes)
        return found

    def read(
        self, head: SlotIndices, slots: Picked, valid: Flags | None, layers: SparseLayers
    ) -> Reading[pa.Array]:
        """Read each value once that some slots have, and put it where it belongs."""
        del layers
        indices = head.each[slots]
        used, rank = np.unique(indices if valid is None else indices[valid], return_inverse=True)
        if not len(used):
            return pa.nulls(len(indices), self._leaf.data_type)
        if int(used[0]) < 0 or int(used[-1]) >= self._num_items:
            raise CorruptDataError(
                "a page points past the end of its values",
                column=self._leaf.column,
                index=int(used[-1]),
                items=self._num_items,
            )
        items = yield from self._items.read(RowIndices(used))
        if valid is None:
            return items.values.take(pa.array(rank))
        where = np.zeros(len(indices), np.int64)
        where[valid] = rank
        return items.values.take(pa.array(where, mask=~valid))


class ConstantValues:
    """One value, or none, for all slots that are valid."""

    num_buffers = 0

    def __init__(self, value: bytes | None, leaf: LeafContext) -> None:
        """Take the bytes of the value; without any, all is null."""
        self._value = value
        self._leaf = leaf

    def read_head(self) -> Reading[None]:
        """Read nothing: the value is in the message."""
        return _nothing()

    def read(
        self, head: None, slots: Picked, valid: Flags | None, layers: SparseLayers
    ) -> Reading[pa.Array]:
        """Repeat the value."""
        del head, layers
        yield from ()
        count = slots.stop - slots.start if isinstance(slots, slice) else len(slots)
        data_type = self._leaf.data_type
        if self._value is not None:
            one = fixed_value(np.frombuffer(self._value, np.uint8))
            return repeated(one, data_type, count, _bits(valid))
        if pa.types.is_struct(data_type) and data_type.num_fields == 0:
            # A struct without children has no values, and is never null.
            return pa.Array.from_buffers(data_type, count, [_buffer(_bits(valid))])
        return pa.nulls(count, data_type)


def _nothing() -> Reading[None]:
    yield from ()


def _innermost_sets(layers: SparseLayers) -> tuple[Int64s, Int64s | None]:
    """Return the null slots inside the innermost list, or, if these are listed, the valid ones."""
    nulls, valids = np.empty(0, np.int64), None
    for layer in layers.each:
        match layer:
            case ListSet():
                nulls, valids = np.empty(0, np.int64), None
            case FixedListSet(validity=validity, dimension=dimension):
                nulls, valids = _narrowed(nulls, valids, validity)
                each = np.arange(dimension)
                nulls = (nulls[:, None] * dimension + each).reshape(-1)
                if valids is not None:
                    valids = (valids[:, None] * dimension + each).reshape(-1)
            case ValiditySet():
                nulls, valids = _narrowed(nulls, valids, layer)
    return nulls, valids


def _narrowed(
    nulls: Int64s, valids: Int64s | None, validity: ValiditySet
) -> tuple[Int64s, Int64s | None]:
    """Return the sets after one more layer has named its nulls."""
    if validity.are_nulls:
        if valids is not None:
            return nulls, valids[~is_member(validity.position, valids)]
        return np.union1d(nulls, validity.position), None
    valid = validity.position if valids is None else np.intersect1d(valids, validity.position)
    return np.empty(0, np.int64), valid[~is_member(nulls, valid)]


def _rows(slots: Picked) -> Rows:
    return RowRange(slots.start, slots.stop) if isinstance(slots, slice) else RowIndices(slots)


def _bits(valid: Flags | None) -> Bytes | None:
    return None if valid is None else np.packbits(valid, bitorder="little")


def _buffer(bits: Bytes | None) -> pa.Buffer | None:
    return None if bits is None else pa.py_buffer(bits)
