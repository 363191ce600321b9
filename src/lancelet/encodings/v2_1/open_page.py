"""Creation of page readers from messages of 2.1 and 2.2 pages."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache

import numpy as np

from lancelet.encodings.base import StoredPage
from lancelet.encodings.codecs.fsst import message_with_table
from lancelet.encodings.constant.read import ConstantPage
from lancelet.encodings.fullzip.read import FullZipPage
from lancelet.encodings.levels import Layers
from lancelet.encodings.miniblock.read import MiniBlockPages
from lancelet.encodings.pages.envelope import unpack_any
from lancelet.encodings.pages.leaf import LeafContext
from lancelet.encodings.pages.stored_pages import StoredPages
from lancelet.encodings.pages.structural import PageReader
from lancelet.encodings.v2_1.blob import BlobPage, descriptor_context
from lancelet.encodings.v2_1.messages import (
    PAGE_LAYOUT_URL,
    constant_from_message,
    full_zip_from_message,
    mini_block_from_message,
)
from lancelet.errors import UnsupportedError
from lancelet.format.protos import encodings21_pb as pb


def page_key(encoding: bytes) -> bytes | None:
    """Return a key shared by all pages of a run, or `None` for pages read separately.

    The key is the message of a mini-block page without value and item counts, symbol table and
    compression level, or that of a full-zip page with one fixed-width item per row.
    """
    kind = pb.PageLayout()
    kind.CopyFrom(_parse(encoding))
    match kind.WhichOneof("layout"):
        case "mini_block_layout":
            kind.mini_block_layout.num_items = 0
            kind.mini_block_layout.num_dictionary_items = 0
            fsst = message_with_table(kind.mini_block_layout.value_compression)
            if fsst is not None:
                fsst.ClearField("symbol_table")
            _clear_levels(kind.mini_block_layout.value_compression)
            _clear_levels(kind.mini_block_layout.dictionary)
        case "full_zip_layout":
            full_zip = kind.full_zip_layout
            if not full_zip.HasField("bits_per_value") or Layers.parse(full_zip.layers).rep_max:
                return None
            full_zip.num_items = full_zip.num_visible_items = 0
        case _:
            return None
    return kind.SerializeToString()


def _clear_levels(encoding: pb.CompressiveEncoding) -> None:
    while encoding.WhichOneof("compression") == "general":
        encoding.general.compression.ClearField("level")
        encoding = encoding.general.values


def open_pages(pages: Sequence[StoredPage], leaf: LeafContext, index: int) -> PageReader:
    """Return a reader of pages with the same key; `index` is that of the first in its column."""
    pages = StoredPages.of(pages)
    layout = _parse(pages.encodings[pages.encoding[0]])
    if layout.WhichOneof("layout") == "blob_layout":
        message = layout.blob_layout
        inner = _open_layout(message.inner_layout, pages, descriptor_context(leaf), index)
        return BlobPage(inner, Layers.parse(message.layers), leaf)
    return _open_layout(layout, pages, leaf, index)


def _open_layout(
    layout: pb.PageLayout, pages: StoredPages, leaf: LeafContext, index: int
) -> PageReader:
    match layout.WhichOneof("layout"):
        case "mini_block_layout":
            return _open_mini_block(layout.mini_block_layout, pages, leaf, index)
        case "constant_layout":
            page = pages[0]
            constant = constant_from_message(layout.constant_layout, num_buffers=len(page.position))
            return ConstantPage(page, constant, leaf)
        case "full_zip_layout":
            return FullZipPage(pages, full_zip_from_message(layout.full_zip_layout), leaf)
        case unknown:
            raise UnsupportedError(
                "unknown page layout; a newer release may support it", layout=unknown
            )


def _open_mini_block(
    message: pb.MiniBlockLayout, pages: StoredPages, leaf: LeafContext, index: int
) -> MiniBlockPages:
    messages = [message]
    if len(pages) > 1:
        by_encoding = {
            kind: _parse(pages.encodings[kind]).mini_block_layout
            for kind in np.unique(pages.encoding).tolist()
        }
        messages = [by_encoding[kind] for kind in pages.encoding.tolist()]
    return MiniBlockPages(
        pages,
        mini_block_from_message(message),
        leaf,
        num_values=[each.num_items for each in messages],
        num_items=[each.num_dictionary_items for each in messages],
        index=index,
        symbol_tables=_symbol_tables(messages),
    )


def _symbol_tables(messages: Sequence[pb.MiniBlockLayout]) -> list[bytes]:
    """Return the symbol table of each page, or nothing unless they differ."""
    fsst_messages = [message_with_table(message.value_compression) for message in messages]
    tables = [message.symbol_table for message in fsst_messages if message is not None]
    return tables if len(set(tables)) > 1 else []


@lru_cache(maxsize=256)
def _parse(encoding: bytes) -> pb.PageLayout:
    """Parse the message of a page; cached, so callers must not modify it."""
    return unpack_any(encoding, PAGE_LAYOUT_URL, pb.PageLayout)
