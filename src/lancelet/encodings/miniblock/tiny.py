"""Pages of a few plain values: one chunk each, put together without a look at what they could be.

A commit of a hundred rows writes a page of 800 bytes for each column, and there is nothing to find
out about them: so few bytes are one chunk of values as they are (`choose.are_few`). What leads
there otherwise, by trials and chunks of any size, takes several times as long:

    int32 5 6 7     words    20 00 00 00                             3 words of 8 bytes, less one
                    chunk    00 00 | 0c 00 00 00 | fe fe             no levels; 12 bytes of values
                             05 00 00 00 06 00 00 00 07 00 00 00 | fe fe fe fe

What has levels is left to that.
"""

from __future__ import annotations

import struct
from functools import lru_cache

import numpy as np

from lancelet import kernels
from lancelet.buffers import Int64s, Slices
from lancelet.encodings import registry
from lancelet.encodings.base import FixedWidth, Variable
from lancelet.encodings.codecs.flat import align_bits, flat_encoding
from lancelet.encodings.codecs.variable import PAD_BYTE as TEXT_PAD_BYTE
from lancelet.encodings.codecs.variable import variable_encoding
from lancelet.encodings.layout import NOTHING, Body, MiniBlockLayout
from lancelet.encodings.levels import Layers
from lancelet.encodings.miniblock.frame import ALIGNMENT, PAD_BYTE, padded
from lancelet.encodings.pages import Pages


def build_tiny(pages: Pages, layers: Layers, which: Int64s, *, has_large_chunks: bool) -> Body:
    """Return pages of few numbers or strings without levels; `which` are their numbers."""
    block, count = pages.block, pages.count
    head, word = ("<HI", "<u4") if has_large_chunks else ("<HH", "<u2")
    if isinstance(block, Variable):
        bits = block.offsets.itemsize * 8
        texts = kernels.cut_variable(
            block.offsets, block.data, np.full(count, pages.rows), TEXT_PAD_BYTE
        )
        room = ALIGNMENT + -(-texts.size // ALIGNMENT) * ALIGNMENT
        start = np.cumsum(room) - room
        total = int(room.sum())
        data = kernels.place_slices(texts, start + ALIGNMENT, total, PAD_BYTE)
        numbers = texts.size.astype(word).view(np.uint8).reshape(count, -1)
        data[start[:, None] + np.arange(2)] = 0
        data[start[:, None] + np.arange(2, 2 + numbers.shape[1])] = numbers
        chunks, is_text = Slices(data, start, room), True
    else:
        assert isinstance(block, FixedWidth)
        bits, is_text = block.bits, False
        values = block.data
        if bits == 1 and count > 1:
            values = align_bits(values, block.count, pages.rows)
        size = (pages.rows * bits + 7) // 8
        each = ALIGNMENT + padded(size)
        out = np.full((count, each), PAD_BYTE, np.uint8)
        packed = struct.pack(head, 0, size)
        out[:, : len(packed)] = np.frombuffer(packed, np.uint8)
        out[:, ALIGNMENT : ALIGNMENT + size] = values[: count * size].reshape(count, size)
        room = np.full(count, each)
        chunks = Slices(out.reshape(-1), np.arange(0, count * each, each), room)
    words = ((room // ALIGNMENT - 1) << 4).astype(word).view(np.uint8)
    width = len(words) // count
    heads = Slices(words, np.arange(0, len(words), width), np.full(count, width))
    layout, description = _layout(layers, bits, is_text, pages.rows, has_large_chunks)
    return Body(which.tolist(), layout, (heads, chunks), [description] * count, [NOTHING] * count)


@lru_cache(1024)
def _layout(
    layers: Layers, bits: int, is_text: bool, rows: int, has_large_chunks: bool
) -> tuple[MiniBlockLayout, str]:
    """Return the layout of a page, and what it says, for people; the same for like pages."""
    encoding = variable_encoding(bits) if is_text else flat_encoding(bits)
    layout = MiniBlockLayout(layers, encoding, rows, 1, has_large_chunks)
    return layout, registry.describe(encoding)
