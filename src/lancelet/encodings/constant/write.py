"""Builds constant pages: the value and levels, encoded if that is smaller."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import lru_cache

import numpy as np

from lancelet.buffers import Bytes, ByteSlices
from lancelet.encodings.base import FixedWidth, Variable
from lancelet.encodings.codecs.base import EncodedBlock
from lancelet.encodings.constant.value import build_value
from lancelet.encodings.levels import Layers, Levels, ShreddedLeaf
from lancelet.encodings.miniblock.write import encode_levels
from lancelet.encodings.pages.layout import NO_CANDIDATES, Body, ConstantLayout

INLINE_BYTES_MAX = 32
"""Maximum size of a value in the message, in bytes."""


def build_constant_value(
    layers: Layers, value: FixedWidth | Variable, page_indices: Sequence[int]
) -> Body:
    """Build pages with a single distinct value and no levels.

    The format also has pages with one value and some nulls, but their levels are never encoded, so
    a mini-block page is smaller.
    """
    count = len(page_indices)
    slices: tuple[ByteSlices, ...] = ()
    if isinstance(value, FixedWidth) and len(value.data) <= INLINE_BYTES_MAX:
        layout = _constant_layout(layers, value.data.tobytes())
    else:
        layout = _constant_layout(layers, None)
        slices = (ByteSlices.repeated(build_value(value), count),)
    return Body(page_indices, layout, slices, ["constant"] * count, [NO_CANDIDATES] * count)


@lru_cache(256)
def _constant_layout(layers: Layers, value: bytes | None) -> ConstantLayout:
    """Return the layout of a page with one value, in the message or in a buffer."""
    return ConstantLayout(layers, inline_value=value, has_value_buffer=value is None)


def build_empty_value(leaf: ShreddedLeaf) -> Body:
    """Build a page of zero-length values."""
    layout = ConstantLayout(leaf.layers, inline_value=b"")
    if leaf.repetition is None and leaf.definition is None:
        return Body.single(layout, (), "constant")
    levels = (_bytes(None, leaf.repetition), _bytes(None, leaf.definition))
    return Body.single(layout, levels, "constant")


def build_nulls(leaf: ShreddedLeaf, *, has_level_encodings: bool) -> Body:
    """Build a page without valid values.

    `has_level_encodings` is whether the file version supports encoded levels in these pages.
    """
    layout = ConstantLayout(leaf.layers, inline_value=None)
    # With several layers, levels are required to identify the null layer.
    if leaf.repetition is None and len(leaf.layers.each) == 1:
        return Body.single(layout, (), "null")
    repetition, definition = (
        _encode_if_smaller(levels, has_level_encodings=has_level_encodings)
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
    return Body.single(layout, buffers, "null")


def _bytes(encoded: EncodedBlock | None, levels: Levels | None) -> Bytes:
    if encoded is not None:
        return encoded.data
    return np.empty(0, np.uint8) if levels is None else levels.view(np.uint8)


def _encode_if_smaller(levels: Levels | None, *, has_level_encodings: bool) -> EncodedBlock | None:
    """Return encoded levels, or `None` unless smaller than plain levels."""
    if levels is None or not has_level_encodings:
        return None
    count = np.array([len(levels)], np.int64)
    encoded = encode_levels(levels, count, has_run_lengths=True)
    if int(encoded.slices.size[0]) >= levels.nbytes:
        return None
    return EncodedBlock(encoded.encoding, encoded.slices.slice_bytes(0))
