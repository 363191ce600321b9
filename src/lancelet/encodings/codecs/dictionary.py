"""Dictionary codec: distinct values, and an index per value.

    values   "b" "a" "b"
    stored   items "b" "a"   indices 0 1 0

Page layouts store the dictionary in a separate buffer, loaded once for all chunks, and the indices
as the values of the page; see `split` and `take_items`. In block context (2.3 stores list lengths
this way) one buffer has both parts after their sizes:

    block    u64 bytes of indices, u64 bytes of items, indices, items

No known writer stores dictionaries within chunks, so this is not supported.
"""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt

from lancelet import kernels
from lancelet.buffers import Bytes, ByteSlices, Int64s
from lancelet.encodings.base import Block, Fields, FixedSizeList, FixedWidth, Variable
from lancelet.encodings.codecs.base import Codec, Codecs
from lancelet.encodings.codecs.chunking import NO_BYTES
from lancelet.encodings.codecs.unsigned import UNSIGNED_TYPES, to_unsigned
from lancelet.errors import CorruptDataError, UnsupportedError


class Dictionary(Codec):
    """Distinct values and indices."""

    wire_name: ClassVar[str] = "dictionary"

    @classmethod
    def describe(cls, message: Any, codecs: Codecs) -> str:
        """Return `dictionary(number of items, items){indices}`."""
        items = codecs.describe(message.items)
        indices = codecs.describe(message.indices)
        return f"dictionary({message.num_dictionary_items}, {items}){{{indices}}}"

    @classmethod
    def decode_blocks(
        cls, message: Any, slices: ByteSlices, counts: Int64s, codecs: Codecs
    ) -> Block:
        """Decode the indices and items of a buffer, and gather the items."""
        if len(slices) != 1:
            raise UnsupportedError(
                "dictionaries in several buffers are not supported", codec=cls.wire_name
            )
        data = slices.slice_bytes(0)
        head = [int.from_bytes(data[at : at + 8].tobytes(), "little") for at in (0, 8)]
        if len(data) < 16 or 16 + sum(head) > len(data):
            raise CorruptDataError(
                "a dictionary is truncated", codec=cls.wire_name, bytes=len(data)
            )
        first = ByteSlices.whole(data[16 : 16 + head[0]])
        rest = ByteSlices.whole(data[16 + head[0] : 16 + sum(head)])
        indices = to_unsigned(codecs.decode_blocks(message.indices, first, counts), cls.wire_name)
        num_items = np.array([message.num_dictionary_items], np.int64)
        items = codecs.decode_blocks(message.items, rest, num_items)
        return take_items(items, indices)


def split(block: Block, items_max: int) -> tuple[npt.NDArray[np.uint32], Block] | None:
    """Return the item index of each value, and the items in order of first appearance.

    Values are compared by their bytes, so NaN payloads and signed zeros are preserved. Returns None
    for more than `items_max` items.
    """
    match block:
        case Variable(offsets=offsets, data=data):
            indexed = kernels.dictionary_encode_strings(offsets, data, items_max)
        case FixedWidth(bits=bits, data=data) if bits % 8 == 0:
            indexed = kernels.dictionary_encode_fixed(
                data[: block.count * (bits // 8)], bits // 8, items_max
            )
        case _:
            raise UnsupportedError("this type of values does not support dictionaries")
    if indexed is None:
        return None
    indices, first = indexed
    if isinstance(block, Variable):
        return indices, Variable(*kernels.take_variable(block.offsets, block.data, first))
    width = block.bits // 8
    items = kernels.take_fixed(block.data, first * width, width)
    return indices, FixedWidth(block.bits, items, len(first))


def take_items(items: Block, indices: npt.NDArray[Any], validity: Bytes | None = None) -> Block:
    """Return the item at each index; any value where a validity bit is 0.

    >>> items = FixedWidth(8, np.array([7, 9], np.uint8), 2)
    >>> take_items(items, np.array([1, 0, 1], np.uint32)).data.tolist()
    [9, 7, 9]
    """
    if items.count == 0:
        items = _placeholder_item(items)
    valid_indices = _replace_null_indices(
        indices.view(UNSIGNED_TYPES[indices.itemsize * 8]), items.count, validity
    )
    match items:
        case FixedWidth(bits=0):
            return FixedWidth(0, items.data, len(valid_indices))
        case FixedWidth() if items.bits % 8 == 0:
            data = kernels.lookup_fixed(items.data, items.bits // 8, valid_indices)
            return FixedWidth(items.bits, data, len(valid_indices))
        case FixedWidth():
            _check_indices(valid_indices, items.count)
            return FixedWidth(
                1, _take_bits(items.data, items.count, valid_indices), len(valid_indices)
            )
        case Variable():
            return _take_strings(items, valid_indices)
        case FixedSizeList():
            _check_indices(valid_indices, items.count)
            rows = valid_indices.astype(np.int64)[:, None] * items.dimension
            inner = (rows + np.arange(items.dimension)).reshape(-1)
            bits = items.validity
            if bits is not None:
                bits = _take_bits(bits, items.items.count, inner)
            return FixedSizeList(
                items.dimension, bits, take_items(items.items, inner), len(valid_indices)
            )
        case Fields():
            children = tuple(take_items(child, valid_indices) for child in items.children)
            return Fields(children, len(valid_indices))


def _take_bits(bits: Bytes, count: int, rows: npt.NDArray[Any]) -> Bytes:
    plain = np.unpackbits(bits, bitorder="little", count=count)
    return np.packbits(plain[rows], bitorder="little")


def _take_strings(items: Variable, indices: npt.NDArray[Any]) -> Variable:
    try:
        return Variable(*kernels.lookup_variable(items.offsets, items.data, indices))
    except kernels.OffsetOverflowError:
        wide = items.offsets.astype(np.int64)
        return Variable(*kernels.lookup_variable(wide, items.data, indices))


def _placeholder_item(items: Block) -> Block:
    """Return a placeholder item for an empty dictionary of an all-null column."""
    match items:
        case FixedWidth():
            return FixedWidth(items.bits, np.zeros((items.bits + 7) // 8, np.uint8), 1)
        case Variable():
            return Variable(np.zeros(2, np.int32), NO_BYTES)
        case _:
            raise CorruptDataError("a dictionary of lists has no items")


def _replace_null_indices(
    indices: npt.NDArray[Any], items: int, validity: Bytes | None
) -> npt.NDArray[Any]:
    """Return the indices with out-of-bounds indices under nulls replaced by 0."""
    if validity is None or not len(indices) or int(indices.max()) < items:
        return indices
    is_valid = np.unpackbits(validity, bitorder="little", count=len(indices)).view(np.bool_)
    return np.where(is_valid, indices, indices.dtype.type(0))


def _check_indices(indices: npt.NDArray[Any], items: int) -> None:
    if len(indices) and int(indices.max()) >= items:
        value = int((indices >= items).argmax())
        raise CorruptDataError(
            "a dictionary index is out of bounds",
            value=value,
            index=int(indices[value]),
            items=items,
        )
