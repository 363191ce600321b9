"""A few rows of columns by their plans, from the map of a file to Arrow in one call of a kernel.

A take of one row is a chain of array operations for every column: find the chunk, find its parts,
unpack or decompress, pick. Each of them costs more than the value. A plan has found out, of the
pages that were touched before, all that does not depend on the row, and a kernel does the rest:

    plans     id: chunks at .., packed    name: chunks at .., zstd, FSST    vector: items at ..
    row 7     ----------------------------- one call ----------------------------->   3 arrays

A kernel declines what it does not know: pages that are laid out otherwise, encodings that are rare,
bytes that are damaged. Then the readers of the columns read the rows, or find out what is wrong.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import Any, Final, NamedTuple

import pyarrow as pa

from lancelet import kernels
from lancelet.buffers import Int64s
from lancelet.kernels import ColumnPlan, MappedFile
from lancelet.values import dataclass

ROWS_MAX: Final = 256
"""Of more rows, so much is decoded that what it takes to get there does not matter; and rows that
are in no order come back to chunks, which the kernel decodes again."""

_FIXED, _BITS, _STRINGS_32, _STRINGS_64 = range(4)

_STRING_BYTES: Final = 128
"""A guess of what a string takes, with what decoding it needs beside."""

_COLUMN_BYTES: Final = 32
"""What padding takes at most."""

_FORMS_KEPT: Final = 1024


@dataclass(frozen=True, slots=True)
class Form:
    """What values of a type are in memory; `width` are the bytes of one, or of an offset."""

    data_type: pa.DataType
    kind: int
    width: int
    is_text: bool = False

    @property
    def numbers(self) -> tuple[int, int, int]:
        """The form as kernels take it."""
        return self.kind, self.width, int(self.is_text)

    @property
    def row_room(self) -> int:
        """A guess of how many bytes a row takes."""
        return self.width + 1 + (_STRING_BYTES if self.kind >= _STRINGS_32 else 0)

    def to_arrow(self, data: pa.Buffer, num_rows: int, place: tuple[int, ...]) -> pa.Array:
        """Return the rows that a kernel put into a buffer, at a place."""
        nulls, validity, values, strings, num_bytes = place
        bits = data.slice(validity, (num_rows + 7) // 8) if nulls else None
        if self.kind == _FIXED:
            held = data.slice(values, num_rows * self.width)
            if self.data_type.num_fields:
                return _lists(self.data_type, num_rows, bits, held)
            buffers = [bits, held]
        elif self.kind == _BITS:
            buffers = [bits, data.slice(values, (num_rows + 7) // 8)]
        else:
            offsets = data.slice(values, (num_rows + 1) * self.width)
            buffers = [bits, offsets, data.slice(strings, num_bytes)]
        return pa.Array.from_buffers(self.data_type, num_rows, buffers, nulls)


@lru_cache(_FORMS_KEPT)
def form_of(data_type: pa.DataType) -> Form | None:
    """Return what values of a type are in memory, or `None` if they are more than one buffer.

    >>> form_of(pa.list_(pa.float32(), 128)).numbers
    (0, 512, 0)
    """
    types = pa.types
    if types.is_boolean(data_type):
        return Form(data_type, _BITS, 0)
    if types.is_string(data_type) or types.is_binary(data_type):
        return Form(data_type, _STRINGS_32, 4, types.is_string(data_type))
    if types.is_large_string(data_type) or types.is_large_binary(data_type):
        return Form(data_type, _STRINGS_64, 8, types.is_large_string(data_type))
    if types.is_fixed_size_list(data_type):
        items = form_of(data_type.value_type)
        width = 0 if items is None or items.kind != _FIXED else data_type.list_size * items.width
        return Form(data_type, _FIXED, width) if width else None
    if types.is_primitive(data_type) or types.is_decimal(data_type):
        return Form(data_type, _FIXED, data_type.bit_width // 8)
    if types.is_fixed_size_binary(data_type) and data_type.byte_width:
        return Form(data_type, _FIXED, data_type.byte_width)
    return None


class FoundRows(NamedTuple):
    """The rows of columns, and what was read for them; None is to be read in the general way."""

    arrays: Sequence[pa.Array | None]
    num_ranges: int
    num_bytes: int
    learned: int


class PlannedColumns:
    """Columns of a file that are read together; those without a plan are left to others."""

    def __init__(self, forms: Sequence[Form | None], plans: Sequence[ColumnPlan | None]) -> None:
        """Take the plan of each column, in the order of the forms, or None."""
        self._forms = forms
        self._missing = [place for place, plan in enumerate(plans) if plan is None]
        self._plans = [plan for plan in plans if plan is not None]
        used = [form for form, plan in zip(forms, plans, strict=True) if form and plan]
        self._row_room = sum(form.row_room for form in used)
        self._used = used

    def read(self, file: MappedFile, rows: Int64s) -> FoundRows | None:
        """Return rows in any order, or None if they are to be read in the general way.

        All of them are rows that the columns have.
        """
        if not self._plans:
            return None
        count = len(rows)
        room = _COLUMN_BYTES * len(self._used) + self._row_room * (count + 1)
        found = kernels.take_rows(file, rows, self._plans, room)
        if found is None:
            return None
        data = pa.py_buffer(found.data)
        arrays: list[pa.Array | None] = [
            None if place is None else form.to_arrow(data, count, place)
            for form, place in zip(self._used, found.places, strict=True)
        ]
        for place in self._missing:
            arrays.insert(place, None)
        return FoundRows(arrays, found.num_ranges, found.num_bytes, found.learned)


def _lists(data_type: pa.DataType, count: int, bits: pa.Buffer | None, values: pa.Buffer) -> Any:
    """Return lists of a fixed size, at any depth, over the bytes of their items."""
    items, each = count * data_type.list_size, data_type.value_type
    if each.num_fields:
        children = [_lists(each, items, None, values)]
    else:
        children = [pa.Array.from_buffers(each, items, [None, values], 0)]
    return pa.Array.from_buffers(data_type, count, [bits], children=children)
