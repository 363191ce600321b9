"""Sorting more rows than fit in memory: sorted runs on disk, merged range by range.

    run 0      null 1 4 4 9         nulls      run by run
    run 1      null 2 4 7           below 4    1 | 2, sorted together
                                    equal 4    4 4 | 4, run by run
                                    above 4    9 | 7, sorted together

Bounds between ranges are values of the runs, so many that a range has about as many rows as a
run. A value so frequent that it alone would make a range is a bound, and its rows need no sorting.
Floats are sorted as the integers that have their order, so that equal means equal in every bit.
"""

from __future__ import annotations

import mmap
import tempfile
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Final, TypeAlias

import numpy as np
import pyarrow as pa

from lancelet.index.parts.ordering import Order, floats_as_keys, keys_as_floats, order_of
from lancelet.rowids.address import UInt64s

Part: TypeAlias = tuple[pa.Array, UInt64s]

RUN_BYTES: Final = 16 * 1024 * 1024
_SAMPLES: Final = 256
_PIECE_ROWS: Final = 1 << 18


def sorted_parts(
    parts: Iterable[Part], data_type: pa.DataType, run_bytes: int = RUN_BYTES
) -> Iterator[Part]:
    """Yield rows in the order of their values, nulls first and equals as they come."""
    is_float = pa.types.is_floating(data_type)
    key_type = pa.from_numpy_dtype(f"i{data_type.bit_width // 8}") if is_float else data_type
    order = order_of(key_type)
    with tempfile.TemporaryDirectory(prefix="lancelet-sort-") as folder:
        runs: list[_SpilledRun] = []
        waiting: list[Part] = []
        size = 0
        for values, numbers in parts:
            waiting.append((floats_as_keys(values) if is_float else values, numbers))
            size += values.nbytes + numbers.nbytes
            if size >= run_bytes:
                runs.append(_spill(_sorted(waiting, key_type, order), folder, len(runs)))
                waiting, size = [], 0
        last = _sorted(waiting, key_type, order)
        if not runs:
            merged: Iterator[Part] = iter([last])
        else:
            runs.append(_spill(last, folder, len(runs)))
            del last
            merged = _merge([run.part for run in runs], order, run_bytes)
        for values, numbers in merged:
            for run in runs:
                run.forget()
            yield (keys_as_floats(values, data_type) if is_float else values), numbers


def _sorted(parts: Sequence[Part], data_type: pa.DataType, order: Order) -> Part:
    values = pa.concat_arrays([pa.array([], data_type), *(part[0] for part in parts)])
    numbers = np.concatenate([np.empty(0, np.uint64), *(part[1] for part in parts)])
    places = order.sort(values)
    return values.take(pa.array(places)), numbers[places]


class _SpilledRun:
    """A sorted run in a file, which is mapped; pages that were read can be given back."""

    def __init__(self, path: str) -> None:
        with open(path, "rb") as file:  # noqa: PTH123 - a number of a file is what mmap takes
            self._map = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
        batch = pa.ipc.open_file(pa.py_buffer(self._map)).get_batch(0)
        self.part: Part = batch.column("values"), batch.column("numbers").to_numpy()

    def forget(self) -> None:
        """Let go of the memory of what was read; it is read again if it is needed again."""
        if hasattr(self._map, "madvise"):
            self._map.madvise(mmap.MADV_DONTNEED)


def _spill(run: Part, folder: str, number: int) -> _SpilledRun:
    """Write a run to a file, and return it mapped from there."""
    path = str(Path(folder) / f"{number}.arrow")
    batch = pa.record_batch({"values": run[0], "numbers": pa.array(run[1])})
    with pa.OSFile(path, "wb") as sink, pa.ipc.new_file(sink, batch.schema) as writer:
        writer.write_batch(batch)
    return _SpilledRun(path)


def _merge(runs: Sequence[Part], order: Order, run_bytes: int) -> Iterator[Part]:
    for values, numbers in runs:
        yield from _pieces(values.slice(0, values.null_count), numbers[: values.null_count])
    filled = [(values.drop_null(), numbers[values.null_count :]) for values, numbers in runs]
    bounds = _bounds(filled, order, run_bytes)
    at = [0] * len(filled)
    lefts = [order.search(values, bounds, "left").tolist() for values, _ in filled]
    rights = [order.search(values, bounds, "right").tolist() for values, _ in filled]
    for place in range(len(bounds)):
        yield from _between(filled, at, [left[place] for left in lefts], order)
        at = [right[place] for right in rights]
        for run, left in zip(range(len(filled)), lefts, strict=True):
            values, numbers = filled[run]
            start, stop = left[place], at[run]
            yield from _pieces(values.slice(start, stop - start), numbers[start:stop])
    yield from _between(filled, at, [len(values) for values, _ in filled], order)


def _between(
    runs: Sequence[Part], starts: Sequence[int], stops: Sequence[int], order: Order
) -> Iterator[Part]:
    parts = [
        (values.slice(start, stop - start), numbers[start:stop])
        for (values, numbers), start, stop in zip(runs, starts, stops, strict=True)
        if start < stop
    ]
    if parts:
        yield _sorted(parts, parts[0][0].type, order)


def _bounds(runs: Sequence[Part], order: Order, run_bytes: int) -> pa.Array:
    """Return values that cut all runs into ranges of about the size of one."""
    filled = [values for values, _ in runs if len(values)]
    if not filled:
        return runs[0][0]
    samples = pa.concat_arrays(
        [
            values.take(pa.array(np.linspace(0, len(values) - 1, _SAMPLES).astype(np.int64)))
            for values in filled
        ]
    )
    samples = samples.take(pa.array(order.sort(samples)))
    total = sum(values.nbytes + numbers.nbytes for values, numbers in runs)
    wanted = min(max(1, 2 * total // run_bytes), len(samples))
    chosen = samples.take(
        pa.array(np.linspace(0, len(samples) - 1, wanted + 2).astype(np.int64)[1:-1])
    )
    return chosen.filter(pa.array(order.changes(chosen)))


def _pieces(values: pa.Array, numbers: UInt64s) -> Iterator[Part]:
    for start in range(0, len(numbers), _PIECE_ROWS):
        yield values.slice(start, _PIECE_ROWS), numbers[start : start + _PIECE_ROWS]
