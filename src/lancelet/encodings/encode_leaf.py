"""From shredded leaves to the bodies of their pages: layout and buffers, whatever the generation.

    all null, or no value      constant page of levels only
    one value all over         constant page with the value, from 2.2 on, if there are no levels
    wide values                full zip: a read of one value reads no other
    else                       mini-block: values are compressed by chunks

A chunk of a mini-block page counts its entries with 16 bits. Where more than that have no value
in a row (thousands of empty lists, then one that is not), the page is cut in two by rows, and
again, until it fits; a single row that still does not fit becomes a full-zip page.

Leaves that are alike, such as those of a wide table, are encoded at once; one is a batch of one.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from lancelet.buffers import Int64s
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
    encode_mini_blocks,
)
from lancelet.encodings.constant.value import build_value, constant_value
from lancelet.encodings.constant.write import (
    INLINE_BYTES_MAX,
    build_constant_value,
    build_empty_value,
    build_nulls,
)
from lancelet.encodings.fullzip.write import build_full_zip
from lancelet.encodings.layout import Body, PageBody
from lancelet.encodings.levels import LayerKind, Layers, ShreddedLeaf
from lancelet.encodings.miniblock.write import build_mini_blocks
from lancelet.encodings.options import EncodingOptions, StructuralEncoding
from lancelet.encodings.pages import Pages
from lancelet.errors import UnsupportedError
from lancelet.values import replace

WIDE_BYTES: Final = 256
"""Values of so many bytes or more, on average, are zipped."""

LONG_BYTES: Final = 64 * 1024
"""A single string of more bytes makes all strings of a page zipped."""

LONG_BYTES_BEFORE_2_2: Final = 4096
"""The same while chunks had 32 KiB at most."""


def encode_leaf(
    leaf: ShreddedLeaf,
    version: FileVersion,
    options: EncodingOptions,
    *,
    count: int = 1,
    multiple: int = 1,
    first_row: int = 0,
) -> Iterator[PageBody]:
    """Yield the pages of a leaf; they are cut at multiples of `multiple` rows only.

    Of like columns, `leaf` has the plain values of all, one behind the other, and `count` of them.
    """
    rows = leaf.num_rows // count
    for which, body in _bodies(leaf, count, version, options, multiple):
        if body is not None:
            yield PageBody(first_row, rows, leaf, body)
            continue
        middle = rows // (2 * multiple) * multiple
        for place in which:
            parts = leaf.page(place, count).cut(middle)
            for part, row in zip(parts, (first_row, first_row + middle), strict=True):
                for page in encode_leaf(part, version, options, multiple=multiple, first_row=row):
                    yield replace(page, body=replace(page.body, which=[place]))


def _bodies(
    leaf: ShreddedLeaf, count: int, version: FileVersion, options: EncodingOptions, multiple: int
) -> Iterator[tuple[Sequence[int], Body | None]]:
    """Yield the bodies of pages, or `None` for those that have to be cut in two."""
    data_type = leaf.values.type
    if pa.types.is_struct(data_type) and data_type.num_fields == 0:
        yield [0], _encode_empty_struct(leaf)
    elif not leaf.has_values:
        has_encodings = version >= FileVersion.V2_2
        yield range(count), build_nulls(leaf, count, has_level_encodings=has_encodings)
    elif pa.types.is_dictionary(data_type):
        yield [0], _encode_dictionary(leaf, version, options, multiple)
    elif has_no_bytes(data_type):
        yield [0], _encode_no_bytes(leaf, version)
    else:
        yield from _encode(leaf, count, version, options, multiple)


def _encode(
    leaf: ShreddedLeaf, count: int, version: FileVersion, options: EncodingOptions, multiple: int
) -> Iterator[tuple[Sequence[int], Body | None]]:
    """Yield the bodies of pages that have values."""
    array = leaf.values
    if has_no_bytes(item_type(array.type)):
        array = _with_bytes(leaf)
    block = block_from_arrow(array)
    pages = Pages(block, len(array) // count, count)
    waiting: npt.NDArray[np.bool_] = np.ones(count, np.bool_)
    if leaf.repetition is None and leaf.definition is None:
        for repeating, value in _constants(pages, version):
            waiting[repeating] = False
            yield repeating, build_constant_value(leaf.layers, value, repeating)
    is_zipped = _wants_full_zip(pages, version, options) & waiting
    in_chunks = (waiting & ~is_zipped).nonzero()[0]
    if len(in_chunks):
        for chosen in encode_mini_blocks(pages.take(in_chunks), version=version, options=options):
            own = replace(chosen, which=in_chunks[chosen.which])
            for which, body in build_mini_blocks(leaf, count, own, version=version):
                if body is None and leaf.num_rows <= multiple * count:
                    is_zipped[which] = True
                else:
                    yield which, body
    for place in is_zipped.nonzero()[0].tolist():
        values = encode_full_zip(pages.page(place), options=options)
        yield [place], build_full_zip(leaf.page(place, count), values, place)


def _constants(
    pages: Pages, version: FileVersion
) -> Iterator[tuple[list[int], FixedWidth | Variable]]:
    """Yield the pages that have one value all over, those of the same value together."""
    if version < FileVersion.V2_2 or not isinstance(pages.block, FixedWidth | Variable):
        return
    if not pages.rows or _is_one_long(pages.block):
        return
    found: dict[bytes, tuple[list[int], FixedWidth | Variable]] = {}
    for place in pages.ends_are_equal().nonzero()[0].tolist():
        block = pages.page(place)
        assert isinstance(block, FixedWidth | Variable)
        value = constant_value(block)
        if value is not None and _can_be_constant(value, version):
            found.setdefault(build_value(value).tobytes(), ([], value))[0].append(place)
    yield from found.values()


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
    return build_nulls(replace(leaf, layers=layers), 1, has_level_encodings=False)


def _encode_no_bytes(leaf: ShreddedLeaf, version: FileVersion) -> Body:
    if version is not FileVersion.V2_2:
        raise UnsupportedError(
            "only files of version 2.2 can store binary of no bytes that is not null",
            field=leaf.field.name,
            version=version.value,
        )
    return build_empty_value(leaf)


def _with_bytes(leaf: ShreddedLeaf) -> pa.Array:
    """Return lists of binary of no bytes as the lists of nulls they are."""
    lists = with_null_items(leaf.values)
    if lists is None:
        raise UnsupportedError(
            "no file can store lists of binary of no bytes that is not null",
            field=leaf.field.name,
        )
    return lists


def _encode_dictionary(
    leaf: ShreddedLeaf, version: FileVersion, options: EncodingOptions, multiple: int
) -> Body | None:
    """Encode an Arrow dictionary as it is, items and indices."""
    indices = block_from_arrow(leaf.values.indices)
    assert isinstance(indices, FixedWidth)
    items = block_from_arrow(leaf.values.dictionary)
    chosen = encode_dictionary_mini_block(indices, items, version=version, options=options)
    ((_, body),) = build_mini_blocks(leaf, 1, chosen, version=version)
    if body is None and leaf.num_rows <= multiple:
        raise UnsupportedError(
            "a row has too many null or empty lists in a row for a dictionary; write plain values",
            field=leaf.field.name,
        )
    return body


def _wants_full_zip(
    pages: Pages, version: FileVersion, options: EncodingOptions
) -> npt.NDArray[np.bool_]:
    """Return which pages are better read value by value than by the chunk, or can be no other."""
    block = pages.block
    if not isinstance(block, Variable):
        return np.full(pages.count, _are_wide(block, version, options))
    lengths = (block.offsets[1:] - block.offsets[:-1]).reshape(pages.count, -1)
    longest = lengths.max(axis=1, initial=0).astype(np.int64)
    found: npt.NDArray[np.bool_]
    match options.structural_encoding:
        case StructuralEncoding.MINI_BLOCK:
            found = ~_fit_mini_block(2 * longest, version)
        case StructuralEncoding.FULL_ZIP:
            found = np.ones(pages.count, np.bool_)
        case _:
            most = LONG_BYTES if version >= FileVersion.V2_2 else LONG_BYTES_BEFORE_2_2
            total = pages.raw_bytes - pages.rows * block.offsets.itemsize
            found = (total >= WIDE_BYTES * pages.rows) | (longest > most)
    return found


def _are_wide(block: Block, version: FileVersion, options: EncodingOptions) -> bool:
    """Return the same for values other than strings."""
    if isinstance(block, Fields):
        return not all(isinstance(child, FixedWidth) for child in block.children)
    if _item_bits(block) == 1:
        return False
    if isinstance(block, FixedSizeList) and not _item_bits(block):
        return True  # lists of null, which have no bytes that could be cut into chunks
    match options.structural_encoding:
        case StructuralEncoding.MINI_BLOCK:
            return not _fit_mini_block(2 * np.array(_value_bits(block) // 8), version)
        case StructuralEncoding.FULL_ZIP:
            return True
        case _:
            return _value_bits(block) >= WIDE_BYTES * 8


def _fit_mini_block(pair_bytes: Int64s, version: FileVersion) -> npt.NDArray[np.bool_]:
    """Return where a chunk has room for the two values that it must have at least."""
    fit: npt.NDArray[np.bool_] = pair_bytes <= SMALL_CHUNK_VALUES_BYTES
    return fit | (version >= FileVersion.V2_2)


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
