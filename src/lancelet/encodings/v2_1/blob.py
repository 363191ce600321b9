"""Blob pages (2.1): positions and sizes of values stored outside of the page.

    value     b"abc"      b""      null
    position  128         0        65536     definition 1 << 16
    size      3           0        0

Nulls have size 0 and a non-zero position, which is the definition level shifted by 16. If the
requested type is a struct, positions and sizes are returned; otherwise the bytes are read.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Final

import numpy as np
import pyarrow as pa

from lancelet.buffers import ByteRanges, Bytes, Int64s, ReadCoroutine
from lancelet.encodings.arrow import arrow_from_block, block_from_arrow
from lancelet.encodings.base import (
    BlobSink,
    Fields,
    FileVersion,
    FixedWidth,
    Rows,
    Variable,
)
from lancelet.encodings.blobs.v1 import DESCRIPTOR_TYPE, write_blobs
from lancelet.encodings.choice.choose import MiniBlock
from lancelet.encodings.codecs import registry
from lancelet.encodings.codecs.base import ChunkLimits
from lancelet.encodings.codecs.packed_struct import PackedStruct
from lancelet.encodings.gather import gather
from lancelet.encodings.levels import (
    LayerKind,
    Layers,
    Levels,
    ShreddedLeaf,
    check_levels,
    visible_validity,
)
from lancelet.encodings.miniblock.write import build_mini_block
from lancelet.encodings.pages.layout import NO_CANDIDATES, Body
from lancelet.encodings.pages.leaf import LeafContext, LeafRows
from lancelet.encodings.pages.structural import PageReader
from lancelet.encodings.v2_1.messages import layer_names, message_of
from lancelet.errors import CorruptDataError, UnsupportedError
from lancelet.format.protos import encodings21_pb as pb

DEFINITION_SHIFT: Final = 16
"""Shift of the definition level in the position of a null; lower bits are for repetition."""


def descriptor_context(leaf: LeafContext) -> LeafContext:
    """Return the context for reading the descriptors of a blob page."""
    return replace(leaf, data_type=DESCRIPTOR_TYPE)


class BlobPage(PageReader):
    """Reads rows of a blob page from the inner page of descriptors."""

    def __init__(self, inner: PageReader, layers: Layers, leaf: LeafContext) -> None:
        """Use the reader of the inner page."""
        if layers.rep_max:
            raise UnsupportedError(
                "blobs in lists are not supported by version 2.1", column=leaf.column
            )
        self._inner = inner
        self._layers = layers
        self._leaf = leaf

    def read(self, rows: Rows) -> ReadCoroutine[LeafRows]:
        """Read rows relative to the first row of the page."""
        inner = yield from self._inner.read(rows)
        assert isinstance(inner, LeafRows), "pages of 2.1 have levels"
        descriptors = inner.values
        position = descriptors.field(0).to_numpy().view(np.int64)
        size = descriptors.field(1).to_numpy().view(np.int64)
        definition = _definition(position, size) if self._layers.def_max else None
        check_levels(self._layers, None, definition)
        validity = visible_validity(self._layers, definition)
        if pa.types.is_struct(self._leaf.data_type):
            values = _to_descriptors(position, size, validity)
        else:
            full = size != 0
            _check_ascending(position[full], size[full])
            slices = yield ByteRanges(position[full], size[full])
            offsets = np.concatenate(([0], np.cumsum(size)))
            block = Variable(offsets, gather(slices))
            values = arrow_from_block(block, self._leaf.data_type, validity)
        return LeafRows(self._layers, None, definition, values)


def build_blob(
    leaf: ShreddedLeaf, sink: BlobSink, *, version: FileVersion
) -> tuple[pb.PageLayout, Body, int]:
    """Write the values of a leaf to the file.

    Returns the message of their page, the inner page, and the bytes of the values.
    """
    if leaf.repetition is not None:
        raise UnsupportedError(
            "blobs in lists are not supported before 2.2; write version 2.2 blobs",
            field=leaf.field.name,
        )
    count = len(leaf.values)
    is_hidden = None if leaf.definition is None else leaf.definition > 0
    written = write_blobs(leaf.values, sink, is_hidden=is_hidden)
    pairs = np.zeros((count, 2), np.int64)
    for index in range(2):
        pairs[:, index] = written.field(index).to_numpy()
    sizes = pairs[:, 1].copy()
    if leaf.definition is not None:
        pairs[is_hidden] = sizes[is_hidden] = 0
        pairs[:, 0] += leaf.definition.astype(np.int64) << DEFINITION_SHIFT
    descriptors = replace(
        leaf,
        layers=Layers.of([LayerKind.ALL_VALID_ITEM]),
        definition=None,
        values=_to_descriptors(pairs[:, 0], pairs[:, 1], None),
    )
    chunks = PackedStruct().encode_chunks(block_from_arrow(descriptors.values), ChunkLimits())
    chosen = MiniBlock(chunks, registry.describe(chunks.encoding), NO_CANDIDATES)
    body = build_mini_block(descriptors, chosen, version=version)
    assert body is not None, "pages without levels always fit"
    message = pb.PageLayout(
        blob_layout=pb.BlobLayout(
            inner_layout=message_of(body.layout), layers=layer_names(leaf.layers)
        )
    )
    return message, body, int(sizes.sum())


def _definition(position: Int64s, size: Int64s) -> Levels:
    levels = np.where(size == 0, position >> DEFINITION_SHIFT, 0)
    if len(levels) and not 0 <= int(levels.min()) <= int(levels.max()) < 1 << 16:
        raise CorruptDataError(
            "a null blob has an invalid definition level", position=int(levels.max())
        )
    return levels.astype(np.uint16)


def _to_descriptors(position: Int64s, size: Int64s, validity: Bytes | None) -> pa.Array:
    children = tuple(
        FixedWidth(64, np.ascontiguousarray(numbers).view(np.uint8), len(numbers))
        for numbers in (position, size)
    )
    return arrow_from_block(Fields(children, len(position)), DESCRIPTOR_TYPE, validity)


def _check_ascending(position: Int64s, size: Int64s) -> None:
    # Values are written sequentially, so valid ranges never exceed the file.
    stop = position + size
    if (position < 0).any() or (size < 0).any() or (position[1:] < stop[:-1]).any():
        raise CorruptDataError(
            "the values of a blob column overlap or precede the file", values=len(position)
        )
