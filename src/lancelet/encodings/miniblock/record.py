"""The record of a run of mini-block pages, by which a kernel reads single values of them."""

from __future__ import annotations

import numpy as np

from lancelet.buffers import Bytes
from lancelet.encodings.layout import MiniBlockLayout
from lancelet.encodings.miniblock.head import MiniBlockHead
from lancelet.encodings.run_record import (
    CHUNKS,
    FIXED,
    FSST,
    Form,
    Record,
    ValueCodec,
    address,
    is_optional,
    item_words,
    own_table,
    symbol_words,
    value_codec,
)


def chunk_record(
    layout: MiniBlockLayout, head: MiniBlockHead, form: Form, tables: Bytes | None
) -> Record | None:
    """Return the record of pages whose levels are a bit each, if there are any.

    `tables` are the tables of symbols of pages that differ in them. What becomes known of the
    pages later is not in the record.
    """
    has_definition = layout.definition is not None
    codec = value_codec(layout.values)
    if codec is None or codec.num_buffers != layout.num_buffers:
        return None
    if not is_optional(layout.layers, has_definition=has_definition):
        return None
    items = _items(layout, head, form, codec)
    if codec.codec == FSST and tables is None:
        tables = own_table(layout.values)
    symbols = symbol_words(tables, head.first_chunk)
    if items is None or symbols is None:
        return None
    # A page counts as known after its chunks are, so what it says is read first.
    known = np.empty(0, np.uint8) if head.is_complete else head.known_chunks().view(np.uint8)
    symbol_numbers, kept = symbols
    words = [
        CHUNKS,
        len(head.position),
        address(head.first_value),
        address(known) if len(known) else 0,
        address(head.position),
        address(head.size),
        address(head.count),
        int(has_definition),
        4 if layout.has_large_chunks else 2,
        codec.compression,
        codec.codec,
        codec.bits,
        *symbol_numbers,
        *items,
    ]
    return Record(np.array(words, np.int64), (head, known, *kept), len(head.position))


def _items(
    layout: MiniBlockLayout, head: MiniBlockHead, form: Form, codec: ValueCodec
) -> tuple[int, ...] | None:
    """Return the words of the dictionary, or of none; None if the kernel cannot read it."""
    if layout.dictionary is None:
        return item_words(None) if codec.fits(form) else None
    dictionary = head.only_dictionary()
    if dictionary is None or codec.is_strings or codec.bits not in (8, 16, 32, 64):
        return None
    block = dictionary.items.block
    words = item_words(block)
    if words is None or (form.kind == FIXED and words[1] != form.width):
        return None
    return words if form.kind == FIXED or form.is_strings else None
