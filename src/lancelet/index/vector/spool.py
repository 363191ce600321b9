"""Groups encoded rows by partition, spilling to disk beyond a memory limit.

    run 0    part 0: rows 5 9    part 1: row 2       sorted by partition, written in one file
    run 1    part 0: row 14      part 1: rows 11 17
    part 1   run 0: 2, run 1: 11 17                  read on demand

A build needs memory for one run and one partition, regardless of the number of rows.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from lancelet.buffers import Int64s
from lancelet.index.vector.quantizers.base import Codes
from lancelet.io.spill_folder import SpillFolder
from lancelet.rowids.address import UInt64s

RUN_BYTES: Final = 64 << 20
"""Bytes buffered in memory before a run is written."""

_ROWS_PER_PARTITION_MIN: Final = 64
"""Minimum mean number of rows per partition and batch to read rows without sorting them first."""

_NUMBERS: Final = ""
"""Key of the row numbers, stored with the codes."""


class Spool(AbstractContextManager["Spool"]):
    """Takes rows in any order and returns those of each partition sorted by row number."""

    def __init__(self, partitions: int, run_bytes: int = RUN_BYTES) -> None:
        """Create an empty spool."""
        self._partitions = partitions
        self._run_bytes = run_bytes
        self._pending: list[tuple[Int64s, Codes]] = []
        self._bytes = 0
        self._runs: list[_Run] = []
        self._folder: SpillFolder | None = None

    def __exit__(self, *_: object) -> None:
        """Delete the spill files."""
        self._runs.clear()
        if self._folder is not None:
            self._folder.close()

    def add(self, numbers: UInt64s, labels: Int64s, codes: Codes) -> None:
        """Add rows with their partitions and codes."""
        rows = {_NUMBERS: numbers, **codes}
        self._pending.append((labels, rows))
        self._bytes += sum(each.nbytes for each in rows.values()) + labels.nbytes
        if self._bytes >= self._run_bytes:
            self._spill()

    def parts(self) -> Iterator[tuple[UInt64s, Codes]]:
        """Yield the rows of each partition in order. Yields nothing if no rows were added."""
        runs = [*self._runs, *self._pending_runs()]
        self._pending = []
        if not runs:
            return
        for partition in range(self._partitions):
            partition_rows = [run.rows_of(partition) for run in runs]
            rows = {
                key: concatenate([each[key] for each in partition_rows])
                for key in partition_rows[0]
            }
            numbers = rows.pop(_NUMBERS)
            if (numbers[1:] < numbers[:-1]).any():
                order = np.argsort(numbers, kind="stable")
                numbers, rows = numbers[order], {key: each[order] for key, each in rows.items()}
            yield numbers, rows

    def _pending_runs(self) -> list[_Run]:
        """Return the rows in memory as runs: as added if batches are large, otherwise sorted."""
        rows = sum(len(labels) for labels, _ in self._pending)
        if rows < _ROWS_PER_PARTITION_MIN * self._partitions * len(self._pending):
            return [self._sort_pending()]
        return [
            _Run(self._bounds(labels), rows, np.argsort(labels, kind="stable"))
            for labels, rows in self._pending
        ]

    def _sort_pending(self) -> _Run:
        labels = np.concatenate([each for each, _ in self._pending])
        order = np.argsort(labels, kind="stable")
        keys = self._pending[0][1]
        rows = {key: np.concatenate([own[key] for _, own in self._pending])[order] for key in keys}
        return _Run(self._bounds(labels), rows)

    def _bounds(self, labels: Int64s) -> Int64s:
        """Return the start of each partition in the sorted rows."""
        bounds = np.zeros(self._partitions + 1, np.int64)
        np.cumsum(np.bincount(labels, minlength=self._partitions), out=bounds[1:])
        return bounds

    def _spill(self) -> None:
        if self._folder is None:
            self._folder = SpillFolder("vectors")
        run = self._sort_pending()
        self._pending, self._bytes = [], 0
        written: Codes = {}
        for number, (key, values) in enumerate(run.rows.items()):
            path = self._folder.path / f"{len(self._runs)}.{number}"
            values.tofile(path)
            written[key] = (
                np.memmap(path, values.dtype, "r", shape=values.shape) if values.size else values
            )
        self._runs.append(_Run(run.bounds, written))


class _Run:
    """Rows sorted by partition, or rows with a sort order. Partition i starts at `bounds[i]`."""

    def __init__(
        self, bounds: Int64s, rows: dict[str, npt.NDArray[Any]], order: Int64s | None = None
    ) -> None:
        self.bounds = bounds
        self.rows = rows
        self._order = order

    def rows_of(self, partition: int) -> dict[str, npt.NDArray[Any]]:
        indices = slice(int(self.bounds[partition]), int(self.bounds[partition + 1]))
        if self._order is not None:
            return {key: own[self._order[indices]] for key, own in self.rows.items()}
        return {key: np.asarray(own[indices]) for key, own in self.rows.items()}


def concatenate(parts: Sequence[npt.NDArray[Any]]) -> npt.NDArray[Any]:
    """Concatenate arrays without copying a single one."""
    return parts[0] if len(parts) == 1 else np.concatenate(parts)
