"""From the message of a 2.1 or 2.2 page to the reader of its layout."""

from __future__ import annotations

from lancelet.encodings.base import StoredPage
from lancelet.encodings.constant.read import ConstantPage
from lancelet.encodings.envelope import unseal
from lancelet.encodings.fullzip.read import FullZipPage
from lancelet.encodings.leaf import LeafContext
from lancelet.encodings.levels import Layers
from lancelet.encodings.miniblock.read import MiniBlockPage
from lancelet.encodings.structural import PageReader
from lancelet.encodings.v2_1.blob import BlobPage, descriptor_context
from lancelet.encodings.v2_1.messages import (
    PAGE_LAYOUT_URL,
    constant_from_message,
    full_zip_from_message,
    mini_block_from_message,
)
from lancelet.errors import UnsupportedError
from lancelet.format.protos import encodings21_pb as pb


def open_page(page: StoredPage, leaf: LeafContext, index: int) -> PageReader:
    """Return a reader of a page; `index` is its number in its column."""
    layout = unseal(page.encoding, PAGE_LAYOUT_URL, pb.PageLayout)
    if layout.WhichOneof("layout") == "blob_layout":
        message = layout.blob_layout
        inner = _open_layout(message.inner_layout, page, descriptor_context(leaf), index)
        return BlobPage(inner, Layers.parse(message.layers), leaf)
    return _open_layout(layout, page, leaf, index)


def _open_layout(
    layout: pb.PageLayout, page: StoredPage, leaf: LeafContext, index: int
) -> PageReader:
    match layout.WhichOneof("layout"):
        case "mini_block_layout":
            mini_block = mini_block_from_message(layout.mini_block_layout)
            return MiniBlockPage(page, mini_block, leaf, index=index)
        case "constant_layout":
            constant = constant_from_message(layout.constant_layout, num_buffers=len(page.position))
            return ConstantPage(page, constant, leaf)
        case "full_zip_layout":
            return FullZipPage(page, full_zip_from_message(layout.full_zip_layout), leaf)
        case unknown:
            raise UnsupportedError(
                "a page has a layout that this release does not know", layout=unknown
            )
