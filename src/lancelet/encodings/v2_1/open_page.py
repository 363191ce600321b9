"""From the message of a 2.1 or 2.2 page to the reader of its layout."""

from __future__ import annotations

from lancelet.encodings.base import StoredPage
from lancelet.encodings.codecs.base import Encoding
from lancelet.encodings.constant import ConstantLayout, ConstantPage
from lancelet.encodings.envelope import unseal
from lancelet.encodings.fullzip.read import FullZipLayout, FullZipPage
from lancelet.encodings.leaf import LeafContext
from lancelet.encodings.levels import Layers
from lancelet.encodings.miniblock.read import MiniBlockLayout, MiniBlockPage
from lancelet.encodings.structural import PageReader
from lancelet.errors import UnsupportedError
from lancelet.format.protos import encodings21_pb as pb

PAGE_LAYOUT_URL = "/lance.encodings21.PageLayout"


def open_page(page: StoredPage, leaf: LeafContext, index: int) -> PageReader:
    """Return a reader of a page; `index` is its number in its column."""
    layout = unseal(page.encoding, PAGE_LAYOUT_URL, pb.PageLayout)
    return _open_layout(layout, page, leaf, index)


def _open_layout(
    layout: pb.PageLayout, page: StoredPage, leaf: LeafContext, index: int
) -> PageReader:
    match layout.WhichOneof("layout"):
        case "mini_block_layout":
            return MiniBlockPage(page, _mini_block(layout.mini_block_layout), leaf, index=index)
        case "constant_layout":
            return ConstantPage(page, _constant(layout.constant_layout, len(page.position)), leaf)
        case "full_zip_layout":
            return FullZipPage(page, _full_zip(layout.full_zip_layout), leaf)
        case unknown:
            raise UnsupportedError(
                "a page has a layout that this release does not know", layout=unknown
            )


def _mini_block(message: pb.MiniBlockLayout) -> MiniBlockLayout:
    return MiniBlockLayout(
        layers=Layers.parse(message.layers),
        values=message.value_compression,
        num_values=message.num_items,
        num_buffers=message.num_buffers,
        has_large_chunks=message.has_large_chunk,
        repetition=_optional(message, "rep_compression"),
        definition=_optional(message, "def_compression"),
        dictionary=_optional(message, "dictionary"),
        num_dictionary_items=message.num_dictionary_items,
        repetition_index_depth=message.repetition_index_depth,
    )


def _constant(message: pb.ConstantLayout, num_buffers: int) -> ConstantLayout:
    has_inline_value = message.HasField("inline_value")
    return ConstantLayout(
        layers=Layers.parse(message.layers),
        inline_value=message.inline_value if has_inline_value else None,
        has_value_buffer=not has_inline_value and num_buffers in (1, 3),
        repetition=_optional(message, "rep_compression"),
        definition=_optional(message, "def_compression"),
        num_repetition=message.num_rep_values,
        num_definition=message.num_def_values,
    )


def _full_zip(message: pb.FullZipLayout) -> FullZipLayout:
    is_fixed = message.WhichOneof("details") == "bits_per_value"
    return FullZipLayout(
        layers=Layers.parse(message.layers),
        values=message.value_compression,
        bits_rep=message.bits_rep,
        bits_def=message.bits_def,
        value_bits=message.bits_per_value if is_fixed else None,
        length_bits=None if is_fixed else message.bits_per_offset,
    )


def _optional(message: pb.MiniBlockLayout | pb.ConstantLayout, name: str) -> Encoding | None:
    return getattr(message, name) if message.HasField(name) else None
