"""Decoded rows of a page: levels, and values in slots.

    rows 2..4 of list<int>      [[5], null, [6, 7]]
    repetition                   1    1     1  0
    definition                   0    1     0  0
    values                       5          6  7

`Selection` selects slots of decoded blocks: a contiguous run, which is free, or slot indices, which
are gathered. Nulls are inserted during selection, without a second pass.
"""

from __future__ import annotations

from typing import TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from lancelet.buffers import Bytes, Int64s
from lancelet.encodings.arrow import arrow_from_block, block_from_arrow
from lancelet.encodings.base import Block, Fields, FixedSizeList, FixedWidth, HeaderCache, Variable
from lancelet.encodings.codecs.dictionary import take_items
from lancelet.encodings.levels.layers import Layers
from lancelet.encodings.levels.nesting import Path
from lancelet.errors import ArrayOverflowError, CorruptDataError
from lancelet.kernels import Levels
from lancelet.values import cached_property, dataclass

Selection: TypeAlias = slice | Int64s
"""Selected slots: a run (`slice(start, stop)`) or indices."""


@dataclass(frozen=True, slots=True, eq=False)
class LeafRows:
    """Decoded rows of one leaf; `values` has a slot per visible entry."""

    layers: Layers
    repetition: Levels | None
    definition: Levels | None
    values: pa.Array


@dataclass(frozen=True, slots=True, eq=False)
class LeafContext:
    """The column of a page: value type, enclosing nodes, and the metadata cache."""

    data_type: pa.DataType
    path: Path
    column: int
    header_cache: HeaderCache | None


@dataclass(frozen=True, eq=False)
class Items:
    """Dictionary items as array and as block; every read needs both."""

    array: pa.Array

    @cached_property
    def block(self) -> Block:
        """The items as a block."""
        return block_from_arrow(self.array)


def values_from_block(
    block: Block, data_type: pa.DataType, selection: Selection, validity: Bytes | None
) -> pa.Array:
    """Return selected slots of a block as an array, null where `validity` bits are 0."""
    if isinstance(selection, slice):
        return arrow_from_block(
            slice_block(block, selection.start, selection.stop), data_type, validity
        )
    return take_values(arrow_from_block(block, data_type, None), selection, validity)


def values_from_dictionary(
    block: Block,
    items: Items,
    data_type: pa.DataType,
    selection: Selection,
    validity: Bytes | None,
) -> pa.Array:
    """Return the dictionary items of selected slots of an index block.

    Arrow dictionary types share the items without a copy.
    """
    indices = to_indices(block)[selection]
    if not pa.types.is_dictionary(data_type):
        values = take_items(items.block, indices, validity)
        return arrow_from_block(values, data_type, validity)
    flags = None if validity is None else _flags(validity, len(indices))
    used = indices if flags is None else indices[flags]
    if len(used) and int(used.max()) >= len(items.array):
        raise CorruptDataError(
            "a dictionary index of a page is out of bounds",
            index=int(used.max()),
            items=len(items.array),
        )
    if flags is not None:
        # Values under nulls are arbitrary and may be out of bounds.
        indices = np.where(flags, indices, indices.dtype.type(0))
    key_bytes = data_type.index_type.bit_width // 8
    if indices.itemsize != key_bytes:
        indices = indices.astype(f"u{key_bytes}")
    keys = arrow_from_block(
        FixedWidth(indices.itemsize * 8, indices.view(np.uint8), len(indices)),
        data_type.index_type,
        validity,
    )
    return pa.DictionaryArray.from_arrays(keys, items.array, ordered=data_type.ordered, safe=False)


def take_values(
    values: pa.Array, indices: npt.NDArray[np.integer], validity: Bytes | None
) -> pa.Array:
    """Return values by index, null where `validity` bits are 0."""
    mask = None if validity is None else ~_flags(validity, len(indices))
    try:
        return values.take(pa.array(indices, mask=mask))
    except pa.ArrowInvalid as error:
        raise ArrayOverflowError(
            "the rows do not fit into one array; read fewer rows at a time",
            rows=len(indices),
            type=str(values.type),
        ) from error


def slice_block(block: Block, start: int, stop: int) -> Block:
    """Return a contiguous run of values, as a view unless bits must be shifted.

    >>> slice_block(FixedWidth(16, np.arange(8, dtype=np.uint8), 4), 1, 3).data.tolist()
    [2, 3, 4, 5]
    """
    match block:
        case FixedWidth(bits=1, data=data):
            return FixedWidth(1, _slice_bits(data, start, stop), stop - start)
        case FixedWidth(bits=bits, data=data):
            size = bits // 8
            return FixedWidth(bits, data[start * size : stop * size], stop - start)
        case Variable(offsets=offsets, data=data):
            return Variable(offsets[start : stop + 1], data)
        case FixedSizeList(dimension=dimension, validity=validity, items=items):
            first, last = start * dimension, stop * dimension
            if validity is not None:
                validity = _slice_bits(validity, first, last)
            return FixedSizeList(dimension, validity, slice_block(items, first, last), stop - start)
        case Fields(children=children):
            return Fields(
                tuple(slice_block(child, start, stop) for child in children), stop - start
            )


def _slice_bits(data: Bytes, start: int, stop: int) -> Bytes:
    if start % 8 == 0:
        return data[start // 8 : (stop + 7) // 8]
    bits = np.unpackbits(data[start // 8 : (stop + 7) // 8], bitorder="little")
    return np.packbits(bits[start % 8 : start % 8 + stop - start], bitorder="little")


def to_indices(block: Block) -> npt.NDArray[np.unsignedinteger]:
    """Return an index block as unsigned integers."""
    if not isinstance(block, FixedWidth) or block.bits not in (8, 16, 32, 64):
        raise CorruptDataError(
            "the indices of a dictionary are not integers", found=type(block).__name__
        )
    dtype = np.dtype(f"<u{block.bits // 8}")
    data = block.data
    if data.ctypes.data % dtype.itemsize:
        data = data.copy()
    return data.view(dtype)


def _flags(validity: Bytes, count: int) -> npt.NDArray[np.bool_]:
    return np.unpackbits(validity, bitorder="little", count=count).view(np.bool_)


def raw_bytes(block: Block) -> int:
    """Return the bytes of a block in memory.

    >>> raw_bytes(FixedWidth(16, np.zeros(6, np.uint8), 3))
    6
    """
    match block:
        case FixedWidth():
            return (block.count * block.bits + 7) // 8
        case Variable():
            size = int(block.offsets[-1]) - int(block.offsets[0])
            return size + block.count * block.offsets.itemsize
        case FixedSizeList():
            bits = 0 if block.validity is None else (block.count * block.dimension + 7) // 8
            return bits + raw_bytes(block.items)
        case Fields():
            return sum(raw_bytes(child) for child in block.children)
