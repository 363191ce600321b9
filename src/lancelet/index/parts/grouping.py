"""Row sets key by key, in the order of the keys: built, joined and written in bounded memory.

    values, sorted   a a | a b b | c      in parts, as they come
    numbers          1 4 | 7 0 2 | 3
    groups           a {1, 4, 7}   b {0, 2}   c {3}

A key may go on in the next part, so the last of a part waits for it. What is written at once are
some thousand keys.
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
"""Distinct keys in order, each with its rows."""

_STATISTICS: Final = "lance:index_stats"
_WRITTEN_BYTES: Final = 1 << 20
_SETS_READ: Final = 256


def group_rows(parts: Iterable[Part], data_type: pa.DataType) -> Iterator[Groups]:
    """Yield the distinct values of rows in order, and the rows of each; see `sorted_parts`."""
    order = order_of(data_type)
    waiting: tuple[pa.Array, RowSet] | None = None
    for values, numbers in sorted_parts(parts, data_type):
        if not len(values):
            continue
        starts = np.flatnonzero(order.changes(values))
        keys = values.take(pa.array(starts))
        sets = [RowSet.of(own) for own in np.split(numbers, starts[1:])]
        if waiting is not None and _is_same(waiting[0], keys, order):
            sets[0] |= waiting[1]
        elif waiting is not None:
            yield waiting[0], [waiting[1]]
        yield keys.slice(0, len(keys) - 1), sets[:-1]
        waiting = pa.concat_arrays([keys.slice(len(keys) - 1)]), sets[-1]
    if waiting is not None:
        yield waiting[0], [waiting[1]]


def stored_groups(keys: KeySets) -> Iterator[Groups]:
    """Yield the keys of a file, and the rows of each."""
    for start in range(0, len(keys.keys), _SETS_READ):
        stop = min(start + _SETS_READ, len(keys.keys))
        yield keys.keys.slice(start, stop - start), keys.sets(start, stop)


def moved_groups(groups: Iterable[Groups], move: Callable[[UInt64s], UInt64s]) -> Iterator[Groups]:
    """Yield the same keys with rows under other numbers."""
    for keys, sets in groups:
        yield keys, [moved_rows(rows, move) for rows in sets]


def moved_rows(rows: RowSet, move: Callable[[UInt64s], UInt64s]) -> RowSet:
    """Return a row set under other numbers, without the rows that are gone."""
    numbers = move(rows.listed())
    return RowSet.of(numbers[numbers != NO_ADDRESS])


def join_groups(parts: Sequence[Iterable[Groups]], data_type: pa.DataType) -> Iterator[Groups]:
    """Yield the keys of several in order, each with the rows that it has in any of them."""
    order = order_of(data_type)
    heads = [_Head(part, data_type) for part in parts]
    while heads := [head for head in heads if head.fill()]:
        lasts = pa.concat_arrays([head.keys.slice(len(head.keys) - 1) for head in heads])
        bound = lasts.slice(int(order.sort(lasts)[0]), 1)
        yield _joined([head.up_to(bound, order) for head in heads], order)


def write_groups(
    groups: Iterable[Groups],
    data_type: pa.DataType,
    folder: SegmentFolder,
    *,
    nulls: tuple[str, Callable[[], RowSet]] | None = None,
) -> None:
    """Write the file, without keys that have no rows.

    What `nulls` returns when all keys are written goes into a buffer under its name.
    """
    schema = pa.schema([pa.field("keys", data_type), pa.field("bitmaps", pa.binary())])
    num_keys, size = 0, 0
    waiting: list[pa.RecordBatch] = []
    with folder.create(KEY_SETS, schema) as file:
        for keys, sets in groups:
            filled = [place for place, rows in enumerate(sets) if rows]
            if len(filled) < len(sets):
                keys = keys.take(pa.array(filled, pa.int64()))  # noqa: PLW2901 - fewer of them
            bitmaps = pa.array([sets[place].render() for place in filled], pa.binary())
            waiting.append(pa.record_batch([keys, bitmaps], schema=schema))
            num_keys, size = num_keys + len(filled), size + waiting[-1].nbytes
            if size >= _WRITTEN_BYTES:
                file.write(pa.Table.from_batches(waiting, schema))
                waiting, size = [], 0
        file.write(pa.Table.from_batches(waiting, schema))
        statistics = json.dumps({"num_bitmaps": num_keys}, separators=(",", ":"))
        file.add_schema_metadata(_STATISTICS, statistics)
        if nulls is not None:
            name, found = nulls
            file.add_schema_metadata(name, str(file.add_global_buffer(found().render())))


class _Head:
    """The next keys of one of several that are joined."""

    def __init__(self, groups: Iterable[Groups], data_type: pa.DataType) -> None:
        self._groups = iter(groups)
        self._data_type = data_type
        self.keys: pa.Array = pa.array([], data_type)
        self._sets: Sequence[RowSet] = ()

    def fill(self) -> bool:
        """Take keys until there are some; return whether there are."""
        while not len(self.keys):
            following = next(self._groups, None)
            if following is None:
                return False
            self.keys, self._sets = following[0].cast(self._data_type), following[1]
        return True

    def up_to(self, bound: pa.Array, order: Order) -> Groups:
        """Take the keys that are not above another."""
        both = pa.concat_arrays([self.keys, bound])
        places = order.sort(both)
        stop = int(np.flatnonzero(places == len(self.keys))[0])
        taken = self.keys.slice(0, stop), self._sets[:stop]
        self.keys, self._sets = self.keys.slice(stop), self._sets[stop:]
        return taken


def _joined(parts: Sequence[Groups], order: Order) -> Groups:
    keys = pa.concat_arrays([part[0] for part in parts])
    sets = [rows for part in parts for rows in part[1]]
    places = order.sort(keys)
    ordered = keys.take(pa.array(places))
    starts = np.flatnonzero(order.changes(ordered))
    stops = np.append(starts, len(ordered))[1:]
    joined: list[RowSet] = []
    for start, stop in zip(starts.tolist(), stops.tolist(), strict=True):
        rows = NO_ROWS
        for place in places[start:stop].tolist():
            rows |= sets[place]
        joined.append(rows)
    return ordered.take(pa.array(starts)), joined


def _is_same(key: pa.Array, keys: pa.Array, order: Order) -> bool:
    """Say whether the first of some keys is one that came before."""
    both = pa.concat_arrays([key, keys.slice(0, 1)])
    return not order.changes(both)[1]
