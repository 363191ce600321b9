"""Column plans: the reference has none, so all columns use the generic readers.

The readers of pages (`encodings.pages.structural`) define the results of point reads; tests compare
both.
"""

from __future__ import annotations

from collections.abc import Sequence

from lancelet.buffers import NO_RANGES, ByteRanges, ByteSlices, Int64s
from lancelet.kernels.plans import ColumnPlan, FetchedRanges, MappedFile, TakenRows


def plan_columns(
    metadata: ByteSlices, forms: Int64s, *, num_rows: int, file_bytes: int
) -> list[ColumnPlan | None]:
    """Return plans of columns from their stored metadata, or None for unsupported columns.

    `forms` has five numbers per column: the Arrow representation, width, whether values must be
    UTF-8, and the enclosing layers (`encodings.pages.planned`).
    """
    del forms, num_rows, file_bytes
    return [None] * len(metadata)


def find_ranges(
    rows: Int64s, plans: Sequence[ColumnPlan], *, is_range: bool
) -> tuple[bool, ByteRanges]:
    """Return the byte ranges of rows; of page heads, and True, if some are unknown.

    For a range, `rows` has its first row and the number of rows.
    """
    del rows, plans, is_range
    return False, NO_RANGES


def add_heads(
    fetched: FetchedRanges, rows: Int64s, plans: Sequence[ColumnPlan], *, is_range: bool
) -> int:
    """Add page heads to plans; return the number of bytes by which they grew."""
    del fetched, rows, plans, is_range
    return 0


def take_rows(
    file: MappedFile | FetchedRanges,
    rows: Int64s,
    plans: Sequence[ColumnPlan],
    room: int,
    *,
    is_range: bool,
) -> TakenRows | None:
    """Return rows, in any order, of columns of a file; all columns must have these rows.

    Columns that cannot be read have no output. Return None if none can be read. `room` is the
    estimated size of the result.
    """
    del file, rows, plans, room, is_range
    return None
