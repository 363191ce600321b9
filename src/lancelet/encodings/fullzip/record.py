"""The record of full-zip pages, by which a kernel reads single values of them."""

from __future__ import annotations

import numpy as np

from lancelet.buffers import Int64s
from lancelet.encodings.layout import FullZipLayout
from lancelet.encodings.run_record import (
    FIXED,
    FSST,
    ITEMS,
    POSITION_MAX,
    VARIABLE,
    ZIPPED_STRINGS,
    Form,
    Record,
    address,
    is_optional,
    own_table,
    symbol_words,
    value_codec,
)
from lancelet.encodings.stored_pages import StoredPages


def zipped_record(
    layout: FullZipLayout, pages: StoredPages, bounds: Int64s, form: Form
) -> Record | None:
    """Return the record of pages whose rows begin at `bounds`."""
    has_definition = layout.bits_def > 0
    codec = value_codec(layout.values)
    if codec is None or codec.compression or layout.bits_rep or layout.bits_def > 1:
        return None
    if not is_optional(layout.layers, has_definition=has_definition):
        return None
    if bool((pages.position.view(np.uint64) > POSITION_MAX).any()) or bool(
        (pages.size.view(np.uint64) > POSITION_MAX).any()
    ):
        return None
    if layout.value_bits is None:
        if not form.is_strings or codec.codec not in (VARIABLE, FSST):
            return None
        return _strings(layout, pages, codec.codec)
    if form.kind != FIXED or not codec.fits(form) or layout.value_bits != codec.bits:
        return None
    positions, _ = pages.buffers(0)
    words = [
        ITEMS,
        len(pages),
        address(bounds),
        address(positions),
        int(has_definition),
        int(has_definition) + form.width,
    ]
    return Record(np.array(words, np.int64), (bounds, positions))


def _strings(layout: FullZipLayout, pages: StoredPages, codec: int) -> Record | None:
    """Return the record of a page of strings, which has an index of where its rows begin."""
    rows = int(pages.length[0])
    width, rest = divmod(int(pages.size[1]), rows + 1)
    tables = own_table(layout.values) if codec == FSST else None
    symbols = symbol_words(tables, np.zeros(2, np.int64))
    if rest or width not in (1, 2, 4, 8) or symbols is None:
        return None
    symbol_numbers, kept = symbols
    words = [
        ZIPPED_STRINGS,
        rows,
        int(pages.position[1]),
        width,
        int(pages.position[0]),
        int(pages.size[0]),
        int(layout.bits_def > 0),
        (layout.length_bits or 0) // 8,
        codec,
        *symbol_numbers,
    ]
    return Record(np.array(words, np.int64), kept)
