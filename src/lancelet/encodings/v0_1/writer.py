"""Encoding of the values of a field as pages of a 0.1 file, batch by batch.

Nothing is padded, and string offsets are file positions, so encoding requires the current file
position:

    ["ab", None, "c"] at position 100
    100   abc
    103   100 102 102 103        the page position; null is an empty string

Nulls are not stored: numbers under nulls are written, and read, as zero.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import field
from typing import Protocol

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from lancelet.buffers import Bytes, Int64s
from lancelet.encodings.arrow import block_from_arrow
from lancelet.encodings.base import FixedSizeList, FixedWidth, Variable
from lancelet.encodings.v0_1.dictionaries import Dictionaries
from lancelet.encodings.v0_1.pages import is_variable
from lancelet.errors import UnsupportedError
from lancelet.format.field import Field
from lancelet.format.logical_type import LARGE_LISTS, LISTS, MAP, STRUCT
from lancelet.values import dataclass


@dataclass(frozen=True, slots=True)
class Page:
    """The page of a field in a batch, an entry of the page table."""

    field_id: int
    position: int
    length: int


@dataclass(slots=True)
class BatchEncoder:
    """Collects the bytes and pages of a batch from `position` in the file."""

    position: int
    buffers: list[Bytes] = field(default_factory=list)
    pages: list[Page] = field(default_factory=list)

    def append(self, data: Bytes) -> int:
        """Add bytes and return their position."""
        position = self.position
        self.buffers.append(data)
        self.position += data.nbytes
        return position

    def add_page(self, field_id: int, position: int, length: int) -> None:
        """Add an entry to the page table."""
        self.pages.append(Page(field_id, position, length))


class Column(Protocol):
    """Values of a field, prepared for encoding in batches."""

    def encode(self, start: int, stop: int, batch: BatchEncoder) -> None:
        """Add the values `start <= i < stop` to a batch."""


def prepare(node: Field, array: pa.Array, dictionaries: Dictionaries) -> Column:
    """Prepare the values of a field; dictionary values are added to `dictionaries`."""
    if node.logical_type == STRUCT:
        children = [
            prepare(child, array.field(index), dictionaries)
            for index, child in enumerate(node.children)
        ]
        return _Struct(tuple(children))
    if node.logical_type in LISTS or node.logical_type in LARGE_LISTS:
        lengths = pc.fill_null(pc.list_value_length(array), 0).to_numpy()
        offsets = np.zeros(len(array) + 1, np.int64)
        np.cumsum(lengths, out=offsets[1:])
        kind = np.dtype("<i8" if node.logical_type in LARGE_LISTS else "<i4")
        items = prepare(node.children[0], array.flatten(), dictionaries)
        return _List(node.id, offsets, kind, items)
    if pa.types.is_dictionary(array.type):
        array = dictionaries.encode_keys(node, array)
    return prepare_values(node.id, array)


def prepare_values(field_id: int, array: pa.Array) -> Column:
    """Prepare values without children, such as those of a dictionary."""
    if pa.types.is_null(array.type):
        return _Null(field_id)
    block = block_from_arrow(array)
    if isinstance(block, Variable):
        return _Variable(field_id, block.offsets.astype(np.int64), block.data)
    assert isinstance(block, FixedWidth | FixedSizeList)
    valid = array.is_valid().to_numpy(zero_copy_only=False) if array.null_count else None
    data = _zero_nulls(block, valid)
    bits = _value_bits(block)
    if bits % 8:
        return _Bits(field_id, np.unpackbits(data, bitorder="little"), bits)
    return _Fixed(field_id, data, bits // 8)


@dataclass(frozen=True, slots=True)
class _Null:
    field_id: int

    def encode(self, start: int, stop: int, batch: BatchEncoder) -> None:
        batch.add_page(self.field_id, batch.position, stop - start)


@dataclass(frozen=True, slots=True, eq=False)
class _Fixed:
    field_id: int
    data: Bytes
    width: int

    def encode(self, start: int, stop: int, batch: BatchEncoder) -> None:
        data = self.data[start * self.width : stop * self.width]
        batch.add_page(self.field_id, batch.append(data), stop - start)


@dataclass(frozen=True, slots=True, eq=False)
class _Bits:
    """Bit values, expanded to bytes until they are packed per batch."""

    field_id: int
    bits: Bytes
    width: int

    def encode(self, start: int, stop: int, batch: BatchEncoder) -> None:
        bits = self.bits[start * self.width : stop * self.width]
        packed = np.packbits(bits, bitorder="little")
        batch.add_page(self.field_id, batch.append(packed), stop - start)


@dataclass(frozen=True, slots=True, eq=False)
class _Variable:
    field_id: int
    offsets: Int64s
    data: Bytes

    def encode(self, start: int, stop: int, batch: BatchEncoder) -> None:
        offsets = self.offsets[start : stop + 1]
        first = int(offsets[0])
        position = batch.append(self.data[first : int(offsets[-1])])
        edges = (offsets + (position - first)).astype("<i8", copy=False)
        batch.add_page(self.field_id, batch.append(edges.view(np.uint8)), stop - start)


@dataclass(frozen=True, slots=True, eq=False)
class _List:
    field_id: int
    offsets: Int64s
    kind: np.dtype[np.int32] | np.dtype[np.int64]
    items: Column

    def encode(self, start: int, stop: int, batch: BatchEncoder) -> None:
        first, last = int(self.offsets[start]), int(self.offsets[stop])
        offsets = (self.offsets[start : stop + 1] - first).astype(self.kind)
        batch.add_page(self.field_id, batch.append(offsets.view(np.uint8)), stop - start + 1)
        self.items.encode(first, last, batch)


@dataclass(frozen=True, slots=True, eq=False)
class _Struct:
    children: tuple[Column, ...]

    def encode(self, start: int, stop: int, batch: BatchEncoder) -> None:
        for child in self.children:
            child.encode(start, stop, batch)


def check_storable(node: Field, *, path: str = "") -> None:
    """Raise `UnsupportedError` if version 0.1 cannot store a field of this type."""
    path = f"{path}.{node.name}" if path else node.name
    if node.logical_type == MAP:
        raise _unsupported_error(path, "maps", since="2.2")
    if node.is_blob:
        raise _unsupported_error(path, "blobs", since="2.0")
    if node.logical_type in (STRUCT, *LISTS, *LARGE_LISTS):
        if not node.children:
            raise _unsupported_error(path, "structs without fields", since="2.0")
        for child in node.children:
            check_storable(child, path=path)
        return
    if node.children:
        raise _unsupported_error(path, "fixed-size lists of structs", since="2.2")
    _check_type(path, node.storage_type)


def dictionary_fields(fields: Iterable[Field]) -> Iterator[Field]:
    """Yield the dictionary fields, ordered by id."""
    nodes = (node for top in fields for node in top.walk())
    selected = [node for node in nodes if pa.types.is_dictionary(node.storage_type)]
    yield from sorted(selected, key=lambda node: node.id)


def _check_type(path: str, data_type: pa.DataType) -> None:
    item = data_type
    while pa.types.is_fixed_size_list(item):
        item = item.value_type
    is_fixed = (
        pa.types.is_primitive(item)
        or pa.types.is_decimal(item)
        or pa.types.is_fixed_size_binary(item)
    )
    if item is not data_type and not is_fixed:
        raise _unsupported_error(path, f"fixed-size lists of {item}", since=None)
    if pa.types.is_dictionary(data_type):
        values = data_type.value_type
        is_number = pa.types.is_integer(values) or pa.types.is_floating(values)
        if not is_number and not is_variable(values):
            raise _unsupported_error(path, f"dictionary type with {values}", since="2.0")


def _unsupported_error(path: str, feature: str, *, since: str | None) -> UnsupportedError:
    advice = f"; write version {since} or later" if since else ""
    return UnsupportedError(f"files of version 0.1 cannot store {feature}{advice}", column=path)


def _value_bits(block: FixedWidth | FixedSizeList) -> int:
    """Return the bit width of a value, including all items of a list."""
    if isinstance(block, FixedWidth):
        return block.bits
    assert isinstance(block.items, FixedWidth | FixedSizeList)
    return block.dimension * _value_bits(block.items)


def _zero_nulls(block: FixedWidth | FixedSizeList, valid: npt.NDArray[np.bool_] | None) -> Bytes:
    """Return the values of a block with nulls set to zero, at any depth."""
    if isinstance(block, FixedSizeList):
        count = block.count * block.dimension
        items_valid = None if valid is None else np.repeat(valid, block.dimension)
        if block.validity is not None:
            bits = np.unpackbits(block.validity, count=count, bitorder="little").view(np.bool_)
            items_valid = bits if items_valid is None else bits & items_valid
        assert isinstance(block.items, FixedWidth | FixedSizeList)
        return _zero_nulls(block.items, items_valid)
    if valid is None or not block.data.nbytes:
        return block.data
    if block.bits == 1:
        return block.data & np.packbits(valid, bitorder="little")
    values = block.data.reshape(block.count, -1) * valid[:, None]
    return values.reshape(-1)
