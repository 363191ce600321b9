"""Stretches: the same rows of several columns that are read as one (see `bundle`).

three columns of 10 rows, rows 4 and 5     start 4 14 24     count 2
"""

from __future__ import annotations

from lancelet.buffers import Int64s
from lancelet.values import dataclass


@dataclass(frozen=True, slots=True, eq=False)
class Stretches:
    """As many rows, `count` of them, from several rows on: ascending and apart."""

    start: Int64s
    count: int

    @property
    def stop(self) -> Int64s:
        """Return the row behind each stretch."""
        return self.start + self.count
