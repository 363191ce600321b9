"""Puts mini-block pages together from encoded values and levels.

A chunk has 2^k values, as the codec of the values has cut them; the levels follow that cut. An
entry without a value (a null or empty list) belongs to the chunk of the next value, and those
behind the last value to the last chunk:

    chunks of 2 values    first      second       last
    entries               v v        - - v v      v -

Pages that are encoded alike are put together at once, and have one layout, of which a message is
made once. Of several pages none is of lists.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

from lancelet.buffers import Bytes, Int64s
from lancelet.encodings.base import FileVersion, FixedWidth
from lancelet.encodings.choose import Dictionary, MiniBlocks
from lancelet.encodings.codecs.base import SMALL_CHUNK_BYTES_MAX, EncodedBlocks
from lancelet.encodings.codecs.out_of_line_bitpacking import OutOfLineBitpacking
from lancelet.encodings.codecs.rle import Rle
from lancelet.encodings.layout import Body, MiniBlockLayout
from lancelet.encodings.levels import Layers, Levels, ShreddedLeaf
from lancelet.encodings.miniblock.frame import LEVELS_MAX, ChunkParts, build_words, join_chunks
from lancelet.encodings.miniblock.repetition_index import DEPTH, build_repetition_index
from lancelet.encodings.pages import ChunkedPages, sum_of, take_slices
from lancelet.encodings.spans import expand
from lancelet.values import dataclass

_Page: TypeAlias = tuple[int, MiniBlockLayout | None, tuple[Bytes, ...]]
"""The place of a page, its layout, if one fits, and its buffers."""


def build_mini_blocks(
    leaves: Sequence[ShreddedLeaf], chosen: MiniBlocks, *, version: FileVersion
) -> Iterator[tuple[int, Body | None]]:
    """Yield the number of each page that was chosen, and its layout and buffers.

    The latter are `None` if a chunk would not fit its numbers, because too many entries have no
    value.
    """
    alike: dict[Layers, list[int]] = {}
    for place, page in enumerate(chosen.which.tolist()):
        alike.setdefault(leaves[page].layers, []).append(place)
    for places in alike.values():
        own = np.array(places)
        pages = [leaves[page] for page in chosen.which[own].tolist()]
        parts = _Parts.of(pages, chosen.chunks.take(own), version)
        for at, layout, buffers in parts.pages():
            place = places[at]
            page = int(chosen.which[place])
            if layout is None:
                yield page, None
                continue
            described = chosen.descriptions[place], chosen.refused[place]
            if chosen.dictionaries is None:
                yield page, Body(layout, buffers, *described)
            else:
                dictionary = chosen.dictionaries[place]
                yield page, Body(*_with_dictionary(layout, buffers, dictionary), *described)


def _with_dictionary(
    layout: MiniBlockLayout, buffers: tuple[Bytes, ...], dictionary: Dictionary
) -> tuple[MiniBlockLayout, tuple[Bytes, ...]]:
    words, data, *index = buffers
    own = replace(
        layout,
        dictionary=dictionary.block.encoding,
        num_dictionary_items=dictionary.num_items,
    )
    return own, (words, data, dictionary.block.data, *index)


class _EncodedLevels:
    """One kind of levels of pages, `counts[i]` of them in chunk i, in the smaller of two ways."""

    def __init__(
        self, levels: Levels, counts: Int64s, edges: Int64s, *, has_run_lengths: bool
    ) -> None:
        self._levels, self._counts, self._edges = levels, counts, edges
        self._packed = OutOfLineBitpacking().encode_blocks(_block(levels), counts.copy())
        self.has_runs: npt.NDArray[np.bool_] = np.zeros(len(edges) - 1, np.bool_)
        if has_run_lengths:
            # A run that goes on in the next page is one of that as well.
            changes = np.concatenate([[0, 0], np.cumsum(levels[1:] != levels[:-1])])
            first = self._first_levels()
            changed = changes[first[1:]] - changes[np.minimum(first[:-1] + 1, first[1:])]
            run_bytes = bytes_of_runs(changed, np.diff(first), np.diff(edges))
            self.has_runs = run_bytes <= sum_of([self._packed.slices.size], edges)

    def encode(self, pages: Int64s) -> EncodedBlocks:
        """Return the levels of some pages, all of which have runs or none."""
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
        found: Int64s = np.concatenate([np.zeros(1, np.int64), np.cumsum(self._counts)])
        return found[self._edges]


def encode_levels(levels: Levels, counts: Int64s, *, has_run_lengths: bool) -> EncodedBlocks:
    """Encode levels, `counts[i]` of them in block i, by the smaller of the two ways there are."""
    edges = np.array([0, len(counts)], np.int64)
    encoded = _EncodedLevels(levels, counts, edges, has_run_lengths=has_run_lengths)
    return encoded.encode(np.zeros(1, np.int64))


def bytes_of_runs(num_changes: Int64s, num_levels: Int64s, num_blocks: Int64s) -> Int64s:
    """Return about how many bytes levels take as runs, if so many differ from the one before."""
    return 3 * (1 + num_changes + num_levels // 255) + 8 * num_blocks


@dataclass(frozen=True, slots=True, eq=False)
class _Parts:
    """Pages that are encoded alike and have the same layers, in parts."""

    layers: Layers
    chunks: ChunkedPages
    num_levels: Int64s
    repetition: _EncodedLevels | None
    definition: _EncodedLevels | None
    index: Bytes | None
    version: FileVersion

    @staticmethod
    def of(leaves: Sequence[ShreddedLeaf], chunks: ChunkedPages, version: FileVersion) -> _Parts:
        """Encode the levels of pages."""
        first, counts = leaves[0], chunks.values.counts
        has_levels = first.repetition is not None or first.definition is not None
        num_levels, index = np.zeros_like(counts), None
        if has_levels:
            assert len(leaves) == 1 or first.repetition is None, "pages of lists come one by one"
            entries = _first_entries(first, counts) if len(leaves) == 1 else None
            num_levels = counts if entries is None else np.diff(entries)
            if first.repetition is not None and entries is not None:
                index = build_repetition_index(first.repetition, entries, first.layers.rep_max)

        def encoded(levels: Sequence[Levels | None]) -> _EncodedLevels | None:
            known = [each for each in levels if each is not None]
            if not known or int(num_levels.max()) > LEVELS_MAX:
                return None
            return _EncodedLevels(
                known[0] if len(known) == 1 else np.concatenate(known),
                num_levels,
                chunks.edges,
                has_run_lengths=version >= FileVersion.V2_2,
            )

        repetition = encoded([leaf.repetition for leaf in leaves])
        definition = encoded([leaf.definition for leaf in leaves])
        return _Parts(first.layers, chunks, num_levels, repetition, definition, index, version)

    def pages(self) -> Iterator[_Page]:
        """Yield pages by their place, those together whose levels are encoded in the same way."""
        if int(self.num_levels.max(initial=0)) > LEVELS_MAX:
            yield 0, None, ()
            return
        ways = np.zeros(len(self.chunks.edges) - 1, np.int64)
        for levels in (self.repetition, self.definition):
            ways = ways * 2 + (0 if levels is None else levels.has_runs)
        for way in np.unique(ways).tolist():
            yield from self._alike(np.flatnonzero(ways == way))

    def _alike(self, places: Int64s) -> Iterator[_Page]:
        own = self.chunks.take(places)
        values, edges = own.values, own.edges
        levels = [
            None if levels is None else levels.encode(places)
            for levels in (self.repetition, self.definition)
        ]
        repetition, definition = levels
        chunks = expand(self.chunks.edges[places], own.num_chunks)
        has_large_chunks = self.version >= FileVersion.V2_2
        if any(each is not None and int(each.slices.size.max()) > LEVELS_MAX for each in levels):
            assert len(places) == 1, "only pages of lists have so many levels in a chunk"
            yield 0, None, ()
            return
        parts = ChunkParts(
            self.num_levels[chunks],
            None if repetition is None else repetition.slices,
            None if definition is None else definition.slices,
            values.parts,
        )
        data, sizes = join_chunks(parts, has_large_chunks=has_large_chunks)
        words = build_words(
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
        is_too_large = not has_large_chunks and sizes > SMALL_CHUNK_BYTES_MAX
        word, ends = words.nbytes // len(sizes), np.concatenate([[0], np.cumsum(sizes)])[edges]
        index = () if self.index is None else (self.index,)
        for place, first, stop, start, end in zip(
            places.tolist(),
            *(edges[at].tolist() for at in (slice(-1), slice(1, None))),
            *(ends[at].tolist() for at in (slice(-1), slice(1, None))),
            strict=True,
        ):
            if is_too_large is not False and is_too_large[first:stop].any():
                yield place, None, ()
            else:
                buffers = (words[first * word : stop * word], data[start:end], *index)
                yield place, layout, buffers


def _block(levels: Levels) -> FixedWidth:
    return FixedWidth(16, levels.view(np.uint8), len(levels))


def _first_entries(leaf: ShreddedLeaf, counts: Int64s) -> Int64s:
    """Return the first entry of each chunk, and the number of entries behind."""
    edges = np.concatenate(([0], np.cumsum(counts)))
    if leaf.definition is not None and leaf.layers.visible_def_max < leaf.layers.def_max:
        visible = np.flatnonzero(leaf.definition <= leaf.layers.visible_def_max)
        # A chunk ends right behind its last value, so what has no value goes with what follows.
        edges[1:] = visible[edges[1:] - 1] + 1
    edges[-1] = leaf.num_entries
    return edges
