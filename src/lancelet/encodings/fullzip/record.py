"""What a kernel must know of full-zip pages to read single values of them."""

from __future__ import annotations

import numpy as np

from lancelet.buffers import Int64s
from lancelet.encodings.layout import FullZipLayout
from lancelet.encodings.run_record import (
    FIXED,
    FSST,
    POSITION_MAX,
    VARIABLE,
    Form,
    is_optional,
    known_symbols,
    own_table,
    value_codec,
)
from lancelet.encodings.stored_pages import StoredPages
from lancelet.kernels import ItemRun, ZippedRun


def zipped_run(
    layout: FullZipLayout, pages: StoredPages, bounds: Int64s, form: Form
) -> ItemRun | ZippedRun | None:
    """Return what is known of pages whose rows begin at `bounds`."""
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
    return ItemRun(bounds, positions, has_definition, has_definition + form.width)


def _strings(layout: FullZipLayout, pages: StoredPages, codec: int) -> ZippedRun | None:
    """Return what is known of a page of strings, with an index of where its rows begin."""
    rows = int(pages.length[0])
    width, rest = divmod(int(pages.size[1]), rows + 1)
    if rest or width not in (1, 2, 4, 8):
        return None
    symbols = None
    if codec == FSST:
        tables = own_table(layout.values)
        symbols = None if tables is None else known_symbols(tables, np.zeros(2, np.int64))
        if symbols is None:
            return None
    return ZippedRun(
        rows=rows,
        index_position=int(pages.position[1]),
        index_width=width,
        position=int(pages.position[0]),
        size=int(pages.size[0]),
        has_definition=layout.bits_def > 0,
        length_bytes=(layout.length_bits or 0) // 8,
        codec=codec,
        symbols=symbols,
    )
