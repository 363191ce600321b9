"""Puts mini-block pages together from encoded values and levels.

A chunk has 2^k values, as the codec of the values has cut them; the levels follow that cut. An
entry without a value (a null or empty list) belongs to the chunk of the next value, and those
behind the last value to the last chunk:

    chunks of 2 values    first      second       last
    entries               v v        - - v v      v -
"""

from __future__ import annotations

from dataclasses import replace
from typing import TypeVar

import numpy as np

from lancelet.buffers import Int64s
from lancelet.encodings.base import FileVersion, FixedWidth
from lancelet.encodings.choose import MiniBlock
from lancelet.encodings.codecs.base import SMALL_CHUNK_BYTES_MAX, EncodedBlocks
from lancelet.encodings.codecs.out_of_line_bitpacking import OutOfLineBitpacking
from lancelet.encodings.codecs.rle import Rle
from lancelet.encodings.layout import Body, MiniBlockLayout
from lancelet.encodings.levels import Levels, ShreddedLeaf
from lancelet.encodings.miniblock.frame import LEVELS_MAX, ChunkParts, build_words, join_chunks
from lancelet.encodings.miniblock.repetition_index import DEPTH, build_repetition_index

Number = TypeVar("Number", int, Int64s)


def build_mini_block(leaf: ShreddedLeaf, chosen: MiniBlock, *, version: FileVersion) -> Body | None:
    """Return the layout and the buffers of a page.

    Returns `None` if a chunk would not fit its numbers, because too many entries have no value.
    """
    has_large_chunks = has_run_lengths = version >= FileVersion.V2_2
    values, dictionary = chosen.values, chosen.dictionary
    layout = MiniBlockLayout(
        layers=leaf.layers,
        values=values.encoding,
        num_values=int(values.counts.sum()),
        num_buffers=len(values.parts),
        has_large_chunks=has_large_chunks,
        num_dictionary_items=chosen.num_dictionary_items,
    )
    first_entry = _first_entries(leaf, values.counts)
    num_levels = np.diff(first_entry)
    has_levels = leaf.repetition is not None or leaf.definition is not None
    if has_levels and int(num_levels.max()) > LEVELS_MAX:
        return None
    repetition = _encode(leaf.repetition, num_levels, has_run_lengths=has_run_lengths)
    definition = _encode(leaf.definition, num_levels, has_run_lengths=has_run_lengths)
    if any(
        levels is not None and int(levels.slices.size.max()) > LEVELS_MAX
        for levels in (repetition, definition)
    ):
        return None
    parts = ChunkParts(
        num_levels if has_levels else np.zeros_like(num_levels),
        None if repetition is None else repetition.slices,
        None if definition is None else definition.slices,
        values.parts,
    )
    data, chunk_bytes = join_chunks(parts, has_large_chunks=has_large_chunks)
    if not has_large_chunks and int(chunk_bytes.max()) > SMALL_CHUNK_BYTES_MAX:
        return None
    words = build_words(chunk_bytes, values.counts, has_large_chunks=has_large_chunks)
    buffers = [words, data]
    if dictionary is not None:
        buffers.append(dictionary.data)
        layout = replace(layout, dictionary=dictionary.encoding)
    if leaf.repetition is not None:
        buffers.append(build_repetition_index(leaf.repetition, first_entry, leaf.layers.rep_max))
        layout = replace(layout, repetition_index_depth=DEPTH)
    layout = replace(
        layout,
        repetition=None if repetition is None else repetition.encoding,
        definition=None if definition is None else definition.encoding,
    )
    return Body(layout, tuple(buffers), chosen.description, chosen.refused)


def encode_levels(levels: Levels, counts: Int64s, *, has_run_lengths: bool) -> EncodedBlocks:
    """Encode levels, `counts[i]` of them in block i, by the smaller of the two ways there are."""
    block = FixedWidth(16, levels.view(np.uint8), len(levels))
    packed = OutOfLineBitpacking().encode_blocks(block, counts)
    num_changes = int(np.count_nonzero(levels[1:] != levels[:-1]))
    run_bytes = bytes_of_runs(num_changes, len(levels), len(counts))
    if not has_run_lengths or run_bytes > int(packed.slices.size.sum()):
        return packed
    return Rle().encode_blocks(block, counts)


def bytes_of_runs(num_changes: Number, num_levels: int, num_blocks: Number) -> Number:
    """Return about how many bytes levels take as runs, if so many differ from the one before."""
    return 3 * (1 + num_changes + num_levels // 255) + 8 * num_blocks


def _encode(
    levels: Levels | None, counts: Int64s, *, has_run_lengths: bool
) -> EncodedBlocks | None:
    if levels is None:
        return None
    return encode_levels(levels, counts, has_run_lengths=has_run_lengths)


def _first_entries(leaf: ShreddedLeaf, counts: Int64s) -> Int64s:
    """Return the first entry of each chunk, and the number of entries behind."""
    edges = np.concatenate(([0], np.cumsum(counts)))
    if leaf.definition is not None and leaf.layers.visible_def_max < leaf.layers.def_max:
        visible = np.flatnonzero(leaf.definition <= leaf.layers.visible_def_max)
        # A chunk ends right behind its last value, so what has no value goes with what follows.
        edges[1:] = visible[edges[1:] - 1] + 1
    edges[-1] = leaf.num_entries
    return edges
