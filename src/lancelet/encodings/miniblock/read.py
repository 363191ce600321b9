"""Reader of mini-block pages; decodes all required chunks together.

    rows 1500..1510                          of pages of 1024 values per chunk
    round 1   chunk table                    unless the page metadata is cached
    round 2   chunk 1 (and 2 if rows of lists continue there)
    decode    chunk 1 -> 1024 values, of which slots 476..486 are returned

A run of pages with the same encoding is read as one page (`miniblock.page_metadata`). The
positions of chunks and rows are read once and cached.
"""

from __future__ import annotations

import weakref
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from lancelet import kernels
from lancelet.buffers import ByteRanges, Bytes, ByteSlices, Int64s, ReadCoroutine
from lancelet.encodings.arrow import aligned, plain_bits
from lancelet.encodings.base import Block, FixedWidth, RowIndices, RowRange, Rows, StoredPage
from lancelet.encodings.codecs import registry
from lancelet.encodings.codecs.base import (
    Encoding,
    Positions,
    ValueFilter,
    ValuePositions,
    ValueRanges,
)
from lancelet.encodings.codecs.dictionary import take_items
from lancelet.encodings.codecs.fsst import join_tables, table_parts
from lancelet.encodings.levels import Layers, Levels, check_levels, visible_validity
from lancelet.encodings.miniblock.frame import ChunkParts, FrameShape, split_chunks
from lancelet.encodings.miniblock.page_metadata import Dictionary, PageMetadata
from lancelet.encodings.miniblock.repetition_index import DEPTH, ChunkLevels, RepetitionIndex
from lancelet.encodings.pages.layout import MiniBlockLayout
from lancelet.encodings.pages.leaf import (
    LeafContext,
    LeafRows,
    Selection,
    to_indices,
    values_from_block,
    values_from_dictionary,
)
from lancelet.encodings.pages.stored_pages import StoredPages, to_bounds
from lancelet.encodings.pages.structural import Flags, PageReader
from lancelet.encodings.row_ranges import expand
from lancelet.errors import CorruptDataError, UnsupportedError
from lancelet.values import dataclass

VALUES_PER_POSITION_MAX = 4
"""Chunks are decoded entirely if at least one of this many values is requested."""

ENTRIES_PER_SLOT_MAX = 16
"""The same for entries of lists, which have no value positions yet."""

_RANGES_MAX = 8
"""More ranges of dictionary indices are looked up."""

VALUES_MAX = 1 << 48
"""Maximum accepted number of values per page."""


@dataclass(frozen=True, slots=True, eq=False)
class _Target:
    """The chunks with the requested rows and, if rows are values, the value positions."""

    chunks: Int64s
    positions: ValuePositions | None = None


@dataclass(frozen=True, slots=True, eq=False)
class _Decoded:
    """Chunks with decoded, concatenated levels and encoded values."""

    num_levels: Int64s
    repetition: Levels | None
    definition: Levels | None
    counts: Int64s
    buffers: tuple[ByteSlices, ...]


@dataclass(frozen=True, slots=True, eq=False)
class _Comparison:
    """A filter of the values of a page, or of its indices into a dictionary.

    `numbers` are the ranges of values or indices that pass. Without them, `passes` has a flag for
    each item, followed by that of null.
    """

    dictionary: Dictionary | None
    numbers: ValueRanges | None
    passes: Flags | None

    @property
    def passes_null(self) -> bool:
        return self.passes is not None and bool(self.passes[-1])

    def passing(self, indices: Block, definition: Levels | None) -> Flags:
        """Return whether each value passes."""
        assert self.passes is not None
        items = len(self.passes) - 1
        numbers = to_indices(indices)
        is_value = None if definition is None else definition == 0  # other levels are nulls
        is_outside = numbers >= items
        if is_outside.any():
            wrong = is_outside if is_value is None else is_outside & is_value
            if wrong.any():
                raise CorruptDataError(
                    "a dictionary index of a page is out of bounds",
                    index=int(numbers[wrong].max()),
                    items=items,
                )
            numbers = np.where(is_outside, 0, numbers)  # indices of nulls are arbitrary
        found: Flags = self.passes[numbers]
        return found if is_value is None else np.where(is_value, found, self.passes_null)


