"""What a kernel must know of mini-block pages to read single values of them."""

from __future__ import annotations

import numpy as np

from lancelet.buffers import Bytes
from lancelet.encodings.layout import MiniBlockLayout
from lancelet.encodings.miniblock.head import MiniBlockHead
from lancelet.encodings.run_record import (
    FIXED,
    FSST,
    Form,
    ValueCodec,
    is_optional,
    known_items,
    known_symbols,
    own_table,
    value_codec,
)
from lancelet.kernels import ChunkRun, KnownItems


def chunk_run(
    layout: MiniBlockLayout, head: MiniBlockHead, form: Form, tables: Bytes | None
) -> ChunkRun | None:
    """Return what is known of pages whose levels are a bit each, if there are any.

    `tables` are the tables of symbols of pages that differ in them. What becomes known of the
    pages later is not in it.
    """
    has_definition = layout.definition is not None
    codec = value_codec(layout.values)
    if codec is None or codec.num_buffers != layout.num_buffers:
        return None
    if not is_optional(layout.layers, has_definition=has_definition):
        return None
    items, symbols = None, None
    if layout.dictionary is not None:
        items = _items(head, form, codec)
        if items is None:
            return None
    elif not codec.fits(form):
        return None
    if codec.codec == FSST and tables is None:
        tables = own_table(layout.values)
    if tables is not None:
        symbols = known_symbols(tables, head.first_chunk)
        if symbols is None:
            return None
    return ChunkRun(
        first_value=head.first_value,
        # A page counts as known after its chunks are, so what it says is read first.
        known=None if head.is_complete else head.known_chunks().view(np.uint8),
        position=head.position,
        size=head.size,
        count=head.count,
        has_definition=has_definition,
        size_bytes=4 if layout.has_large_chunks else 2,
        compression=codec.compression,
        codec=codec.codec,
        bits=codec.bits,
        symbols=symbols,
        items=items,
    )


def _items(head: MiniBlockHead, form: Form, codec: ValueCodec) -> KnownItems | None:
    """Return the items of the dictionary; None if the kernel cannot read them."""
    dictionary = head.only_dictionary()
    if dictionary is None or codec.is_strings or codec.bits not in (8, 16, 32, 64):
        return None
    items = known_items(dictionary.items.block)
    if items is None or (form.kind == FIXED and items.width != form.width):
        return None
    return items if form.kind == FIXED or form.is_strings else None
