"""Puts constant pages together: levels, encoded where that is smaller, and the value."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import lru_cache

import numpy as np

from lancelet.buffers import Bytes, Slices
from lancelet.encodings.base import FixedWidth, Variable
from lancelet.encodings.codecs.base import EncodedBlock
from lancelet.encodings.constant.value import build_value
from lancelet.encodings.layout import NOTHING, Body, ConstantLayout
from lancelet.encodings.levels import Layers, Levels, ShreddedLeaf
from lancelet.encodings.miniblock.write import encode_levels

INLINE_BYTES_MAX = 32
"""The longest value that is kept in the message."""


def build_constant_value(
    layers: Layers, value: FixedWidth | Variable, which: Sequence[int]
) -> Body:
    """Return the layout and the buffers of pages without levels that have one value all over.

    Pages of one value and some nulls exist as well, but their levels are never encoded, so that
    a mini-block page is smaller.
    """
    if isinstance(value, FixedWidth) and len(value.data) <= INLINE_BYTES_MAX:
        return _repeated(which, _layout_of_one(layers, value.data.tobytes()), (), "constant")
    buffers = (build_value(value),)
    return _repeated(which, _layout_of_one(layers, None), buffers, "constant")


def _repeated(
    which: Sequence[int], layout: ConstantLayout, buffers: Sequence[Bytes], encoding: str
) -> Body:
    """Return pages that are the same."""
    count = len(which)
    slices = tuple(Slices.repeated(data, count) for data in buffers)
    return Body(which, layout, slices, [encoding] * count, [NOTHING] * count)


@lru_cache(256)
def _layout_of_one(layers: Layers, value: bytes | None) -> ConstantLayout:
    """Return the layout of a page of one value, in the message or in a buffer."""
    return ConstantLayout(layers, inline_value=value, has_value_buffer=value is None)


def build_empty_value(leaf: ShreddedLeaf) -> Body:
    """Return the layout and the buffers of a page whose values take no bytes."""
    layout = ConstantLayout(leaf.layers, inline_value=b"")
    if leaf.repetition is None and leaf.definition is None:
        return Body.one(layout, (), "constant")
    levels = (_bytes(None, leaf.repetition), _bytes(None, leaf.definition))
    return Body.one(layout, levels, "constant")


def build_nulls(leaf: ShreddedLeaf, count: int, *, has_level_encodings: bool) -> Body:
    """Return the layout and the buffers of pages without a single valid value.

    `has_level_encodings` says whether the file version knows encoded levels here.
    """
    layout = ConstantLayout(leaf.layers, inline_value=None)
    # Without levels nobody could tell which of several layers is the null one.
    if leaf.repetition is None and len(leaf.layers.each) == 1:
        return _repeated(range(count), layout, (), "null")
    repetition, definition = (
        _smaller(levels, has_level_encodings=has_level_encodings)
        for levels in (leaf.repetition, leaf.definition)
    )
    layout = replace(
        layout,
        repetition=None if repetition is None else repetition.encoding,
        definition=None if definition is None else definition.encoding,
        num_repetition=0 if repetition is None else leaf.num_entries,
        num_definition=0 if definition is None else leaf.num_entries,
    )
    buffers = (_bytes(repetition, leaf.repetition), _bytes(definition, leaf.definition))
    return Body.one(layout, buffers, "null")


def _bytes(encoded: EncodedBlock | None, levels: Levels | None) -> Bytes:
    if encoded is not None:
        return encoded.data
    return np.empty(0, np.uint8) if levels is None else levels.view(np.uint8)


def _smaller(levels: Levels | None, *, has_level_encodings: bool) -> EncodedBlock | None:
    """Return levels encoded, or `None` if plain numbers take no more."""
    if levels is None or not has_level_encodings:
        return None
    count = np.array([len(levels)], np.int64)
    encoded = encode_levels(levels, count, has_run_lengths=True)
    if int(encoded.slices.size[0]) >= levels.nbytes:
        return None
    return EncodedBlock(encoded.encoding, encoded.slices.slice_bytes(0))
