"""Reads rows of mini-block pages, decoding all the chunks that hold them in one go.

    rows 1500..1510                          of a page of 1024 values a chunk
    round 1   words of the chunks            unless the memo holds the head of the page
    round 2   chunk 1 (and 2 if rows of lists go on there)
    decode    chunk 1 -> 1024 values, of which slots 476..486 are kept

The head of a page is what every read needs: where chunks are, where rows begin, the dictionary.
It is read once and kept in the memo, as prefix sums, so that finding rows is a binary search.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from lancelet import kernels
from lancelet.buffers import Bytes, Int64s, Ranges, Reading, Slices
from lancelet.encodings import registry
from lancelet.encodings.arrow import arrow_from_block
from lancelet.encodings.base import Block, FixedWidth, RowIndices, RowRange, Rows, StoredPage
from lancelet.encodings.codecs.base import Encoding, Picks
from lancelet.encodings.layout import MiniBlockLayout
from lancelet.encodings.leaf import (
    LeafContext,
    LeafRows,
    Picked,
    values_from_block,
    values_from_dictionary,
)
from lancelet.encodings.levels import Layers, Levels, check_levels, visible_validity
from lancelet.encodings.miniblock.frame import (
    ChunkParts,
    ChunkTable,
    FrameShape,
    parse_words,
    split_chunks,
)
from lancelet.encodings.miniblock.repetition_index import (
    DEPTH,
    ChunkLevels,
    RepetitionIndex,
    parse_repetition_index,
)
from lancelet.errors import CorruptDataError, UnsupportedError

DENSE_PICKS = 4
"""If one in so many values of the chunks is wanted, they are decoded as a whole."""


@dataclass(frozen=True, slots=True, eq=False)
class MiniBlockHead:
    """What every read of a page needs."""

    chunks: ChunkTable
    rows: RepetitionIndex | None
    dictionary: pa.Array | None

    @property
    def num_bytes(self) -> int:
        """Return the memory this takes, about."""
        size = self.chunks.position.nbytes + self.chunks.first_value.nbytes
        if self.rows is not None:
            size += self.rows.begun.nbytes + self.rows.ended.nbytes
        return size + (0 if self.dictionary is None else int(self.dictionary.nbytes))


@dataclass(frozen=True, slots=True, eq=False)
class _Decoded:
    """Some chunks: their levels, decoded and joined, and their values, still encoded."""

    num_levels: Int64s
    repetition: Levels | None
    definition: Levels | None
    counts: Int64s
    buffers: tuple[Slices, ...]


class MiniBlockPage:
    """A page whose rows can be read."""

    def __init__(
        self, page: StoredPage, layout: MiniBlockLayout, leaf: LeafContext, *, index: int
    ) -> None:
        """Check the message of a page; `index` is the page's number in its column."""
        self._page = page
        self._layout = layout
        self._leaf = leaf
        self._key = (leaf.column, index)
        has_dictionary = layout.dictionary is not None
        expected = 2 + has_dictionary + (layout.repetition_index_depth > 0)
        if len(page.position) < expected:
            raise CorruptDataError(
                "a mini-block page misses buffers",
                column=leaf.column,
                expected=expected,
                found=len(page.position),
            )
        if layout.repetition_index_depth > DEPTH:
            raise UnsupportedError(
                "a page has a deeper index of its lists than this release knows",
                depth=layout.repetition_index_depth,
            )
        if (layout.repetition is not None) != (layout.layers.rep_max > 0) or (
            layout.repetition is not None and not layout.repetition_index_depth
        ):
            raise CorruptDataError(
                "a page has lists without repetition levels or index, or these without lists",
                column=leaf.column,
                lists=layout.layers.rep_max,
            )
        if layout.num_buffers != registry.num_buffers(layout.values):
            raise CorruptDataError(
                "a page does not have the number of buffers that its encoding needs",
                column=leaf.column,
                expected=registry.num_buffers(layout.values),
                found=layout.num_buffers,
            )

    def read(self, rows: Rows) -> Reading[LeafRows]:
        """Read rows of the page, counted from its first one."""
        head = yield from self.read_head()
        decoded, entries = yield from self._read(head, rows)
        layers = self._layout.layers
        repetition = None if decoded.repetition is None else decoded.repetition[entries]
        definition = None if decoded.definition is None else decoded.definition[entries]
        slots = slots_of(layers, decoded.definition, entries)
        values = self._pick(head, decoded, slots, visible_validity(layers, definition))
        return LeafRows(layers, repetition, definition, values)

    def read_slots(
        self, head: MiniBlockHead, slots: Rows, validity: Bytes | None
    ) -> Reading[pa.Array]:
        """Read values of a page without levels, null where the bits of `validity` are 0."""
        if not len(slots):
            return pa.array([], self._leaf.data_type)
        decoded, entries = yield from self._read(head, slots)
        return self._pick(head, decoded, entries, validity)

    def encoded_bytes(self, rows: RowRange) -> int:
        """Estimate the bytes of some rows, by their share."""
        return int(self._page.size.sum()) * len(rows) // max(1, self._page.length)

    def read_head(self) -> Reading[MiniBlockHead]:
        """Read what every read of the page needs, unless the memo has it."""
        memo = self._leaf.memo
        head = None if memo is None else memo.get(self._key, MiniBlockHead)
        if head is None:
            page = self._page
            which = np.array([0, *range(2, len(page.position))])
            slices = yield Ranges(page.position[which], page.size[which])
            head = self._parse_head(slices)
            if memo is not None:
                memo.put(self._key, head, value_bytes=head.num_bytes)
        return head

    def _read(self, head: MiniBlockHead, rows: Rows) -> Reading[tuple[_Decoded, Picked]]:
        chunks = _chunks_of(rows, head)
        slices = yield _ranges_of(chunks, head, self._page)
        decoded = self._decode(head, chunks, _slices_of(chunks, head, slices))
        return decoded, self._entries_of(rows, head, chunks, decoded)

    def _parse_head(self, slices: Slices) -> MiniBlockHead:
        layout = self._layout
        chunks = parse_words(
            slices.slice_bytes(0),
            num_values=layout.num_values,
            data_bytes=int(self._page.size[1]),
            has_large_chunks=layout.has_large_chunks,
        )
        dictionary, rows, at = None, None, 1
        if layout.dictionary is not None:
            data_type = self._leaf.data_type
            if pa.types.is_dictionary(data_type):
                data_type = data_type.value_type
            block = registry.decode_block(
                layout.dictionary, slices.slice_bytes(at), layout.num_dictionary_items
            )
            dictionary = arrow_from_block(block, data_type, None)
            at += 1
        if layout.repetition_index_depth:
            rows = parse_repetition_index(
                slices.slice_bytes(at), num_chunks=len(chunks), num_rows=self._page.length
            )
        elif chunks.num_values != self._page.length:
            raise CorruptDataError(
                "a page does not have a value for each of its rows",
                column=self._leaf.column,
                rows=self._page.length,
                values=chunks.num_values,
            )
        return MiniBlockHead(chunks, rows, dictionary)

    def _decode(self, head: MiniBlockHead, chunks: Int64s, slices: Slices) -> _Decoded:
        layout = self._layout
        counts = np.diff(head.chunks.first_value)[chunks]
        parts = split_chunks(slices, _shape_of(layout))
        repetition, definition = _decode_levels(layout, parts)
        num_levels = counts
        if repetition is not None or definition is not None:
            num_levels = parts.num_levels
            check_levels(layout.layers, repetition, definition)
            _check_slots(layout.layers, definition, num_levels, counts)
        return _Decoded(num_levels, repetition, definition, counts, parts.buffers)

    def _entries_of(
        self, rows: Rows, head: MiniBlockHead, chunks: Int64s, decoded: _Decoded
    ) -> Picked:
        """Return which of the decoded entries belong to the rows."""
        if head.rows is not None:
            assert decoded.repetition is not None
            levels = ChunkLevels(
                head.rows,
                chunks,
                decoded.repetition,
                decoded.num_levels,
                self._layout.layers.rep_max,
            )
            match rows:
                case RowRange(start, stop):
                    return levels.entries_of_range(start, stop)
                case RowIndices(indices):
                    return levels.entries_of_rows(indices)
        first_value = head.chunks.first_value
        match rows:
            case RowRange(start, stop):
                before = int(first_value[chunks[0]])
                return slice(start - before, stop - before)
            case RowIndices(indices):
                counts = np.diff(first_value)[chunks]
                joined = np.cumsum(counts) - counts
                chunk = np.searchsorted(first_value, indices, side="right") - 1
                entries: Int64s = indices - first_value[chunk]
                entries += joined[np.searchsorted(chunks, chunk)]
                return entries

    def _pick(
        self, head: MiniBlockHead, decoded: _Decoded, slots: Picked, validity: Bytes | None
    ) -> pa.Array:
        data_type = self._leaf.data_type
        block, picked = self._decode_values(decoded, slots)
        if head.dictionary is None:
            return values_from_block(block, data_type, picked, validity)
        return values_from_dictionary(block, head.dictionary, data_type, picked, validity)

    def _decode_values(self, decoded: _Decoded, slots: Picked) -> tuple[Block, Picked]:
        """Return a block that holds the slots, and where in the block they are."""
        encoding, counts = self._layout.values, decoded.counts
        if isinstance(slots, slice) or len(slots) * DENSE_PICKS > int(counts.sum()):
            return registry.decode_chunks(encoding, decoded.buffers, counts), slots
        stops = np.cumsum(counts)
        chunk = np.searchsorted(stops, slots, side="right")
        picks = Picks(chunk, slots - (stops - counts)[chunk])
        block = registry.pick_chunks(encoding, decoded.buffers, counts, picks)
        return block, slice(0, len(slots))


