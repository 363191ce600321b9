"""How much is read at a time within a memory limit, learnt from what was read before.

    limit 60 MB, 2 threads     4 tasks under way and one result in use, each 60 / 3 / 5 = 4 MB
    rows                       64 at first, which turn out to take 50 bytes each
    then                       256, 1024, ... 65536, and 80,000 from then on
    pages of larger values     as many rows as their bytes let expect, fewer each time

A task takes about three times what it returns: bytes as they are stored, decoded, and put together.
Without a limit tasks stay as they are, and nothing is learnt.
"""

from __future__ import annotations

import math
import sys
import threading
from collections.abc import Iterator, Sequence
from typing import Final

import pyarrow as pa

from lancelet.buffers import Int64s
from lancelet.config import CPU_THREADS, IO_THREADS
from lancelet.encodings.base import RowRange
from lancelet.file.schedule import TASK_BYTES
from lancelet.format.field import Field
from lancelet.query.nodes.source import FragmentSource, waits_for_storage
from lancelet.query.plan import ScanPlan

_COPIES: Final = 3
_TASK_BYTES_MIN: Final = 256 * 1024
"""Before tasks become smaller than this, fewer of them are under way."""
_ROWS_FIRST: Final = 64
_GROWTH: Final = 4


class Pace:
    """How many rows a task may read, which is any number; `ahead` is None for the usual."""

    is_bounded = False
    ahead: int | None = None
    rows = sys.maxsize
    task_bytes: float = math.inf

    def note(self, num_rows: int, *values: pa.Array | pa.RecordBatch | pa.Table) -> None:
        """Learn what rows take."""

    def cut(
        self, source: FragmentSource, fields: Sequence[Field], rows: RowRange
    ) -> Iterator[RowRange]:
        """Yield rows as tasks that read fields."""
        del source, fields
        yield rows


class BoundedPace(Pace):
    """How many rows a task may read within a limit; for any number of threads."""

    is_bounded = True

    def __init__(self, share: int, *, waits: bool) -> None:
        """Keep to a share of memory, with as many tasks under way as are worth it."""
        ahead = 2 * (IO_THREADS if waits else CPU_THREADS)
        self.ahead = max(1, min(ahead, share // (_COPIES * _TASK_BYTES_MIN) - 1))
        self.task_bytes = max(1, min(share // (_COPIES * (self.ahead + 1)), TASK_BYTES))
        self._lock = threading.Lock()
        self._rows_max, self._width = _ROWS_FIRST, 1.0

    @property
    def rows(self) -> int:  # type: ignore[override]  # read only here and there
        """How many rows the next task may read."""
        with self._lock:
            return max(1, min(self._rows_max, int(self.task_bytes / self._width)))

    def note(self, num_rows: int, *values: pa.Array | pa.RecordBatch | pa.Table) -> None:
        """Learn what rows take."""
        if num_rows:
            width = sum(each.nbytes for each in values) / num_rows
            with self._lock:
                self._width = max(self._width, width)
                self._rows_max = max(self._rows_max, num_rows * _GROWTH)

    def cut(
        self, source: FragmentSource, fields: Sequence[Field], rows: RowRange
    ) -> Iterator[RowRange]:
        """Yield rows as tasks that read fields."""
        start = rows.start
        while start < rows.stop:
            count = min(self.rows, rows.stop - start)
            while count > 1 and self._is_much(source, fields, RowRange(start, start + count)):
                count = -(-count // 2)
            yield RowRange(start, start + count)
            start += count

    def _is_much(self, source: FragmentSource, fields: Sequence[Field], rows: RowRange) -> bool:
        return bool(fields) and source.reader.decoded_bytes(fields, rows) > self.task_bytes


class WeighedSource(FragmentSource):
    """A fragment of which a pace learns what is read."""

    def __init__(self, source: FragmentSource, pace: Pace) -> None:
        """Read the same rows."""
        super().__init__(source.snapshot, source.fragment, with_deleted=source.with_deleted)
        self._pace = pace

    def read(
        self, fields: Sequence[Field], rows: RowRange, selected: Int64s | None
    ) -> list[pa.Array]:
        """Return the values of fields in a range, or in the selected rows of it."""
        arrays = super().read(fields, rows, selected)
        count = len(rows) if selected is None else len(selected)
        self._pace.note(count, *arrays)
        return arrays


def pace_of(plan: ScanPlan, *, share: float = 1.0) -> Pace:
    """Return the pace of a plan, for a share of its memory limit if it has one."""
    limit = plan.options.memory_limit
    if limit is None:
        return Pace()
    return BoundedPace(max(1, int(limit * share)), waits=waits_for_storage(plan.snapshot))
