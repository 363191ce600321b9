"""Rows that passed a filter, kept with a version for the next search with the same filter.

"g < 50"    fragment 0: offsets 0 1 2 50 ...    looked up once, found by any number of searches

Versions never change, so rows that pass a filter once always do, unless the filter calls a
function; then it is asked again.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable, Iterator, Mapping
from typing import Final

from lancelet.buffers import Int64s
from lancelet.query.compile import is_lasting
from lancelet.query.plan import ScanPlan
from lancelet.table.kept import Kept

_FILTERS_MAX: Final = 16
_ROWS_MAX: Final = 1 << 23
_TEXT_MAX: Final = 4096
_MASKS_MAX: Final = 4


class KeptRows(Mapping[int, Int64s]):
    """Offsets of rows by fragment, and what was made of them."""

    def __init__(self, rows: Mapping[int, Int64s]) -> None:
        """Hold rows."""
        self._rows = rows
        self.kept = Kept(_MASKS_MAX)
        self.count = sum(len(own) for own in rows.values())

    def __getitem__(self, fragment_id: int) -> Int64s:
        """Return the offsets of the rows of a fragment."""
        return self._rows[fragment_id]

    def __iter__(self) -> Iterator[int]:
        """Yield the ids of the fragments."""
        return iter(self._rows)

    def __len__(self) -> int:
        """Return how many fragments there are."""
        return len(self._rows)


class RecentRows:
    """The rows of the last filters of a version, of not too many rows in all."""

    def __init__(self) -> None:
        """Hold nothing yet."""
        self._rows: OrderedDict[str, KeptRows] = OrderedDict()
        self._lock = threading.Lock()

    def get_or_find(self, text: str, find: Callable[[], Mapping[int, Int64s]]) -> KeptRows:
        """Return the rows of a filter, found now if they were not lately."""
        with self._lock:
            known = self._rows.get(text)
            if known is not None:
                self._rows.move_to_end(text)
                return known
        found = KeptRows(find())
        if found.count > _ROWS_MAX:
            return found
        with self._lock:
            self._rows[text] = found
            while len(self._rows) > _FILTERS_MAX or self._count > _ROWS_MAX:
                self._rows.popitem(last=False)
        return found

    @property
    def _count(self) -> int:
        return sum(rows.count for rows in self._rows.values())


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
    recent = plan.snapshot.kept.get_or_make("rows passing filters", RecentRows)
    return recent.get_or_find(str(written), find)
