"""Column plans and point reads: `native/module/column_plan.hpp` and `plans.cpp`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final, cast

import numpy as np

from lancelet.buffers import ByteSlices, Int64s
from lancelet.kernels import _native
from lancelet.kernels.arguments import as_int64s
from lancelet.kernels.faults import Fault
from lancelet.kernels.native.allocate import empty_bytes
from lancelet.kernels.plans import ColumnPlan, MappedFile, TakenRows

_HEAD_VALUES: Final = 6
_OUTPUT_VALUES: Final = 8
_ROOM_MAX: Final = 1 << 24
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


def take_rows(
    file: MappedFile, rows: Int64s, plans: Sequence[ColumnPlan], room: int
) -> TakenRows | None:
    """Return rows, in any order, of columns of a file; all columns must have these rows."""
    result = np.empty(_HEAD_VALUES + _OUTPUT_VALUES * len(plans), np.int64)
    row_indices = as_int64s(rows)
    head_totals = np.zeros(3, np.int64)
    while True:
        out = empty_bytes(room)
        used = _native.take_rows(
            file.source,
            row_indices,
            plans,
            file.prefetched,
            file.blocks,
            file.sums,
            file.verified,
            out,
            result,
        )
        if used < 0 and (-used % 16 != Fault.OUTPUT_FULL or room > _ROOM_MAX):
            return None
        head_totals += result[2:5]
        if used >= 0:
            break
        # The reads bound the size of uncompressed values; only compressed ones need more.
        room = max(2 * room, min(room + int(result[1]), _ROOM_MAX))
    out = out[:used].copy() if room > 2 * used + _SPARE_BYTES else out[:used]
    num_ranges, num_bytes, *_ = result.tolist()
    head_ranges, head_bytes, bytes_added = head_totals.tolist()
    values = result[_HEAD_VALUES:].tolist()
    each: Any = zip(*[iter(values)] * _OUTPUT_VALUES, strict=True)
    outputs = [None if fault else tuple(output) for fault, *output in each]
    return TakenRows(out, outputs, num_ranges + head_ranges, num_bytes + head_bytes, bytes_added)
