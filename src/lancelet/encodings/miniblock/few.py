"""Pages of a few plain values: one chunk each, put together without a look at what they could be.

A commit of a hundred rows writes a page of 800 bytes for each column, and there is nothing to find
out about them: so few bytes are one chunk of values as they are. What leads there otherwise, by
trials and chunks of any size, takes several times as long:

    int32 5 6 7     words    20 00 00 00                             3 words of 8 bytes, less one
                    chunk    00 00 | 0c 00 00 00 | fe fe             no levels; 12 bytes of values
                             05 00 00 00 06 00 00 00 07 00 00 00 | fe fe fe fe

What repeats itself is told on the way, and what has too many bytes is left to the trials.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache

import numpy as np
import numpy.typing as npt

from lancelet import kernels
from lancelet.buffers import Bytes, Int64s, Slices
from lancelet.encodings import registry
from lancelet.encodings.base import FixedWidth, Variable
from lancelet.encodings.codecs.flat import flat_encoding
from lancelet.encodings.codecs.rle import run_encoding
from lancelet.encodings.codecs.variable import variable_encoding
from lancelet.encodings.layout import NOTHING, Body, MiniBlockLayout
from lancelet.encodings.levels import Layers, ShreddedLeaf
from lancelet.encodings.miniblock.frame import ALIGNMENT
from lancelet.encodings.pages import Pages, take_slices
from lancelet.values import dataclass

_LEVEL_BITS = 16


@dataclass(frozen=True, slots=True, eq=False)
class FewPages:
    """The chunks of pages, one each, where they have one."""

    layout: MiniBlockLayout
    description: str
    chunks: Slices
    kinds: Bytes

    @property
    def repeat(self) -> npt.NDArray[np.bool_]:
        """Which pages with a chunk have one value all over."""
        found: npt.NDArray[np.bool_] = self.kinds == 1
        return found

    @property
    def have_chunks(self) -> npt.NDArray[np.bool_]:
        """Which pages have a chunk."""
        found: npt.NDArray[np.bool_] = self.kinds < 2
        return found

    def body(self, which: Int64s) -> Body:
        """Return some of the pages that have one."""
        chunks = take_slices(self.chunks, which) if len(which) < len(self.chunks) else self.chunks
        word = np.dtype("<u4" if self.layout.has_large_chunks else "<u2")
        words = ((chunks.size // ALIGNMENT - 1) << 4).astype(word).view(np.uint8)
        heads = Slices(words, *_heads(len(which), word.itemsize))
        described: Sequence[str] = [self.description] * len(which)
        refused = [NOTHING] * len(which)
        return Body(which.tolist(), self.layout, (heads, chunks), described, refused)


def frame_few(leaf: ShreddedLeaf, pages: Pages, *, has_large_chunks: bool, most: int) -> FewPages:
    """Return the chunks of pages of few numbers, or strings of at most so many bytes."""
    block = pages.block
    assert isinstance(block, FixedWidth | Variable), "others are not stored as they are"
    is_text = isinstance(block, Variable)
    bits = block.offsets.itemsize * 8 if isinstance(block, Variable) else block.bits
    chunks, kinds = kernels.frame_few(
        (block.offsets, block.data) if isinstance(block, Variable) else block.data,
        leaf.definition,
        bits=bits,
        rows=pages.rows,
        count=pages.count,
        size_bytes=4 if has_large_chunks else 2,
        most=most,
    )
    has_levels = leaf.definition is not None
    layout = _layout(leaf.layers, bits, is_text, has_levels, pages.rows, has_large_chunks)
    return FewPages(*layout, chunks, kinds)


@lru_cache(1024)
def _layout(
    layers: Layers, bits: int, is_text: bool, has_levels: bool, rows: int, has_large_chunks: bool
) -> tuple[MiniBlockLayout, str]:
    """Return the layout of a page, and what it says, for people; the same for like pages."""
    encoding = variable_encoding(bits) if is_text else flat_encoding(bits)
    levels = run_encoding(_LEVEL_BITS) if has_levels else None
    layout = MiniBlockLayout(layers, encoding, rows, 1, has_large_chunks, definition=levels)
    return layout, registry.describe(encoding)


@lru_cache(64)
def _heads(count: int, width: int) -> tuple[Int64s, Int64s]:
    """Return position and size of so many words."""
    return np.arange(0, count * width, width), np.full(count, width)
