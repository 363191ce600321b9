"""Rows that passed a filter, kept with a version for the next search with the same filter.

"g < 50"    fragment 0: offsets 0 1 2 50 ...    looked up once, found by any number of searches

Versions never change, so rows that pass a filter once always do, unless the filter calls a
function; then it is asked again.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Final

from lancelet.buffers import Int64s
from lancelet.query.compile import is_lasting
from lancelet.query.plan import ScanPlan

_TEXT_MAX: Final = 4096


class KeptRows(Mapping[int, Int64s]):
    """Offsets of rows by fragment, and the filter that they passed."""

    def __init__(self, text: str, rows: Mapping[int, Int64s]) -> None:
        """Hold the rows of a filter."""
        self.text, self._rows = text, rows
        self.memory_bytes = sum(own.nbytes for own in rows.values())

    def __getitem__(self, fragment_id: int) -> Int64s:
        """Return the offsets of the rows of a fragment."""
        return self._rows[fragment_id]

    def __iter__(self) -> Iterator[int]:
        """Yield the ids of the fragments."""
        return iter(self._rows)

    def __len__(self) -> int:
        """Return how many fragments there are."""
        return len(self._rows)


def rows_passing(plan: ScanPlan, find: Callable[[], Mapping[int, Int64s]]) -> Mapping[int, Int64s]:
    """Return the rows that pass the filter of a plan, from memory if it was asked lately."""
    options = plan.options
    written = options.filter
    is_kept = (
        isinstance(written, str)
        and len(written) <= _TEXT_MAX
        and is_lasting(written)
        and options.fragments is None
        and options.rows is None
    )
    if not is_kept:
        return find()
    text = str(written)
    return plan.snapshot.kept.get_or_make(("rows passing", text), lambda: KeptRows(text, find()))
