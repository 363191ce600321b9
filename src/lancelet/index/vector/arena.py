"""The rows of a segment in memory: one array for the codes of all partitions, filled as needed.

    partition    0          1        2
    rows         0..328     328..667 667..1000
    codes        loaded     -        loaded       nothing is held for what was not asked for

A kernel is given the whole arrays and the places of the partitions to look at. Memory that was
never written takes no room. When the cache has no room for the whole of it, it is dropped.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable
from typing import Any

import numpy as np
import numpy.typing as npt

from lancelet.buffers import Int64s
from lancelet.index.folder import IndexLoads
from lancelet.kernels import PackedCodes
from lancelet.rowids.address import UInt64s
from lancelet.values import dataclass

ReadPartition = Callable[[int], tuple[UInt64s, PackedCodes]]
"""Returns the numbers of the rows of a partition and its codes as kernels want them."""


@dataclass(frozen=True, slots=True, eq=False)
class Loaded:
    """Arrays with places for all rows; rows of partitions that were loaded are in theirs."""

    numbers: UInt64s
    codes: PackedCodes


class Arena:
    """The partitions of a segment, read when they are first asked for; for any thread."""

    def __init__(self, starts: Int64s, lengths: Int64s) -> None:
        """Hold nothing yet."""
        self._starts = starts
        self._lengths = lengths
        self._lock = threading.Lock()
        self._is_there = np.zeros(len(starts), np.bool_)
        self._loaded: Loaded | None = None
        self.memory_bytes = 0

    def load(
        self, partitions: Int64s, read: ReadPartition, loads: IndexLoads | None = None
    ) -> Loaded:
        """Return arrays in which these partitions are, each of which has rows.

        Those that are missing are read; `loads` counts them, and those that were there.
        """
        loads = IndexLoads() if loads is None else loads
        with self._lock:
            loaded = self._loaded
            if loaded is not None and self._is_there[partitions].all():
                loads.count(found=len(partitions))
                return loaded
            missing = partitions[~self._is_there[partitions]].tolist()
            loads.count(parts=len(missing))
            loads.count(found=len(partitions) - len(missing))
            return self._fill(missing, read)

    def missing(self, partitions: Int64s) -> Int64s:
        """Return which of some partitions would be read."""
        with self._lock:
            return partitions[~self._is_there[partitions]]

    def _fill(self, missing: Iterable[int], read: ReadPartition) -> Loaded:
        for number in missing:
            numbers, codes = read(number)
            loaded = self._loaded
            if loaded is None:
                loaded = self._loaded = self._empty(codes, len(numbers))
            start, length = int(self._starts[number]), int(self._lengths[number])
            loaded.numbers[start : start + length] = numbers
            self.memory_bytes += 8 * length
            for kept, own in zip(_arrays(loaded.codes), _arrays(codes), strict=True):
                per_row = len(own) // max(length, 1)
                kept[start * per_row : (start + length) * per_row] = own
                self.memory_bytes += own.nbytes
            self._is_there[number] = True
        assert self._loaded is not None, "a partition was loaded"
        return self._loaded

    def _empty(self, codes: PackedCodes, count: int) -> Loaded:
        rows = int((self._starts + self._lengths).max(initial=0))
        values, *others = (
            np.empty(rows * (len(each) // max(count, 1)), each.dtype) for each in _arrays(codes)
        )
        return Loaded(np.empty(rows, np.uint64), PackedCodes(values, codes.row_bytes, *others))


def _arrays(codes: PackedCodes) -> tuple[npt.NDArray[Any], ...]:
    return codes.values, codes.add, codes.scale, codes.numbers
