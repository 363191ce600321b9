"""Pages of columns that are alike: their values lie behind one another, and are encoded at once.

    a, b, c: int64, 1000 values each     one block of 3000 values, 3 pages of 1000
    b alone                              one block of 1000 values, 1 page

A page is a batch of one. Of several pages values are numbers, or strings, and nothing else; each
page comes out as it would alone, since whatever is found out is found out page by page.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from lancelet import kernels
from lancelet.buffers import Int64s, Slices
from lancelet.encodings.base import Block, Fields, FixedSizeList, FixedWidth, Variable
from lancelet.encodings.codecs.base import ChunkedValues
from lancelet.encodings.leaf import slice_block
from lancelet.encodings.spans import expand
from lancelet.values import cached_property, dataclass


@dataclass(frozen=True, eq=False)
class Pages:
    """The values of `count` pages of `rows` values each, back to back."""

    block: Block
    rows: int
    count: int

    @staticmethod
    def one(block: Block) -> Pages:
        """Return a block as the values of a single page."""
        return Pages(block, block.count, 1)

    @property
    def every(self) -> Int64s:
        """The numbers of all pages."""
        return np.arange(self.count)

    @cached_property
    def raw_bytes(self) -> Int64s:
        """The bytes of the values of each page in memory."""
        if self.count == 1:
            return np.array([raw_bytes(self.block)], np.int64)
        if isinstance(self.block, Variable):
            ends = self.block.offsets[:: self.rows].astype(np.int64)
            found: Int64s = ends[1:] - ends[:-1] + self.rows * self.block.offsets.itemsize
            return found
        assert isinstance(self.block, FixedWidth)
        return np.full(self.count, (self.rows * self.block.bits + 7) // 8)

    @cached_property
    def repeats(self) -> tuple[Int64s, Int64s]:
        """How many runs of equal values each page has, and how many different values."""
        block, rows = self.block, max(self.rows, 1)
        if isinstance(block, Variable):
            return kernels.survey_strings(block.offsets, block.data, rows, rows)
        assert isinstance(block, FixedWidth)
        if block.bits == 1:
            bits = np.unpackbits(block.data, bitorder="little", count=block.count)
            return kernels.survey_words(bits, 1, rows, rows)
        return kernels.survey_words(block.data, block.bits // 8, rows, rows)

    def ends_are_equal(self) -> npt.NDArray[np.bool_]:
        """Return which pages may have one value all over: their first and last are alike."""
        block, rows = self.block, self.rows
        found: npt.NDArray[np.bool_]
        if isinstance(block, Variable):
            first = np.arange(0, self.count * rows, rows)
            last = first + rows - 1
            ends = block.offsets
            size = ends[first + 1] - ends[first]
            found = size == ends[last + 1] - ends[last]
            if len(block.data):
                found &= (size == 0) | (
                    block.data[ends[first + 1] - 1] == block.data[ends[last + 1] - 1]
                )
            return found
        assert isinstance(block, FixedWidth)
        if block.bits == 1:
            return np.ones(self.count, np.bool_)
        values = block.data.reshape(self.count, rows, -1)
        found = (values[:, 0] == values[:, -1]).all(axis=1)
        return found

    def page(self, place: int) -> Block:
        """Return the values of one page."""
        if self.count == 1:
            return self.block
        return slice_block(self.block, place * self.rows, (place + 1) * self.rows)

    def take(self, which: Int64s) -> Pages:
        """Return some of the pages, in ascending order."""
        if len(which) == self.count:
            return self
        if len(which) == 1:
            return Pages.one(self.page(int(which[0])))
        return Pages(self._rows_of(which, [(0, self.rows)]), self.rows, len(which))

    def parts(self, spans: list[tuple[int, int]]) -> Pages:
        """Return the same few spans of values of every page."""
        rows = sum(stop - start for start, stop in spans)
        return Pages(self._rows_of(self.every, spans), rows, self.count)

    def _rows_of(self, which: Int64s, spans: list[tuple[int, int]]) -> Block:
        block, rows = self.block, self.rows
        if isinstance(block, Variable):
            first = np.array([start for start, _ in spans])
            starts = (which[:, None] * rows + first).reshape(-1)
            sizes = np.tile(np.array([stop - start for start, stop in spans]), len(which))
            return Variable(
                *kernels.take_variable(block.offsets, block.data, expand(starts, sizes))
            )
        assert isinstance(block, FixedWidth)
        if block.bits == 1:
            bits = np.unpackbits(block.data, bitorder="little", count=block.count)
            data = np.packbits(_spans(bits.reshape(-1, rows)[which], spans, 1), bitorder="little")
        else:
            width = block.bits // 8
            pages = block.data[: block.count * width].reshape(self.count, -1)
            data = _spans(pages if len(which) == self.count else pages[which], spans, width)
        return FixedWidth(block.bits, data, len(which) * sum(stop - start for start, stop in spans))


@dataclass(frozen=True, slots=True, eq=False)
class ChunkedPages:
    """Encoded values of pages: those of page i are the chunks `edges[i]` up to `edges[i + 1]`."""

    values: ChunkedValues
    edges: Int64s

    @staticmethod
    def of(values: ChunkedValues, pages: Pages) -> ChunkedPages:
        """Tell apart the chunks of pages."""
        if pages.count == 1:
            return ChunkedPages(values, np.array([0, len(values.counts)], np.int64))
        ends = np.arange(pages.count + 1) * pages.rows
        found = values.counts.cumsum().searchsorted(ends)
        return ChunkedPages(values, found + (np.arange(len(found)) > 0))

    @property
    def num_chunks(self) -> Int64s:
        """How many chunks each page has."""
        return self.edges[1:] - self.edges[:-1]

    @property
    def encoded_bytes(self) -> Int64s:
        """The bytes of all buffers of each page, without padding and headers."""
        return sum_of([part.size for part in self.values.parts], self.edges)

    def take(self, which: Int64s) -> ChunkedPages:
        """Return some of the pages, without the chunks of others."""
        if len(which) == len(self.edges) - 1:
            return self
        count = self.num_chunks[which]
        chunks = expand(self.edges[which], count)
        values = ChunkedValues(
            self.values.encoding,
            tuple(take_slices(part, chunks) for part in self.values.parts),
            self.values.counts[chunks],
        )
        return ChunkedPages(values, np.concatenate([[0], count.cumsum()]))


def sum_of(sizes: list[Int64s], edges: Int64s) -> Int64s:
    """Return the sums of sizes between edges.

    >>> sum_of([np.array([1, 2, 3])], np.array([0, 2, 3])).tolist()
    [3, 3]
    """
    if len(edges) == 2:
        return np.array([sum(int(each[edges[0] : edges[1]].sum()) for each in sizes)], np.int64)
    ends = np.concatenate([[0], sum(sizes[1:], sizes[0]).cumsum()])[edges]
    found: Int64s = ends[1:] - ends[:-1]
    return found


def take_slices(slices: Slices, which: Int64s) -> Slices:
    """Return some of the slices."""
    return Slices(slices.source, slices.position[which], slices.size[which])


def raw_bytes(block: Block) -> int:
    """Return the bytes of a block in memory.

    >>> raw_bytes(FixedWidth(16, np.zeros(6, np.uint8), 3))
    6
    """
    match block:
        case FixedWidth():
            return (block.count * block.bits + 7) // 8
        case Variable():
            size = int(block.offsets[-1]) - int(block.offsets[0])
            return size + block.count * block.offsets.itemsize
        case FixedSizeList():
            bits = 0 if block.validity is None else (block.count * block.dimension + 7) // 8
            return bits + raw_bytes(block.items)
        case Fields():
            return sum(raw_bytes(child) for child in block.children)


def _spans(
    rows: npt.NDArray[np.uint8], spans: list[tuple[int, int]], width: int
) -> npt.NDArray[np.uint8]:
    parts = [rows[:, start * width : stop * width] for start, stop in spans]
    return (np.concatenate(parts, axis=1) if len(parts) > 1 else parts[0]).reshape(-1)
