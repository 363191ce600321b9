"""Puts constant pages together: levels, encoded where that is smaller, and the value."""

from __future__ import annotations

from dataclasses import replace
from functools import lru_cache

import numpy as np

from lancelet.buffers import Bytes
from lancelet.encodings.base import FixedWidth, Variable
from lancelet.encodings.codecs.base import EncodedBlock
from lancelet.encodings.constant.value import build_value
from lancelet.encodings.layout import Body, ConstantLayout
from lancelet.encodings.levels import Layers, Levels, ShreddedLeaf
from lancelet.encodings.miniblock.write import encode_levels

INLINE_BYTES_MAX = 32
"""The longest value that is kept in the message."""


def build_constant_value(leaf: ShreddedLeaf, value: FixedWidth | Variable) -> Body:
    """Return the layout and the buffers of a page without levels that has one value all over.

    Pages of one value and some nulls exist as well, but their levels are never encoded, so that
    a mini-block page is smaller.
    """
    assert leaf.repetition is None, "levels would be read as plain numbers"
    assert leaf.definition is None, "levels would be read as plain numbers"
    if isinstance(value, FixedWidth) and len(value.data) <= INLINE_BYTES_MAX:
        return Body(_layout_of_one(leaf.layers, value.data.tobytes()), (), "constant")
    return Body(_layout_of_one(leaf.layers, None), (build_value(value),), "constant")


@lru_cache(256)
def _layout_of_one(layers: Layers, value: bytes | None) -> ConstantLayout:
    """Return the layout of a page of one value, in the message or in a buffer."""
    return ConstantLayout(layers, inline_value=value, has_value_buffer=value is None)


def build_empty_value(leaf: ShreddedLeaf) -> Body:
    """Return the layout and the buffers of a page whose values take no bytes."""
    layout = ConstantLayout(leaf.layers, inline_value=b"")
    if leaf.repetition is None and leaf.definition is None:
        return Body(layout, (), "constant")
    return Body(layout, (_bytes(None, leaf.repetition), _bytes(None, leaf.definition)), "constant")


def build_nulls(leaf: ShreddedLeaf, *, has_level_encodings: bool) -> Body:
    """Return the layout and the buffers of a page without a single valid value.

    `has_level_encodings` says whether the file version knows encoded levels here.
    """
    layout = ConstantLayout(leaf.layers, inline_value=None)
    # Without levels nobody could tell which of several layers is the null one.
    if leaf.repetition is None and len(leaf.layers.each) == 1:
        return Body(layout, (), "null")
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
    return Body(layout, buffers, "null")


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
