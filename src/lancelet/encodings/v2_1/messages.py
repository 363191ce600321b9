"""Conversion between messages of 2.1 and 2.2 pages and the shared layouts."""

from __future__ import annotations

from lancelet.encodings.codecs.base import Encoding
from lancelet.encodings.levels import Layers
from lancelet.encodings.pages.envelope import pack_any
from lancelet.encodings.pages.layout import ConstantLayout, FullZipLayout, Layout, MiniBlockLayout
from lancelet.format.protos import encodings21_pb as pb

PAGE_LAYOUT_URL = "/lance.encodings21.PageLayout"


def mini_block_from_message(message: pb.MiniBlockLayout) -> MiniBlockLayout:
    """Parse a mini-block layout."""
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


def full_zip_from_message(message: pb.FullZipLayout) -> FullZipLayout:
    """Parse a full-zip layout."""
    is_fixed = message.WhichOneof("details") == "bits_per_value"
    return FullZipLayout(
        layers=Layers.parse(message.layers),
        values=message.value_compression,
        bits_rep=message.bits_rep,
        bits_def=message.bits_def,
        value_bits=message.bits_per_value if is_fixed else None,
        length_bits=None if is_fixed else message.bits_per_offset,
        num_items=message.num_items,
        num_visible_items=message.num_visible_items,
    )


def constant_from_message(message: pb.ConstantLayout, *, num_buffers: int) -> ConstantLayout:
    """Parse a constant layout of a page with `num_buffers` buffers."""
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


def message_of(layout: Layout) -> pb.PageLayout:
    """Return the message of a layout."""
    match layout:
        case MiniBlockLayout():
            return pb.PageLayout(mini_block_layout=_mini_block(layout))
        case FullZipLayout():
            return pb.PageLayout(full_zip_layout=_full_zip(layout))
        case ConstantLayout():
            return pb.PageLayout(constant_layout=_constant(layout))


def pack_layout(message: pb.PageLayout) -> bytes:
    """Return the serialized envelope of a message."""
    return pack_any(PAGE_LAYOUT_URL, message)


def _mini_block(layout: MiniBlockLayout) -> pb.MiniBlockLayout:
    return pb.MiniBlockLayout(
        rep_compression=_encoding(layout.repetition),
        def_compression=_encoding(layout.definition),
        value_compression=_encoding(layout.values),
        dictionary=_encoding(layout.dictionary),
        num_dictionary_items=layout.num_dictionary_items,
        layers=layer_names(layout.layers),
        num_buffers=layout.num_buffers,
        repetition_index_depth=layout.repetition_index_depth,
        num_items=layout.num_values,
        has_large_chunk=layout.has_large_chunks,
    )


def _full_zip(layout: FullZipLayout) -> pb.FullZipLayout:
    return pb.FullZipLayout(
        bits_rep=layout.bits_rep,
        bits_def=layout.bits_def,
        bits_per_value=layout.value_bits,
        bits_per_offset=layout.length_bits,
        num_items=layout.num_items,
        num_visible_items=layout.num_visible_items,
        value_compression=_encoding(layout.values),
        layers=layer_names(layout.layers),
    )


def _constant(layout: ConstantLayout) -> pb.ConstantLayout:
    return pb.ConstantLayout(
        layers=layer_names(layout.layers),
        inline_value=layout.inline_value,
        rep_compression=_encoding(layout.repetition),
        def_compression=_encoding(layout.definition),
        num_rep_values=layout.num_repetition,
        num_def_values=layout.num_definition,
    )


def layer_names(layers: Layers) -> list[str]:
    """Return the protobuf enum names of layers."""
    return [f"REPDEF_{kind.name}" for kind in layers.kinds]


def _encoding(encoding: Encoding | None) -> pb.CompressiveEncoding | None:
    assert encoding is None or isinstance(encoding, pb.CompressiveEncoding)
    return encoding


def _optional(message: pb.MiniBlockLayout | pb.ConstantLayout, name: str) -> Encoding | None:
    return getattr(message, name) if message.HasField(name) else None