class MiniBlockPages(PageReader):
    """Reads rows of a run of pages with one layout."""

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
        """Validate the message of pages; `index` is that of the first page in its column.

        All pages share the layout, except that page i has `num_values[i]` values and `num_items[i]`
        dictionary items. `symbol_tables` are given if they differ between pages.
        """
        self._pages = pages = StoredPages.of(pages)
        self._layout = layout
        self._leaf = leaf
        self._num_items = num_items
        # Pages with dictionaries as result are not merged into runs, so their metadata differs.
        is_dictionary = pa.types.is_dictionary(leaf.data_type)
        self._key = (leaf.column, ~index if is_dictionary else index)
        self._shape = FrameShape(
            layout.repetition is not None,
            layout.definition is not None,
            layout.num_buffers,
            layout.has_large_chunks,
        )
        if layout.repetition_index_depth > DEPTH:
            raise UnsupportedError(
                "the repetition index of a page is too deep for this release",
                depth=layout.repetition_index_depth,
            )
        self._values = registry.ChunkDecoder(layout.values)
        self._tables = join_tables(symbol_tables) if symbol_tables else None
        self._bits = plain_bits(leaf.data_type)
        self._metadata: weakref.ref[PageMetadata] | None = None
        layout.check(
            page_buffers=int(pages.num_buffers.min()),
            chunk_buffers=self._values.num_buffers,
            column=leaf.column,
        )
        if not 0 <= min(num_values) <= max(num_values) <= VALUES_MAX:
            raise CorruptDataError(
                "a page claims an invalid number of values",
                column=leaf.column,
                values=max(num_values),
            )
        self._num_values = np.array(num_values, np.int64)

    @property
    def num_rows(self) -> int:
        """The number of rows of the pages."""
        return int(self._pages.length.sum())

    @property
    def num_dictionary_items(self) -> int | None:
        """The number of items of the dictionaries; None if the pages have none."""
        return None if self._layout.dictionary is None else sum(self._num_items)

    def match(self, rows: RowRange, values: ValueFilter) -> ReadCoroutine[Flags] | None:
        """Return whether the value of each row passes, or None if unsupported."""
        return self._match(rows, values) if self._supports(values) else None

    def select(
        self, ranges: Sequence[RowRange], values: ValueFilter
    ) -> ReadCoroutine[tuple[Int64s, LeafRows]] | None:
        """Return the rows of ranges that pass, and the values, or None if unsupported."""
        return self._select(ranges, values) if self._supports(values) else None

    def _supports(self, values: ValueFilter) -> bool:
        layout = self._layout
        if layout.repetition is not None or pa.types.is_dictionary(self._leaf.data_type):
            return False
        if layout.dictionary is not None:
            return values.test is not None
        return values.numbers is not None and self._bits == values.numbers.bits

    def _match(self, rows: RowRange, values: ValueFilter) -> ReadCoroutine[Flags]:
        head = yield from self.read_metadata(rows)
        target = _locate_rows(rows, head)
        decoded = yield from self._read_chunks(head, target)
        compared = self._comparison(head, target, values)
        if compared.numbers is None:
            indices = self._indices(decoded, compared.dictionary)
            found = compared.passing(indices, decoded.definition)
        else:
            found = self._values.match(decoded.buffers, decoded.counts, compared.numbers)
            if decoded.definition is not None:  # 0 is a value, other levels are nulls
                found &= decoded.definition == 0
        before = int(head.first_value[target.chunks[0]])
        return found[rows.start - before : rows.stop - before]

    def _select(
        self, ranges: Sequence[RowRange], values: ValueFilter
    ) -> ReadCoroutine[tuple[Int64s, LeafRows]]:
        rows = RowRange(ranges[0].start, ranges[-1].stop)
        head = yield from self.read_metadata(rows)
        target = _locate_ranges(ranges, head)
        decoded = yield from self._read_chunks(head, target)
        compared = self._comparison(head, target, values)
        found: Positions
        if compared.numbers is None:
            indices = self._indices(decoded, compared.dictionary)
            found = np.flatnonzero(compared.passing(indices, decoded.definition))
            block = take_items(indices, found)
        else:
            found, block = self._values.select(decoded.buffers, decoded.counts, compared.numbers)
        selected, part = _rows_of(found, ranges, head, target, decoded.counts)
        validity: Bytes | None = None
        if decoded.definition is not None:  # 0 is a value, other levels are nulls
            is_value = decoded.definition[found[part]] == 0
            if compared.passes_null:
                validity = np.packbits(is_value, bitorder="little")
            elif not is_value.all():
                valid = np.flatnonzero(is_value)
                part = valid + part.start if isinstance(part, slice) else part[valid]
                selected = selected[valid]
        data_type, dictionary = self._leaf.data_type, compared.dictionary
        if dictionary is None:
            array = values_from_block(block, data_type, part, validity)
        else:
            array = values_from_dictionary(block, dictionary.items, data_type, part, validity)
        return selected, LeafRows(self._layout.layers, None, None, array)

    def _comparison(self, head: PageMetadata, target: _Target, values: ValueFilter) -> _Comparison:
        """Return how to compare the stored numbers, or the indices of dictionary items."""
        dictionary = head.dictionary(target.chunks)
        if dictionary is None:
            return _Comparison(None, values.numbers, None)
        assert values.test is not None
        passes = values.test(dictionary.items.array)
        bits = self._values.word_bits
        numbers: ValueRanges | None = None
        # Nulls have arbitrary indices, so no range selects them if they pass.
        fits = len(passes) - 1 <= 1 << bits
        if bits and fits and dictionary.first is None and not passes[-1]:
            edges = np.flatnonzero(np.diff(passes[:-1], prepend=False, append=False))
            if 0 < len(edges) <= 2 * _RANGES_MAX:
                runs = zip(edges[::2].tolist(), (edges[1::2] - 1).tolist(), strict=True)
                numbers = ValueRanges(tuple(runs), bits)
        return _Comparison(dictionary, numbers, passes)

    def _indices(self, decoded: _Decoded, dictionary: Dictionary | None) -> Block:
        """Return the indices of all values of chunks into the items of a dictionary."""
        assert dictionary is not None
        block = self._values.decode(decoded.buffers, decoded.counts)
        if dictionary.first is None:
            return block
        every = slice(0, block.count)
        return _shift_indices(block, every, dictionary, decoded.counts, None)

    def read(self, rows: Rows) -> ReadCoroutine[LeafRows]:
        """Read rows relative to the first row of the first page."""
        head = yield from self.read_metadata(rows)
        target = _locate_rows(rows, head)
        decoded = yield from self._read_chunks(head, target)
        layers = self._layout.layers
        if target.positions is not None and decoded.definition is None:
            return LeafRows(
                layers, None, None, self._take_values(head, target, decoded, None, None)
            )
        entries = self._entries_of(rows, head, target, decoded)
        repetition = None if decoded.repetition is None else decoded.repetition[entries]
        definition = None if decoded.definition is None else decoded.definition[entries]
        validity = visible_validity(layers, definition)
        slots = to_slots(layers, decoded.definition, entries)
        values = self._take_values(head, target, decoded, slots, validity)
        return LeafRows(layers, repetition, definition, values)

    def read_slots(
        self, head: PageMetadata, slots: Rows, validity: Bytes | None
    ) -> ReadCoroutine[pa.Array]:
        """Read values of a page without levels, null where `validity` bits are 0."""
        if not len(slots):
            return pa.array([], self._leaf.data_type)
        target = _locate_rows(slots, head)
        decoded = yield from self._read_chunks(head, target)
        entries = self._entries_of(slots, head, target, decoded)
        return self._take_values(head, target, decoded, entries, validity)

    def read_metadata(self, rows: Rows) -> ReadCoroutine[PageMetadata]:
        """Return the page metadata of these rows; missing parts are read."""
        header_cache = self._leaf.header_cache
        # The metadata cache controls the lifetime; a weak reference avoids repeated lookups.
        head = None if self._metadata is None else self._metadata()
        if head is None and header_cache is not None:
            head = header_cache.get(self._key, PageMetadata)
        if head is None:
            head = PageMetadata(
                self._pages, self._num_values, self._num_items, self._layout, self._leaf
            )
        self._metadata = weakref.ref(head)
        missing_pages = head.missing(rows)
        if len(missing_pages):
            head.add(missing_pages, (yield head.ranges(missing_pages)))
            if header_cache is not None:
                header_cache.put(self._key, head, value_bytes=head.num_bytes)
        return head

    def _read_chunks(self, head: PageMetadata, target: _Target) -> ReadCoroutine[_Decoded]:
        chunks, layout = target.chunks, self._layout
        position, size = head.position[chunks], head.size[chunks]
        if target.positions is None:
            ranges, edges = head.chunk_ranges(chunks)
            slices = yield ranges
            shift = slices.position - ranges.position
            chunk_shift = shift if len(shift) == 1 else np.repeat(shift, np.diff(edges))
            slices = ByteSlices(slices.source, position + chunk_shift, size)
        else:
            slices = yield ByteRanges(position, size)
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
        self, buffers: tuple[ByteSlices, ...], head: PageMetadata, chunks: Int64s
    ) -> tuple[ByteSlices, ...]:
        """Return the buffers of chunks, with the symbol tables of their pages if these differ."""
        if self._tables is None:
            return buffers
        return (*buffers, table_parts(self._tables, head.pages_of(chunks)))

    def _entries_of(
        self, rows: Rows, head: PageMetadata, target: _Target, decoded: _Decoded
    ) -> Selection:
        """Return the decoded entries of the rows."""
        if head.rows is not None:
            levels = self._levels_of(head, target, decoded)
            match rows:
                case RowRange(start, stop):
                    return levels.entries_of_range(start, stop)
                case RowIndices(indices):
                    return levels.entries_of_rows(indices)
        match rows:
            case RowRange(start, stop):
                before = int(head.first_value[target.chunks[0]])
                return slice(start - before, stop - before)
            case RowIndices():
                assert target.positions is not None
                starts = np.cumsum(decoded.counts) - decoded.counts
                entries: Int64s = starts[target.positions.chunk] + target.positions.index
                return entries

    def _levels_of(self, head: PageMetadata, target: _Target, decoded: _Decoded) -> ChunkLevels:
        assert head.rows is not None
        assert decoded.repetition is not None
        return ChunkLevels(
            head.rows,
            target.chunks,
            decoded.repetition,
            decoded.num_levels,
            self._layout.layers.rep_max,
        )

    def _take_values(
        self,
        head: PageMetadata,
        target: _Target,
        decoded: _Decoded,
        slots: Selection | None,
        validity: Bytes | None,
    ) -> pa.Array:
        """Return the values of `slots`, by default of the requested positions."""
        data_type, positions = self._leaf.data_type, target.positions
        dictionary = head.dictionary(target.chunks)
        if positions is None and slots is not None and not isinstance(slots, slice):
            is_joined = dictionary is None or dictionary.first is None
            if is_joined and len(slots) * ENTRIES_PER_SLOT_MAX > int(decoded.counts.sum()):
                # Locating the chunk of each slot takes longer than unpacking the other values.
                block = self._values.decode(decoded.buffers, decoded.counts)
                if dictionary is None:
                    return values_from_block(block, data_type, slots, validity)
                return values_from_dictionary(block, dictionary.items, data_type, slots, validity)
            chunks, chunk_of_slot, within = kernels.locate_rows(to_bounds(decoded.counts), slots)
            positions = ValuePositions(chunks[chunk_of_slot], within)
        block, selection = self._decode_values(decoded, slots, positions)
        if dictionary is not None:
            if dictionary.first is not None:
                block = _shift_indices(block, selection, dictionary, decoded.counts, positions)
                selection = slice(0, block.count)
            return values_from_dictionary(block, dictionary.items, data_type, selection, validity)
        is_entire = isinstance(selection, slice) and selection == slice(0, block.count)
        if is_entire and isinstance(block, FixedWidth) and block.bits == self._bits:
            nulls = None if validity is None else pa.py_buffer(validity)
            return pa.Array.from_buffers(data_type, block.count, [nulls, aligned(block.data)])
        return values_from_block(block, data_type, selection, validity)

    def _decode_values(
        self, decoded: _Decoded, slots: Selection | None, positions: ValuePositions | None
    ) -> tuple[Block, Selection]:
        """Return a block with the values, and their selection within the block."""
        counts = decoded.counts
        if isinstance(slots, slice):
            return self._values.decode(decoded.buffers, counts), slots
        assert positions is not None
        if len(positions.index) * VALUES_PER_POSITION_MAX > int(counts.sum()):
            starts = np.cumsum(counts) - counts
            indices: Int64s = starts[positions.chunk] + positions.index
            return self._values.decode(decoded.buffers, counts), indices
        block = self._values.take(decoded.buffers, counts, positions)
        return block, slice(0, len(positions.index))


