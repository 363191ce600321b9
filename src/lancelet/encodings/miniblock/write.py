"""Builds mini-block pages from encoded values and levels.

The value codec splits a page into chunks of 2^k values; levels follow this split. An entry without
a value (a null or empty list) belongs to the chunk of the next value, and trailing ones to the last
chunk:

    chunks of 2 values    first      second       last
    entries               v v        - - v v      v -
"""

from __future__ import annotations

from functools import partial

import numpy as np

from lancelet.buffers import ByteSlices, Int64s
from lancelet.encodings.base import FileVersion, FixedWidth
from lancelet.encodings.choice.choose import MiniBlock
from lancelet.encodings.codecs.base import SMALL_CHUNK_BYTES_MAX, EncodedBlocks
from lancelet.encodings.codecs.out_of_line_bitpacking import OutOfLineBitpacking
from lancelet.encodings.codecs.rle import Rle
from lancelet.encodings.levels import Levels, ShreddedLeaf
from lancelet.encodings.miniblock.frame import (
    LEVELS_MAX,
    ChunkParts,
    build_chunk_table,
    join_chunks,
)
from lancelet.encodings.miniblock.repetition_index import DEPTH, build_repetition_index
from lancelet.encodings.pages.layout import Body, MiniBlockLayout


def build_mini_block(leaf: ShreddedLeaf, chosen: MiniBlock, *, version: FileVersion) -> Body | None:
    """Build a page, or return None if too many entries of a chunk have no value."""
    values, has_large_chunks = chosen.values, version >= FileVersion.V2_2
    num_levels, index = np.zeros(len(values.counts), np.int64), None
    repetition = definition = None
    if leaf.repetition is not None or leaf.definition is not None:
        entries = _first_entries(leaf, values.counts)
        num_levels = np.diff(entries)
        if int(num_levels.max()) > LEVELS_MAX:
            return None
        encode = partial(encode_levels, counts=num_levels, has_run_lengths=has_large_chunks)
        if leaf.repetition is not None:
            index = build_repetition_index(leaf.repetition, entries, leaf.layers.rep_max)
            repetition = encode(leaf.repetition)
        if leaf.definition is not None:
            definition = encode(leaf.definition)
        encoded = [each for each in (repetition, definition) if each is not None]
        if any(int(each.slices.size.max()) > LEVELS_MAX for each in encoded):
            return None
    parts = ChunkParts(
        num_levels,
        None if repetition is None else repetition.slices,
        None if definition is None else definition.slices,
        values.parts,
    )
    data, sizes = join_chunks(parts, has_large_chunks=has_large_chunks)
    if not has_large_chunks and int(sizes.max(initial=0)) > SMALL_CHUNK_BYTES_MAX:
        return None
    buffers = [
        build_chunk_table(sizes, values.counts, has_large_chunks=has_large_chunks),
        data,
    ]
    dictionary = chosen.dictionary
    if dictionary is not None:
        buffers.append(dictionary.block.data)
    if index is not None:
        buffers.append(index)
    layout = MiniBlockLayout(
        layers=leaf.layers,
        values=values.encoding,
        num_values=int(values.counts.sum()),
        num_buffers=len(values.parts),
        has_large_chunks=has_large_chunks,
        repetition=None if repetition is None else repetition.encoding,
        definition=None if definition is None else definition.encoding,
        dictionary=None if dictionary is None else dictionary.block.encoding,
        num_dictionary_items=0 if dictionary is None else dictionary.num_items,
        repetition_index_depth=0 if index is None else DEPTH,
    )
    slices = tuple(map(ByteSlices.whole, buffers))
    return Body([0], layout, slices, [chosen.description], [chosen.refused])


def encode_levels(levels: Levels, counts: Int64s, *, has_run_lengths: bool) -> EncodedBlocks:
    """Encode levels, `counts[i]` in block i, as runs or bit-packed, whichever is smaller."""
    block = FixedWidth(16, levels.view(np.uint8), len(levels))
    packed = OutOfLineBitpacking().encode_blocks(block, counts.copy())
    if has_run_lengths:
        num_changes = int(np.count_nonzero(levels[1:] != levels[:-1]))
        num_bytes = estimate_run_bytes(num_changes, len(levels), len(counts))
        if num_bytes <= int(packed.slices.size.sum()):
            return Rle().encode_blocks(block, counts)
    return packed


def estimate_run_bytes(num_changes: int, num_levels: int, num_blocks: int) -> int:
    """Estimate the bytes of run-length encoded levels."""
    return 3 * (1 + num_changes + num_levels // 255) + 8 * num_blocks


def _first_entries(leaf: ShreddedLeaf, counts: Int64s) -> Int64s:
    """Return the first entry of each chunk, followed by the number of entries."""
    edges = np.concatenate(([0], np.cumsum(counts)))
    if leaf.definition is not None and leaf.layers.visible_def_max < leaf.layers.def_max:
        visible = np.flatnonzero(leaf.definition <= leaf.layers.visible_def_max)
        # A chunk ends after its last value; entries without a value belong to the next chunk.
        edges[1:] = visible[edges[1:] - 1] + 1
    edges[-1] = leaf.num_entries
    return edges
