"""Messages of written 2.3 pages: dense structure, or sparse for all-null pages.

    mini-block    dense layers       chunked values with levels
    full zip      dense layers       zipped values with levels
    constant      dense layers       constant
    all null      sparse layers      no values; positions are buffers of the page

A sparse layer stores the positions of nulls or of valid slots, whichever are fewer.
"""

from __future__ import annotations

from typing import assert_never

import numpy as np
import pyarrow as pa

from lancelet.buffers import Bytes, ByteSlices, Int64s
from lancelet.encodings.base import FixedWidth
from lancelet.encodings.codecs.base import Encoding
from lancelet.encodings.codecs.flat import Flat
from lancelet.encodings.levels import (
    FixedListNode,
    Layers,
    LeafNode,
    ListNode,
    Path,
    ShreddedLeaf,
    StructNode,
    unravel,
)
from lancelet.encodings.pages.envelope import pack_any
from lancelet.encodings.pages.layout import ConstantLayout, FullZipLayout, MiniBlockLayout, PageBody
from lancelet.encodings.v2_3.open_page import PLANAR_LAYOUT_URL
from lancelet.format.protos import encodings23_pb as pb


def pack_page(path: Path, page: PageBody) -> tuple[bytes, tuple[ByteSlices, ...]]:
    """Return the enveloped message and the buffers of pages."""
    layout, buffers = page.body.layout, page.body.buffers
    match layout:
        case MiniBlockLayout():
            message = _dense(layout.layers, pb.ValuePlane(chunked=_chunked(layout)))
        case FullZipLayout():
            message = _dense(layout.layers, pb.ValuePlane(zipped=_zipped(layout)))
        case ConstantLayout(inline_value=None):
            structure, parts = sparse_structure(path, _null_array(path, page.leaf))
            buffers = tuple(map(ByteSlices.whole, parts))
            message = pb.PlanarLayout(
                structure=pb.StructuralPlane(sparse=structure),
                values=pb.ValuePlane(none=pb.NoValues()),
            )
        case ConstantLayout(inline_value=value):
            constant = pb.ConstantValue(scalar=value)
            message = _dense(layout.layers, pb.ValuePlane(constant=constant))
        case _:
            assert_never(layout)
    return pack_any(PLANAR_LAYOUT_URL, message), buffers


def _dense(layers: Layers, values: pb.ValuePlane) -> pb.PlanarLayout:
    names = [f"REPDEF_{kind.name}" for kind in layers.kinds]
    structure = pb.StructuralPlane(dense=pb.DenseStructure(layers=names))
    return pb.PlanarLayout(structure=structure, values=values)


def _chunked(layout: MiniBlockLayout) -> pb.ChunkedValues:
    return pb.ChunkedValues(
        compression=_encoding(layout.values),
        levels=pb.DenseChunkLevels(
            repetition=_optional(layout.repetition),
            definition=_optional(layout.definition),
            repetition_index_depth=layout.repetition_index_depth,
        ),
        dictionary=_optional(layout.dictionary),
        num_dictionary_items=layout.num_dictionary_items,
        num_buffers=layout.num_buffers,
        num_items=layout.num_values,
    )


def _zipped(layout: FullZipLayout) -> pb.ZippedValues:
    return pb.ZippedValues(
        compression=_encoding(layout.values),
        levels=pb.DenseZipLevels(bits_repetition=layout.bits_rep, bits_definition=layout.bits_def),
        bits_per_value=layout.value_bits,
        bits_per_offset=layout.length_bits,
        num_items=layout.num_items,
        num_visible_items=layout.num_visible_items,
    )


def sparse_structure(path: Path, array: pa.Array) -> tuple[pb.SparseStructure, tuple[Bytes, ...]]:
    """Return the sparse structure of a field with only the leaf at the end of `path`.

    Also returns the buffers with its positions, in order.
    """
    structure = pb.SparseStructure()
    buffers: list[Bytes] = []
    for node in path:
        layer = structure.layers.add()
        match node:
            case LeafNode():
                _add_validity(layer.validity, array, buffers)
            case StructNode():
                _add_validity(layer.validity, array, buffers)
                array = array.field(0)
            case FixedListNode(dimension=dimension):
                layer.fixed_size_list.dimension = dimension
                _add_validity(layer.fixed_size_list.validity, array, buffers)
                array = array.values
            case ListNode():
                _add_lists(layer.list, array, buffers)
                array = array.values
    return structure, tuple(buffers)


def _null_array(path: Path, leaf: ShreddedLeaf) -> pa.Array:
    """Return the array of a leaf without valid values."""
    data_type = path[-1].data_type
    values = pa.nulls(len(leaf.values))
    if pa.types.is_struct(data_type) and data_type.num_fields == 0:
        # A struct without children has no values and is never null.
        values = pa.Array.from_buffers(data_type, len(leaf.values), [None])
    return unravel(
        path,
        leaf.layers,
        repetition=leaf.repetition,
        definition=leaf.definition,
        values=values,
    )


def _add_lists(message: pb.SparseListLayer, array: pa.Array, buffers: list[Bytes]) -> None:
    offsets: Int64s = np.asarray(array.offsets).astype(np.int64)
    lengths = offsets[1:] - offsets[:-1]
    position = np.flatnonzero(lengths)
    message.num_child_slots = int(lengths.sum())
    message.num_non_empty_positions = len(position)
    message.non_empty_positions.CopyFrom(_numbers(position, buffers))
    message.counts.CopyFrom(_numbers(lengths[position], buffers))
    _add_validity(message.validity, array, buffers)


def _add_validity(message: pb.SparseValiditySet, array: pa.Array, buffers: list[Bytes]) -> None:
    is_valid = np.asarray(array.is_valid())
    are_nulls = 2 * array.null_count <= len(array)
    position = np.flatnonzero(~is_valid if are_nulls else is_valid)
    message.meaning = pb.SparseValiditySet.NULLS if are_nulls else pb.SparseValiditySet.VALIDS
    message.num_positions = len(position)
    message.positions.CopyFrom(_numbers(position, buffers))


def _numbers(numbers: Int64s, buffers: list[Bytes]) -> pb.CompressiveEncoding:
    """Encode positions or counts; an empty array needs no buffer."""
    if not len(numbers):
        return pb.CompressiveEncoding(constant=pb.Constant())
    block = FixedWidth(64, numbers.astype("<i8").view(np.uint8), len(numbers))
    encoded = Flat().encode_block(block)
    buffers.append(encoded.data)
    return _encoding(encoded.encoding)


def _optional(encoding: Encoding | None) -> pb.CompressiveEncoding | None:
    return None if encoding is None else _encoding(encoding)


def _encoding(encoding: Encoding) -> pb.CompressiveEncoding:
    """Convert an encoding to the 2.3 message; field numbers of both generations agree."""
    if isinstance(encoding, pb.CompressiveEncoding):
        return encoding
    return pb.CompressiveEncoding.FromString(encoding.SerializeToString())
