"""From a shredded leaf to the bodies of its pages: layout and buffers, whatever the generation.

    all null, or no value      constant page of levels only
    one value all over         constant page with the value, from 2.2 on, if there are no levels
    wide values                full zip: a read of one value reads no other
    else                       mini-block: values are compressed by chunks

A chunk of a mini-block page counts its entries with 16 bits. Where more than that have no value
in a row (thousands of empty lists, then one that is not), the page is cut in two by rows, and
again, until it fits; a single row that still does not fit becomes a full-zip page.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Final

import numpy as np
import pyarrow as pa

from lancelet.encodings.arrow import block_from_arrow, has_no_bytes, item_type, with_null_items
from lancelet.encodings.base import (
    Block,
    Fields,
    FileVersion,
    FixedSizeList,
    FixedWidth,
    Variable,
)
from lancelet.encodings.choose import (
    SMALL_CHUNK_VALUES_BYTES,
    encode_dictionary_mini_block,
    encode_full_zip,
    encode_mini_block,
)
from lancelet.encodings.constant.value import constant_value
from lancelet.encodings.constant.write import (
    INLINE_BYTES_MAX,
    build_constant_value,
    build_empty_value,
    build_nulls,
)
from lancelet.encodings.fullzip.write import build_full_zip
from lancelet.encodings.layout import Body, PageBody
from lancelet.encodings.levels import LayerKind, Layers, ShreddedLeaf
from lancelet.encodings.miniblock.write import build_mini_block
from lancelet.encodings.options import EncodingOptions, StructuralEncoding
from lancelet.errors import UnsupportedError

WIDE_BYTES: Final = 256
"""Values of so many bytes or more, on average, are zipped."""

LONG_BYTES: Final = 64 * 1024
"""A single string of more bytes makes all strings of a page zipped."""

LONG_BYTES_BEFORE_2_2: Final = 4096
"""The same while chunks had 32 KiB at most."""


def encode_leaf(
    leaf: ShreddedLeaf, version: FileVersion, options: EncodingOptions, *, multiple: int = 1
) -> Iterator[PageBody]:
    """Yield the pages of a leaf; they are cut at multiples of `multiple` rows only."""
    waiting = [(0, leaf)]
    while waiting:
        first_row, part = waiting.pop()
        num_rows = part.num_rows
        body = _encode(part, version, options, can_be_cut=num_rows > multiple)
        if body is not None:
            yield PageBody(first_row, part, body)
            continue
        middle = num_rows // (2 * multiple) * multiple
        head, tail = part.cut(middle)
        waiting += [(first_row + middle, tail), (first_row, head)]


def _encode(
    leaf: ShreddedLeaf, version: FileVersion, options: EncodingOptions, *, can_be_cut: bool
) -> Body | None:
    """Return the body of one page, or `None` if it has to be cut in two."""
    has_2_2 = version >= FileVersion.V2_2
    data_type = leaf.values.type
    if pa.types.is_struct(data_type) and data_type.num_fields == 0:
        return _encode_empty_struct(leaf)
    if not leaf.has_values:
        return build_nulls(leaf, has_level_encodings=has_2_2)
    if pa.types.is_dictionary(data_type):
        return _encode_dictionary(leaf, version, options, can_be_cut=can_be_cut)
    if has_no_bytes(data_type):
        return _encode_no_bytes(leaf, version)
    block = block_from_arrow(_with_bytes(leaf))
    has_levels = leaf.repetition is not None or leaf.definition is not None
    if has_2_2 and not has_levels and isinstance(block, FixedWidth | Variable):
        value = None if _is_one_long(block) else constant_value(block)
        if value is not None and _can_be_constant(value, version):
            return build_constant_value(leaf, value)
    if not _wants_full_zip(block, version, options):
        chosen = encode_mini_block(block, version=version, options=options)
        body = build_mini_block(leaf, chosen, version=version)
        if body is not None or can_be_cut:
            return body
    return build_full_zip(leaf, encode_full_zip(block, options=options))


def _is_one_long(block: FixedWidth | Variable) -> bool:
    """Whether there is nothing to repeat, and much to copy."""
    if block.count != 1 or isinstance(block, FixedWidth):
        return False
    return int(block.offsets[1]) - int(block.offsets[0]) > LONG_BYTES


def _can_be_constant(value: FixedWidth | Variable, version: FileVersion) -> bool:
    """Whether the value of a constant page has a place: from 2.3 on only in the message."""
    is_short = isinstance(value, FixedWidth) and len(value.data) <= INLINE_BYTES_MAX
    return is_short or version < FileVersion.V2_3


def _encode_empty_struct(leaf: ShreddedLeaf) -> Body:
    if leaf.definition is not None or leaf.repetition is not None:
        raise UnsupportedError(
            "a struct without children cannot be null or lie in a list", field=leaf.field.name
        )
    # The reference writes such structs as if all were null, and looks for levels otherwise.
    layers = Layers.of([LayerKind.NULLABLE_ITEM, *leaf.layers.kinds[1:]])
    return build_nulls(replace(leaf, layers=layers), has_level_encodings=False)


def _encode_no_bytes(leaf: ShreddedLeaf, version: FileVersion) -> Body:
    if version is not FileVersion.V2_2:
        raise UnsupportedError(
            "only files of version 2.2 can store binary of no bytes that is not null",
            field=leaf.field.name,
            version=version.value,
        )
    return build_empty_value(leaf)


def _with_bytes(leaf: ShreddedLeaf) -> pa.Array:
    """Return the values of a leaf; lists of binary of no bytes as the lists of nulls they are."""
    if not has_no_bytes(item_type(leaf.values.type)):
        return leaf.values
    lists = with_null_items(leaf.values)
    if lists is None:
        raise UnsupportedError(
            "no file can store lists of binary of no bytes that is not null",
            field=leaf.field.name,
        )
    return lists


def _encode_dictionary(
    leaf: ShreddedLeaf, version: FileVersion, options: EncodingOptions, *, can_be_cut: bool
) -> Body | None:
    """Encode an Arrow dictionary as it is, items and indices."""
    indices = block_from_arrow(leaf.values.indices)
    assert isinstance(indices, FixedWidth)
    items = block_from_arrow(leaf.values.dictionary)
    chosen = encode_dictionary_mini_block(indices, items, version=version, options=options)
    body = build_mini_block(leaf, chosen, version=version)
    if body is None and not can_be_cut:
        raise UnsupportedError(
            "a row has too many null or empty lists in a row for a dictionary; write plain values",
            field=leaf.field.name,
        )
    return body


def _wants_full_zip(block: Block, version: FileVersion, options: EncodingOptions) -> bool:
    """Whether values are better read one by one than by the chunk, or can be in no other way."""
    if isinstance(block, Fields):
        return not all(isinstance(child, FixedWidth) for child in block.children)
    if _item_bits(block) == 1:
        return False
    if isinstance(block, FixedSizeList) and not _item_bits(block):
        return True  # lists of null, which have no bytes that could be cut into chunks
    if options.structural_encoding is StructuralEncoding.MINI_BLOCK:
        return not _fits_mini_block(block, version)
    if options.structural_encoding is StructuralEncoding.FULL_ZIP:
        return True
    if isinstance(block, Variable):
        longest = LONG_BYTES if version >= FileVersion.V2_2 else LONG_BYTES_BEFORE_2_2
        total = int(block.offsets[-1]) - int(block.offsets[0])
        return total >= WIDE_BYTES * block.count or int(np.diff(block.offsets).max()) > longest
    return _value_bits(block) >= WIDE_BYTES * 8


def _fits_mini_block(block: Block, version: FileVersion) -> bool:
    """Whether a chunk has room for the two values that it must have at least."""
    if version >= FileVersion.V2_2:
        return True
    widest = _value_bits(block) // 8
    if isinstance(block, Variable):
        widest = int(np.diff(block.offsets).max())
    return 2 * widest <= SMALL_CHUNK_VALUES_BYTES


def _item_bits(block: Block) -> int:
    """Return the bits of the innermost items, or 0 for strings."""
    while isinstance(block, FixedSizeList):
        block = block.items
    return block.bits if isinstance(block, FixedWidth) else 0


def _value_bits(block: Block) -> int:
    """Return the bits of a value, or 0 for strings."""
    items = 1
    while isinstance(block, FixedSizeList):
        items, block = items * block.dimension, block.items
    return items * block.bits if isinstance(block, FixedWidth) else 0
