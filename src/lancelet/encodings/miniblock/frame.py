"""The frame of mini-block pages: the chunk table, and the parts of a chunk.

The first buffer of a page is the chunk table, with one entry per chunk: its size in units of 8
bytes, minus one, shifted by 4, and the binary logarithm of its number of values. The last chunk has
the remaining values of the page. Entries have 2 bytes in version 2.1 and 4 bytes later.

    entries 0x000a 0x0050     chunk 0: 8 bytes, 1024 values;  chunk 1: 48 bytes, the rest

A chunk starts with a header of sizes: the number of levels, the bytes of repetition and definition
(if present), the bytes of each buffer. Header, levels and buffers are each padded to 8 bytes.

    04 00 | 08 00 | 20 00 00 00     4 levels; 8 bytes of definition; 32 bytes of values
    01 00 01 00 02 00 00 00         definition
    ...                             values

All chunks of a range are split, or assembled, with a few array operations.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate, pairwise

import numpy as np

from lancelet import kernels
from lancelet.buffers import Bytes, ByteSlices, Int64s
from lancelet.values import dataclass

ALIGNMENT = 8
PAD_BYTE = 0xFE
LEVELS_MAX = (1 << 16) - 1
"""Maximum number of levels per chunk, and of bytes of one kind of level: both have 16 bits."""


@dataclass(frozen=True, slots=True)
class FrameShape:
    """The parts of the chunks of a page."""

    has_repetition: bool
    has_definition: bool
    num_buffers: int
    has_large_chunks: bool

    @property
    def size_bytes(self) -> int:
        """Return the bytes of a buffer size in the chunk header."""
        return 4 if self.has_large_chunks else 2

    @property
    def head_bytes(self) -> int:
        """Return the bytes of the chunk header, without padding."""
        levels = 2 * (1 + self.has_repetition + self.has_definition)
        return levels + self.size_bytes * self.num_buffers


@dataclass(frozen=True, slots=True, eq=False)
class ChunkParts:
    """Chunks split into parts, one column per part. Levels are `None` if the page has none."""

    num_levels: Int64s
    repetition: ByteSlices | None
    definition: ByteSlices | None
    buffers: tuple[ByteSlices, ...]


def build_chunk_table(chunk_bytes: Int64s, counts: Int64s, *, has_large_chunks: bool) -> Bytes:
    """Build the chunk table: the inverse of `kernels.locate_chunks`."""
    logarithms = np.log2(np.maximum(counts, 1)).astype(np.int64)
    logarithms[-1] = 0
    entries = ((chunk_bytes // ALIGNMENT - 1) << 4) | logarithms
    return entries.astype("<u4" if has_large_chunks else "<u2").view(np.uint8)


def split_chunks(chunks: ByteSlices, shape: FrameShape) -> ChunkParts:
    """Split chunks into parts, validating that every part is within its chunk."""
    levels = 1 + shape.has_repetition + shape.has_definition
    columns = kernels.split_chunks(chunks, levels, shape.num_buffers, shape.size_bytes)
    if len(columns) == 3 and shape.num_buffers:
        # Fast path for reads of single values of flat columns.
        return ChunkParts(columns[0], None, None, (ByteSlices(chunks.source, *columns[1:]),))
    parts = [
        ByteSlices(chunks.source, columns[column], columns[column + 1])
        for column in range(1, len(columns), 2)
    ]
    repetition = parts.pop(0) if shape.has_repetition else None
    definition = parts.pop(0) if shape.has_definition else None
    return ChunkParts(columns[0], repetition, definition, tuple(parts))


def join_chunks(parts: ChunkParts, *, has_large_chunks: bool) -> tuple[Bytes, Int64s]:
    """Assemble chunks: the inverse of `split_chunks`. Returns their bytes and sizes."""
    levels = [part for part in (parts.repetition, parts.definition) if part is not None]
    columns = [*levels, *parts.buffers]
    shape = FrameShape(
        parts.repetition is not None,
        parts.definition is not None,
        len(parts.buffers),
        has_large_chunks,
    )
    heads = np.empty((len(parts.num_levels), shape.head_bytes), np.uint8)
    numbers = [parts.num_levels, *(column.size for column in columns)]
    edges = list(accumulate(_widths(shape), initial=0))
    for (start, stop), number in zip(pairwise(edges), numbers, strict=True):
        encoded = number.astype(f"<u{stop - start}")
        heads[:, start:stop] = encoded.view(np.uint8).reshape(-1, stop - start)
    chunk_bytes = np.full(len(heads), padded(shape.head_bytes))
    for column in columns:
        chunk_bytes += padded_each(column.size)
    position = chunk_bytes.cumsum() - chunk_bytes
    total, part_position = int(chunk_bytes.sum()), position + padded(shape.head_bytes)
    if not columns:
        columns = [
            ByteSlices(np.empty(0, np.uint8), np.zeros_like(position), np.zeros_like(position))
        ]
    # The first part is written with gaps, into which the other parts are copied.
    first, *others = columns
    out = kernels.scatter_slices(first, part_position, total, PAD_BYTE)
    out[position[:, None] + np.arange(shape.head_bytes)] = heads
    for before, column in zip(columns, others, strict=False):
        part_position = part_position + padded_each(before.size)
        kernels.copy_slices(column, out, part_position)
    return out, chunk_bytes


def padded(size: int) -> int:
    """Return a size including padding."""
    return -(-size // ALIGNMENT) * ALIGNMENT


def padded_each(size: Int64s) -> Int64s:
    """Return sizes including padding."""
    return -(-size // ALIGNMENT) * ALIGNMENT


def _widths(shape: FrameShape) -> Sequence[int]:
    """Return the bytes of each number in the chunk header."""
    levels = [2] * (1 + shape.has_repetition + shape.has_definition)
    return [*levels, *[shape.size_bytes] * shape.num_buffers]
