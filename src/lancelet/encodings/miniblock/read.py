"""Reads rows of mini-block pages, decoding all the chunks that hold them in one go.

    rows 1500..1510                          of pages of 1024 values a chunk
    round 1   words of the chunks            unless the memo holds the head of the page
    round 2   chunk 1 (and 2 if rows of lists go on there)
    decode    chunk 1 -> 1024 values, of which slots 476..486 are kept

A run of pages that are encoded alike is read as if it were one page (`miniblock.head`). What
reads have in common, where chunks are and rows begin, is read once and kept in the memo.
"""

from __future__ import annotations

import weakref
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from lancelet import kernels
from lancelet.buffers import Bytes, Int64s, Ranges, Reading, Slices
from lancelet.encodings import registry
from lancelet.encodings.arrow import aligned, plain_bits
from lancelet.encodings.base import Block, FixedWidth, RowIndices, RowRange, Rows, StoredPage
from lancelet.encodings.codecs.base import Encoding, Picks
from lancelet.encodings.codecs.fsst import join_tables, table_parts
from lancelet.encodings.codecs.out_of_line_bitpacking import packed_level_bits
from lancelet.encodings.layout import MiniBlockLayout
from lancelet.encodings.leaf import (
    LeafContext,
    LeafRows,
    Picked,
    indices_of,
    values_from_block,
    values_from_dictionary,
)
from lancelet.encodings.levels import Layers, Levels, check_levels, visible_validity
from lancelet.encodings.miniblock.frame import ChunkParts, FrameShape, split_chunks
from lancelet.encodings.miniblock.head import Dictionary, MiniBlockHead
from lancelet.encodings.miniblock.repetition_index import DEPTH, ChunkLevels, RepetitionIndex
from lancelet.encodings.spans import expand
from lancelet.encodings.stored_pages import StoredPages, bounds_of
from lancelet.encodings.stretches import Stretches
from lancelet.encodings.structural import PageReader
from lancelet.errors import CorruptDataError, UnsupportedError
from lancelet.values import dataclass

DENSE_PICKS = 4
"""If one in so many values of the chunks is wanted, they are decoded as a whole."""

VALUES_MAX = 1 << 48
"""The most values that a page is believed to have."""


@dataclass(frozen=True, slots=True, eq=False)
class _Wanted:
    """The chunks that hold some rows, and, where rows are values, the values in them."""

    chunks: Int64s
    picks: Picks | None = None


@dataclass(frozen=True, slots=True, eq=False)
class _Decoded:
    """Some chunks: their levels, decoded and joined, and their values, still encoded."""

    num_levels: Int64s
    repetition: Levels | None
    definition: Levels | None
    counts: Int64s
    buffers: tuple[Slices, ...]


@dataclass(frozen=True, slots=True, eq=False)
class _PackedLevels:
    """The widths of levels that are all packed; without definition levels its width is 0."""

    repetition: int
    definition: int
    limits: kernels.LevelLimits

    @staticmethod
    def of(layout: MiniBlockLayout) -> _PackedLevels | None:
        """Return what a kernel needs to read levels by itself, or None if it cannot."""
        if layout.repetition is None:
            return None
        repetition = packed_level_bits(layout.repetition)
        definition = 0 if layout.definition is None else packed_level_bits(layout.definition)
        if repetition is None or definition is None:
            return None
        layers = layout.layers
        limits = kernels.LevelLimits(layers.rep_max, layers.def_max, layers.visible_def_max)
        return _PackedLevels(repetition, definition, limits)


