"""Encodes one batch of a field as the pages of a 0.1 file.

Nothing is padded, and strings hold positions in the file, so encoding starts from where the
file is at:

    ["ab", None, "c"] at position 100
    100   abc
    103   100 102 102 103        what the page table points at; null is an empty string

Nulls are not stored: numbers under nulls are written as zero, and readers see just that.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from lancelet.buffers import Bytes
from lancelet.encodings.arrow import block_from_arrow
from lancelet.encodings.base import FixedSizeList, FixedWidth, Variable
from lancelet.encodings.v0_1.dictionaries import Dictionaries
from lancelet.encodings.v0_1.pages import is_variable
from lancelet.errors import UnsupportedError
from lancelet.format.field import Field
from lancelet.format.logical_type import LARGE_LISTS, LISTS, MAP, STRUCT


@dataclass(frozen=True, slots=True)
class Page:
    """Where the values of a field are in a batch, as the page table has it."""

    field_id: int
    position: int
    length: int


@dataclass(slots=True)
class BatchEncoder:
    """The bytes and pages of batches in the making, from `position` in the file on."""

    position: int
    dictionaries: Dictionaries = field(default_factory=Dictionaries)
    buffers: list[Bytes] = field(default_factory=list)
    pages: list[Page] = field(default_factory=list)

    def add(self, node: Field, array: pa.Array) -> None:
        """Encode the values of a field, children included."""
        if node.logical_type == STRUCT:
            for index, child in enumerate(node.children):
                self.add(child, array.field(index))
        elif node.logical_type in LISTS or node.logical_type in LARGE_LISTS:
            self._add_list(node, array)
        else:
            if pa.types.is_dictionary(array.type):
                array = self.dictionaries.keys_of(node, array)
            self._add_page(node, self.add_values(array), len(array))

    def add_values(self, array: pa.Array) -> int:
        """Add the bytes of values without children and return the position to find them by."""
        if pa.types.is_null(array.type):
            return self.position
        block = block_from_arrow(array)
        if isinstance(block, Variable):
            start, stop = int(block.offsets[0]), int(block.offsets[-1])
            first = self._append(block.data[start:stop])
            edges = block.offsets.astype(np.int64) + (first - start)
            return self._append(edges.astype("<i8").view(np.uint8))
        assert isinstance(block, FixedWidth | FixedSizeList)
        valid = array.is_valid().to_numpy(zero_copy_only=False) if array.null_count else None
        return self._append(_zeroed(block, valid))

    def _add_list(self, node: Field, array: pa.Array) -> None:
        lengths = pc.fill_null(pc.list_value_length(array), 0).to_numpy()
        offsets = np.zeros(len(array) + 1, "<i8" if node.logical_type in LARGE_LISTS else "<i4")
        np.cumsum(lengths, out=offsets[1:])
        self._add_page(node, self._append(offsets.view(np.uint8)), len(array) + 1)
        self.add(node.children[0], array.flatten())

    def _add_page(self, node: Field, position: int, length: int) -> None:
        self.pages.append(Page(node.id, position, length))

    def _append(self, data: Bytes) -> int:
        position = self.position
        self.buffers.append(data)
        self.position += data.nbytes
        return position


def check_storable(node: Field, *, path: str = "") -> None:
    """Raise `UnsupportedError` if version 0.1 cannot store a field of this type."""
    path = f"{path}.{node.name}" if path else node.name
    if node.logical_type == MAP:
        raise _refusal(path, "maps", since="2.2")
    if node.is_blob:
        raise _refusal(path, "blobs", since="2.0")
    if node.logical_type in (STRUCT, *LISTS, *LARGE_LISTS):
        if not node.children:
            raise _refusal(path, "structs without fields", since="2.0")
        for child in node.children:
            check_storable(child, path=path)
        return
    if node.children:
        raise _refusal(path, "fixed-size lists of structs", since="2.2")
    _check_type(path, node.storage_type)


def dictionary_fields(fields: Iterable[Field]) -> Iterator[Field]:
    """Yield the fields whose values are kept apart from their keys, ordered by id."""
    nodes = (node for top in fields for node in top.walk())
    chosen = [node for node in nodes if pa.types.is_dictionary(node.storage_type)]
    yield from sorted(chosen, key=lambda node: node.id)


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
        raise _refusal(path, f"fixed-size lists of {item}", since=None)
    if pa.types.is_dictionary(data_type):
        values = data_type.value_type
        is_number = pa.types.is_integer(values) or pa.types.is_floating(values)
        if not is_number and not is_variable(values):
            raise _refusal(path, f"dictionaries of {values}", since="2.0")


def _refusal(path: str, what: str, *, since: str | None) -> UnsupportedError:
    advice = f"; write version {since} or later" if since else ""
    return UnsupportedError(f"files of version 0.1 cannot store {what}{advice}", column=path)


def _zeroed(block: FixedWidth | FixedSizeList, valid: npt.NDArray[np.bool_] | None) -> Bytes:
    """Return the values of a block, where all that is not valid is zero, at any depth."""
    if isinstance(block, FixedSizeList):
        count = block.count * block.dimension
        items_valid = None if valid is None else np.repeat(valid, block.dimension)
        if block.validity is not None:
            bits = np.unpackbits(block.validity, count=count, bitorder="little").view(np.bool_)
            items_valid = bits if items_valid is None else bits & items_valid
        assert isinstance(block.items, FixedWidth | FixedSizeList)
        return _zeroed(block.items, items_valid)
    if valid is None:
        return block.data
    if block.bits == 1:
        return block.data & np.packbits(valid, bitorder="little")
    values = block.data.reshape(block.count, -1) * valid[:, None]
    return values.reshape(-1)
