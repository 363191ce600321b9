"""Blob pages (2.1): values that live elsewhere in the file, as positions and sizes.

    value     b"abc"      b""      null
    position  128         0        65536     definition 1 << 16
    size      3           0        0

Nothing else of the page tells nulls: an entry of size 0 away from position 0 is one, and its
position is the definition level, shifted by 16. A reader that wants a struct gets the positions
and sizes themselves; the bytes are read only for who wants them.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Final

import numpy as np
import pyarrow as pa

from lancelet.buffers import Bytes, Int64s, Ranges, Reading
from lancelet.encodings import registry
from lancelet.encodings.arrow import arrow_from_block, block_from_arrow
from lancelet.encodings.base import (
    BlobSink,
    Fields,
    FileVersion,
    FixedWidth,
    Rows,
    Variable,
)
from lancelet.encodings.blob_v1 import DESCRIPTOR_TYPE, place_blobs
from lancelet.encodings.choose import MiniBlocks
from lancelet.encodings.codecs.base import ChunkLimits
from lancelet.encodings.codecs.packed_struct import PackedStruct
from lancelet.encodings.gather import gather
from lancelet.encodings.layout import Body
from lancelet.encodings.leaf import LeafContext, LeafRows
from lancelet.encodings.levels import (
    LayerKind,
    Layers,
    Levels,
    ShreddedLeaf,
    check_levels,
    visible_validity,
)
from lancelet.encodings.miniblock.write import build_mini_blocks
from lancelet.encodings.pages import ChunkedPages
from lancelet.encodings.structural import PageReader
from lancelet.encodings.v2_1.messages import layer_names, message_of
from lancelet.errors import CorruptDataError, UnsupportedError
from lancelet.format.protos import encodings21_pb as pb

DEFINITION_SHIFT: Final = 16
"""Where the definition level of a null is in its position; repetition would be below it."""


def descriptor_context(leaf: LeafContext) -> LeafContext:
    """Return the context in which the positions and sizes of a blob page are read."""
    return replace(leaf, data_type=DESCRIPTOR_TYPE)


class BlobPage(PageReader):
    """A page whose rows can be read, over the page of its positions and sizes."""

    def __init__(self, inner: PageReader, layers: Layers, leaf: LeafContext) -> None:
        """Take the reader of the inner page."""
        if layers.rep_max:
            raise UnsupportedError("blobs in lists have no repetition levels", column=leaf.column)
        self._inner = inner
        self._layers = layers
        self._leaf = leaf

    def read(self, rows: Rows) -> Reading[LeafRows]:
        """Read rows of the page, counted from its first one."""
        inner = yield from self._inner.read(rows)
        assert isinstance(inner, LeafRows), "a page of 2.1 has levels"
        descriptors = inner.values
        position = descriptors.field(0).to_numpy().view(np.int64)
        size = descriptors.field(1).to_numpy().view(np.int64)
        definition = _definition(position, size) if self._layers.def_max else None
        check_levels(self._layers, None, definition)
        validity = visible_validity(self._layers, definition)
        if pa.types.is_struct(self._leaf.data_type):
            values = _described(position, size, validity)
        else:
            full = size != 0
            _check_ascending(position[full], size[full])
            slices = yield Ranges(position[full], size[full])
            offsets = np.concatenate(([0], np.cumsum(size)))
            block = Variable(offsets, gather(slices))
            values = arrow_from_block(block, self._leaf.data_type, validity)
        return LeafRows(self._layers, None, definition, values)


def build_blob(
    leaf: ShreddedLeaf, sink: BlobSink, *, version: FileVersion
) -> tuple[pb.PageLayout, Body, int]:
    """Write the values of a leaf to the file.

    Returns the message of their page, the page within it, and the bytes of the values.
    """
    if leaf.repetition is not None:
        raise UnsupportedError(
            "blobs cannot lie in lists before 2.2; write blobs of 2.2", field=leaf.field.name
        )
    count = len(leaf.values)
    unseen = None if leaf.definition is None else leaf.definition > 0
    placed = place_blobs(leaf.values, sink, unseen=unseen)
    pairs = np.zeros((count, 2), np.int64)
    for place in range(2):
        pairs[:, place] = placed.field(place).to_numpy()
    sizes = pairs[:, 1].copy()
    if leaf.definition is not None:
        pairs[unseen] = sizes[unseen] = 0
        pairs[:, 0] += leaf.definition.astype(np.int64) << DEFINITION_SHIFT
    descriptors = replace(
        leaf,
        layers=Layers.of([LayerKind.ALL_VALID_ITEM]),
        definition=None,
        values=_described(pairs[:, 0], pairs[:, 1], None),
    )
    chunks = PackedStruct().encode_chunks(block_from_arrow(descriptors.values), ChunkLimits())
    one = ChunkedPages(chunks, np.array([0, len(chunks.counts)], np.int64))
    described = registry.describe(chunks.encoding)
    chosen = MiniBlocks(np.zeros(1, np.int64), one, [described], [{}])
    ((_, body),) = build_mini_blocks(descriptors, 1, chosen, version=version)
    assert body is not None, "a page without levels always fits"
    message = pb.PageLayout(
        blob_layout=pb.BlobLayout(
            inner_layout=message_of(body.layout), layers=layer_names(leaf.layers)
        )
    )
    return message, body, int(sizes.sum())


def _definition(position: Int64s, size: Int64s) -> Levels:
    levels = np.where(size == 0, position >> DEFINITION_SHIFT, 0)
    if len(levels) and not 0 <= int(levels.min()) <= int(levels.max()) < 1 << 16:
        raise CorruptDataError("a null blob has no definition level", position=int(levels.max()))
    return levels.astype(np.uint16)


def _described(position: Int64s, size: Int64s, validity: Bytes | None) -> pa.Array:
    children = tuple(
        FixedWidth(64, np.ascontiguousarray(numbers).view(np.uint8), len(numbers))
        for numbers in (position, size)
    )
    return arrow_from_block(Fields(children, len(position)), DESCRIPTOR_TYPE, validity)


def _check_ascending(position: Int64s, size: Int64s) -> None:
    # Values are written one after the other, so what is claimed never exceeds the file.
    stop = position + size
    if (position < 0).any() or (size < 0).any() or (position[1:] < stop[:-1]).any():
        raise CorruptDataError(
            "the values of a blob column overlap, or lie before the file", values=len(position)
        )
