"""Builds mini-block pages from encoded values and levels.

The value codec splits a page into chunks of 2^k values; levels follow this split. An entry without
a value (a null or empty list) belongs to the chunk of the next value, and trailing ones to the last
chunk:

    chunks of 2 values    first      second       last
    entries               v v        - - v v      v -

Pages with the same encoding are built together, and share one layout and message. Pages of lists
are built one by one.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial
from typing import TypeAlias, TypeVar

import numpy as np
import numpy.typing as npt

from lancelet.buffers import Bytes, ByteSlices, Int64s
from lancelet.encodings.base import FileVersion, FixedWidth
from lancelet.encodings.choice.choose import Dictionary, MiniBlocks
from lancelet.encodings.codecs.base import SMALL_CHUNK_BYTES_MAX, EncodedBlocks
from lancelet.encodings.codecs.chunking import to_slices
from lancelet.encodings.codecs.out_of_line_bitpacking import OutOfLineBitpacking
from lancelet.encodings.codecs.rle import Rle
from lancelet.encodings.levels import Layers, Levels, ShreddedLeaf
from lancelet.encodings.miniblock.frame import (
    LEVELS_MAX,
    ChunkParts,
    build_chunk_table,
    join_chunks,
)
from lancelet.encodings.miniblock.repetition_index import DEPTH, build_repetition_index
from lancelet.encodings.pages.layout import Body, MiniBlockLayout
from lancelet.encodings.pages.leaf_pages import ChunkedPages, sum_by_page, take_slices
from lancelet.encodings.row_ranges import expand
from lancelet.values import dataclass, replace

T = TypeVar("T")

_Pages: TypeAlias = tuple[Int64s, MiniBlockLayout | None, tuple[ByteSlices, ...]]
"""Indices of pages, their layout (None if a chunk exceeds its limits), and their buffers."""


def build_mini_blocks(
    leaf: ShreddedLeaf, count: int, mini_blocks: MiniBlocks, *, version: FileVersion
) -> Iterator[tuple[Sequence[int], Body | None]]:
    """Yield pages grouped by layout, with their buffers.

    `leaf` has the values and levels of all `count` pages of the batch. The body is `None` if a
    chunk exceeds its limits, because too many entries have no value.
    """
    for indices, layout, buffers in _Parts.of(leaf, count, mini_blocks, version).pages():
        if layout is None:
            yield mini_blocks.page_indices[indices].tolist(), None
        elif mini_blocks.dictionaries is None:
            yield _body(mini_blocks, indices, layout, buffers)
        else:
            chunk_table, data, *index = buffers
            for group, with_items, items in _group_by_dictionary(
                layout, mini_blocks.dictionaries, indices
            ):
                parts = (take_slices(chunk_table, group), take_slices(data, group), items, *index)
                yield _body(mini_blocks, indices[group], with_items, parts)


def _body(
    chosen: MiniBlocks, indices: Int64s, layout: MiniBlockLayout, buffers: tuple[ByteSlices, ...]
) -> tuple[Sequence[int], Body]:
    page_indices = chosen.page_indices[indices].tolist()
    report = _take(chosen.descriptions, indices), _take(chosen.refused, indices)
    return page_indices, Body(page_indices, layout, buffers, *report)


def _group_by_dictionary(
    layout: MiniBlockLayout, dictionaries: Sequence[Dictionary], indices: Int64s
) -> Iterator[tuple[Int64s, MiniBlockLayout, ByteSlices]]:
    """Yield pages grouped by dictionary size and encoding, with their items."""
    groups: dict[tuple[int, bytes], list[int]] = {}
    for position, index in enumerate(indices.tolist()):
        dictionary = dictionaries[index]
        key = dictionary.num_items, dictionary.block.encoding.SerializeToString()
        groups.setdefault(key, []).append(position)
    for (num_items, _), positions in groups.items():
        blocks = [dictionaries[index].block for index in indices[positions].tolist()]
        with_items = replace(layout, dictionary=blocks[0].encoding, num_dictionary_items=num_items)
        items = [block.data for block in blocks]
        sizes = np.array([len(data) for data in items], np.int64)
        joined = items[0] if len(items) == 1 else np.concatenate(items)
        yield np.array(positions), with_items, to_slices(sizes, joined)


def _take(values: Sequence[T], indices: Int64s) -> Sequence[T]:
    if len(indices) == len(values):
        return values
    return [values[index] for index in indices.tolist()]


class _EncodedLevels:
    """Levels of pages, `counts[i]` in chunk i, as runs or bit-packed, whichever is smaller."""

    def __init__(
        self, levels: Levels, counts: Int64s, edges: Int64s, *, has_run_lengths: bool
    ) -> None:
        self._levels, self._counts, self._edges = levels, counts, edges
        self._packed = OutOfLineBitpacking().encode_blocks(_block(levels), counts.copy())
        self.has_runs: npt.NDArray[np.bool_] = np.zeros(len(edges) - 1, np.bool_)
        if has_run_lengths:
            # A run that continues in the next page counts in both.
            changes = np.concatenate([[0, 0], np.cumsum(levels[1:] != levels[:-1])])
            first = self._first_levels()
            changed = changes[first[1:]] - changes[np.minimum(first[:-1] + 1, first[1:])]
            run_bytes = estimate_run_bytes(changed, np.diff(first), np.diff(edges))
            self.has_runs = run_bytes <= sum_by_page([self._packed.slices.size], edges)

    def encode(self, pages: Int64s) -> EncodedBlocks:
        """Return the levels of pages, all encoded as runs or all bit-packed."""
        count = np.diff(self._edges)[pages]
        chunks = expand(self._edges[pages], count)
        if not self.has_runs[pages[0]]:
            return EncodedBlocks(self._packed.encoding, take_slices(self._packed.slices, chunks))
        first = self._first_levels()
        levels = self._levels
        if len(pages) < len(self._edges) - 1:
            levels = levels[expand(first[pages], np.diff(first)[pages])]
        return Rle().encode_blocks(_block(levels), self._counts[chunks])

    def _first_levels(self) -> Int64s:
        first_levels: Int64s = np.concatenate([np.zeros(1, np.int64), np.cumsum(self._counts)])
        return first_levels[self._edges]


def encode_levels(levels: Levels, counts: Int64s, *, has_run_lengths: bool) -> EncodedBlocks:
    """Encode levels, `counts[i]` in block i, as runs or bit-packed, whichever is smaller."""
    edges = np.array([0, len(counts)], np.int64)
    encoded = _EncodedLevels(levels, counts, edges, has_run_lengths=has_run_lengths)
    return encoded.encode(np.zeros(1, np.int64))


def estimate_run_bytes(num_changes: Int64s, num_levels: Int64s, num_blocks: Int64s) -> Int64s:
    """Estimate the bytes of run-length encoded levels."""
    return 3 * (1 + num_changes + num_levels // 255) + 8 * num_blocks


@dataclass(frozen=True, slots=True, eq=False)
class _Parts:
    """Parts of pages with the same encoding and layers."""

    layers: Layers
    chunks: ChunkedPages
    num_levels: Int64s | None
    repetition: _EncodedLevels | None
    definition: _EncodedLevels | None
    index: Bytes | None
    version: FileVersion

    @staticmethod
    def of(leaf: ShreddedLeaf, count: int, chosen: MiniBlocks, version: FileVersion) -> _Parts:
        """Encode the levels of pages."""
        chunks = chosen.chunks
        counts, num_levels, index = chunks.values.counts, None, None
        repetition = definition = None
        if leaf.repetition is not None or leaf.definition is not None:
            assert count == 1 or leaf.repetition is None, "pages of lists are built one by one"
            entries = _first_entries(leaf, counts) if count == 1 else None
            num_levels = counts if entries is None else np.diff(entries)
            if leaf.repetition is not None and entries is not None:
                index = build_repetition_index(leaf.repetition, entries, leaf.layers.rep_max)
            if int(num_levels.max()) <= LEVELS_MAX:
                encode = partial(
                    _EncodedLevels,
                    counts=num_levels,
                    edges=chunks.edges,
                    has_run_lengths=version >= FileVersion.V2_2,
                )
                repetition = None if leaf.repetition is None else encode(leaf.repetition)
                if leaf.definition is not None:
                    definition = encode(_take_levels(leaf.definition, count, chosen.page_indices))
        return _Parts(leaf.layers, chunks, num_levels, repetition, definition, index, version)

    def pages(self) -> Iterator[_Pages]:
        """Yield pages grouped by the encoding of their levels."""
        indices = np.arange(len(self.chunks.edges) - 1)
        if self.num_levels is None:
            yield from self._build_group(indices)
            return
        if int(self.num_levels.max()) > LEVELS_MAX:
            yield indices, None, ()
            return
        encodings = np.zeros(len(indices), np.int64)
        for levels in (self.repetition, self.definition):
            encodings = encodings * 2 + (0 if levels is None else levels.has_runs)
        for encoding in sorted(set(encodings.tolist())):
            yield from self._build_group((encodings == encoding).nonzero()[0])

    def _build_group(self, indices: Int64s) -> Iterator[_Pages]:
        chunks = self.chunks.take(indices)
        values, edges = chunks.values, chunks.edges
        levels = [
            None if levels is None else levels.encode(indices)
            for levels in (self.repetition, self.definition)
        ]
        if any(each is not None and int(each.slices.size.max()) > LEVELS_MAX for each in levels):
            assert len(indices) == 1, "only pages of lists can exceed the level limit"
            yield indices, None, ()
            return
        repetition, definition = levels
        has_large_chunks = self.version >= FileVersion.V2_2
        num_levels = np.zeros(len(values.counts), np.int64)
        if self.num_levels is not None:
            num_levels = self.num_levels[expand(self.chunks.edges[indices], chunks.num_chunks)]
        parts = ChunkParts(
            num_levels,
            None if repetition is None else repetition.slices,
            None if definition is None else definition.slices,
            values.parts,
        )
        data, sizes = join_chunks(parts, has_large_chunks=has_large_chunks)
        chunk_table = build_chunk_table(
            sizes, values.counts, has_large_chunks=has_large_chunks, last=edges[1:] - 1
        )
        layout = MiniBlockLayout(
            layers=self.layers,
            values=values.encoding,
            num_values=int(values.counts[: edges[1]].sum()),
            num_buffers=len(values.parts),
            has_large_chunks=has_large_chunks,
            repetition=None if repetition is None else repetition.encoding,
            definition=None if definition is None else definition.encoding,
            repetition_index_depth=0 if self.index is None else DEPTH,
        )
        entry_bytes, ends = (
            chunk_table.nbytes // len(sizes),
            np.concatenate([[0], sizes.cumsum()])[edges],
        )
        buffers = [
            ByteSlices(source, bounds[:-1], bounds[1:] - bounds[:-1])
            for source, bounds in ((chunk_table, edges * entry_bytes), (data, ends))
        ]
        if self.index is not None:
            buffers.append(ByteSlices.whole(self.index))
        if has_large_chunks or not (sizes > SMALL_CHUNK_BYTES_MAX).any():
            yield indices, layout, tuple(buffers)
            return
        is_too_large = np.maximum.reduceat(sizes, edges[:-1]) > SMALL_CHUNK_BYTES_MAX
        yield indices[is_too_large], None, ()
        fit = np.flatnonzero(~is_too_large)
        if len(fit):
            yield indices[fit], layout, tuple(take_slices(each, fit) for each in buffers)


def _take_levels(levels: Levels, count: int, page_indices: Int64s) -> Levels:
    """Return the levels of a subset of `count` equally long pages."""
    return (
        levels
        if len(page_indices) == count
        else levels.reshape(count, -1)[page_indices].reshape(-1)
    )


def _block(levels: Levels) -> FixedWidth:
    return FixedWidth(16, levels.view(np.uint8), len(levels))


def _first_entries(leaf: ShreddedLeaf, counts: Int64s) -> Int64s:
    """Return the first entry of each chunk, followed by the number of entries."""
    edges = np.concatenate(([0], np.cumsum(counts)))
    if leaf.definition is not None and leaf.layers.visible_def_max < leaf.layers.def_max:
        visible = np.flatnonzero(leaf.definition <= leaf.layers.visible_def_max)
        # A chunk ends after its last value; entries without a value belong to the next chunk.
        edges[1:] = visible[edges[1:] - 1] + 1
    edges[-1] = leaf.num_entries
    return edges
