"""Creation of page readers from messages of 2.3 pages."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from lancelet.encodings.base import StoredPage
from lancelet.encodings.codecs import registry
from lancelet.encodings.codecs.base import Encoding
from lancelet.encodings.constant.read import ConstantPage
from lancelet.encodings.fullzip.read import FullZipPage
from lancelet.encodings.levels import LayerKind, Layers, rows_multiple
from lancelet.encodings.miniblock.read import MiniBlockPages
from lancelet.encodings.pages.envelope import unpack_any
from lancelet.encodings.pages.layout import ConstantLayout, FullZipLayout, MiniBlockLayout
from lancelet.encodings.pages.leaf import LeafContext
from lancelet.encodings.pages.structural import PageReader
from lancelet.encodings.v2_3.sparse import SparsePage
from lancelet.encodings.v2_3.structure import count_slots
from lancelet.encodings.v2_3.values import (
    ChunkedValues,
    ConstantValues,
    IndexedValues,
    SparseValues,
    ZippedValues,
)
from lancelet.errors import UnsupportedError
from lancelet.format.protos import encodings23_pb as pb

PLANAR_LAYOUT_URL = "/lance.encodings23.PlanarLayout"

_NO_LEVELS = Layers.of([LayerKind.ALL_VALID_ITEM])


def open_page(pages: Sequence[StoredPage], leaf: LeafContext, index: int) -> PageReader:
    """Return a reader of a single page; `index` is its index in the column."""
    (page,) = pages
    layout = unpack_any(page.encoding, PLANAR_LAYOUT_URL, pb.PlanarLayout)
    match layout.structure.WhichOneof("structure"):
        case "dense":
            return _open_dense(page, layout, leaf, index)
        case "sparse":
            message = layout.structure.sparse
            num_slots = count_slots(message, page.length // rows_multiple(leaf.path))
            values = _sparse_values(page, layout.values, leaf, index=index, num_slots=num_slots)
            return SparsePage(page, message, values, leaf, index=index)
        case unknown:
            raise UnsupportedError(
                "unknown page structure; a newer release may support it", structure=unknown
            )


def _open_dense(
    page: StoredPage, layout: pb.PlanarLayout, leaf: LeafContext, index: int
) -> PageReader:
    layers = Layers.parse(layout.structure.dense.layers)
    values = layout.values
    match values.WhichOneof("values"):
        case "chunked":
            chunked = _chunked(values.chunked, layers, num_values=values.chunked.num_items)
            return _chunks(page, chunked, leaf, index)
        case "zipped":
            return FullZipPage([page], _zipped(values.zipped, layers), leaf)
        case "constant":
            return ConstantPage(page, ConstantLayout(layers, values.constant.scalar), leaf)
        case "none":
            return ConstantPage(page, ConstantLayout(layers, None), leaf)
        case unknown:
            raise _unknown(unknown)


def _sparse_values(
    page: StoredPage, values: pb.ValuePlane, leaf: LeafContext, *, index: int, num_slots: int
) -> SparseValues:
    match values.WhichOneof("values"):
        case "chunked":
            chunked = _chunked(values.chunked, _NO_LEVELS, num_values=num_slots)
            num_buffers = 2 + values.chunked.HasField("dictionary")
            chunks = _chunks(_part(page, 0, num_buffers, num_slots), chunked, leaf, index)
            return ChunkedValues(chunks, num_buffers=num_buffers)
        case "zipped":
            items, num_buffers = _items(page, 0, values.zipped, leaf)
            return ZippedValues(
                items,
                leaf,
                num_items=values.zipped.num_items,
                num_slots=num_slots,
                num_buffers=num_buffers,
            )
        case "indexed":
            indices = values.indexed.indices
            first = int(registry.owns_bytes(indices))
            items, num_buffers = _items(page, first, values.indexed.items, leaf)
            return IndexedValues(
                page,
                indices,
                items,
                leaf,
                num_items=values.indexed.items.num_items,
                num_slots=num_slots,
                num_buffers=first + num_buffers,
                index=index,
            )
        case "constant":
            return ConstantValues(values.constant.scalar, leaf)
        case "none":
            return ConstantValues(None, leaf)
        case unknown:
            raise _unknown(unknown)


def _chunks(
    page: StoredPage, layout: MiniBlockLayout, leaf: LeafContext, index: int
) -> MiniBlockPages:
    return MiniBlockPages(
        (page,),
        layout,
        leaf,
        num_values=(layout.num_values,),
        num_items=(layout.num_dictionary_items,),
        index=index,
    )


def _chunked(message: pb.ChunkedValues, layers: Layers, *, num_values: int) -> MiniBlockLayout:
    return MiniBlockLayout(
        layers=layers,
        values=message.compression,
        num_values=num_values,
        num_buffers=message.num_buffers,
        has_large_chunks=True,
        repetition=_optional(message.levels, "repetition"),
        definition=_optional(message.levels, "definition"),
        dictionary=_optional(message, "dictionary"),
        num_dictionary_items=message.num_dictionary_items,
        repetition_index_depth=message.levels.repetition_index_depth,
    )


def _zipped(message: pb.ZippedValues, layers: Layers) -> FullZipLayout:
    is_fixed = message.WhichOneof("details") == "bits_per_value"
    return FullZipLayout(
        layers=layers,
        values=message.compression,
        bits_rep=message.levels.bits_repetition,
        bits_def=message.levels.bits_definition,
        value_bits=message.bits_per_value if is_fixed else None,
        length_bits=None if is_fixed else message.bits_per_offset,
        num_items=message.num_items,
        num_visible_items=message.num_visible_items,
    )


def _items(
    page: StoredPage, first: int, message: pb.ZippedValues, leaf: LeafContext
) -> tuple[FullZipPage, int]:
    """Return a page of zipped values without levels, and the number of its buffers."""
    layout = _zipped(message, _NO_LEVELS)
    num_buffers = 2 if layout.value_bits is None else 1
    zipped = _part(page, first, num_buffers, layout.num_items)
    return FullZipPage([zipped], layout, leaf), num_buffers


def _part(page: StoredPage, first: int, num_buffers: int, num_rows: int) -> StoredPage:
    """Return the value buffers of a page as a page with a row per value."""
    buffers = slice(first, first + num_buffers)
    return replace(page, length=num_rows, position=page.position[buffers], size=page.size[buffers])


def _optional(message: pb.ChunkedValues | pb.DenseChunkLevels, name: str) -> Encoding | None:
    return getattr(message, name) if message.HasField(name) else None


def _unknown(name: str | None) -> UnsupportedError:
    return UnsupportedError(
        "unknown kind of page values; a newer release may support it", kind=name
    )
