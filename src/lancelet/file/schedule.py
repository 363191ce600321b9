"""Scheduling of a read: rows are divided into splits, and the fields of a split into groups.

Splits are ranges of rows and not pages, because a page may contain a few rows or the whole file. A
split decodes to about eight megabytes. This amortizes its fixed cost and limits the memory of a
scan to a few splits:

    rows     0 ....... 2097152 ....... 4194304 ....        int32: two million rows per split
    pages    [      0          ][        1       ]....     splits end at nearby page boundaries

In a table with many columns, such splits would have too few rows: the fixed cost per column would
exceed the decoding cost, or chunks would be decoded repeatedly. These splits have more rows, and
their fields are read in several groups.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

import numpy as np
import pyarrow as pa

from lancelet.buffers import Int64s
from lancelet.encodings.base import RowRange
from lancelet.values import dataclass

TASK_BYTES: Final = 8 * 1024 * 1024
"""The decoded bytes of a task; measured in `docs/kernels.md`."""

SPLIT_ROWS_MIN: Final = 4096
"""The minimum rows per split, unless rows are large; amortizes the fixed cost per column."""

_FEW_ROWS_BYTES: Final = 2 * TASK_BYTES
_FEW_ROWS_BYTES_MAX: Final = 512 * 1024 * 1024
_FIELD_BYTES: Final = 2 * 1024 * 1024
_SPLIT_BYTES_MAX: Final = 64 * 1024 * 1024
_SPLIT_ROWS_MAX: Final = 1 << 24


@dataclass(frozen=True, slots=True, eq=False)
class Plan:
    """The tasks of a read: one for each split and group of fields.

    Splits are generated lazily, because a corrupt page may declare any number of rows.
    """

    rows: RowRange
    split_rows: int
    """The rows per split, except for the last split and splits that end at a page boundary."""
    page_starts: Int64s | None
    groups: tuple[range, ...]
    """The indices of the fields of each group, in order; groups cover all fields."""

    def splits(self) -> Iterator[RowRange]:
        """Yield the splits, in order."""
        start, stop, target = self.rows.start, self.rows.stop, self.split_rows
        while start < stop:
            end = min(self._end(start + target, start), stop)
            yield RowRange(start, end)
            start = end

    def _end(self, end: int, start: int) -> int:
        """Return the page boundary nearest to `end`, or `end` if none is near."""
        page_starts, target = self.page_starts, self.split_rows
        if page_starts is None:
            return end
        near = int(np.searchsorted(page_starts, end))
        candidates = page_starts[max(0, near - 1) : near + 1].tolist()
        close = [border for border in candidates if abs(border - end) <= target // 2]
        return min(close, key=lambda border: abs(border - start - target)) if close else end


def plan_read(
    rows: RowRange,
    row_bytes: Sequence[float],
    *,
    num_fields: int | None = None,
    page_starts: Int64s | None = None,
    batch_size: int | None = None,
    split_rows_min: int = SPLIT_ROWS_MIN,
) -> Plan:
    """Divide a read of `rows` into tasks.

    Args:
        rows: The rows to read.
        row_bytes: The decoded bytes per row of each field.
        num_fields: The number of fields; `len(row_bytes)` by default.
        page_starts: The first rows of pages, ascending; splits prefer to end there.
        batch_size: If given, splits are multiples or equal parts of batches.
        split_rows_min: The minimum rows per split.

    >>> list(plan_read(RowRange(0, 10), [4.0, 4.0]).splits())
    [RowRange(start=0, stop=10)]
    >>> plan = plan_read(RowRange(0, 6_000_000), [4.0], page_starts=np.array([0, 2_000_000]))
    >>> list(plan.splits())[:2]
    [RowRange(start=0, stop=2000000), RowRange(start=2000000, stop=4097152)]
    """
    total = sum(row_bytes)
    target = int(TASK_BYTES / max(total, TASK_BYTES / _SPLIT_ROWS_MAX))
    if batch_size is not None:
        split_rows, page_starts = _split_of_batches(max(target, split_rows_min), batch_size), None
        split_rows_max = split_rows
    else:
        # Splits of many narrow columns need more rows to amortize the cost per column.
        by_field = min(_FIELD_BYTES * (num_fields or len(row_bytes)), _SPLIT_BYTES_MAX) / max(
            total, 1.0
        )
        split_rows = max(target, min(int(by_field), _SPLIT_ROWS_MAX), split_rows_min)
        page_starts = page_starts if page_starts is not None and len(page_starts) else None
        split_rows_max = split_rows if page_starts is None else split_rows + split_rows // 2
    groups = _groups(row_bytes, min(split_rows_max, len(rows)))
    return Plan(rows, split_rows, page_starts, tuple(groups))


def split_rows_min(total: float, widest: float) -> int:
    """Return the minimum rows per split, which decreases for large values.

    Args:
        total: The decoded bytes of a row.
        widest: The decoded bytes of the widest field of a row.

    >>> split_rows_min(128.0, 8.0), split_rows_min(2_000_008.0, 2_000_000.0)
    (4096, 8)
    """
    rows = min(_FEW_ROWS_BYTES / max(widest, 1.0), _FEW_ROWS_BYTES_MAX / max(total, 1.0))
    return max(1, int(min(SPLIT_ROWS_MIN, rows)))


def decoded_row_bytes(data_type: pa.DataType, encoded_row_bytes: float) -> float:
    """Estimate the decoded bytes per row of a field.

    >>> decoded_row_bytes(pa.int32(), 1.5), decoded_row_bytes(pa.string(), 12.0)
    (4.0, 28.0)
    """
    fixed = fixed_row_bytes(data_type)
    return 2.0 * encoded_row_bytes + 4.0 if fixed is None else fixed


def fixed_row_bytes(data_type: pa.DataType) -> float | None:
    """Return the decoded bytes per row of a fixed-width type, or None for other types.

    >>> fixed_row_bytes(pa.int32()), fixed_row_bytes(pa.string())
    (4.0, None)
    """
    if pa.types.is_struct(data_type):
        children = [fixed_row_bytes(data_type.field(i).type) for i in range(data_type.num_fields)]
        return None if None in children else sum(filter(None, children))
    if pa.types.is_fixed_size_list(data_type):
        item = fixed_row_bytes(data_type.value_type)
        return None if item is None else item * data_type.list_size
    if pa.types.is_null(data_type):
        return 0.0
    try:
        return float(data_type.bit_width) / 8
    except ValueError:
        return None


def _split_of_batches(target: int, batch_size: int) -> int:
    """Return the rows per split near `target`, as a multiple or divisor of the batch size."""
    if batch_size <= target:
        return target // batch_size * batch_size
    return -(-batch_size // round(batch_size / target))


def _groups(row_bytes: Sequence[float], rows: int) -> list[range]:
    groups: list[range] = []
    start, group_bytes = 0, 0.0
    for index, width in enumerate(row_bytes):
        if group_bytes and group_bytes + width * rows > 2 * TASK_BYTES:
            groups.append(range(start, index))
            start, group_bytes = index, 0.0
        group_bytes += width * rows
    groups.append(range(start, len(row_bytes)))
    return groups
