"""Sorting more rows than fit in memory: sorted runs on disk, read and merged side by side.

    run 0      null 1 4 4 9         nulls      run by run
    run 1      null 2 4 7           loaded     1 4 4 | 2 4 7, of which 4 is the least last value
                                    below 4    1 | 2, sorted together
                                    equal 4    4 4 | 4, run by run, as far as they go
                                    then       9 | 7

Of each run only some rows are in memory. Whatever is below the least of the last values that are
loaded is there in full. A value so frequent that it fills all that is loaded needs no sorting.
A run is not touched before its first value is reached, so that rows that come in order are read
one run after the other. Floats are sorted as the integers that have their order, so that equal
means equal in every bit.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import chain
from pathlib import Path
from typing import Final, TypeAlias

import numpy as np
import pyarrow as pa

from lancelet.encodings.arrow import numpy_of
from lancelet.index.parts.ordering import (
    Order,
    Side,
    bits_of,
    floats_as_keys,
    keys_as_floats,
    number_type,
    order_of,
)
from lancelet.io.spill_folder import SpillFolder
from lancelet.rowids.address import UInt64s
from lancelet.values import dataclass

Part: TypeAlias = tuple[pa.Array, UInt64s]

RUN_BYTES: Final = 2 * 1024 * 1024
_HELD_BYTES: Final = 32 * 1024 * 1024
"""So much may come in order before it is sorted on disk as anything else."""
_BATCHES: Final = 64
"""A run is written in so many batches, each of which is read at once."""
_PART_ROWS: Final = 1 << 16
"""So many equal rows are handed on together."""


def sorted_parts(
    parts: Iterable[Part], data_type: pa.DataType, run_bytes: int = RUN_BYTES
) -> Iterator[Part]:
    """Yield rows in the order of their values, nulls first and equals as they come.

    Rows that are not too many and come in order already are handed on as they are.
    """
    held: list[Part] = []
    coming = iter(parts)
    if _are_in_order(coming, data_type, held):
        filled = [part for part in held if len(part[1])]
        yield from filled or [(pa.array([], data_type), np.empty(0, np.uint64))]
    else:
        yield from _sorted_by_runs(chain(held, coming), data_type, run_bytes)


def _are_in_order(coming: Iterator[Part], data_type: pa.DataType, held: list[Part]) -> bool:
    """Take rows as long as they are numbers in order and not too many; say if that was all."""
    is_float = pa.types.is_floating(data_type)
    dtype = number_type(data_type)
    if dtype is None and not is_float:
        return False
    if is_float:
        dtype = np.dtype(f"i{data_type.bit_width // 8}")
    assert dtype is not None, "they are numbers"
    last = None
    size = 0
    for values, numbers in coming:
        held.append((values, numbers))
        size += values.nbytes + numbers.nbytes
        if values.null_count or size > _HELD_BYTES:
            return False
        if not len(values):
            continue
        keys = bits_of(floats_as_keys(values) if is_float else values, dtype)
        if (last is not None and keys[0] < last) or bool((keys[1:] < keys[:-1]).any()):
            return False
        last = keys[-1]
    return True


def _sorted_by_runs(
    parts: Iterable[Part], data_type: pa.DataType, run_bytes: int
) -> Iterator[Part]:
    is_float = pa.types.is_floating(data_type)
    key_type = pa.from_numpy_dtype(f"i{data_type.bit_width // 8}") if is_float else data_type
    order = order_of(key_type)
    with SpillFolder("sort") as folder:
        spill = _Spill(folder.path / "runs.arrow", key_type)
        waiting: list[Part] = []
        size = 0
        for values, numbers in parts:
            waiting.append((floats_as_keys(values) if is_float else values, numbers))
            size += values.nbytes + numbers.nbytes
            if size >= run_bytes:
                spill.add(_sorted(waiting, key_type, order))
                waiting, size = [], 0
        last = _sorted(waiting, key_type, order)
        if spill.is_empty:
            merged: Iterator[Part] = iter([last])
        else:
            spill.add(last)
            merged = _merge(spill.runs(), order)
        del waiting, last
        for values, numbers in merged:
            yield (keys_as_floats(values, data_type) if is_float else values), numbers


def _sorted(parts: Sequence[Part], data_type: pa.DataType, order: Order) -> Part:
    return order.arrange(*_joined(parts, data_type))


def _joined(parts: Sequence[Part], data_type: pa.DataType) -> Part:
    if len(parts) == 1:
        return parts[0]
    values = pa.concat_arrays([pa.array([], data_type), *(part[0] for part in parts)])
    return values, np.concatenate([np.empty(0, np.uint64), *(part[1] for part in parts)])


@dataclass(frozen=True, slots=True)
class _Batches:
    """Where the rows of a run are in the file: `start` to `middle` are nulls, the others not."""

    start: int
    middle: int
    stop: int
    rows: int
    first: pa.Array
    """The first value, if there is any."""


class _Spill:
    """Sorted runs in one file, which is there as long as its folder is."""

    def __init__(self, path: Path, data_type: pa.DataType) -> None:
        self._path, self._data_type = str(path), data_type
        self._schema = pa.schema([pa.field("values", data_type), pa.field("numbers", pa.uint64())])
        self._sink = pa.OSFile(self._path, "wb")
        self._writer = pa.ipc.new_file(self._sink, self._schema)
        self._num_batches = 0
        self._listed: list[_Batches] = []

    @property
    def is_empty(self) -> bool:
        return not self._listed

    def add(self, run: Part) -> None:
        values, numbers = run
        rows = max(1, -(-len(values) // _BATCHES))
        start, nulls = self._num_batches, values.null_count
        self._write(values.slice(0, nulls), numbers[:nulls], rows)
        middle = self._num_batches
        filled = values.slice(nulls).drop_null() if nulls else values
        self._write(filled, numbers[nulls:], rows)
        first = pa.concat_arrays([filled.slice(0, 1)])  # a copy, which does not hold the run
        self._listed.append(_Batches(start, middle, self._num_batches, rows, first))

    def _write(self, values: pa.Array, numbers: UInt64s, rows: int) -> None:
        for start in range(0, len(values), rows):
            part = [values.slice(start, rows), pa.array(numbers[start : start + rows])]
            self._writer.write_batch(pa.record_batch(part, schema=self._schema))
            self._num_batches += 1

    def runs(self) -> list[_Run]:
        """Return the runs to be read; no more can be added."""
        self._writer.close()
        self._sink.close()
        file = pa.ipc.open_file(pa.OSFile(self._path))
        rows_max = max(batches.rows for batches in self._listed) * _BATCHES
        # What is loaded of all runs together is about one run.
        ahead = max(1, rows_max // len(self._listed))
        return [_Run(file, batches, self._data_type, ahead) for batches in self._listed]


class _Run:
    """The rows of a run that are still to come, some of which are loaded."""

    def __init__(
        self,
        file: pa.ipc.RecordBatchFileReader,
        where: _Batches,
        data_type: pa.DataType,
        ahead: int,
    ) -> None:
        self._file, self._where, self._ahead = file, where, ahead
        self._data_type = data_type
        self._next = where.middle
        self.values: pa.Array = pa.array([], data_type)
        self._numbers: UInt64s = np.empty(0, np.uint64)

    @property
    def first(self) -> pa.Array:
        """The first value, if there is any."""
        return self._where.first

    @property
    def last(self) -> pa.Array:
        """The last value that is loaded."""
        return self.values.slice(len(self.values) - 1)

    def nulls(self) -> Iterator[Part]:
        """Yield the rows without a value."""
        for place in range(self._where.start, self._where.middle):
            yield self._read(place)

    def fill(self) -> bool:
        """Load rows until enough are there or there are no more; return whether there are any."""
        missing = self._ahead - len(self.values)
        if missing > 0 and self._next < self._where.stop:
            stop = min(self._next + -(-missing // self._where.rows), self._where.stop)
            parts = [self._read(place) for place in range(self._next, stop)]
            waiting = [(self.values, self._numbers)] if len(self.values) else []
            self.values, self._numbers = _joined([*waiting, *parts], self._data_type)
            self._next = stop
        return len(self.values) > 0

    def below(self, bound: pa.Array, order: Order) -> Part:
        """Take the loaded rows that come before a value."""
        return self._take(bound, "left", order)

    def equal(self, bound: pa.Array, order: Order) -> Iterator[Part]:
        """Take the rows that have a value, to be asked for once those below are taken."""
        while self.fill():
            yield self._take(bound, "right", order)
            if len(self.values):
                return

    def _take(self, bound: pa.Array, side: Side, order: Order) -> Part:
        stop = int(order.search(self.values, bound, side)[0])
        taken = self.values.slice(0, stop), self._numbers[:stop]
        self.values, self._numbers = self.values.slice(stop), self._numbers[stop:]
        return taken

    def _read(self, place: int) -> Part:
        batch = self._file.get_batch(place)
        return batch.column(0), numpy_of(batch.column(1))


def _merge(runs: Sequence[_Run], order: Order) -> Iterator[Part]:
    for run in runs:
        yield from run.nulls()
    filled = [place for place, run in enumerate(runs) if len(run.first)]
    if not filled:
        return
    firsts = pa.concat_arrays([runs[place].first for place in filled])
    by_first = order.sort(firsts)
    firsts = firsts.take(pa.array(by_first))
    waiting = [filled[place] for place in by_first.tolist()]
    begun: list[int] = []
    reached = 0
    while begun or reached < len(waiting):
        bound = _least_last([runs[place] for place in begun], order) if begun else None
        reach = reached + 1 if bound is None else int(order.search(firsts, bound, "right")[0])
        if bound is None or reach > reached:
            begun = sorted([*begun, *waiting[reached:reach]])
            reached = reach
            for place in begun:
                runs[place].fill()
            continue
        parts = [runs[place].below(bound, order) for place in begun]
        parts = [part for part in parts if len(part[1])] or parts[:1]
        below = _sorted(parts, firsts.type, order) if len(parts) > 1 else parts[0]
        equal = (part for place in begun for part in runs[place].equal(bound, order))
        yield from _gathered(chain([below], equal), firsts.type)
        begun = [place for place in begun if runs[place].fill()]


def _gathered(parts: Iterable[Part], data_type: pa.DataType) -> Iterator[Part]:
    """Yield the same rows, small parts joined."""
    waiting: list[Part] = []
    size = 0
    for part in parts:
        waiting.append(part)
        size += len(part[1])
        if size >= _PART_ROWS:
            yield _joined(waiting, data_type)
            waiting, size = [], 0
    if size:
        yield _joined(waiting, data_type)


def _least_last(runs: Sequence[_Run], order: Order) -> pa.Array:
    """Return the least of the last values that are loaded: all that is below it is loaded too."""
    lasts = pa.concat_arrays([run.last for run in runs])
    return lasts.slice(int(order.sort(lasts)[0]), 1)
