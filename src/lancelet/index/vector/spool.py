"""Encoded rows by partition, in memory while they are few, and in a file when they are many.

    run 0    part 0: rows 5 9    part 1: row 2       sorted by partition, written one by one
    run 1    part 0: row 14      part 1: rows 11 17
    part 1   run 0: 2, run 1: 11 17                  read when its turn comes

So building takes room for one run and one partition, however many rows there are.
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
"""How much is held in memory before it is written."""

_LONG_PIECE: Final = 64
"""From how many rows of a partition it is worth to take them from what came together."""

_NUMBERS: Final = ""
"""The name under which the numbers of rows are kept beside their codes."""


class Spool(AbstractContextManager["Spool"]):
    """Takes rows in any order, and gives those of each partition in the order of their numbers."""

    def __init__(self, partitions: int, run_bytes: int = RUN_BYTES) -> None:
        """Hold nothing yet."""
        self._partitions = partitions
        self._run_bytes = run_bytes
        self._waiting: list[tuple[Int64s, Codes]] = []
        self._bytes = 0
        self._runs: list[_Run] = []
        self._folder: SpillFolder | None = None

    def __exit__(self, *_: object) -> None:
        """Remove what was written."""
        self._runs.clear()
        if self._folder is not None:
            self._folder.close()

    def add(self, numbers: UInt64s, labels: Int64s, codes: Codes) -> None:
        """Take rows with their partitions and codes."""
        rows = {_NUMBERS: numbers, **codes}
        self._waiting.append((labels, rows))
        self._bytes += sum(each.nbytes for each in rows.values()) + labels.nbytes
        if self._bytes >= self._run_bytes:
            self._spill()

    def parts(self) -> Iterator[tuple[UInt64s, Codes]]:
        """Yield the rows of each partition in turn; nothing if no rows were added."""
        runs = [*self._runs, *self._waiting_runs()]
        self._waiting = []
        if not runs:
            return
        for partition in range(self._partitions):
            found = [run.rows_of(partition) for run in runs]
            rows = {key: joined([each[key] for each in found]) for key in found[0]}
            numbers = rows.pop(_NUMBERS)
            if (numbers[1:] < numbers[:-1]).any():
                order = np.argsort(numbers, kind="stable")
                numbers, rows = numbers[order], {key: each[order] for key, each in rows.items()}
            yield numbers, rows

    def _waiting_runs(self) -> list[_Run]:
        """Return what is held as runs: as it came where pieces are long, else put together."""
        rows = sum(len(labels) for labels, _ in self._waiting)
        if rows < _LONG_PIECE * self._partitions * len(self._waiting):
            return [self._sorted()]
        return [
            _Run(self._bounds(labels), rows, np.argsort(labels, kind="stable"))
            for labels, rows in self._waiting
        ]

    def _sorted(self) -> _Run:
        labels = np.concatenate([each for each, _ in self._waiting])
        order = np.argsort(labels, kind="stable")
        keys = self._waiting[0][1]
        rows = {key: np.concatenate([own[key] for _, own in self._waiting])[order] for key in keys}
        return _Run(self._bounds(labels), rows)

    def _bounds(self, labels: Int64s) -> Int64s:
        """Return where the rows of each partition begin once they are sorted."""
        bounds = np.zeros(self._partitions + 1, np.int64)
        np.cumsum(np.bincount(labels, minlength=self._partitions), out=bounds[1:])
        return bounds

    def _spill(self) -> None:
        if self._folder is None:
            self._folder = SpillFolder("vectors")
        run = self._sorted()
        self._waiting, self._bytes = [], 0
        written: Codes = {}
        for place, (key, own) in enumerate(run.rows.items()):
            path = self._folder.path / f"{len(self._runs)}.{place}"
            own.tofile(path)
            written[key] = np.memmap(path, own.dtype, "r", shape=own.shape) if own.size else own
        self._runs.append(_Run(run.bounds, written))


class _Run:
    """Rows sorted by partition, or their order; those of partition i begin at `bounds[i]`."""

    def __init__(
        self, bounds: Int64s, rows: dict[str, npt.NDArray[Any]], order: Int64s | None = None
    ) -> None:
        self.bounds = bounds
        self.rows = rows
        self._order = order

    def rows_of(self, partition: int) -> dict[str, npt.NDArray[Any]]:
        chosen = slice(int(self.bounds[partition]), int(self.bounds[partition + 1]))
        if self._order is not None:
            return {key: own[self._order[chosen]] for key, own in self.rows.items()}
        return {key: np.asarray(own[chosen]) for key, own in self.rows.items()}


def joined(parts: Sequence[npt.NDArray[Any]]) -> npt.NDArray[Any]:
    """Return arrays one behind the other; one alone as it is."""
    return parts[0] if len(parts) == 1 else np.concatenate(parts)
