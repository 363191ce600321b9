"""Chunk tables and chunk headers of mini-block pages.

The chunk table of a page has an entry per chunk: its size in units of 8 bytes, minus one, shifted
by 4, and log2 of its number of values. The last chunk has the remaining values of the page.

    entries 0x000a 0x0050     chunk 0: 8 bytes, 1024 values;  chunk 1: 48 bytes, the rest

A chunk starts with a header: the number of levels, the size of each kind of level, and the size of
each buffer. Header, levels and buffers are padded to 8 bytes.
"""

from __future__ import annotations

from typing import Final

import numpy as np

from lancelet.buffers import ByteSlices, Int64s
from lancelet.kernels.arguments import check_slices
from lancelet.kernels.faults import Fault, corrupt

_ALIGNMENT: Final = 8


def locate_rows(bounds: Int64s, rows: Int64s) -> tuple[Int64s, Int64s, Int64s]:
    """Find the parts of ascending rows, where part i has rows `bounds[i]` to `bounds[i+1]`.

    Returns the parts with any row, and for each row the index among these parts and the offset in
    its part. Rows may repeat and must be within the bounds.

    >>> [x.tolist() for x in locate_rows(np.array([0, 4, 4, 9]), np.array([1, 3, 5]))]
    [[0, 2], [0, 0, 1], [1, 3, 1]]
    """
    if len(rows):
        bad = np.ones(len(rows), np.bool_)
        if len(bounds) > 1:
            bad = (rows < bounds[0]) | (rows >= bounds[-1])
            bad[1:] |= rows[1:] < rows[:-1]
        if bad.any():
            raise corrupt(Fault.BAD_INDEX, kernel="locate_rows", index=int(bad.argmax()))
    part = np.searchsorted(bounds, rows, side="right") - 1
    parts, part_indices = np.unique(part, return_inverse=True)
    return parts, part_indices.astype(np.int64), rows - bounds[part]


def locate_chunks(
    tables: ByteSlices,
    entry_bytes: int,
    num_values: Int64s,
    data_position: Int64s,
    data_bytes: Int64s,
    *,
    count_max: int,
) -> tuple[Int64s, Int64s, Int64s]:
    """Read chunk tables: position, size and number of values of each chunk of each page.

    Page i has `num_values[i]` values in consecutive chunks from `data_position[i]` on, with
    `data_bytes[i]` in total.

    >>> words = ByteSlices.whole(np.array([0x0A, 0x50], "<u2").view(np.uint8))
    >>> one = [np.array([number]) for number in (1030, 100, 56)]
    >>> [x.tolist() for x in locate_chunks(words, 2, *one, count_max=4096)]
    [[100, 108], [8, 48], [1024, 6]]
    """
    kernel = "locate_chunks"
    if entry_bytes not in (2, 4):
        raise corrupt(Fault.BAD_WIDTH, kernel=kernel, index=0)
    empty = np.empty(0, np.int64)
    columns: tuple[list[Int64s], ...] = ([empty], [empty], [empty])
    for page in range(len(tables)):
        check_slices(tables[page : page + 1], kernel=kernel)
        data = tables.slice_bytes(page)
        if len(data) % entry_bytes:
            raise corrupt(Fault.TOO_SHORT, kernel=kernel, index=page)
        entry = np.frombuffer(data.tobytes(), f"<u{entry_bytes}").astype(np.int64)
        size = ((entry >> 4) + 1) * _ALIGNMENT
        count = 1 << (entry & 15)
        rest = int(num_values[page]) - int(count[:-1].sum())
        if len(entry):
            count[-1] = rest
        if bool((count <= 0).any() or (count > count_max).any()) or (not len(entry) and rest):
            raise corrupt(Fault.BAD_COUNT, kernel=kernel, index=page)
        if int(size.sum()) > data_bytes[page]:
            raise corrupt(Fault.TOO_SHORT, kernel=kernel, index=page)
        position = data_position[page] + np.cumsum(size) - size
        for column, values in zip(columns, (position, size, count), strict=True):
            column.append(values)
    position, size, count = (np.concatenate(column) for column in columns)
    return position, size, count


def split_chunks(
    slices: ByteSlices, num_levels: int, num_buffers: int, size_bytes: int
) -> tuple[Int64s, ...]:
    """Return the number of levels of each chunk, and position and size of its buffers.

    The header of a chunk has `num_levels` 2-byte numbers (the number of levels, and the size of
    each kind) and `num_buffers` sizes of `size_bytes`. Returns the number of levels, then the
    positions and sizes of the first level or value buffer, of the second, ...

    >>> chunk = np.array([4, 0, 3, 0, 65, 66, 67, 0], np.uint8)
    >>> [x.tolist() for x in split_chunks(ByteSlices.whole(np.append(chunk, chunk)), 1, 1, 2)]
    [[4], [8], [3]]
    """
    kernel = "split_chunks"
    if not 1 <= num_levels <= 3 or num_buffers < 0 or size_bytes not in (2, 4):
        raise corrupt(Fault.BAD_WIDTH, kernel=kernel, index=0)
    check_slices(slices, kernel=kernel)
    widths = [2] * num_levels + [size_bytes] * num_buffers
    head_bytes = sum(widths)
    position = slices.position + -(-head_bytes // _ALIGNMENT) * _ALIGNMENT
    short = position > slices.position + slices.size
    if short.any():
        raise corrupt(Fault.TOO_SHORT, kernel=kernel, index=int(short.argmax()))
    heads = slices.source[slices.position[:, None] + np.arange(head_bytes)]
    found: list[Int64s] = []
    at = 0
    for index, width in enumerate(widths):
        column = np.ascontiguousarray(heads[:, at : at + width]).view(f"<u{width}")
        number = column.reshape(-1).astype(np.int64)
        at += width
        if index == 0:
            found.append(number)
        else:
            found += [position, number]
            position = position + _padded(number)
    outside = position > slices.position + slices.size
    if outside.any():
        raise corrupt(Fault.TOO_SHORT, kernel=kernel, index=int(outside.argmax()))
    return tuple(found)


def _padded(size: Int64s) -> Int64s:
    return -(-size // _ALIGNMENT) * _ALIGNMENT