def slots_of(layers: Layers, definition: Levels | None, entries: Picked) -> Picked:
    """Return the slots of the entries that have one."""
    if definition is None or layers.visible_def_max == layers.def_max:
        return entries
    is_visible = definition <= layers.visible_def_max
    if isinstance(entries, slice):
        before = int(np.count_nonzero(is_visible[: entries.start]))
        return slice(before, before + int(np.count_nonzero(is_visible[entries])))
    slots = np.cumsum(is_visible) - 1
    return slots[entries[is_visible[entries]]]


def _shape_of(layout: MiniBlockLayout) -> FrameShape:
    return FrameShape(
        layout.repetition is not None,
        layout.definition is not None,
        layout.num_buffers,
        layout.has_large_chunks,
    )


def _chunks_of(rows: Rows, head: MiniBlockHead) -> Int64s:
    """Return the chunks that hold any of the rows, ascending."""
    first_value = head.chunks.first_value
    match rows:
        case RowRange(start, stop):
            if head.rows is not None:
                return np.arange(*head.rows.chunks_of_range(start, stop))
            first = int(np.searchsorted(first_value, start, side="right")) - 1
            return np.arange(first, int(np.searchsorted(first_value, stop, side="left")))
        case RowIndices(indices):
            wanted = np.zeros(len(head.chunks) + 1, np.int64)
            if head.rows is None:
                wanted[np.searchsorted(first_value, indices, side="right") - 1] = 1
                return np.flatnonzero(wanted)
            begins, ends = head.rows.chunks_of_rows(indices)
            np.add.at(wanted, begins, 1)
            np.add.at(wanted, ends + 1, -1)
            return np.flatnonzero(np.cumsum(wanted))


