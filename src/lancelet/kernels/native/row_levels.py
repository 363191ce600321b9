"""Rows of lists by `native/src/row_levels.cpp`; `reference/row_levels.py` defines it."""

from __future__ import annotations

import numpy as np

from lancelet.buffers import Int64s
from lancelet.errors import InvalidInputError
from lancelet.kernels import _native
from lancelet.kernels.arguments import as_int64s, slice_arrays
from lancelet.kernels.faults import checked
from lancelet.kernels.native.allocate import empty, empty_bytes
from lancelet.kernels.row_levels import LevelLimits, PackedLevels, RowLevels

_LEVEL = np.dtype(np.uint16)
_INT64 = np.dtype(np.int64)
_NO_LEVELS = np.empty(0, _LEVEL)
_NOTHING = (np.empty(0, np.uint8), np.empty(0, _INT64), np.empty(0, _INT64))


def chunks_of_rows(begun: Int64s, ended: Int64s, rows: Int64s) -> Int64s:
    """Return the chunks that hold any of the rows; both ascend, each at most once."""
    out = np.empty(max(0, len(begun) - 1), np.int64)
    status = _native.chunks_of_rows(as_int64s(begun), as_int64s(ended), as_int64s(rows), out)
    return out[: checked(status, kernel="chunks_of_rows")]


def take_row_levels(
    num_levels: Int64s,
    repetition: PackedLevels,
    definition: PackedLevels | None,
    counts: Int64s,
    chunks: Int64s,
    begun: Int64s,
    rows: Int64s,
    limits: LevelLimits,
) -> RowLevels:
    """Return the entries of rows, given all `chunks` that hold them and no other rows asked for."""
    if not len(num_levels) == len(counts) == len(chunks) == len(repetition.slices):
        raise InvalidInputError("every chunk has levels and values", chunks=len(chunks))
    # Heads of chunks have 16 bits for the number of levels, so this is honest.
    room = max(0, int(num_levels.sum()))
    out_repetition = empty(room, _LEVEL)
    out_definition = _NO_LEVELS if definition is None else empty(room, _LEVEL)
    chunk, index = empty(2 * room, _INT64).reshape(2, room)
    validity = empty_bytes((room + 7) // 8)
    slots = np.zeros(1, np.int64)
    status = _native.take_row_levels(
        repetition.slices.source,
        as_int64s(num_levels),
        *slice_arrays(repetition.slices)[1:],
        repetition.width,
        *(_NOTHING if definition is None else slice_arrays(definition.slices)),
        -1 if definition is None else definition.width,
        as_int64s(counts),
        as_int64s(chunks),
        as_int64s(begun),
        as_int64s(rows),
        *limits,
        out_repetition,
        out_definition,
        chunk,
        index,
        validity,
        slots,
    )
    entries = checked(status, kernel="take_row_levels")
    found = int(slots[0])
    return RowLevels(
        out_repetition[:entries],
        None if definition is None else out_definition[:entries],
        chunk[:found],
        index[:found],
        validity[: (found + 7) // 8],
    )