def _shift_indices(
    block: Block,
    selection: Selection,
    dictionary: Dictionary,
    counts: Int64s,
    positions: ValuePositions | None,
) -> FixedWidth:
    """Convert indices into page dictionaries to indices into the concatenated dictionary.

    Out-of-bounds indices remain out of bounds.
    """
    assert dictionary.first is not None
    assert dictionary.count is not None
    page_indices = to_indices(block)[selection]
    invalid = len(dictionary.items.array)
    joined = page_indices.astype(
        np.uint64 if page_indices.itemsize > 4 or invalid >> 32 else np.uint32
    )
    if positions is not None:
        first, count = dictionary.first[positions.chunk], dictionary.count[positions.chunk]
        shifted = np.where(
            page_indices < count.view(np.uint64), page_indices + first.view(np.uint64), invalid
        )
        joined[:] = shifted
    else:
        assert isinstance(selection, slice)
        # Chunks of one page are adjacent, so there is one run of slots per page.
        is_border = np.diff(dictionary.first, prepend=-1) | np.diff(dictionary.count, prepend=-1)
        borders = np.flatnonzero(is_border)
        starts = np.clip(to_bounds(counts)[borders] - selection.start, 0, len(joined))
        for chunk, start, stop in zip(
            borders.tolist(), starts.tolist(), [*starts[1:].tolist(), len(joined)], strict=True
        ):
            part = joined[start:stop]
            is_outside = part >= dictionary.count[chunk]
            np.add(part, joined.dtype.type(dictionary.first[chunk]), out=part)
            if is_outside.any():
                part[is_outside] = invalid
    return FixedWidth(joined.itemsize * 8, joined.view(np.uint8), len(joined))


