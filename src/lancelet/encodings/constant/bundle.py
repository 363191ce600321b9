"""Reads constant pages of several columns as one, where all they have is a value of one width.

column a   3 rows of 7         rows 0 1 2 | 3 4 5
column b   3 rows of 9              7 7 7   9 9 9
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from lancelet import kernels
from lancelet.buffers import Bytes, Int64s, Reading
from lancelet.encodings.arrow import arrow_from_block
from lancelet.encodings.base import FixedWidth, RowIndices, Rows
from lancelet.encodings.leaf import LeafContext, LeafRows
from lancelet.encodings.levels import LayerKind, Layers
from lancelet.encodings.spans import Spans
from lancelet.encodings.stored_pages import bounds_of
from lancelet.encodings.stretches import Stretches
from lancelet.errors import CorruptDataError


class ConstantPages:
    """Pages that follow each other, each of one value."""

    def __init__(self, length: Int64s, values: Bytes, layers: Layers, leaf: LeafContext) -> None:
        """Take the rows of each page and the bytes of all values."""
        if layers.kinds != (LayerKind.ALL_VALID_ITEM,):
            raise CorruptDataError("a constant page is more than a value", column=leaf.column)
        self._bounds = bounds_of(length)
        self._values = values.reshape(len(length), -1)
        self._layers = layers
        self._data_type = leaf.data_type

    def read(self, rows: Rows) -> Reading[LeafRows]:
        """Read rows, counted from the first one of the first page."""
        yield from ()  # all is known
        assert isinstance(rows, RowIndices)
        return self._repeated(self._bounds.searchsorted(rows.rows, side="right") - 1)

    def read_stretches(self, stretches: Stretches) -> Reading[tuple[LeafRows, Int64s]]:
        """Read stretches of rows; also return where each begins in what was read."""
        yield from ()  # all is known
        starts = np.arange(len(stretches.start)) * stretches.count
        spans = Spans(stretches.start, np.full(len(starts), stretches.count))
        pieces = spans.split(self._bounds)
        return self._repeated(np.repeat(pieces.part, pieces.count)), starts

    def _repeated(self, pages: Int64s) -> LeafRows:
        width = self._values.shape[1]
        position = pages * width
        data = kernels.take_fixed(self._values.reshape(-1), position, width)
        if pa.types.is_boolean(self._data_type):
            flags = data.reshape(len(pages), width)[:, 0] != 0
            block = FixedWidth(1, np.packbits(flags, bitorder="little"), len(pages))
        else:
            block = FixedWidth(8 * width, data, len(pages))
        return LeafRows(self._layers, None, None, arrow_from_block(block, self._data_type, None))
