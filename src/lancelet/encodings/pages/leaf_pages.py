"""Pages of compatible columns, concatenated so that they can be encoded together.

    a, b, c: int64, 1000 values each     one block of 3000 values, 3 pages of 1000
    b alone                              one block of 1000 values, 1 page

A single page is a batch of one. Batches of several pages contain only numbers or strings. Each page
is encoded as it would be alone, since all decisions are made per page.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from lancelet import kernels
from lancelet.buffers import ByteSlices, Int64s
from lancelet.encodings.base import Block, Fields, FixedSizeList, FixedWidth, Variable
from lancelet.encodings.codecs.base import ChunkedValues
from lancelet.encodings.pages.leaf import slice_block
from lancelet.encodings.row_ranges import expand
from lancelet.values import cached_property, dataclass


@dataclass(frozen=True, eq=False)
class Pages:
    """The values of `count` pages of `rows` values each, contiguous."""

    block: Block
    rows: int
    count: int

    @staticmethod
    def single(block: Block) -> Pages:
        """Return a block as the values of a single page."""
        return Pages(block, block.count, 1)

    @property
    def indices(self) -> Int64s:
        """The indices of all pages."""
        return np.arange(self.count)

    @cached_property
    def raw_bytes(self) -> Int64s:
        """The bytes of the values of each page in memory."""
        if self.count == 1:
            return np.array([raw_bytes(self.block)], np.int64)
        if isinstance(self.block, Variable):
            ends = self.block.offsets[:: self.rows].astype(np.int64)
            sizes: Int64s = ends[1:] - ends[:-1] + self.rows * self.block.offsets.itemsize
            return sizes
        assert isinstance(self.block, FixedWidth)
        return np.full(self.count, (self.rows * self.block.bits + 7) // 8)

    @cached_property
    def runs_and_distinct(self) -> tuple[Int64s, Int64s]:
        """The number of runs of equal values and of distinct values of each page."""
        block, rows = self.block, max(self.rows, 1)
        if isinstance(block, Variable):
            return kernels.count_distinct_strings(block.offsets, block.data, rows, rows)
        assert isinstance(block, FixedWidth)
        if block.bits == 1:
            bits = np.unpackbits(block.data, bitorder="little", count=block.count)
            return kernels.count_distinct_fixed(bits, 1, rows, rows)
        return kernels.count_distinct_fixed(block.data, block.bits // 8, rows, rows)

    def ends_are_equal(self) -> npt.NDArray[np.bool_]:
        """Return a mask of the pages whose first and last values may be equal."""
        block, rows = self.block, self.rows
        is_equal: npt.NDArray[np.bool_]
        if isinstance(block, Variable):
            first = np.arange(0, self.count * rows, rows)
            last = first + rows - 1
            ends = block.offsets
            size = ends[first + 1] - ends[first]
            is_equal = size == ends[last + 1] - ends[last]
            if len(block.data):
                is_equal &= (size == 0) | (
                    block.data[ends[first + 1] - 1] == block.data[ends[last + 1] - 1]
                )
            return is_equal
        assert isinstance(block, FixedWidth)
        if block.bits == 1:
            return np.ones(self.count, np.bool_)
        values = block.data.reshape(self.count, rows, -1)
        is_equal = (values[:, 0] == values[:, -1]).all(axis=1)
        return is_equal

    def page(self, index: int) -> Block:
        """Return the values of one page."""
        if self.count == 1:
            return self.block
        return slice_block(self.block, index * self.rows, (index + 1) * self.rows)

    def take(self, page_indices: Int64s) -> Pages:
        """Return a subset of the pages, in ascending order."""
        if len(page_indices) == self.count:
            return self
        if len(page_indices) == 1:
            return Pages.single(self.page(int(page_indices[0])))
        return Pages(self._take_rows(page_indices, [(0, self.rows)]), self.rows, len(page_indices))

    def slices(self, ranges: list[tuple[int, int]]) -> Pages:
        """Return the same few ranges of values from every page."""
        rows = sum(stop - start for start, stop in ranges)
        return Pages(self._take_rows(self.indices, ranges), rows, self.count)

    def _take_rows(self, page_indices: Int64s, ranges: list[tuple[int, int]]) -> Block:
        block, rows = self.block, self.rows
        if isinstance(block, Variable):
            first = np.array([start for start, _ in ranges])
            starts = (page_indices[:, None] * rows + first).reshape(-1)
            sizes = np.tile(np.array([stop - start for start, stop in ranges]), len(page_indices))
            return Variable(
                *kernels.take_variable(block.offsets, block.data, expand(starts, sizes))
            )
        assert isinstance(block, FixedWidth)
        if block.bits == 1:
            bits = np.unpackbits(block.data, bitorder="little", count=block.count)
            data = np.packbits(
                _take_ranges(bits.reshape(-1, rows)[page_indices], ranges, 1), bitorder="little"
            )
        else:
            width = block.bits // 8
            pages = block.data[: block.count * width].reshape(self.count, -1)
            data = _take_ranges(
                pages if len(page_indices) == self.count else pages[page_indices], ranges, width
            )
        return FixedWidth(
            block.bits, data, len(page_indices) * sum(stop - start for start, stop in ranges)
        )


@dataclass(frozen=True, slots=True, eq=False)
class ChunkedPages:
    """Encoded values of pages; page i has the chunks from `edges[i]` to `edges[i + 1]`."""

    values: ChunkedValues
    edges: Int64s

    @staticmethod
    def of(values: ChunkedValues, pages: Pages) -> ChunkedPages:
        """Assign the chunks to pages."""
        if pages.count == 1:
            return ChunkedPages(values, np.array([0, len(values.counts)], np.int64))
        ends = np.arange(pages.count + 1) * pages.rows
        edges = values.counts.cumsum().searchsorted(ends)
        return ChunkedPages(values, edges + (np.arange(len(edges)) > 0))

    @property
    def num_chunks(self) -> Int64s:
        """The number of chunks of each page."""
        return self.edges[1:] - self.edges[:-1]

    @property
    def encoded_bytes(self) -> Int64s:
        """The bytes of all buffers of each page, without padding and headers."""
        return sum_by_page([part.size for part in self.values.parts], self.edges)

    def take(self, page_indices: Int64s) -> ChunkedPages:
        """Return a subset of the pages, without the chunks of other pages."""
        if len(page_indices) == len(self.edges) - 1:
            return self
        count = self.num_chunks[page_indices]
        chunks = expand(self.edges[page_indices], count)
        values = ChunkedValues(
            self.values.encoding,
            tuple(take_slices(part, chunks) for part in self.values.parts),
            self.values.counts[chunks],
        )
        return ChunkedPages(values, np.concatenate([[0], count.cumsum()]))


def sum_by_page(sizes: list[Int64s], edges: Int64s) -> Int64s:
    """Return the sums of sizes between consecutive edges.

    >>> sum_by_page([np.array([1, 2, 3])], np.array([0, 2, 3])).tolist()
    [3, 3]
    """
    if len(edges) == 2:
        return np.array([sum(int(size[edges[0] : edges[1]].sum()) for size in sizes)], np.int64)
    ends = np.concatenate([[0], sum(sizes[1:], sizes[0]).cumsum()])[edges]
    sums: Int64s = ends[1:] - ends[:-1]
    return sums


def take_slices(slices: ByteSlices, indices: Int64s) -> ByteSlices:
    """Return a subset of the slices."""
    return ByteSlices(slices.source, slices.position[indices], slices.size[indices])


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


def _take_ranges(
    rows: npt.NDArray[np.uint8], ranges: list[tuple[int, int]], width: int
) -> npt.NDArray[np.uint8]:
    parts = [rows[:, start * width : stop * width] for start, stop in ranges]
    return (np.concatenate(parts, axis=1) if len(parts) > 1 else parts[0]).reshape(-1)