def _run_starts(chunks: Int64s) -> Int64s:
    """Return where runs of neighbouring chunks begin, with the number of chunks behind."""
    return np.concatenate(([0], np.flatnonzero(np.diff(chunks) != 1) + 1, [len(chunks)]))


def _ranges_of(chunks: Int64s, head: MiniBlockHead, page: StoredPage) -> Ranges:
    """Return the bytes of chunks, neighbours as one range."""
    runs = _run_starts(chunks)
    start = head.chunks.position[chunks[runs[:-1]]]
    stop = head.chunks.position[chunks[runs[1:] - 1] + 1]
    return Ranges(page.position[1] + start, stop - start)


def _slices_of(chunks: Int64s, head: MiniBlockHead, slices: Slices) -> Slices:
    """Return each chunk within the slices that answered `_ranges_of`."""
    runs = _run_starts(chunks)
    position = head.chunks.position[chunks]
    shift = slices.position - position[runs[:-1]]
    size = head.chunks.position[chunks + 1] - position
    return Slices(slices.source, position + np.repeat(shift, np.diff(runs)), size)


def _decode_levels(
    layout: MiniBlockLayout, parts: ChunkParts
) -> tuple[Levels | None, Levels | None]:
    decoded: list[Levels | None] = []
    pairs: Sequence[tuple[Encoding | None, Slices | None]] = (
        (layout.repetition, parts.repetition),
        (layout.definition, parts.definition),
    )
    for encoding, slices in pairs:
        if encoding is None or slices is None:
            decoded.append(None)
        else:
            decoded.append(
                levels_from_block(registry.decode_blocks(encoding, slices, parts.num_levels))
            )
    return decoded[0], decoded[1]


def levels_from_block(block: Block) -> Levels:
    """Return a block of levels as numbers."""
    if not isinstance(block, FixedWidth) or block.bits != 16:
        raise CorruptDataError("levels are not numbers of 16 bits", found=type(block).__name__)
    data = block.data if block.data.ctypes.data % 2 == 0 else block.data.copy()
    return data.view(np.uint16)


def _check_slots(
    layers: Layers, definition: Levels | None, num_levels: Int64s, counts: Int64s
) -> None:
    """Raise unless every chunk has as many visible entries as values."""
    slots = num_levels
    if definition is not None and layers.visible_def_max < layers.def_max:
        slots = kernels.count_slots(definition, num_levels, slot_max=layers.visible_def_max)
    if not np.array_equal(slots, counts):
        chunk = int(np.flatnonzero(slots != counts)[0])
        raise CorruptDataError(
            "the levels of a chunk do not belong to its values",
            expected=int(counts[chunk]),
            found=int(slots[chunk]),
        )