def to_slots(layers: Layers, definition: Levels | None, entries: Selection) -> Selection:
    """Return the slots of the entries that have one."""
    if definition is None or layers.visible_def_max == layers.def_max:
        return entries
    if isinstance(entries, slice):
        is_visible = definition <= layers.visible_def_max
        before = int(np.count_nonzero(is_visible[: entries.start]))
        return slice(before, before + int(np.count_nonzero(is_visible[entries])))
    return kernels.rank_slots(definition, entries, slot_max=layers.visible_def_max)


def _locate_rows(rows: Rows, head: PageMetadata) -> _Target:
    """Return the chunks with any of the rows, ascending."""
    if head.rows is not None:
        return _Target(_chunks_of_lists(rows, head.rows))
    match rows:
        case RowRange(start, stop):
            first = int(head.first_value.searchsorted(start, side="right")) - 1
            return _Target(np.arange(first, int(head.first_value.searchsorted(stop))))
        case RowIndices(indices):
            chunks, chunk_of_row, within = kernels.locate_rows(head.first_value, indices)
            return _Target(chunks, ValuePositions(chunk_of_row, within))


def _locate_ranges(ranges: Sequence[RowRange], head: PageMetadata) -> _Target:
    """Return the chunks with any row of ascending ranges, ascending."""
    if len(ranges) == 1:
        return _locate_rows(ranges[0], head)
    starts, stops = np.array([(each.start, each.stop) for each in ranges]).T
    first = head.first_value.searchsorted(starts, side="right") - 1
    chunks = expand(first, head.first_value.searchsorted(stops) - first)
    is_first: npt.NDArray[np.bool_] = np.append(True, chunks[1:] != chunks[:-1])
    return _Target(chunks[is_first])


