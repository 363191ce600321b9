"""Encoding of shredded leaves into page bodies (layout and buffers), for all generations.

    all null, or no value      constant page with levels only
    single distinct value      constant page with the value, since 2.2, if there are no levels
    wide values                full-zip: single values can be read individually
    else                       mini-block: values are compressed in chunks

The entry count of a mini-block chunk has 16 bits. If a page has more consecutive entries without a
value (thousands of empty lists before a non-empty one), it is split in two by rows, recursively; a
single row that exceeds the limit becomes a full-zip page.

Compatible leaves, such as those of a wide table, are encoded together; one is a batch of one.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

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
from lancelet.encodings.choice.choose import (
    LONG_BYTES,
    LONG_BYTES_BEFORE_2_2,
    SMALL_CHUNK_VALUES_BYTES,
    WIDE_BYTES,
    encode_dictionary_mini_block,
    encode_full_zip,
    encode_mini_blocks,
)
from lancelet.encodings.choice.options import EncodingOptions, StructuralEncoding
from lancelet.encodings.constant.value import build_value, constant_value
from lancelet.encodings.constant.write import (
    INLINE_BYTES_MAX,
    build_constant_value,
    build_empty_value,
    build_nulls,
)
from lancelet.encodings.fullzip.write import build_full_zip
from lancelet.encodings.levels import LayerKind, Layers, ShreddedLeaf
from lancelet.encodings.miniblock.write import build_mini_blocks
from lancelet.encodings.pages.layout import Body, PageBody
from lancelet.encodings.pages.leaf_pages import Pages
from lancelet.errors import UnsupportedError
from lancelet.values import replace


def encode_leaf(
    leaf: ShreddedLeaf,
    version: FileVersion,
    options: EncodingOptions,
    *,
    count: int = 1,
    multiple: int = 1,
    first_row: int = 0,
) -> Iterator[PageBody]:
    """Yield the pages of a leaf; pages are split at multiples of `multiple` rows only.

    For a group of columns, `leaf` concatenates the plain values of all `count` columns.
    """
    rows = leaf.num_rows // count
    for page_indices, body in _bodies(leaf, count, version, options, multiple):
        if body is not None:
            yield PageBody(first_row, rows, leaf, body)
            continue
        middle = rows // (2 * multiple) * multiple
        for page_index in page_indices:
            parts = leaf.page(page_index, count).split(middle)
            for part, row in zip(parts, (first_row, first_row + middle), strict=True):
                for page in encode_leaf(part, version, options, multiple=multiple, first_row=row):
                    yield replace(page, body=replace(page.body, page_indices=[page_index]))


def _bodies(
    leaf: ShreddedLeaf, count: int, version: FileVersion, options: EncodingOptions, multiple: int
) -> Iterator[tuple[Sequence[int], Body | None]]:
    """Yield page bodies; `None` for pages that must be split."""
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
    """Yield the bodies of pages with values."""
    array = leaf.values
    if has_no_bytes(item_type(array.type)):
        array = _as_null_lists(leaf)
    block = block_from_arrow(array)
    pages = Pages(block, len(array) // count, count)
    is_pending: npt.NDArray[np.bool_] = np.ones(count, np.bool_)
    if leaf.repetition is None and leaf.definition is None:
        for constant_pages, value in _constants(pages, version):
            is_pending[constant_pages] = False
            yield constant_pages, build_constant_value(leaf.layers, value, constant_pages)
    is_zipped = _needs_full_zip(pages, version, options) & is_pending
    chunked = (is_pending & ~is_zipped).nonzero()[0]
    if len(chunked):
        for chosen in encode_mini_blocks(pages.take(chunked), version=version, options=options):
            mini_blocks = replace(chosen, page_indices=chunked[chosen.page_indices])
            for page_indices, body in build_mini_blocks(leaf, count, mini_blocks, version=version):
                if body is None and leaf.num_rows <= multiple * count:
                    is_zipped[page_indices] = True
                else:
                    yield page_indices, body
    for page in is_zipped.nonzero()[0].tolist():
        values = encode_full_zip(pages.page(page), options=options)
        yield [page], build_full_zip(leaf.page(page, count), values, page)


def _constants(
    pages: Pages, version: FileVersion
) -> Iterator[tuple[list[int], FixedWidth | Variable]]:
    """Yield pages with a single distinct value, grouped by value."""
    if version < FileVersion.V2_2 or not isinstance(pages.block, FixedWidth | Variable):
        return
    if not pages.rows or _is_single_long_string(pages.block):
        return
    by_value: dict[bytes, tuple[list[int], FixedWidth | Variable]] = {}
    for page in pages.ends_are_equal().nonzero()[0].tolist():
        block = pages.page(page)
        assert isinstance(block, FixedWidth | Variable)
        value = constant_value(block)
        if value is not None and _can_be_constant(value, version):
            by_value.setdefault(build_value(value).tobytes(), ([], value))[0].append(page)
    yield from by_value.values()


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
    return build_nulls(replace(leaf, layers=layers), 1, has_level_encodings=False)


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
    ((_, body),) = build_mini_blocks(leaf, 1, chosen, version=version)
    if body is None and leaf.num_rows <= multiple:
        raise UnsupportedError(
            "too many consecutive null or empty lists for a dictionary column; write plain values",
            field=leaf.field.name,
        )
    return body


def _needs_full_zip(
    pages: Pages, version: FileVersion, options: EncodingOptions
) -> npt.NDArray[np.bool_]:
    """Return a mask of the pages that require or benefit from full-zip."""
    block = pages.block
    if not isinstance(block, Variable):
        return np.full(pages.count, _block_needs_full_zip(block, version, options))
    lengths = (block.offsets[1:] - block.offsets[:-1]).reshape(pages.count, -1)
    longest = lengths.max(axis=1, initial=0).astype(np.int64)
    is_zipped: npt.NDArray[np.bool_]
    match options.structural_encoding:
        case StructuralEncoding.MINI_BLOCK:
            is_zipped = ~_fit_mini_block(2 * longest, version)
        case StructuralEncoding.FULL_ZIP:
            is_zipped = np.ones(pages.count, np.bool_)
        case _:
            bytes_max = LONG_BYTES if version >= FileVersion.V2_2 else LONG_BYTES_BEFORE_2_2
            total = pages.raw_bytes - pages.rows * block.offsets.itemsize
            is_zipped = (total >= WIDE_BYTES * pages.rows) | (longest > bytes_max)
    return is_zipped


def _block_needs_full_zip(block: Block, version: FileVersion, options: EncodingOptions) -> bool:
    """Return whether blocks other than strings require or benefit from full-zip."""
    if isinstance(block, Fields):
        return not all(isinstance(child, FixedWidth) for child in block.children)
    if _item_bits(block) == 1:
        return False
    if isinstance(block, FixedSizeList) and not _item_bits(block):
        return True  # lists of nulls have no bytes to split into chunks
    match options.structural_encoding:
        case StructuralEncoding.MINI_BLOCK:
            return not _fit_mini_block(2 * np.array(_value_bits(block) // 8), version)
        case StructuralEncoding.FULL_ZIP:
            return True
        case _:
            return _value_bits(block) >= WIDE_BYTES * 8


def _fit_mini_block(pair_bytes: Int64s, version: FileVersion) -> npt.NDArray[np.bool_]:
    """Return where a chunk can hold the required minimum of two values."""
    fit: npt.NDArray[np.bool_] = pair_bytes <= SMALL_CHUNK_VALUES_BYTES
    return fit | (version >= FileVersion.V2_2)


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
