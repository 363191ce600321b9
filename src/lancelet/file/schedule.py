"""Cutting a read into tasks: rows into splits, and the fields of a split into groups.

Work is cut by rows and not by pages, because a page may be anything from a few rows to the whole
file. A split decodes to about eight megabytes: what a split costs besides is then little, and a
handful of them in flight is all the memory a scan needs:

    rows     0 ....... 2097152 ....... 4194304 ....        int32: two million rows a split
    pages    [      0          ][        1       ]....     cut at page borders where one is near

A table with many columns would get splits of so few rows that visiting a column costs more than
decoding it, or that every chunk is decoded many times. There a split has more rows, and its
fields are read in several groups.
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
"""What a task decodes; `docs/kernels.md` has the measurement."""

FEW_ROWS: Final = 4096
"""A split has at least so many rows, so as not to visit a column for less, if they are small."""

_FEW_ROWS_BYTES: Final = 2 * TASK_BYTES
_FEW_ROWS_BYTES_MAX: Final = 512 * 1024 * 1024
_FIELD_BYTES: Final = 2 * 1024 * 1024
_SPLIT_BYTES_MAX: Final = 64 * 1024 * 1024
_SPLIT_ROWS_MAX: Final = 1 << 24


@dataclass(frozen=True, slots=True, eq=False)
class Plan:
    """The tasks of a read: every split is read once per group of fields.

    A page of a few bytes may claim any number of rows, so splits are made as they are asked for.
    """

    rows: RowRange
    split_rows: int
    """The rows of a split, but for the last, and those that end at a border near by."""
    borders: Int64s | None
    groups: tuple[range, ...]
    """Which of the fields are read together; in order, and covering all."""

    def splits(self) -> Iterator[RowRange]:
        """Yield the splits, in order."""
        start, stop, target = self.rows.start, self.rows.stop, self.split_rows
        while start < stop:
            end = min(self._end(start + target, start), stop)
            yield RowRange(start, end)
            start = end

    def _end(self, end: int, start: int) -> int:
        """Return the border that is next to where a split should end, if one is near."""
        borders, target = self.borders, self.split_rows
        if borders is None:
            return end
        near = int(np.searchsorted(borders, end))
        candidates = borders[max(0, near - 1) : near + 1].tolist()
        close = [border for border in candidates if abs(border - end) <= target // 2]
        return min(close, key=lambda border: abs(border - start - target)) if close else end


def plan_read(
    rows: RowRange,
    row_bytes: Sequence[float],
    *,
    num_fields: int | None = None,
    borders: Int64s | None = None,
    batch_size: int | None = None,
    least: int = FEW_ROWS,
) -> Plan:
    """Cut a read of `rows` into tasks.

    Args:
        rows: The rows to read.
        row_bytes: The decoded bytes per row of each field, or of each bundle of fields.
        num_fields: How many fields there are, if not as many as `row_bytes`.
        borders: Rows at which pages begin, ascending; cutting there saves work.
        batch_size: If given, splits are multiples or equal parts of batches.
        least: Of how many rows a split is at least (`few_rows`).

    >>> list(plan_read(RowRange(0, 10), [4.0, 4.0]).splits())
    [RowRange(start=0, stop=10)]
    >>> plan = plan_read(RowRange(0, 6_000_000), [4.0], borders=np.array([0, 2_000_000]))
    >>> list(plan.splits())[:2]
    [RowRange(start=0, stop=2000000), RowRange(start=2000000, stop=4097152)]
    """
    total = sum(row_bytes)
    target = int(TASK_BYTES / max(total, TASK_BYTES / _SPLIT_ROWS_MAX))
    if batch_size is not None:
        split_rows, borders = _split_of_batches(max(target, least), batch_size), None
        longest = split_rows
    else:
        # Of many narrow columns each should still be worth the visit.
        by_field = min(_FIELD_BYTES * (num_fields or len(row_bytes)), _SPLIT_BYTES_MAX) / max(
            total, 1.0
        )
        split_rows = max(target, min(int(by_field), _SPLIT_ROWS_MAX), least)
        borders = borders if borders is not None and len(borders) else None
        longest = split_rows if borders is None else split_rows + split_rows // 2
    groups = _groups(row_bytes, min(longest, len(rows)))
    return Plan(rows, split_rows, borders, tuple(groups))


def few_rows(total: float, widest: float) -> int:
    """Return of how many rows a split has at least: fewer where values are large.

    Args:
        total: The decoded bytes of a row.
        widest: The same, of the widest field.

    >>> few_rows(128.0, 8.0), few_rows(2_000_008.0, 2_000_000.0)
    (4096, 8)
    """
    rows = min(_FEW_ROWS_BYTES / max(widest, 1.0), _FEW_ROWS_BYTES_MAX / max(total, 1.0))
    return max(1, int(min(FEW_ROWS, rows)))


def decoded_row_bytes(data_type: pa.DataType, encoded_row_bytes: float) -> float:
    """Estimate the bytes of a decoded row of a field.

    >>> decoded_row_bytes(pa.int32(), 1.5), decoded_row_bytes(pa.string(), 12.0)
    (4.0, 28.0)
    """
    fixed = fixed_row_bytes(data_type)
    return 2.0 * encoded_row_bytes + 4.0 if fixed is None else fixed


def fixed_row_bytes(data_type: pa.DataType) -> float | None:
    """Return the bytes of every decoded row of a field, or None if it depends on the values.

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
    """Return rows per split near `target` so that batches are whole splits or the reverse."""
    if batch_size <= target:
        return target // batch_size * batch_size
    return -(-batch_size // round(batch_size / target))


def _groups(row_bytes: Sequence[float], rows: int) -> list[range]:
    groups: list[range] = []
    start, held = 0, 0.0
    for index, width in enumerate(row_bytes):
        if held and held + width * rows > 2 * TASK_BYTES:
            groups.append(range(start, index))
            start, held = index, 0.0
        held += width * rows
    groups.append(range(start, len(row_bytes)))
    return groups
