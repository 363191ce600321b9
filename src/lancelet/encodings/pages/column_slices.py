"""Column slices: the same rows of several columns that are read as one (see `bundle`).

For example:

    three columns of 10 rows, rows 4 and 5     start 4 14 24     count 2
"""

from __future__ import annotations

from lancelet.buffers import Int64s
from lancelet.values import dataclass


@dataclass(frozen=True, slots=True, eq=False)
class ColumnSlices:
    """Ascending, disjoint row ranges of equal length `count`."""

    start: Int64s
    count: int

    @property
    def stop(self) -> Int64s:
        """Return the exclusive end of each slice."""
        return self.start + self.count