class MiniBlockPages(PageReader):
    """Pages of one layout that follow each other, whose rows can be read."""

    def __init__(
        self,
        pages: Sequence[StoredPage],
        layout: MiniBlockLayout,
        leaf: LeafContext,
        *,
        num_values: Sequence[int],
        num_items: Sequence[int],
        index: int,
        symbol_tables: Sequence[bytes] = (),
    ) -> None:
        """Check the message of pages; `index` is the number of the first one in its column.

        The layout is that of all of them but for the number of values, of which page i has
        `num_values[i]`, and of items of its dictionary, of which it has `num_items[i]`. Where
        pages differ in their tables of symbols, these are given.
        """
        self._pages = pages = StoredPages.of(pages)
        self._layout = layout
        self._leaf = leaf
        self._num_items = num_items
        self._key = (leaf.column, index)
        self._shape = FrameShape(
            layout.repetition is not None,
            layout.definition is not None,
            layout.num_buffers,
            layout.has_large_chunks,
        )
        if layout.repetition_index_depth > DEPTH:
            raise UnsupportedError(
                "a page has a deeper index of its lists than this release knows",
                depth=layout.repetition_index_depth,
            )
        self._packed = _PackedLevels.of(layout)
        self._values = registry.ChunkDecoder(layout.values)
        self._tables = join_tables(symbol_tables) if symbol_tables else None
        self._bits = plain_bits(leaf.data_type)
        self._head: weakref.ref[MiniBlockHead] | None = None
        layout.check(
            page_buffers=int(pages.num_buffers.min()),
            chunk_buffers=self._values.num_buffers,
            column=leaf.column,
        )
        if not 0 <= min(num_values) <= max(num_values) <= VALUES_MAX:
            raise CorruptDataError(
                "a page claims an impossible number of values",
                column=leaf.column,
                values=max(num_values),
            )
        self._num_values = np.array(num_values, np.int64)

    @property
    def num_rows(self) -> int:
        """How many rows the pages have."""
        return int(self._pages.length.sum())

    def read(self, rows: Rows) -> Reading[LeafRows]:
        """Read rows, counted from the first one of the first page."""
        head = yield from self.read_head(rows)
        if head.rows is not None and self._packed is not None and isinstance(rows, RowIndices):
            return (yield from self._read_lists(head, head.rows, self._packed, rows.rows))
        wanted = _find(rows, head)
        decoded = yield from self._read_chunks(head, wanted)
        layers = self._layout.layers
        if wanted.picks is not None and decoded.definition is None:
            return LeafRows(layers, None, None, self._pick(head, wanted, decoded, None, None))
        entries = self._entries_of(rows, head, wanted, decoded)
        repetition = None if decoded.repetition is None else decoded.repetition[entries]
        definition = None if decoded.definition is None else decoded.definition[entries]
        validity = visible_validity(layers, definition)
        slots = slots_of(layers, decoded.definition, entries)
        values = self._pick(head, wanted, decoded, slots, validity)
        return LeafRows(layers, repetition, definition, values)

    def read_stretches(self, stretches: Stretches) -> Reading[tuple[LeafRows, Int64s]]:
        """Read stretches of rows, which are values; also return where each begins among them.

        What is decoded are whole chunks, and all of that is returned.
        """
        head = yield from self.read_head(stretches)
        if head.rows is not None:
            raise CorruptDataError("a column without lists has an index of lists")
        first = head.first_value.searchsorted(stretches.start, side="right") - 1
        chunks = head.first_value.searchsorted(stretches.stop) - first
        wanted = _Wanted(expand(first, chunks))
        decoded = yield from self._read_chunks(head, wanted)
        before = bounds_of(decoded.counts)
        layers = self._layout.layers
        validity = visible_validity(layers, decoded.definition)
        values = self._pick(head, wanted, decoded, slice(0, int(before[-1])), validity)
        at = before[bounds_of(chunks)[:-1]] + stretches.start - head.first_value[first]
        return LeafRows(layers, None, decoded.definition, values), at

    def _read_lists(
        self, head: MiniBlockHead, index: RepetitionIndex, packed: _PackedLevels, rows: Int64s
    ) -> Reading[LeafRows]:
        """Read single rows of lists, of whose chunks one kernel finds all there is to find.

        It is what `read` does otherwise, for levels that are packed as all writers pack them.
        """
        chunks = kernels.chunks_of_rows(index.begun, index.ended, rows)
        slices = yield Ranges(head.position[chunks], head.size[chunks])
        counts = head.count[chunks]
        parts = split_chunks(slices, self._shape)
        assert parts.repetition is not None
        definition = None
        if parts.definition is not None:
            definition = kernels.PackedLevels(parts.definition, packed.definition)
        levels = kernels.take_row_levels(
            parts.num_levels,
            kernels.PackedLevels(parts.repetition, packed.repetition),
            definition,
            counts,
            chunks,
            index.begun,
            rows,
            packed.limits,
        )
        picks = Picks(levels.which, levels.within)
        wanted = _Wanted(chunks, picks)
        layers = self._layout.layers
        has_nulls = levels.definition is not None and layers.each[0].null_def > 0
        buffers = self._with_tables(parts.buffers, head, chunks)
        decoded = _Decoded(parts.num_levels, None, None, counts, buffers)
        validity = levels.validity if has_nulls else None
        values = self._pick(head, wanted, decoded, None, validity)
        return LeafRows(layers, levels.repetition, levels.definition, values)

    def read_slots(
        self, head: MiniBlockHead, slots: Rows, validity: Bytes | None
    ) -> Reading[pa.Array]:
        """Read values of a page without levels, null where the bits of `validity` are 0."""
        if not len(slots):
            return pa.array([], self._leaf.data_type)
        wanted = _find(slots, head)
        decoded = yield from self._read_chunks(head, wanted)
        entries = self._entries_of(slots, head, wanted, decoded)
        return self._pick(head, wanted, decoded, entries, validity)

    def read_head(self, rows: Rows | Stretches) -> Reading[MiniBlockHead]:
        """Read what every read of the pages with these rows needs, unless the memo has it."""
        memo = self._leaf.memo
        # Whoever keeps the head decides for how long; as long as it lives it need not be asked.
        head = None if self._head is None else self._head()
        if head is None and memo is not None:
            head = memo.get(self._key, MiniBlockHead)
        if head is None:
            head = MiniBlockHead(
                self._pages, self._num_values, self._num_items, self._layout, self._leaf
            )
        self._head = weakref.ref(head)
        missing = head.missing(rows)
        if len(missing):
            head.add(missing, (yield head.ranges(missing)))
            if memo is not None:
                memo.put(self._key, head, value_bytes=head.num_bytes)
        return head

    def _read_chunks(self, head: MiniBlockHead, wanted: _Wanted) -> Reading[_Decoded]:
        chunks, layout = wanted.chunks, self._layout
        position, size = head.position[chunks], head.size[chunks]
        if wanted.picks is None and int(chunks[-1]) - int(chunks[0]) == len(chunks) - 1:
            ranges, edges = head.chunk_ranges(int(chunks[0]), int(chunks[-1]) + 1)
            slices = yield ranges
            shift = slices.position - ranges.position
            chunk_shift = shift if len(shift) == 1 else np.repeat(shift, np.diff(edges))
            slices = Slices(slices.source, position + chunk_shift, size)
        else:
            slices = yield Ranges(position, size)
        counts = head.count[chunks]
        parts = split_chunks(slices, self._shape)
        repetition, definition = _decode_levels(layout, parts)
        num_levels = counts
        if repetition is not None or definition is not None:
            num_levels = parts.num_levels
            check_levels(layout.layers, repetition, definition)
            _check_slots(layout.layers, definition, num_levels, counts)
        buffers = self._with_tables(parts.buffers, head, chunks)
        return _Decoded(num_levels, repetition, definition, counts, buffers)

    def _with_tables(
        self, buffers: tuple[Slices, ...], head: MiniBlockHead, chunks: Int64s
    ) -> tuple[Slices, ...]:
        """Return the buffers of chunks, and the symbols of their pages where these differ."""
        if self._tables is None:
            return buffers
        return (*buffers, table_parts(self._tables, head.pages_of(chunks)))

    def _entries_of(
        self, rows: Rows, head: MiniBlockHead, wanted: _Wanted, decoded: _Decoded
    ) -> Picked:
        """Return which of the decoded entries belong to the rows."""
        if head.rows is not None:
            assert decoded.repetition is not None
            levels = ChunkLevels(
                head.rows,
                wanted.chunks,
                decoded.repetition,
                decoded.num_levels,
                self._layout.layers.rep_max,
            )
            match rows:
                case RowRange(start, stop):
                    return levels.entries_of_range(start, stop)
                case RowIndices(indices):
                    return levels.entries_of_rows(indices)
        match rows:
            case RowRange(start, stop):
                before = int(head.first_value[wanted.chunks[0]])
                return slice(start - before, stop - before)
            case RowIndices():
                assert wanted.picks is not None
                starts = np.cumsum(decoded.counts) - decoded.counts
                entries: Int64s = starts[wanted.picks.chunk] + wanted.picks.index
                return entries

    def _pick(
        self,
        head: MiniBlockHead,
        wanted: _Wanted,
        decoded: _Decoded,
        slots: Picked | None,
        validity: Bytes | None,
    ) -> pa.Array:
        """Return the values in the slots, which need not be given if they are those wanted."""
        data_type, picks = self._leaf.data_type, wanted.picks
        if picks is None and not isinstance(slots, slice):
            assert slots is not None
            found, which, within = kernels.locate_rows(bounds_of(decoded.counts), slots)
            picks = Picks(found[which], within)
        block, picked = self._decode_values(decoded, slots, picks)
        dictionary = head.dictionary(wanted.chunks)
        if dictionary is not None:
            if dictionary.first is not None:
                block = _joined_indices(block, picked, dictionary, decoded.counts, picks)
                picked = slice(0, block.count)
            return values_from_dictionary(block, dictionary.items, data_type, picked, validity)
        is_whole = isinstance(picked, slice) and picked == slice(0, block.count)
        if is_whole and isinstance(block, FixedWidth) and block.bits == self._bits:
            nulls = None if validity is None else pa.py_buffer(validity)
            return pa.Array.from_buffers(data_type, block.count, [nulls, aligned(block.data)])
        return values_from_block(block, data_type, picked, validity)

    def _decode_values(
        self, decoded: _Decoded, slots: Picked | None, picks: Picks | None
    ) -> tuple[Block, Picked]:
        """Return a block that holds the values, and where in the block they are."""
        counts = decoded.counts
        if isinstance(slots, slice):
            return self._values.decode(decoded.buffers, counts), slots
        assert picks is not None
        if len(picks.index) * DENSE_PICKS > int(counts.sum()):
            starts = np.cumsum(counts) - counts
            places: Int64s = starts[picks.chunk] + picks.index
            return self._values.decode(decoded.buffers, counts), places
        block = self._values.pick(decoded.buffers, counts, picks)
        return block, slice(0, len(picks.index))


