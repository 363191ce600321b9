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

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import partial
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
from lancelet.encodings.miniblock.tiny import build_tiny
from lancelet.encodings.miniblock.write import build_mini_blocks
from lancelet.encodings.options import EncodingOptions, StructuralEncoding
from lancelet.encodings.pages import Pages
from lancelet.errors import UnsupportedError

WIDE_BYTES: Final = 256
"""Values of so many bytes or more, on average, are zipped."""

LONG_BYTES: Final = 64 * 1024
"""A single string of more bytes makes all strings of a page zipped."""

LONG_BYTES_BEFORE_2_2: Final = 4096
"""The same while chunks had 32 KiB at most."""


_MANY: Final = 16
"""So many tiny pages take less time together than one by one."""

_PROBED: Final = 64
"""How many values are compared before all are."""


def encode_leaves(
    leaves: Sequence[ShreddedLeaf],
    version: FileVersion,
    options: EncodingOptions,
    *,
    multiple: int = 1,
    first_row: int = 0,
) -> list[list[PageBody]]:
    """Return the pages of each leaf; they are cut at multiples of `multiple` rows only.

    Several leaves have plain values of one type, and one number of them.
    """
    pages: list[list[PageBody]] = []
    for leaf, body in zip(leaves, _bodies(leaves, version, options, multiple), strict=True):
        if body is not None:
            pages.append([PageBody(first_row, leaf, body)])
            continue
        middle = leaf.num_rows // (2 * multiple) * multiple
        own: list[PageBody] = []
        for part, row in zip(leaf.cut(middle), (first_row, first_row + middle), strict=True):
            own += encode_leaves([part], version, options, multiple=multiple, first_row=row)[0]
        pages.append(own)
    return pages


def _bodies(
    leaves: Sequence[ShreddedLeaf], version: FileVersion, options: EncodingOptions, multiple: int
) -> list[Body | None]:
    """Return the body of the one page of each leaf, or `None` if it has to be cut in two."""
    bodies: dict[int, Body | None] = {}
    plain: list[int] = []
    data_type = leaves[0].values.type
    encode: Callable[[ShreddedLeaf], Body | None] | None = None
    if pa.types.is_dictionary(data_type):
        encode = partial(_encode_dictionary, version=version, options=options, multiple=multiple)
    elif has_no_bytes(data_type):
        encode = partial(_encode_no_bytes, version=version)
    is_empty = pa.types.is_struct(data_type) and data_type.num_fields == 0
    is_few = len(leaves) < _MANY and options == EncodingOptions() and encode is None
    for place, leaf in enumerate(leaves):
        if is_few and leaf.repetition is None and leaf.definition is None and len(leaf.values):
            bodies[place] = build_tiny(leaf, version)
            if bodies[place] is not None:
                continue
        if is_empty:
            bodies[place] = _encode_empty_struct(leaf)
        elif not leaf.has_values:
            bodies[place] = build_nulls(leaf, has_level_encodings=version >= FileVersion.V2_2)
        elif encode is not None:
            bodies[place] = encode(leaf)
        else:
            plain.append(place)
    if plain:
        found = _encode([leaves[place] for place in plain], version, options, multiple)
        bodies |= zip(plain, found, strict=True)
    return [bodies[place] for place in range(len(leaves))]


def _encode(
    leaves: Sequence[ShreddedLeaf], version: FileVersion, options: EncodingOptions, multiple: int
) -> list[Body | None]:
    """Return the body of the page of each leaf that has values."""
    arrays = [leaf.values for leaf in leaves]
    if has_no_bytes(item_type(arrays[0].type)):
        arrays = [_with_bytes(leaf) for leaf in leaves]
    block = block_from_arrow(arrays[0] if len(arrays) == 1 else pa.concat_arrays(arrays))
    pages = Pages(block, len(arrays[0]), len(arrays))
    found: list[Body | None] = [None] * len(leaves)
    waiting: npt.NDArray[np.bool_] = np.ones(len(leaves), np.bool_)
    for place, value in _constants(leaves, pages, version):
        waiting[place] = False
        found[place] = build_constant_value(leaves[place], value)
    is_zipped = _wants_full_zip(pages, version, options) & waiting
    in_chunks = np.flatnonzero(waiting & ~is_zipped)
    if len(in_chunks):
        kept = [leaves[place] for place in in_chunks.tolist()]
        for chosen in encode_mini_blocks(pages.take(in_chunks), version=version, options=options):
            for at, body in build_mini_blocks(kept, chosen, version=version):
                place = int(in_chunks[at])
                found[place] = body
                is_zipped[place] = body is None and leaves[place].num_rows <= multiple
    for place in np.flatnonzero(is_zipped).tolist():
        values = encode_full_zip(pages.page(place), options=options)
        found[place] = build_full_zip(leaves[place], values)
    return found


def _constants(
    leaves: Sequence[ShreddedLeaf], pages: Pages, version: FileVersion
) -> Iterator[tuple[int, FixedWidth | Variable]]:
    """Yield the pages that have one value all over and no levels, and the value."""
    if version < FileVersion.V2_2 or not isinstance(pages.block, FixedWidth | Variable):
        return
    if not pages.rows or _is_one_long(pages.block):
        return
    probe = pages.parts([(0, min(pages.rows, _PROBED))])
    for place in np.flatnonzero(probe.repeats[0] == 1).tolist():
        leaf = leaves[place]
        if leaf.repetition is None and leaf.definition is None:
            block = pages.page(place)
            assert isinstance(block, FixedWidth | Variable)
            value = constant_value(block)
            if value is not None and _can_be_constant(value, version):
                yield place, value


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
    ((_, body),) = build_mini_blocks([leaf], chosen, version=version)
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
    lengths = np.diff(block.offsets).reshape(pages.count, -1)
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