def _rows_of(
    found: Positions,
    ranges: Sequence[RowRange],
    head: PageMetadata,
    target: _Target,
    counts: Int64s,
) -> tuple[Int64s, Selection]:
    """Return the rows of ascending positions in chunks that are within ranges, and which are."""
    if len(ranges) == 1:
        before = int(head.first_value[target.chunks[0]])
        # Bounds of another type would convert all positions.
        bounds = np.array([ranges[0].start - before, ranges[0].stop - before], found.dtype)
        first, stop = found.searchsorted(bounds).tolist()
        rows: Int64s = found[first:stop].astype(np.int64)
        if before:
            rows += before
        return rows, slice(first, stop)
    starts = to_bounds(counts)
    chunk = starts.searchsorted(found, side="right") - 1
    rows = found + (head.first_value[target.chunks] - starts[:-1])[chunk]
    edges = np.array([(each.start, each.stop) for each in ranges]).reshape(-1)
    inside = np.flatnonzero(edges.searchsorted(rows, side="right") % 2)
    return rows[inside], inside if len(inside) < len(rows) else slice(0, len(rows))


def _chunks_of_lists(rows: Rows, index: RepetitionIndex) -> Int64s:
    match rows:
        case RowRange(start, stop):
            return np.arange(*index.chunks_of_range(start, stop))
        case RowIndices(indices):
            # A row starts no earlier than in the chunk with the end of the previous row.
            begins, ends = index.chunks_of_rows(indices)
            chunks = expand(begins, ends - begins + 1)
            is_first: npt.NDArray[np.bool_] = np.append(True, chunks[1:] != chunks[:-1])
            return chunks[is_first]


def _decode_levels(
    layout: MiniBlockLayout, parts: ChunkParts
) -> tuple[Levels | None, Levels | None]:
    decoded: list[Levels | None] = []
    pairs: Sequence[tuple[Encoding | None, ByteSlices | None]] = (
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
    """Return a block of levels as an array."""
    if not isinstance(block, FixedWidth) or block.bits != 16:
        raise CorruptDataError("levels must have 16 bits", found=type(block).__name__)
    data = block.data if block.data.ctypes.data % 2 == 0 else block.data.copy()
    return data.view(np.uint16)


def _check_slots(
    layers: Layers, definition: Levels | None, num_levels: Int64s, counts: Int64s
) -> None:
    """Raise unless the number of visible entries of each chunk matches its values."""
    slots = num_levels
    if definition is not None and layers.visible_def_max < layers.def_max:
        slots = kernels.count_slots(definition, num_levels, slot_max=layers.visible_def_max)
    if not np.array_equal(slots, counts):
        chunk = int(np.flatnonzero(slots != counts)[0])
        raise CorruptDataError(
            "the levels of a chunk do not match its values",
            expected=int(counts[chunk]),
            found=int(slots[chunk]),
        )
