"""What the kernel for a few rows must know of a column: what its values become, and its runs.

    runs    rows 0 .. 99999   100000 .. 199999    what is known of those that were read already
    form    strings with offsets of 32 bits, which must be text

Of a run that was not read yet nothing is known, and rows of it are read in the general way.
"""

from __future__ import annotations

from typing import Any, Final

import pyarrow as pa

from lancelet.encodings.run_record import BITS, FIXED, Form, form_of
from lancelet.kernels import ChunkRun, KnownColumn
from lancelet.values import dataclass

_STRING_BYTES: Final = 128
"""A guess of what a string takes, with what decoding it needs beside."""

_COLUMN_BYTES: Final = 32
"""What padding takes at most."""


@dataclass(frozen=True, slots=True, eq=False)
class ColumnRecord:
    """What is known of a column, and the type it becomes."""

    data_type: pa.DataType
    form: Form
    column: KnownColumn

    @staticmethod
    def of(data_type: pa.DataType, column: KnownColumn | None) -> ColumnRecord | None:
        """Make the record of a column, of which nothing may be known."""
        form = form_of(data_type)
        return None if form is None or column is None else ColumnRecord(data_type, form, column)

    @property
    def num_chunks(self) -> int:
        """Of how many chunks is kept where they are."""
        return sum(len(run.position) for run in self.column.runs if isinstance(run, ChunkRun))

    def room(self, num_rows: int) -> int:
        """Guess how many bytes rows take."""
        each = self.form.width + 1 + (_STRING_BYTES if self.form.is_strings else 0)
        return _COLUMN_BYTES + each * (num_rows + 1)

    def to_arrow(self, data: pa.Buffer, num_rows: int, place: tuple[int, ...]) -> pa.Array:
        """Return the rows that the kernel put into a buffer, at a place."""
        nulls, validity, values, strings, num_bytes = place
        bits = data.slice(validity, (num_rows + 7) // 8) if nulls else None
        form, data_type = self.form, self.data_type
        if form.kind == FIXED:
            held = data.slice(values, num_rows * form.width)
            if data_type.num_fields:
                return _lists(data_type, num_rows, bits, held)
            buffers = [bits, held]
        elif form.kind == BITS:
            buffers = [bits, data.slice(values, (num_rows + 7) // 8)]
        else:
            offsets = data.slice(values, (num_rows + 1) * form.width)
            buffers = [bits, offsets, data.slice(strings, num_bytes)]
        return pa.Array.from_buffers(data_type, num_rows, buffers, nulls)


def _lists(data_type: pa.DataType, count: int, bits: pa.Buffer | None, values: pa.Buffer) -> Any:
    """Return lists of a fixed size, at any depth, over the bytes of their items."""
    items, each = count * data_type.list_size, data_type.value_type
    if each.num_fields:
        children = [_lists(each, items, None, values)]
    else:
        children = [pa.Array.from_buffers(each, items, [None, values], 0)]
    return pa.Array.from_buffers(data_type, count, [bits], children=children)
