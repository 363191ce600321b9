"""Row sets by key, in key order: grouping, merging and writing in bounded memory.

    values, sorted   a a | a b b | c      input in parts
    numbers          1 4 | 7 0 2 | 3
    groups           a {1, 4, 7}   b {0, 2}   c {3}

The last key of a part may continue in the next part and is held back until then. Some thousand keys
are written at a time.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Final, TypeAlias

import numpy as np
import pyarrow as pa

from lancelet.index.folder import SegmentFolder
from lancelet.index.parts.key_sets import KEY_SETS, KeySets
from lancelet.index.parts.ordering import Order, order_of
from lancelet.index.parts.sorted_runs import Part, sorted_parts
from lancelet.rowids.address import NO_ADDRESS, UInt64s
from lancelet.rowids.selection import NO_ROWS, RowSet

Groups: TypeAlias = tuple[pa.Array, Sequence[RowSet]]
"""Distinct keys in order, and the row set of each key."""

_STATISTICS: Final = "lance:index_stats"
_WRITE_BUFFER_BYTES: Final = 1 << 20
_SETS_PER_READ: Final = 256


def group_rows(parts: Iterable[Part], data_type: pa.DataType) -> Iterator[Groups]:
    """Yield the distinct values in order with their row sets; see `sorted_parts`."""
    order = order_of(data_type)
    pending: tuple[pa.Array, RowSet] | None = None
    for values, numbers in sorted_parts(parts, data_type):
        if not len(values):
            continue
        starts = np.flatnonzero(order.changes(values))
        keys = values.take(pa.array(starts))
        sets = [RowSet.of(part) for part in np.split(numbers, starts[1:])]
        if pending is not None and _continues_key(pending[0], keys, order):
            sets[0] |= pending[1]
        elif pending is not None:
            yield pending[0], [pending[1]]
        yield keys.slice(0, len(keys) - 1), sets[:-1]
        pending = pa.concat_arrays([keys.slice(len(keys) - 1)]), sets[-1]
    if pending is not None:
        yield pending[0], [pending[1]]


def stored_groups(keys: KeySets) -> Iterator[Groups]:
    """Yield the keys of a file and their row sets."""
    for start in range(0, len(keys.keys), _SETS_PER_READ):
        stop = min(start + _SETS_PER_READ, len(keys.keys))
        yield keys.keys.slice(start, stop - start), keys.sets(start, stop)


def remap_groups(groups: Iterable[Groups], move: Callable[[UInt64s], UInt64s]) -> Iterator[Groups]:
    """Yield the same keys with renumbered rows."""
    for keys, sets in groups:
        yield keys, [remap_rows(rows, move) for rows in sets]


def remap_rows(rows: RowSet, move: Callable[[UInt64s], UInt64s]) -> RowSet:
    """Return a row set with new row numbers, without deleted rows."""
    numbers = move(rows.listed())
    return RowSet.of(numbers[numbers != NO_ADDRESS])


def merge_groups(parts: Sequence[Iterable[Groups]], data_type: pa.DataType) -> Iterator[Groups]:
    """Merge groups by key, in key order; the row sets of equal keys are united."""
    order = order_of(data_type)
    heads = [_MergeInput(part, data_type) for part in parts]
    while heads := [head for head in heads if head.fill()]:
        lasts = pa.concat_arrays([head.keys.slice(len(head.keys) - 1) for head in heads])
        bound = lasts.slice(int(order.sort(lasts)[0]), 1)
        yield _merge_equal_keys([head.take_up_to(bound, order) for head in heads], order)


def write_groups(
    groups: Iterable[Groups],
    data_type: pa.DataType,
    folder: SegmentFolder,
    *,
    nulls: tuple[str, Callable[[], RowSet]] | None = None,
) -> None:
    """Write the key file, without keys that have no rows.

    `nulls` is the name of a metadata entry and a function that returns the null rows. It is called
    after all keys are written, and the row set is stored in a global buffer.
    """
    schema = pa.schema([pa.field("keys", data_type), pa.field("bitmaps", pa.binary())])
    num_keys, size = 0, 0
    pending: list[pa.RecordBatch] = []
    with folder.create(KEY_SETS, schema) as file:
        for keys, sets in groups:
            filled = [index for index, rows in enumerate(sets) if rows]
            if len(filled) < len(sets):
                keys = keys.take(pa.array(filled, pa.int64()))  # noqa: PLW2901 - fewer of them
            bitmaps = pa.array([sets[index].render() for index in filled], pa.binary())
            pending.append(pa.record_batch([keys, bitmaps], schema=schema))
            num_keys, size = num_keys + len(filled), size + pending[-1].nbytes
            if size >= _WRITE_BUFFER_BYTES:
                file.write(pa.Table.from_batches(pending, schema))
                pending, size = [], 0
        file.write(pa.Table.from_batches(pending, schema))
        statistics = json.dumps({"num_bitmaps": num_keys}, separators=(",", ":"))
        file.add_schema_metadata(_STATISTICS, statistics)
        if nulls is not None:
            name, null_rows = nulls
            file.add_schema_metadata(name, str(file.add_global_buffer(null_rows().render())))


class _MergeInput:
    """The next keys of one input of a merge."""

    def __init__(self, groups: Iterable[Groups], data_type: pa.DataType) -> None:
        self._groups = iter(groups)
        self._data_type = data_type
        self.keys: pa.Array = pa.array([], data_type)
        self._sets: Sequence[RowSet] = ()

    def fill(self) -> bool:
        """Load the next non-empty group. Return False at the end of the input."""
        while not len(self.keys):
            following_group = next(self._groups, None)
            if following_group is None:
                return False
            self.keys, self._sets = following_group[0].cast(self._data_type), following_group[1]
        return True

    def take_up_to(self, bound: pa.Array, order: Order) -> Groups:
        """Remove and return the keys up to and including `bound`."""
        both = pa.concat_arrays([self.keys, bound])
        permutation = order.sort(both)
        stop = int(np.flatnonzero(permutation == len(self.keys))[0])
        taken = self.keys.slice(0, stop), self._sets[:stop]
        self.keys, self._sets = self.keys.slice(stop), self._sets[stop:]
        return taken


def _merge_equal_keys(parts: Sequence[Groups], order: Order) -> Groups:
    keys = pa.concat_arrays([part[0] for part in parts])
    sets = [rows for part in parts for rows in part[1]]
    permutation = order.sort(keys)
    ordered = keys.take(pa.array(permutation))
    starts = np.flatnonzero(order.changes(ordered))
    stops = np.append(starts, len(ordered))[1:]
    joined: list[RowSet] = []
    for start, stop in zip(starts.tolist(), stops.tolist(), strict=True):
        rows = NO_ROWS
        for index in permutation[start:stop].tolist():
            rows |= sets[index]
        joined.append(rows)
    return ordered.take(pa.array(starts)), joined


def _continues_key(key: pa.Array, keys: pa.Array, order: Order) -> bool:
    """Return whether the first of `keys` equals `key`."""
    both = pa.concat_arrays([key, keys.slice(0, 1)])
    return not order.changes(both)[1]
