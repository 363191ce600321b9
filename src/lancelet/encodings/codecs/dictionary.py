"""Dictionary codec: distinct values once, and for each value which one it is.

    values   "b" "a" "b"
    stored   items "b" "a"   indices 0 1 0

Page layouts keep the dictionary in a buffer of their own, loaded once for all chunks, and the
indices as the values of the page; `split` and `look_up` go both ways. In a buffer of its own
(2.3 keeps lengths of lists like that) both parts follow the bytes that each takes:

    block    u64 bytes of indices, u64 bytes of items, indices, items

Inside of a chunk no writer is known to keep a dictionary, so nothing is guessed at there.
"""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt

from lancelet import kernels
from lancelet.buffers import Bytes, Int64s, Slices
from lancelet.encodings.base import Block, Fields, FixedSizeList, FixedWidth, Variable
from lancelet.encodings.codecs.base import Codec, Codecs
from lancelet.encodings.codecs.cut import NO_BYTES
from lancelet.encodings.codecs.words import WORDS, as_words
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
    def decode_blocks(cls, message: Any, slices: Slices, counts: Int64s, codecs: Codecs) -> Block:
        """Look the items up that the buffer has in front of the indices."""
        if len(slices) != 1:
            raise UnsupportedError("dictionaries of many buffers are unknown", codec=cls.wire_name)
        data = slices.slice_bytes(0)
        head = [int.from_bytes(data[at : at + 8].tobytes(), "little") for at in (0, 8)]
        if len(data) < 16 or 16 + sum(head) > len(data):
            raise CorruptDataError(
                "a dictionary is cut short", codec=cls.wire_name, bytes=len(data)
            )
        first = Slices.whole(data[16 : 16 + head[0]])
        rest = Slices.whole(data[16 + head[0] : 16 + sum(head)])
        indices = as_words(codecs.decode_blocks(message.indices, first, counts), cls.wire_name)
        num_items = np.array([message.num_dictionary_items], np.int64)
        items = codecs.decode_blocks(message.items, rest, num_items)
        return look_up(items, indices)


def split(block: Block, most: int) -> tuple[npt.NDArray[np.uint32], Block] | None:
    """Return which item each value is, and the items, in the order of their first appearance.

    Equal means equal bytes, so that every NaN and both zeros come back as they were. With more
    than `most` items there is nothing to return.
    """
    match block:
        case Variable(offsets=offsets, data=data):
            found = kernels.index_strings(offsets, data, most)
        case FixedWidth(bits=bits, data=data) if bits % 8 == 0:
            found = kernels.index_words(data[: block.count * (bits // 8)], bits // 8, most)
        case _:
            raise UnsupportedError("values of this kind have no dictionary")
    if found is None:
        return None
    indices, first = found
    if isinstance(block, Variable):
        return indices, Variable(*kernels.take_variable(block.offsets, block.data, first))
    width = block.bits // 8
    items = kernels.take_fixed(block.data, first * width, width)
    return indices, FixedWidth(block.bits, items, len(first))


def look_up(items: Block, indices: npt.NDArray[Any], validity: Bytes | None = None) -> Block:
    """Return the item at each index; where a validity bit is 0, any value.

    >>> items = FixedWidth(8, np.array([7, 9], np.uint8), 2)
    >>> look_up(items, np.array([1, 0, 1], np.uint32)).data.tolist()
    [9, 7, 9]
    """
    if items.count == 0:
        items = _one_empty_value(items)
    words = _harmless(indices.view(WORDS[indices.itemsize * 8]), items.count, validity)
    match items:
        case FixedWidth(bits=0):
            return FixedWidth(0, items.data, len(words))
        case FixedWidth() if items.bits % 8 == 0:
            data = kernels.look_up_fixed(items.data, items.bits // 8, words)
            return FixedWidth(items.bits, data, len(words))
        case FixedWidth():
            _check_indices(words, items.count)
            return FixedWidth(1, _pick_bits(items.data, items.count, words), len(words))
        case Variable():
            return _look_up_strings(items, words)
        case FixedSizeList():
            _check_indices(words, items.count)
            rows = words.astype(np.int64)[:, None] * items.dimension
            inner = (rows + np.arange(items.dimension)).reshape(-1)
            bits = items.validity
            if bits is not None:
                bits = _pick_bits(bits, items.items.count, inner)
            return FixedSizeList(items.dimension, bits, look_up(items.items, inner), len(words))
        case Fields():
            children = tuple(look_up(child, words) for child in items.children)
            return Fields(children, len(words))


def _pick_bits(bits: Bytes, count: int, rows: npt.NDArray[Any]) -> Bytes:
    plain = np.unpackbits(bits, bitorder="little", count=count)
    return np.packbits(plain[rows], bitorder="little")


def _look_up_strings(items: Variable, words: npt.NDArray[Any]) -> Variable:
    try:
        return Variable(*kernels.look_up_variable(items.offsets, items.data, words))
    except kernels.OffsetOverflowError:
        wide = items.offsets.astype(np.int64)
        return Variable(*kernels.look_up_variable(wide, items.data, words))


def _one_empty_value(items: Block) -> Block:
    """Return what all values are whose dictionary is empty, because all of them are null."""
    match items:
        case FixedWidth():
            return FixedWidth(items.bits, np.zeros((items.bits + 7) // 8, np.uint8), 1)
        case Variable():
            return Variable(np.zeros(2, np.int32), NO_BYTES)
        case _:
            raise CorruptDataError("a dictionary of lists has no items")


def _harmless(words: npt.NDArray[Any], items: int, validity: Bytes | None) -> npt.NDArray[Any]:
    """Return the indices, those under nulls replaced if they are outside of the dictionary."""
    if validity is None or not len(words) or int(words.max()) < items:
        return words
    is_valid = np.unpackbits(validity, bitorder="little", count=len(words)).view(np.bool_)
    return np.where(is_valid, words, words.dtype.type(0))


def _check_indices(words: npt.NDArray[Any], items: int) -> None:
    if len(words) and int(words.max()) >= items:
        place = int((words >= items).argmax())
        raise CorruptDataError(
            "an index is outside of its dictionary",
            value=place,
            index=int(words[place]),
            items=items,
        )
