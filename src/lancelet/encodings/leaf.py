"""What a page hands to the rest when some of its rows were read: levels, and values in slots.

    rows 2..4 of list<int>      [[5], null, [6, 7]]
    repetition                   1    1     1  0
    definition                   0    1     0  0
    values                       5          6  7

Values are picked from decoded blocks by a `Picked`: a run of slots, which costs nothing, or
single slots, which are gathered. Nulls are put in while picking, never in a second pass.
"""

from __future__ import annotations

from typing import TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from lancelet.buffers import Bytes, Int64s
from lancelet.encodings.arrow import arrow_from_block, block_from_arrow
from lancelet.encodings.base import Block, Fields, FixedSizeList, FixedWidth, Memo, Variable
from lancelet.encodings.codecs.dictionary import look_up
from lancelet.encodings.levels.layers import Layers
from lancelet.encodings.levels.nesting import Path
from lancelet.errors import ArrayOverflowError, CorruptDataError
from lancelet.kernels import Levels
from lancelet.values import cached_property, dataclass

Picked: TypeAlias = slice | Int64s
"""Some slots: a run (`slice(start, stop)`), or their indices."""


@dataclass(frozen=True, slots=True, eq=False)
class LeafRows:
    """Rows of one leaf, as a page holds them: `values` has a slot per visible entry."""

    layers: Layers
    repetition: Levels | None
    definition: Levels | None
    values: pa.Array


@dataclass(frozen=True, slots=True, eq=False)
class LeafContext:
    """What a page needs to know of its column.

    The type of a value, what is around it, and where to keep the heads of pages.
    """

    data_type: pa.DataType
    path: Path
    column: int
    memo: Memo | None


@dataclass(frozen=True, eq=False)
class Items:
    """The items of a dictionary, for which both forms are needed at every read."""

    array: pa.Array

    @cached_property
    def block(self) -> Block:
        """The items as codecs see them."""
        return block_from_arrow(self.array)


def values_from_block(
    block: Block, data_type: pa.DataType, picked: Picked, validity: Bytes | None
) -> pa.Array:
    """Return some slots of a block as an array, null where the bits of `validity` are 0."""
    if isinstance(picked, slice):
        return arrow_from_block(slice_block(block, picked.start, picked.stop), data_type, validity)
    return values_at(arrow_from_block(block, data_type, None), picked, validity)


def values_from_dictionary(
    block: Block,
    items: Items,
    data_type: pa.DataType,
    picked: Picked,
    validity: Bytes | None,
) -> pa.Array:
    """Return some slots of a block of indices as the items they stand for.

    For Arrow's dictionary types the items are not copied.
    """
    indices = indices_of(block)[picked]
    if not pa.types.is_dictionary(data_type):
        values = look_up(items.block, indices, validity)
        return arrow_from_block(values, data_type, validity)
    flags = None if validity is None else _flags(validity, len(indices))
    used = indices if flags is None else indices[flags]
    if len(used) and int(used.max()) >= len(items.array):
        raise CorruptDataError(
            "a page points past the end of its dictionary",
            index=int(used.max()),
            items=len(items.array),
        )
    if flags is not None:
        # What is under a null is arbitrary, and need not be an index.
        indices = np.where(flags, indices, indices.dtype.type(0))
    keys = arrow_from_block(
        FixedWidth(indices.itemsize * 8, indices.view(np.uint8), len(indices)),
        data_type.index_type,
        validity,
    )
    return pa.DictionaryArray.from_arrays(keys, items.array, ordered=data_type.ordered, safe=False)


def values_at(
    values: pa.Array, indices: npt.NDArray[np.integer], validity: Bytes | None
) -> pa.Array:
    """Return values by index, null where the bits of `validity` are 0."""
    mask = None if validity is None else ~_flags(validity, len(indices))
    try:
        return values.take(pa.array(indices, mask=mask))
    except pa.ArrowInvalid as error:
        raise ArrayOverflowError(
            "the rows do not fit one array; read fewer rows at a time",
            rows=len(indices),
            type=str(values.type),
        ) from error


def slice_block(block: Block, start: int, stop: int) -> Block:
    """Return a run of a block's values, as a view unless they are bits within a byte.

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


def indices_of(block: Block) -> npt.NDArray[np.unsignedinteger]:
    """Return a block of indices as unsigned numbers."""
    if not isinstance(block, FixedWidth) or block.bits not in (8, 16, 32, 64):
        raise CorruptDataError(
            "the indices of a dictionary are not integers", found=type(block).__name__
        )
    words = np.dtype(f"<u{block.bits // 8}")
    data = block.data
    if data.ctypes.data % words.itemsize:
        data = data.copy()
    return data.view(words)


def _flags(validity: Bytes, count: int) -> npt.NDArray[np.bool_]:
    return np.unpackbits(validity, bitorder="little", count=count).view(np.bool_)
