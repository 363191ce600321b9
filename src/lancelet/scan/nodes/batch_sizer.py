"""Size read tasks to a memory limit, from the observed size of rows.

    limit 60 MB, 2 threads     4 tasks in flight and one result in use, each 60 / 3 / 5 = 4 MB
    rows                       64 at first, observed at 50 bytes each
    then                       256, 1024, ... 65536, then 80,000
    pages of larger values     fewer rows, as estimated from the bytes of the pages

A task needs about three times the memory of its result: stored bytes, decoded values and the
assembled batch. Without a limit, task sizes remain unchanged.
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
from lancelet.scan.nodes.source import FragmentSource, waits_for_storage
from lancelet.scan.plan import ScanPlan

_COPIES: Final = 3
_TASK_BYTES_MIN: Final = 256 * 1024
"""Fewer tasks run concurrently before tasks become smaller than this, in bytes."""
_ROWS_FIRST: Final = 64
_GROWTH: Final = 4


class BatchSizer:
    """The number of rows per task, unlimited in this class; `ahead` is None for the default."""

    is_bounded = False
    ahead: int | None = None
    rows = sys.maxsize
    task_bytes: float = math.inf

    def observe(self, num_rows: int, *values: pa.Array | pa.RecordBatch | pa.Table) -> None:
        """Observe the size of rows."""

    def split_range(
        self, source: FragmentSource, fields: Sequence[Field], rows: RowRange
    ) -> Iterator[RowRange]:
        """Split a row range into tasks that read fields."""
        del source, fields
        yield rows


class BoundedBatchSizer(BatchSizer):
    """Sizes tasks within a memory limit; thread-safe."""

    is_bounded = True

    def __init__(self, share: int, *, waits: bool) -> None:
        """Create a sizer for `share` bytes and choose the number of concurrent tasks."""
        ahead = 2 * (IO_THREADS if waits else CPU_THREADS)
        self.ahead = max(1, min(ahead, share // (_COPIES * _TASK_BYTES_MIN) - 1))
        self.task_bytes = max(1, min(share // (_COPIES * (self.ahead + 1)), TASK_BYTES))
        self._lock = threading.Lock()
        self._rows_max, self._width = _ROWS_FIRST, 1.0

    @property
    def rows(self) -> int:  # type: ignore[override]  # read only here and there
        """The maximum number of rows of the next task."""
        with self._lock:
            return max(1, min(self._rows_max, int(self.task_bytes / self._width)))

    def observe(self, num_rows: int, *values: pa.Array | pa.RecordBatch | pa.Table) -> None:
        """Observe the size of rows."""
        if num_rows:
            width = sum(each.nbytes for each in values) / num_rows
            with self._lock:
                self._width = max(self._width, width)
                self._rows_max = max(self._rows_max, num_rows * _GROWTH)

    def split_range(
        self, source: FragmentSource, fields: Sequence[Field], rows: RowRange
    ) -> Iterator[RowRange]:
        """Split a row range into tasks that read fields."""
        start = rows.start
        while start < rows.stop:
            count = min(self.rows, rows.stop - start)
            while count > 1 and self._exceeds_task(source, fields, RowRange(start, start + count)):
                count = -(-count // 2)
            yield RowRange(start, start + count)
            start += count

    def _exceeds_task(
        self, source: FragmentSource, fields: Sequence[Field], rows: RowRange
    ) -> bool:
        return bool(fields) and source.reader.decoded_bytes(fields, rows) > self.task_bytes


class MeteredSource(FragmentSource):
    """A fragment that reports the bytes it reads to a batch sizer."""

    def __init__(self, source: FragmentSource, sizer: BatchSizer) -> None:
        """Create a source over the same rows."""
        super().__init__(source.snapshot, source.fragment, with_deleted=source.with_deleted)
        self._sizer = sizer

    def read(
        self, fields: Sequence[Field], rows: RowRange, selected: Int64s | None
    ) -> list[pa.Array]:
        """Return the values of fields in a range, or in selected rows of it."""
        arrays = super().read(fields, rows, selected)
        count = len(rows) if selected is None else len(selected)
        self._sizer.observe(count, *arrays)
        return arrays


def batch_sizer(plan: ScanPlan, *, share: float = 1.0) -> BatchSizer:
    """Return the batch sizer of a plan, for a share of its memory limit if there is one."""
    limit = plan.options.memory_limit
    if limit is None:
        return BatchSizer()
    return BoundedBatchSizer(max(1, int(limit * share)), waits=waits_for_storage(plan.snapshot))
