"""Encoding of shredded leaves into page bodies (layout and buffers), for all generations.

    all null, or no value      constant page with levels only
    single distinct value      constant page with the value, since 2.2, if there are no levels
    wide values                full-zip: single values can be read individually
    else                       mini-block: values are compressed in chunks

The entry count of a mini-block chunk has 16 bits. If a page has more consecutive entries without a
value (thousands of empty lists before a non-empty one), it is split in two by rows, recursively; a
single row that exceeds the limit becomes a full-zip page.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

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
from lancelet.encodings.choice.choose import (
    LONG_BYTES,
    LONG_BYTES_BEFORE_2_2,
    SMALL_CHUNK_VALUES_BYTES,
    WIDE_BYTES,
    encode_dictionary_mini_block,
    encode_full_zip,
    encode_mini_block,
)
from lancelet.encodings.choice.options import EncodingOptions, StructuralEncoding
from lancelet.encodings.choice.trials import Trial
from lancelet.encodings.constant.value import constant_value
from lancelet.encodings.constant.write import (
    INLINE_BYTES_MAX,
    build_constant_value,
    build_empty_value,
    build_nulls,
)
from lancelet.encodings.fullzip.write import build_full_zip
from lancelet.encodings.levels import LayerKind, Layers, ShreddedLeaf
from lancelet.encodings.miniblock.write import build_mini_block
from lancelet.encodings.pages.layout import Body, PageBody
from lancelet.errors import UnsupportedError
from lancelet.values import replace


def encode_leaf(
    leaf: ShreddedLeaf,
    version: FileVersion,
    options: EncodingOptions,
    *,
    multiple: int = 1,
    first_row: int = 0,
    trials: Sequence[Trial] | None = None,
) -> Iterator[PageBody]:
    """Yield the pages of a leaf; pages are split at multiples of `multiple` rows only.

    `trials` of the encodings are given if they have been made.
    """
    body = _body(leaf, version, options, multiple, trials)
    if body is not None:
        yield PageBody(first_row, leaf.num_rows, leaf, body)
        return
    middle = leaf.num_rows // (2 * multiple) * multiple
    for part, row in zip(leaf.split(middle), (first_row, first_row + middle), strict=True):
        yield from encode_leaf(part, version, options, multiple=multiple, first_row=row)


def _body(
    leaf: ShreddedLeaf,
    version: FileVersion,
    options: EncodingOptions,
    multiple: int,
    trials: Sequence[Trial] | None,
) -> Body | None:
    """Return a page, or None if it must be split."""
    data_type = leaf.values.type
    if pa.types.is_struct(data_type) and data_type.num_fields == 0:
        return _encode_empty_struct(leaf)
    if not leaf.has_values:
        return build_nulls(leaf, has_level_encodings=version >= FileVersion.V2_2)
    if pa.types.is_dictionary(data_type):
        return _encode_dictionary(leaf, version, options, multiple)
    if has_no_bytes(data_type):
        return _encode_no_bytes(leaf, version)
    array = leaf.values
    if has_no_bytes(item_type(array.type)):
        array = _as_null_lists(leaf)
    block = block_from_arrow(array)
    value = None
    if leaf.repetition is None and leaf.definition is None:
        value = _constant(block, version)
    if value is not None:
        return build_constant_value(leaf.layers, value, [0])
    if not _needs_full_zip(block, version, options):
        chosen = encode_mini_block(block, version=version, options=options, trials=trials)
        body = build_mini_block(leaf, chosen, version=version)
        if body is not None or leaf.num_rows > multiple:
            return body
    return build_full_zip(leaf, encode_full_zip(block, options=options))


def _constant(block: Block, version: FileVersion) -> FixedWidth | Variable | None:
    """Return the single distinct value of a page if a constant page can store it."""
    if version < FileVersion.V2_2 or not isinstance(block, FixedWidth | Variable):
        return None
    if not block.count or _is_single_long_string(block):
        return None
    value = constant_value(block)
    return value if value is not None and _can_be_constant(value, version) else None


def _is_single_long_string(block: FixedWidth | Variable) -> bool:
    """Return whether the block is a single long string, which is expensive to copy."""
    if block.count != 1 or isinstance(block, FixedWidth):
        return False
    return int(block.offsets[1]) - int(block.offsets[0]) > LONG_BYTES


def _can_be_constant(value: FixedWidth | Variable, version: FileVersion) -> bool:
    """Return whether a constant page can store the value; since 2.3 only inline in the message."""
    is_short = isinstance(value, FixedWidth) and len(value.data) <= INLINE_BYTES_MAX
    return is_short or version < FileVersion.V2_3


def _encode_empty_struct(leaf: ShreddedLeaf) -> Body:
    if leaf.definition is not None or leaf.repetition is not None:
        raise UnsupportedError(
            "a struct without children cannot be null or in a list", field=leaf.field.name
        )
    # The reference writes such structs as all-null, and expects levels otherwise.
    layers = Layers.of([LayerKind.NULLABLE_ITEM, *leaf.layers.kinds[1:]])
    return build_nulls(replace(leaf, layers=layers), has_level_encodings=False)


def _encode_no_bytes(leaf: ShreddedLeaf, version: FileVersion) -> Body:
    if version is not FileVersion.V2_2:
        raise UnsupportedError(
            "only files of version 2.2 can store non-null zero-length binary",
            field=leaf.field.name,
            version=version.value,
        )
    return build_empty_value(leaf)


def _as_null_lists(leaf: ShreddedLeaf) -> pa.Array:
    """Return lists of zero-length binary as lists of nulls."""
    lists = with_null_items(leaf.values)
    if lists is None:
        raise UnsupportedError(
            "no file version can store lists of non-null zero-length binary",
            field=leaf.field.name,
        )
    return lists


def _encode_dictionary(
    leaf: ShreddedLeaf, version: FileVersion, options: EncodingOptions, multiple: int
) -> Body | None:
    """Encode an Arrow dictionary without changing items or indices."""
    indices = block_from_arrow(leaf.values.indices)
    assert isinstance(indices, FixedWidth)
    items = block_from_arrow(leaf.values.dictionary)
    chosen = encode_dictionary_mini_block(indices, items, version=version, options=options)
    body = build_mini_block(leaf, chosen, version=version)
    if body is None and leaf.num_rows <= multiple:
        raise UnsupportedError(
            "too many consecutive null or empty lists for a dictionary column; write plain values",
            field=leaf.field.name,
        )
    return body


def _needs_full_zip(block: Block, version: FileVersion, options: EncodingOptions) -> bool:
    """Return whether a page requires or benefits from full-zip."""
    if isinstance(block, Fields):
        return not all(isinstance(child, FixedWidth) for child in block.children)
    longest, bytes_max = _value_bits(block) // 8, WIDE_BYTES - 1
    is_wide = False
    if isinstance(block, Variable):
        lengths = block.offsets[1:] - block.offsets[:-1]
        longest = int(lengths.max(initial=0))
        bytes_max = LONG_BYTES if version >= FileVersion.V2_2 else LONG_BYTES_BEFORE_2_2
        is_wide = int(block.offsets[-1]) - int(block.offsets[0]) >= WIDE_BYTES * block.count
    elif _item_bits(block) == 1:
        return False
    elif not _item_bits(block):
        return True  # lists of nulls have no bytes to split into chunks
    match options.structural_encoding:
        case StructuralEncoding.MINI_BLOCK:
            # A chunk has at least two values.
            return version < FileVersion.V2_2 and 2 * longest > SMALL_CHUNK_VALUES_BYTES
        case StructuralEncoding.FULL_ZIP:
            return True
        case _:
            return is_wide or longest > bytes_max


def _item_bits(block: Block) -> int:
    """Return the bit width of the innermost items, or 0 for strings."""
    while isinstance(block, FixedSizeList):
        block = block.items
    return block.bits if isinstance(block, FixedWidth) else 0


def _value_bits(block: Block) -> int:
    """Return the bit width of a value, or 0 for strings."""
    items = 1
    while isinstance(block, FixedSizeList):
        items, block = items * block.dimension, block.items
    return items * block.bits if isinstance(block, FixedWidth) else 0
