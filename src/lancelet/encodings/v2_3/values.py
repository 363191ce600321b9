"""Values of pages with sparse structure, which have no levels.

For example, the same page in each layout:

    slots 0 1 2 3, of which 1 is null
    chunked     v v v v      one per slot, arbitrary under nulls
    zipped      v v v        one per valid slot
    indexed     0 - 1 0      the value index of each slot, and zipped values
    constant    v            the same for all valid slots
    none                     all slots are null
"""

from __future__ import annotations

from typing import Any, Protocol

import numpy as np
import pyarrow as pa

from lancelet.buffers import ByteRanges, Bytes, Int64s, ReadCoroutine
from lancelet.encodings.base import RowIndices, RowRange, Rows, StoredPage
from lancelet.encodings.codecs import registry
from lancelet.encodings.codecs.base import Encoding
from lancelet.encodings.constant.value import fixed_value, repeat_value
from lancelet.encodings.fullzip.read import FullZipPage
from lancelet.encodings.miniblock.page_metadata import PageMetadata
from lancelet.encodings.miniblock.read import MiniBlockPages
from lancelet.encodings.pages.leaf import LeafContext, Selection, to_indices
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
    """Values with access by slot."""

    num_buffers: int
    """The number of page buffers of the values, which precede those of the structure."""

    def read_metadata(self) -> ReadCoroutine[Any]:
        """Read the page metadata."""

    def read(
        self, metadata: Any, slots: Selection, valid: Flags | None, layers: SparseLayers
    ) -> ReadCoroutine[pa.Array]:
        """Read the values of slots, null where `valid` is false."""


class ChunkedValues:
    """A value per slot, in chunks."""

    def __init__(self, page: MiniBlockPages, *, num_buffers: int) -> None:
        """Use a mini-block page without levels."""
        self._page = page
        self.num_buffers = num_buffers

    def read_metadata(self) -> ReadCoroutine[PageMetadata]:
        """Read the chunk positions and the dictionary."""
        return (yield from self._page.read_metadata(RowRange(0, self._page.num_rows)))

    def read(
        self, metadata: PageMetadata, slots: Selection, valid: Flags | None, layers: SparseLayers
    ) -> ReadCoroutine[pa.Array]:
        """Read the values of slots."""
        del layers
        return (yield from self._page.read_slots(metadata, _rows(slots), _bits(valid)))


class ZippedValues:
    """A value per valid slot, individually accessible."""

    def __init__(
        self,
        page: FullZipPage,
        leaf: LeafContext,
        *,
        num_items: int,
        num_slots: int,
        num_buffers: int,
    ) -> None:
        """Use a full-zip page without levels, with `num_items` values for `num_slots` slots."""
        self._page = page
        self._num_items = num_items
        self._num_slots = num_slots
        self._leaf = leaf
        self.num_buffers = num_buffers

    def read_metadata(self) -> ReadCoroutine[None]:
        """Read nothing: the row index is read on demand."""
        return _empty_read()

    def read(
        self, metadata: None, slots: Selection, valid: Flags | None, layers: SparseLayers
    ) -> ReadCoroutine[pa.Array]:
        """Read the values of the valid slots, and insert nulls."""
        del metadata
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
        """Return the number of valid slots before each of some valid slots."""
        nulls, valid_slots = _innermost_sets(layers)
        num_valid = self._num_slots - len(nulls) if valid_slots is None else len(valid_slots)
        if num_valid != self._num_items:
            raise CorruptDataError(
                "the number of values of a page does not match its valid slots",
                expected=num_valid,
                found=self._num_items,
            )
        if valid_slots is None:
            return slots - np.searchsorted(nulls, slots)
        return np.searchsorted(valid_slots, slots)


@dataclass(frozen=True, slots=True, eq=False)
class SlotIndices:
    """The value index of each slot of a page; arbitrary under nulls."""

    each: Int64s


