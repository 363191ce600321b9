"""Builds full-zip pages: interleaved items, and the row index if required."""

from __future__ import annotations

import numpy as np

from lancelet import kernels
from lancelet.buffers import Bytes, Int64s
from lancelet.encodings.base import FixedWidth
from lancelet.encodings.codecs import registry
from lancelet.encodings.codecs.base import EncodedValues
from lancelet.encodings.levels import ShreddedLeaf
from lancelet.encodings.pages.layout import Body, FullZipLayout
from lancelet.kernels import ZipShape

_NO_LEVELS = np.empty(0, np.uint16)


def build_full_zip(leaf: ShreddedLeaf, values: EncodedValues) -> Body:
    """Build a full-zip page."""
    repetition = _NO_LEVELS if leaf.repetition is None else leaf.repetition
    definition = _NO_LEVELS if leaf.definition is None else leaf.definition
    layers = leaf.layers
    shape = ZipShape(
        0 if leaf.repetition is None else layers.rep_max.bit_length(),
        0 if leaf.definition is None else layers.def_max.bit_length(),
        layers.visible_def_max,
    )
    rows = values.rows
    value_bits = length_bits = None
    if isinstance(rows, FixedWidth):
        value_bits = rows.bits
        if shape.control_bytes == 0:
            zipped, starts = rows.data, None
        else:
            zipped, starts = kernels.zip_fixed(
                repetition, definition, rows.data, shape, rows.bits // 8
            )
    else:
        length_bits = rows.offsets.itemsize * 8
        zipped, starts = kernels.zip_variable(
            repetition, definition, rows.offsets, rows.data, shape, length_bits // 8
        )
    layout = FullZipLayout(
        layers=layers,
        values=values.encoding,
        bits_rep=shape.bits_rep,
        bits_def=shape.bits_def,
        value_bits=value_bits,
        length_bits=length_bits,
        num_items=leaf.num_entries,
        num_visible_items=rows.count,
    )
    description = registry.describe(values.encoding)
    if starts is None or (value_bits is not None and leaf.repetition is None):
        return Body.single(layout, (zipped,), description)
    if leaf.repetition is not None:
        opens_row = np.append(leaf.repetition == layers.rep_max, True)
        starts = starts[opens_row]
    index = row_index(starts, len(zipped))
    return Body.single(layout, (zipped, index), description)


def row_index(starts: Int64s, data_bytes: int) -> Bytes:
    """Serialize row starts and the end in the narrowest integer type.

    >>> row_index(np.array([0, 8, 300]), 300).tolist()
    [0, 0, 8, 0, 44, 1]
    """
    width = next(width for width in (1, 2, 4, 8) if data_bytes < 1 << (8 * width))
    return starts.astype(f"<u{width}").view(np.uint8)
