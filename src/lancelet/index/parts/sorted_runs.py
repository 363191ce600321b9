"""External sort: sorted runs are spilled to disk and merged.

    run 0      null 1 4 4 9         nulls      run by run
    run 1      null 2 4 7           loaded     1 4 4 | 2 4 7; the smallest last value is 4
                                    below 4    1 | 2, sorted together
                                    equal 4    4 4 | 4, run by run, as long as they continue
                                    then       9 | 7

Only a part of each run is in memory. All values below the smallest last loaded value are loaded
completely. A value that fills the loaded part needs no sorting. A run is first read when the merge
reaches its first value, so sorted input is read one run at a time. Floats are sorted as integers of
the same order, so that equality means identical bits.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import chain
from pathlib import Path
from typing import Final, TypeAlias

import numpy as np
import pyarrow as pa

from lancelet.encodings.arrow import to_numpy
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
_PASS_THROUGH_BYTES_MAX: Final = 32 * 1024 * 1024
"""Input up to this size is passed through if it is already sorted."""
_BATCHES_PER_RUN: Final = 64
"""Number of batches per run. A batch is the unit of reading."""
_PART_ROWS_MIN: Final = 1 << 16
"""Number of rows from which small parts are yielded together."""


def sorted_parts(
    parts: Iterable[Part], data_type: pa.DataType, run_bytes: int = RUN_BYTES
) -> Iterator[Part]:
    """Yield rows sorted by value. The sort is stable, nulls first.

    Small sorted input is passed through unchanged.
    """
    buffered: list[Part] = []
    remaining = iter(parts)
    if _are_in_order(remaining, data_type, buffered):
        filled = [part for part in buffered if len(part[1])]
        yield from filled or [(pa.array([], data_type), np.empty(0, np.uint64))]
    else:
        yield from _sorted_by_runs(chain(buffered, remaining), data_type, run_bytes)


def _are_in_order(remaining: Iterator[Part], data_type: pa.DataType, buffered: list[Part]) -> bool:
    """Consume sorted numbers into `buffered`. Return whether the input ended in order."""
    is_float = pa.types.is_floating(data_type)
    dtype = number_type(data_type)
    if dtype is None and not is_float:
        return False
    if is_float:
        dtype = np.dtype(f"i{data_type.bit_width // 8}")
    assert dtype is not None, "floats and ordered numbers have a NumPy type"
    last = None
    size = 0
    for values, numbers in remaining:
        buffered.append((values, numbers))
        size += values.nbytes + numbers.nbytes
        if values.null_count or size > _PASS_THROUGH_BYTES_MAX:
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
        pending: list[Part] = []
        size = 0
        for values, numbers in parts:
            pending.append((floats_as_keys(values) if is_float else values, numbers))
            size += values.nbytes + numbers.nbytes
            if size >= run_bytes:
                spill.add(_sorted(pending, key_type, order))
                pending, size = [], 0
        last = _sorted(pending, key_type, order)
        if spill.is_empty:
            merged: Iterator[Part] = iter([last])
        else:
            spill.add(last)
            merged = _merge(spill.runs(), order)
        del pending, last
        for values, numbers in merged:
            yield (keys_as_floats(values, data_type) if is_float else values), numbers


def _sorted(parts: Sequence[Part], data_type: pa.DataType, order: Order) -> Part:
    return order.arrange(*_concatenate(parts, data_type))


def _concatenate(parts: Sequence[Part], data_type: pa.DataType) -> Part:
    if len(parts) == 1:
        return parts[0]
    values = pa.concat_arrays([pa.array([], data_type), *(part[0] for part in parts)])
    return values, np.concatenate([np.empty(0, np.uint64), *(part[1] for part in parts)])


@dataclass(frozen=True, slots=True)
class _RunBatches:
    """Location of a run in the file: batches `start` to `middle` are nulls, the rest values."""

    start: int
    middle: int
    stop: int
    rows: int
    first: pa.Array
    """First value of the run; empty if there are only nulls."""


class _Spill:
    """Sorted runs in a temporary file."""

    def __init__(self, path: Path, data_type: pa.DataType) -> None:
        self._path, self._data_type = str(path), data_type
        self._schema = pa.schema([pa.field("values", data_type), pa.field("numbers", pa.uint64())])
        self._sink = pa.OSFile(self._path, "wb")
        self._writer = pa.ipc.new_file(self._sink, self._schema)
        self._num_batches = 0
        self._batches_by_run: list[_RunBatches] = []

    @property
    def is_empty(self) -> bool:
        return not self._batches_by_run

    def add(self, run: Part) -> None:
        values, numbers = run
        rows = max(1, -(-len(values) // _BATCHES_PER_RUN))
        start, nulls = self._num_batches, values.null_count
        self._write(values.slice(0, nulls), numbers[:nulls], rows)
        middle = self._num_batches
        filled = values.slice(nulls).drop_null() if nulls else values
        self._write(filled, numbers[nulls:], rows)
        first = pa.concat_arrays([filled.slice(0, 1)])  # a copy that does not reference the run
        self._batches_by_run.append(_RunBatches(start, middle, self._num_batches, rows, first))

    def _write(self, values: pa.Array, numbers: UInt64s, rows: int) -> None:
        for start in range(0, len(values), rows):
            part = [values.slice(start, rows), pa.array(numbers[start : start + rows])]
            self._writer.write_batch(pa.record_batch(part, schema=self._schema))
            self._num_batches += 1

    def runs(self) -> list[_Run]:
        """Finish writing and return the runs."""
        self._writer.close()
        self._sink.close()
        file = pa.ipc.open_file(pa.OSFile(self._path))
        rows_max = max(batches.rows for batches in self._batches_by_run) * _BATCHES_PER_RUN
        # The loaded rows of all runs together have about the size of one run.
        prefetch_rows = max(1, rows_max // len(self._batches_by_run))
        return [
            _Run(file, batches, self._data_type, prefetch_rows) for batches in self._batches_by_run
        ]


class _Run:
    """The remaining rows of a run, partly loaded."""

    def __init__(
        self,
        file: pa.ipc.RecordBatchFileReader,
        batches: _RunBatches,
        data_type: pa.DataType,
        prefetch_rows: int,
    ) -> None:
        self._file, self._batches, self._prefetch_rows = file, batches, prefetch_rows
        self._data_type = data_type
        self._next = batches.middle
        self.values: pa.Array = pa.array([], data_type)
        self._numbers: UInt64s = np.empty(0, np.uint64)

    @property
    def first(self) -> pa.Array:
        """First value of the run; empty if there are only nulls."""
        return self._batches.first

    @property
    def last(self) -> pa.Array:
        """Last loaded value."""
        return self.values.slice(len(self.values) - 1)

    def nulls(self) -> Iterator[Part]:
        """Yield the null rows."""
        for number in range(self._batches.start, self._batches.middle):
            yield self._read(number)

    def fill(self) -> bool:
        """Load more rows if needed. Return False at the end of the run."""
        missing = self._prefetch_rows - len(self.values)
        if missing > 0 and self._next < self._batches.stop:
            stop = min(self._next + -(-missing // self._batches.rows), self._batches.stop)
            parts = [self._read(number) for number in range(self._next, stop)]
            pending = [(self.values, self._numbers)] if len(self.values) else []
            self.values, self._numbers = _concatenate([*pending, *parts], self._data_type)
            self._next = stop
        return len(self.values) > 0

    def take_below(self, bound: pa.Array, order: Order) -> Part:
        """Remove and return the loaded rows below a value."""
        return self._take(bound, "left", order)

    def take_equal(self, bound: pa.Array, order: Order) -> Iterator[Part]:
        """Remove and yield the rows equal to a value. Rows below it must be removed first."""
        while self.fill():
            yield self._take(bound, "right", order)
            if len(self.values):
                return

    def _take(self, bound: pa.Array, side: Side, order: Order) -> Part:
        stop = int(order.search(self.values, bound, side)[0])
        taken = self.values.slice(0, stop), self._numbers[:stop]
        self.values, self._numbers = self.values.slice(stop), self._numbers[stop:]
        return taken

    def _read(self, number: int) -> Part:
        batch = self._file.get_batch(number)
        return batch.column(0), to_numpy(batch.column(1))


def _merge(runs: Sequence[_Run], order: Order) -> Iterator[Part]:
    for run in runs:
        yield from run.nulls()
    filled = [run_index for run_index, run in enumerate(runs) if len(run.first)]
    if not filled:
        return
    firsts = pa.concat_arrays([runs[run_index].first for run_index in filled])
    by_first = order.sort(firsts)
    firsts = firsts.take(pa.array(by_first))
    pending = [filled[run_index] for run_index in by_first.tolist()]
    active: list[int] = []
    reached = 0
    while active or reached < len(pending):
        bound = _smallest_last([runs[run_index] for run_index in active], order) if active else None
        reach = reached + 1 if bound is None else int(order.search(firsts, bound, "right")[0])
        if bound is None or reach > reached:
            active = sorted([*active, *pending[reached:reach]])
            reached = reach
            for run_index in active:
                runs[run_index].fill()
            continue
        parts = [runs[run_index].take_below(bound, order) for run_index in active]
        parts = [part for part in parts if len(part[1])] or parts[:1]
        below = _sorted(parts, firsts.type, order) if len(parts) > 1 else parts[0]
        equal = (part for run_index in active for part in runs[run_index].take_equal(bound, order))
        yield from _concatenate_small(chain([below], equal), firsts.type)
        active = [run_index for run_index in active if runs[run_index].fill()]


def _concatenate_small(parts: Iterable[Part], data_type: pa.DataType) -> Iterator[Part]:
    """Concatenate small parts."""
    pending: list[Part] = []
    size = 0
    for part in parts:
        pending.append(part)
        size += len(part[1])
        if size >= _PART_ROWS_MIN:
            yield _concatenate(pending, data_type)
            pending, size = [], 0
    if size:
        yield _concatenate(pending, data_type)


def _smallest_last(runs: Sequence[_Run], order: Order) -> pa.Array:
    """Return the smallest last loaded value. All rows below it are loaded."""
    lasts = pa.concat_arrays([run.last for run in runs])
    return lasts.slice(int(order.sort(lasts)[0]), 1)