class IndexedValues:
    """A value index per slot, and distinct values, individually accessible."""

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
        """Use the encoding of the indices, whose buffer is first, and a page of values."""
        self._indices = indices
        self._items = items
        self._leaf = leaf
        self._num_items = num_items
        self._num_slots = num_slots
        self._key = (leaf.column, index)
        first = slice(0, int(registry.owns_bytes(indices)))
        self._ranges = ByteRanges(page.position[first], page.size[first])
        self.num_buffers = num_buffers

    def read_metadata(self) -> ReadCoroutine[SlotIndices]:
        """Read the value index of each slot."""
        header_cache = self._leaf.header_cache
        indices = None if header_cache is None else header_cache.get(self._key, SlotIndices)
        if indices is None:
            data = np.empty(0, np.uint8)
            if len(self._ranges):
                data = (yield self._ranges).slice_bytes(0)
            block = registry.decode_block(self._indices, data, self._num_slots)
            # A copy, which outlives the buffer; values beyond 63 bits become negative.
            indices = SlotIndices(to_indices(block).astype(np.int64))
            if header_cache is not None:
                header_cache.put(self._key, indices, value_bytes=indices.each.nbytes)
        return indices

    def read(
        self, metadata: SlotIndices, slots: Selection, valid: Flags | None, layers: SparseLayers
    ) -> ReadCoroutine[pa.Array]:
        """Read each distinct value of the slots once, and expand."""
        del layers
        indices = metadata.each[slots]
        used, rank = np.unique(indices if valid is None else indices[valid], return_inverse=True)
        if not len(used):
            return pa.nulls(len(indices), self._leaf.data_type)
        if int(used[0]) < 0 or int(used[-1]) >= self._num_items:
            raise CorruptDataError(
                "a value index of a page is out of bounds",
                column=self._leaf.column,
                index=int(used[-1]),
                items=self._num_items,
            )
        items = yield from self._items.read(RowIndices(used))
        if valid is None:
            return items.values.take(pa.array(rank))
        positions = np.zeros(len(indices), np.int64)
        positions[valid] = rank
        return items.values.take(pa.array(positions, mask=~valid))


class ConstantValues:
    """One value, or null, for all valid slots."""

    num_buffers = 0

    def __init__(self, value: bytes | None, leaf: LeafContext) -> None:
        """Use a value; `None` means all null."""
        self._value = value
        self._leaf = leaf

    def read_metadata(self) -> ReadCoroutine[None]:
        """Read nothing: the value is in the message."""
        return _empty_read()

    def read(
        self, metadata: None, slots: Selection, valid: Flags | None, layers: SparseLayers
    ) -> ReadCoroutine[pa.Array]:
        """Repeat the value."""
        del metadata, layers
        yield from ()
        count = slots.stop - slots.start if isinstance(slots, slice) else len(slots)
        data_type = self._leaf.data_type
        if self._value is not None:
            value = fixed_value(np.frombuffer(self._value, np.uint8))
            return repeat_value(value, data_type, count, _bits(valid))
        if pa.types.is_struct(data_type) and data_type.num_fields == 0:
            # A struct without children has no values and is never null.
            return pa.Array.from_buffers(data_type, count, [_buffer(_bits(valid))])
        return pa.nulls(count, data_type)


def _empty_read() -> ReadCoroutine[None]:
    yield from ()


def _innermost_sets(layers: SparseLayers) -> tuple[Int64s, Int64s | None]:
    """Return the null slots within the innermost list or, if these are listed, the valid ones."""
    nulls, valid_slots = np.empty(0, np.int64), None
    for layer in layers.each:
        match layer:
            case ListSet():
                nulls, valid_slots = np.empty(0, np.int64), None
            case FixedListSet(validity=validity, dimension=dimension):
                nulls, valid_slots = _combine(nulls, valid_slots, validity)
                each = np.arange(dimension)
                nulls = (nulls[:, None] * dimension + each).reshape(-1)
                if valid_slots is not None:
                    valid_slots = (valid_slots[:, None] * dimension + each).reshape(-1)
            case ValiditySet():
                nulls, valid_slots = _combine(nulls, valid_slots, layer)
    return nulls, valid_slots


def _combine(
    nulls: Int64s, valid_slots: Int64s | None, validity: ValiditySet
) -> tuple[Int64s, Int64s | None]:
    """Combine the sets with the validity of another layer."""
    if validity.are_nulls:
        if valid_slots is not None:
            return nulls, valid_slots[~is_member(validity.position, valid_slots)]
        return np.union1d(nulls, validity.position), None
    valid = (
        validity.position if valid_slots is None else np.intersect1d(valid_slots, validity.position)
    )
    return np.empty(0, np.int64), valid[~is_member(nulls, valid)]


def _rows(slots: Selection) -> Rows:
    return RowRange(slots.start, slots.stop) if isinstance(slots, slice) else RowIndices(slots)


def _bits(valid: Flags | None) -> Bytes | None:
    return None if valid is None else np.packbits(valid, bitorder="little")


def _buffer(bits: Bytes | None) -> pa.Buffer | None:
    return None if bits is None else pa.py_buffer(bits)
