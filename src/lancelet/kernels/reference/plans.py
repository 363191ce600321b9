"""Plans of columns, as their definition: there is none, and everything is read in the general way.

What rows by plans are is defined by the readers of pages (`encodings.structural`), which the tests
compare them with.
"""

from __future__ import annotations

from collections.abc import Sequence

from lancelet.buffers import Int64s, Slices
from lancelet.kernels.mapped import ColumnPlan, MappedFile, TakenRows


def plan_columns(
    metadata: Slices, forms: Int64s, *, num_rows: int, file_bytes: int
) -> list[ColumnPlan | None]:
    """Return plans of columns, of which `metadata` has what the file says of each.

    `forms` has five numbers for each column: what its values become, their width, whether they
    must be text, and the layers around them (`encodings.planned`). A column that is not as known
    writers write it has no plan.
    """
    del forms, num_rows, file_bytes
    return [None] * len(metadata)


def take_rows(
    file: MappedFile, rows: Int64s, plans: Sequence[ColumnPlan], room: int
) -> TakenRows | None:
    """Return rows, in any order, of columns of a file; all of them have the rows.

    A column that cannot be read like this has no place, and `None` stands for all. `room` is a
    guess of how many bytes the result has.
    """
    del file, rows, plans, room
    return None
