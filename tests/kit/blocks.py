"""Hypothesis strategies for blocks, the input of codecs.

As in `strategies`, shapes are drawn and values come from a generator with a drawn seed, so blocks
of thousands of values are cheap. Strings start at any position of their data and have 32-bit or
64-bit offsets. Numbers use all bits or only the low ones. Lists nest and contain nulls.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import numpy as np
from hypothesis import strategies as st

from lancelet.encodings.base import Block, Fields, FixedSizeList, FixedWidth, Variable
from lancelet.encodings.codecs.dictionary import take_items
from lancelet.encodings.codecs.unsigned import UNSIGNED_TYPES
from lancelet.encodings.codecs.variable import offsets_from_sizes

Blocks = st.SearchStrategy[Block]

FEW: Final = 40
MANY: Final = 3000


@st.composite
def fixed_width(draw: st.DrawFn, bits: Sequence[int] = (8, 16, 32, 64), most: int = MANY) -> Block:
    """Draw random fixed-width values; some of their bytes are often zero."""
    width = draw(st.sampled_from(bits))
    count = draw(st.integers(0, most))
    rng = np.random.default_rng(draw(st.integers(0, 1 << 32)))
    if width == 1:
        return FixedWidth(
            1, np.packbits(rng.integers(0, 2, count, np.uint8), bitorder="little"), count
        )
    table = rng.integers(0, 256, (count, width // 8), np.uint8)
    table[:, draw(st.integers(0, width // 8)) :] = 0
    return FixedWidth(width, table.reshape(-1), count)


@st.composite
def constants(draw: st.DrawFn) -> Block:
    """Draw equal values."""
    value = draw(st.binary(min_size=1, max_size=33))
    count = draw(st.integers(1, FEW))
    return FixedWidth(len(value) * 8, np.frombuffer(value * count, np.uint8), count)


@st.composite
def runs(draw: st.DrawFn) -> Block:
    """Draw values in runs."""
    dtype = UNSIGNED_TYPES[draw(st.sampled_from(sorted(UNSIGNED_TYPES)))]
    rng = np.random.default_rng(draw(st.integers(0, 1 << 32)))
    lengths = rng.integers(1, draw(st.sampled_from([2, 10, 1000])), draw(st.integers(0, 60)))
    values = np.repeat(rng.integers(0, 200, len(lengths)).astype(dtype), lengths)
    return FixedWidth(dtype.itemsize * 8, values.view(np.uint8), len(values))


@st.composite
def sequences(draw: st.DrawFn) -> Block:
    """Draw an arithmetic sequence, which may wrap around."""
    dtype = UNSIGNED_TYPES[draw(st.sampled_from(sorted(UNSIGNED_TYPES)))]
    start, step = draw(st.integers(0, int(np.iinfo(dtype).max))), draw(st.integers(0, 255))
    count = draw(st.integers(0, MANY))
    values = np.arange(count).astype(dtype) * dtype.type(step) + dtype.type(start)
    return FixedWidth(dtype.itemsize * 8, values.view(np.uint8), count)


@st.composite
def strings(draw: st.DrawFn, most: int = MANY) -> Block:
    """Draw byte strings, some empty, with 32-bit or 64-bit offsets that may start anywhere."""
    rng = np.random.default_rng(draw(st.integers(0, 1 << 32)))
    sizes = rng.integers(0, draw(st.sampled_from([1, 3, 40])), draw(st.integers(0, most)))
    offsets = offsets_from_sizes(sizes.astype(np.int64))
    strings = draw(st.lists(st.binary(min_size=1, max_size=9), min_size=1, max_size=8))
    text = b"".join(strings[i] for i in rng.integers(0, len(strings), int(offsets[-1]) + 1))
    before = draw(st.integers(0, min(3, len(text) - int(offsets[-1]))))
    wide = draw(st.booleans())
    offsets = offsets + before
    data = np.frombuffer(text, np.uint8)
    return Variable(offsets if wide else offsets.astype(np.int32), data)


@st.composite
def lists(draw: st.DrawFn, bits: Sequence[int] = (1, 16, 32), most: int = FEW) -> Block:
    """Draw fixed-size lists, possibly nested, with null items."""
    count = draw(st.integers(0, most))
    dimensions = draw(st.lists(st.integers(1, 5), min_size=1, max_size=3))
    rng = np.random.default_rng(draw(st.integers(0, 1 << 32)))
    width = draw(st.sampled_from(bits))
    total = count * int(np.prod(dimensions))
    data = rng.integers(0, 256, (total * width + 7) // 8, np.uint8)
    block: Block = FixedWidth(width, data, total)
    for dimension in reversed(dimensions):
        validity = None
        if draw(st.booleans()):
            validity = rng.integers(0, 256, (block.count + 7) // 8, np.uint8)
        block = FixedSizeList(dimension, validity, block, block.count // dimension)
    return block


@st.composite
def plain_lists(draw: st.DrawFn) -> Block:
    """Draw fixed-size lists of whole bytes without null items."""
    block = draw(lists(bits=(16, 32)))
    return _without_nulls(block)


@st.composite
def structs(draw: st.DrawFn, *, with_strings: bool) -> Block:
    """Draw structs of one to four fields."""
    count = draw(st.integers(0, FEW))
    children: list[Block] = []
    for _ in range(draw(st.integers(1, 4))):
        kinds: list[Blocks] = [fixed_width((8, 32, 128), most=count), plain_lists()]
        if with_strings:
            kinds.append(strings(most=count))
        child = draw(st.sampled_from(kinds).flatmap(lambda kind: kind))
        children.append(_resized(child, count))
    return Fields(tuple(children), count)


def _resized(block: Block, count: int) -> Block:
    """Return `count` values by repeating the given ones, starting with an empty one."""
    if block.count:
        return take_items(block, np.arange(count) % block.count)
    return FixedWidth(8, np.zeros(count, np.uint8), count)


def _without_nulls(block: Block) -> Block:
    if not isinstance(block, FixedSizeList):
        return block
    return FixedSizeList(block.dimension, None, _without_nulls(block.items), block.count)