def _joined_indices(
    block: Block, picked: Picked, dictionary: Dictionary, counts: Int64s, picks: Picks | None
) -> FixedWidth:
    """Return indices into the items of a page as indices into the items of all pages.

    An index that its page does not have becomes one that nobody has.
    """
    assert dictionary.first is not None
    assert dictionary.count is not None
    own = indices_of(block)[picked]
    nobody = len(dictionary.items.array)
    joined = own.astype(np.uint64 if own.itemsize > 4 or nobody >> 32 else np.uint32)
    if picks is not None:
        first, count = dictionary.first[picks.chunk], dictionary.count[picks.chunk]
        shifted = np.where(own < count.view(np.uint64), own + first.view(np.uint64), nobody)
        joined[:] = shifted
    else:
        assert isinstance(picked, slice)
        # Chunks of one page follow each other, so there are as few runs of slots as pages.
        is_border = np.diff(dictionary.first, prepend=-1) | np.diff(dictionary.count, prepend=-1)
        borders = np.flatnonzero(is_border)
        starts = np.clip(bounds_of(counts)[borders] - picked.start, 0, len(joined))
        for chunk, start, stop in zip(
            borders.tolist(), starts.tolist(), [*starts[1:].tolist(), len(joined)], strict=True
        ):
            part = joined[start:stop]
            is_outside = part >= dictionary.count[chunk]
            np.add(part, joined.dtype.type(dictionary.first[chunk]), out=part)
            if is_outside.any():
                part[is_outside] = nobody
    return FixedWidth(joined.itemsize * 8, joined.view(np.uint8), len(joined))


