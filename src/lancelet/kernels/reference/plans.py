"""Column plans: the reference has none, so all columns use the generic readers.

The readers of pages (`encodings.pages.structural`) define the results of point reads; tests compare
both.
"""

from __future__ import annotations

from collections.abc import Sequence

from lancelet.buffers import ByteSlices, Int64s
from lancelet.kernels.plans import ColumnPlan, MappedFile, TakenRows


def plan_columns(
    metadata: ByteSlices, forms: Int64s, *, num_rows: int, file_bytes: int
) -> list[ColumnPlan | None]:
    """Return plans of columns from their stored metadata, or None for unsupported columns.

    `forms` has five numbers per column: the Arrow representation, width, whether values must be
    UTF-8, and the enclosing layers (`encodings.pages.planned`).
    """
    del forms, num_rows, file_bytes
    return [None] * len(metadata)


def take_rows(
    file: MappedFile, rows: Int64s, plans: Sequence[ColumnPlan], room: int
) -> TakenRows | None:
    """Return rows, in any order, of columns of a file; all columns must have these rows.

    Columns that cannot be read have no output. Return None if none can be read. `room` is the
    estimated size of the result.
    """
    del file, rows, plans, room
    return None
