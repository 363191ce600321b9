"""Column plans and point reads: `native/module/column_plan.hpp` and `plans.cpp`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final, cast

import numpy as np

from lancelet.buffers import ByteRanges, ByteSlices, Int64s
from lancelet.kernels import _native
from lancelet.kernels.arguments import as_int64s
from lancelet.kernels.faults import Fault
from lancelet.kernels.native.allocate import empty_bytes
from lancelet.kernels.plans import ColumnPlan, FetchedRanges, MappedFile, TakenRows

_HEAD_VALUES: Final = 6
_OUTPUT_VALUES: Final = 8
_ROOM_MAX: Final = 1 << 24
_FEW_ROWS: Final = 1024
_DENSE_ROOM_MAX: Final = 1 << 26
"""The same for more rows than `_FEW_ROWS`."""
_SPARE_BYTES: Final = 4096
"""Larger unused parts of the output are released."""


def plan_columns(
    metadata: ByteSlices, forms: Int64s, *, num_rows: int, file_bytes: int
) -> list[ColumnPlan | None]:
    """Return plans of columns from their stored metadata, or None for unsupported columns."""
    found: Any = _native.plan_columns(
        metadata.source,
        as_int64s(metadata.position),
        as_int64s(metadata.size),
        as_int64s(forms),
        num_rows,
        file_bytes,
    )
    return cast("list[ColumnPlan | None]", found)


def find_ranges(
    rows: Int64s, plans: Sequence[ColumnPlan], *, is_range: bool
) -> tuple[bool, ByteRanges]:
    """Return the byte ranges of rows; of page heads, and True, if some are unknown."""
    found: Any = _native.find_ranges(as_int64s(rows), is_range, plans)
    is_head, position, size = found
    return is_head, ByteRanges(np.frombuffer(position, np.int64), np.frombuffer(size, np.int64))


def add_heads(
    fetched: FetchedRanges, rows: Int64s, plans: Sequence[ColumnPlan], *, is_range: bool
) -> int:
    """Add page heads to plans; return the number of bytes by which they grew."""
    added: int = _native.add_heads(fetched.arrays, as_int64s(rows), is_range, plans)
    return added


def take_rows(
    file: MappedFile | FetchedRanges,
    rows: Int64s,
    plans: Sequence[ColumnPlan],
    room: int,
    *,
    is_range: bool,
) -> TakenRows | None:
    """Return rows, in any order, of columns of a file; all columns must have these rows."""
    row_numbers, arrays = as_int64s(rows), file.arrays
    take = _native.take_rows if isinstance(file, MappedFile) else _native.take_fetched_rows
    count = int(row_numbers[1]) if is_range else len(row_numbers)
    room_max = _ROOM_MAX if count <= _FEW_ROWS else _DENSE_ROOM_MAX
    result = np.empty(_HEAD_VALUES + _OUTPUT_VALUES * len(plans), np.int64)
    head_totals = np.zeros(3, np.int64)
    while True:
        out = empty_bytes(room)
        used = take(arrays, row_numbers, is_range, plans, out, result)
        if used < 0 and (-used % 16 != Fault.OUTPUT_FULL or room > room_max):
            return None
        head_totals += result[2:5]
        if used >= 0:
            break
        # The reads bound the size of uncompressed values; only compressed ones need more.
        room = max(2 * room, min(room + int(result[1]), room_max))
    out = out[:used].copy() if room > 2 * used + _SPARE_BYTES else out[:used]
    num_ranges, num_bytes, *_ = result.tolist()
    head_ranges, head_bytes, bytes_added = head_totals.tolist()
    values = result[_HEAD_VALUES:].tolist()
    each: Any = zip(*[iter(values)] * _OUTPUT_VALUES, strict=True)
    outputs = [None if output[0] else output[1:] for output in each]
    return TakenRows(out, outputs, num_ranges + head_ranges, num_bytes + head_bytes, bytes_added)
