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
from functools import partial
from typing import TypeAlias, TypeVar

import numpy as np
import numpy.typing as npt

from lancelet.buffers import Bytes, Int64s, Slices
from lancelet.encodings.base import FileVersion, FixedWidth
from lancelet.encodings.choose import Dictionary, MiniBlocks
from lancelet.encodings.codecs.base import SMALL_CHUNK_BYTES_MAX, EncodedBlocks
from lancelet.encodings.codecs.cut import slices_of
from lancelet.encodings.codecs.out_of_line_bitpacking import OutOfLineBitpacking
from lancelet.encodings.codecs.rle import Rle
from lancelet.encodings.layout import Body, MiniBlockLayout
from lancelet.encodings.levels import Layers, Levels, ShreddedLeaf
from lancelet.encodings.miniblock.frame import LEVELS_MAX, ChunkParts, build_words, join_chunks
from lancelet.encodings.miniblock.repetition_index import DEPTH, build_repetition_index
from lancelet.encodings.pages import ChunkedPages, sum_of, take_slices
from lancelet.encodings.spans import expand
from lancelet.values import dataclass, replace

T = TypeVar("T")

_Pages: TypeAlias = tuple[Int64s, MiniBlockLayout | None, tuple[Slices, ...]]
"""The places of pages, their layout, if one fits, and their buffers."""


def build_mini_blocks(
    leaf: ShreddedLeaf, count: int, chosen: MiniBlocks, *, version: FileVersion
) -> Iterator[tuple[Sequence[int], Body | None]]:
    """Yield the pages that were chosen, those with one layout together, and their buffers.

    `leaf` has the values and levels of all `count` pages of the batch. The bodies are `None` of
    pages in which a chunk would not fit its numbers, because too many entries have no value.
    """
    for places, layout, buffers in _Parts.of(leaf, count, chosen, version).pages():
        if layout is None:
            yield chosen.which[places].tolist(), None
        elif chosen.dictionaries is None:
            yield _body(chosen, places, layout, buffers)
        else:
            words, data, *index = buffers
            for own, with_items, items in _with_dictionaries(layout, chosen.dictionaries, places):
                parts = (take_slices(words, own), take_slices(data, own), items, *index)
                yield _body(chosen, places[own], with_items, parts)


def _body(
    chosen: MiniBlocks, places: Int64s, layout: MiniBlockLayout, buffers: tuple[Slices, ...]
) -> tuple[Sequence[int], Body]:
    which = chosen.which[places].tolist()
    described = _those(chosen.descriptions, places), _those(chosen.refused, places)
    return which, Body(which, layout, buffers, *described)


def _with_dictionaries(
    layout: MiniBlockLayout, dictionaries: Sequence[Dictionary], places: Int64s
) -> Iterator[tuple[Int64s, MiniBlockLayout, Slices]]:
    """Yield pages whose dictionaries have as many items, encoded alike: their items behind them."""
    alike: dict[tuple[int, bytes], list[int]] = {}
    for at, place in enumerate(places.tolist()):
        own = dictionaries[place]
        key = own.num_items, own.block.encoding.SerializeToString()
        alike.setdefault(key, []).append(at)
    for (num_items, _), which in alike.items():
        blocks = [dictionaries[place].block for place in places[which].tolist()]
        with_items = replace(layout, dictionary=blocks[0].encoding, num_dictionary_items=num_items)
        items = [block.data for block in blocks]
        sizes = np.array([len(data) for data in items], np.int64)
        joined = items[0] if len(items) == 1 else np.concatenate(items)
        yield np.array(which), with_items, slices_of(sizes, joined)


def _those(of_pages: Sequence[T], places: Int64s) -> Sequence[T]:
    if len(places) == len(of_pages):
        return of_pages
    return [of_pages[place] for place in places.tolist()]


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
            assert count == 1 or leaf.repetition is None, "pages of lists come one by one"
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
                    definition = encode(_levels_of(leaf.definition, count, chosen.which))
        return _Parts(leaf.layers, chunks, num_levels, repetition, definition, index, version)

    def pages(self) -> Iterator[_Pages]:
        """Yield pages by their places, those together whose levels are encoded in the same way."""
        every = np.arange(len(self.chunks.edges) - 1)
        if self.num_levels is None:
            yield from self._alike(every)
            return
        if int(self.num_levels.max()) > LEVELS_MAX:
            yield every, None, ()
            return
        ways = np.zeros(len(every), np.int64)
        for levels in (self.repetition, self.definition):
            ways = ways * 2 + (0 if levels is None else levels.has_runs)
        for way in sorted(set(ways.tolist())):
            yield from self._alike((ways == way).nonzero()[0])

    def _alike(self, places: Int64s) -> Iterator[_Pages]:
        own = self.chunks.take(places)
        values, edges = own.values, own.edges
        levels = [
            None if levels is None else levels.encode(places)
            for levels in (self.repetition, self.definition)
        ]
        if any(each is not None and int(each.slices.size.max()) > LEVELS_MAX for each in levels):
            assert len(places) == 1, "only pages of lists have so many levels in a chunk"
            yield places, None, ()
            return
        repetition, definition = levels
        has_large_chunks = self.version >= FileVersion.V2_2
        num_levels = np.zeros(len(values.counts), np.int64)
        if self.num_levels is not None:
            num_levels = self.num_levels[expand(self.chunks.edges[places], own.num_chunks)]
        parts = ChunkParts(
            num_levels,
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
        word, ends = words.nbytes // len(sizes), np.concatenate([[0], sizes.cumsum()])[edges]
        buffers = [
            Slices(source, bounds[:-1], bounds[1:] - bounds[:-1])
            for source, bounds in ((words, edges * word), (data, ends))
        ]
        if self.index is not None:
            buffers.append(Slices.whole(self.index))
        if has_large_chunks or not (sizes > SMALL_CHUNK_BYTES_MAX).any():
            yield places, layout, tuple(buffers)
            return
        is_too_large = np.maximum.reduceat(sizes, edges[:-1]) > SMALL_CHUNK_BYTES_MAX
        yield places[is_too_large], None, ()
        fit = np.flatnonzero(~is_too_large)
        if len(fit):
            yield places[fit], layout, tuple(take_slices(each, fit) for each in buffers)


def _levels_of(levels: Levels, count: int, which: Int64s) -> Levels:
    """Return the levels of some of `count` pages that have as many."""
    return levels if len(which) == count else levels.reshape(count, -1)[which].reshape(-1)


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