def slots_of(layers: Layers, definition: Levels | None, entries: Picked) -> Picked:
    """Return the slots of the entries that have one."""
    if definition is None or layers.visible_def_max == layers.def_max:
        return entries
    if isinstance(entries, slice):
        is_visible = definition <= layers.visible_def_max
        before = int(np.count_nonzero(is_visible[: entries.start]))
        return slice(before, before + int(np.count_nonzero(is_visible[entries])))
    return kernels.rank_slots(definition, entries, slot_max=layers.visible_def_max)


def _find(rows: Rows, head: MiniBlockHead) -> _Wanted:
    """Return the chunks that hold any of the rows, ascending."""
    if head.rows is not None:
        return _Wanted(_chunks_of_lists(rows, head.rows))
    match rows:
        case RowRange(start, stop):
            first = int(head.first_value.searchsorted(start, side="right")) - 1
            return _Wanted(np.arange(first, int(head.first_value.searchsorted(stop))))
        case RowIndices(indices):
            chunks, which, within = kernels.locate_rows(head.first_value, indices)
            return _Wanted(chunks, Picks(which, within))


def _chunks_of_lists(rows: Rows, index: RepetitionIndex) -> Int64s:
    match rows:
        case RowRange(start, stop):
            return np.arange(*index.chunks_of_range(start, stop))
        case RowIndices(indices):
            # A row begins no earlier than in the chunk where the one before it ends.
            begins, ends = index.chunks_of_rows(indices)
            chunks = expand(begins, ends - begins + 1)
            is_first: npt.NDArray[np.bool_] = np.append(True, chunks[1:] != chunks[:-1])
            return chunks[is_first]


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
