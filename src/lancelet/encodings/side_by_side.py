"""Single rows of many columns, found and unpacked as if the columns were one.

A take of one row from sixteen columns of numbers is sixteen times the same handful of array
operations, each of which costs more than the value. Columns that are nothing but packed blocks
are put behind each other, so that all of it is done once:

    column a   chunks of rows 0 .. 1023, 1024 .. 1999
    column b   chunks of rows 0 .. 1023, 1024 .. 1999
    together   chunks of rows 0 .. 1023, 1024 .. 1999, 2000 .. 3023, 3024 .. 3999
    row 7      is rows 7 and 2007

What is put together is a copy of what the heads of pages say, made when they have stopped
learning: a page whose head is not known yet, or was not when the copy was made, is left to the
readers of the columns.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, Protocol, TypeAlias, runtime_checkable

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from lancelet import kernels
from lancelet.buffers import Int64s, Ranges, Reading, read_together
from lancelet.encodings.base import FieldReader, RowRange, Rows
from lancelet.encodings.codecs.base import Picks
from lancelet.encodings.miniblock.head import MiniBlockHead

CHUNKS_MAX: Final = 1 << 16
"""More chunks are not put together: the copy would be larger than what it saves."""

ROWS_MAX: Final = 1024
"""Of more rows, so much is decoded that looking them up column by column does not matter."""

_MISSES: Final = 2
"""After so many reads that were not answered a copy is made anew; then after twice as many."""


@dataclass(frozen=True, slots=True, eq=False)
class BareColumn:
    """A column of packed blocks without levels, all in one run of pages."""

    data_type: pa.DataType
    bits: int
    size_bytes: int
    head: MiniBlockHead


@runtime_checkable
class MaybeBare(Protocol):
    """A reader whose column may be bare."""

    def bare_column(self) -> BareColumn | None:
        """Return what is known of the column, if it is bare and anything is known of it."""


_Shape: TypeAlias = tuple[int, int]


@dataclass(frozen=True, slots=True, eq=False)
class _Together:
    """Columns of one shape behind each other; `places` says which these are."""

    places: tuple[int, ...]
    data_types: tuple[pa.DataType, ...]
    shape: _Shape
    first_row: Int64s
    bounds: Int64s
    position: Int64s
    size: Int64s
    count: Int64s
    is_known: npt.NDArray[np.bool_]

    @staticmethod
    def of(places: Sequence[int], columns: Sequence[BareColumn]) -> _Together:
        """Copy what is known of columns of one shape."""
        heads = [column.head for column in columns]
        # A page counts as known after its chunks are, so what it says is read first.
        is_known = np.concatenate([head.known_chunks() for head in heads])
        num_rows = int(heads[0].first_value[-1])
        first_row = np.arange(len(heads)) * num_rows
        bounds = [
            head.first_value[:-1] + first for head, first in zip(heads, first_row, strict=True)
        ]
        return _Together(
            tuple(places),
            tuple(column.data_type for column in columns),
            (columns[0].bits, columns[0].size_bytes),
            first_row,
            np.concatenate([*bounds, [len(heads) * num_rows]]),
            np.concatenate([head.position for head in heads]),
            np.concatenate([head.size for head in heads]),
            np.concatenate([head.count for head in heads]),
            is_known,
        )

    def read(self, rows: Int64s) -> Reading[list[pa.Array]] | None:
        """Read single rows of all columns, unless not all of their pages are known."""
        every = (rows + self.first_row[:, None]).reshape(-1)
        chunks, which, within = kernels.locate_rows(self.bounds, every)
        if not self.is_known[chunks].all():
            return None
        return self._read(chunks, Picks(which, within), len(rows))

    def _read(self, chunks: Int64s, picks: Picks, num_rows: int) -> Reading[list[pa.Array]]:
        slices = yield Ranges(self.position[chunks], self.size[chunks])
        bits, size_bytes = self.shape
        values = kernels.pick_packed_chunks(
            slices, self.count[chunks], size_bytes, picks.chunk, picks.index, bits
        )
        data, step = pa.py_buffer(values), num_rows * bits // 8
        return [
            pa.Array.from_buffers(data_type, num_rows, [None, data.slice(place * step, step)])
            for place, data_type in enumerate(self.data_types)
        ]


class SideBySide:
    """Columns that are read together, of which some may be bare."""

    def __init__(self, readers: Sequence[FieldReader]) -> None:
        """Prepare to read; nothing is put together before single rows were read a few times."""
        self._readers = readers
        self._together: tuple[_Together, ...] = ()
        self._misses = 0
        self._patience = _MISSES

    def read(self, rows: Rows) -> Reading[list[pa.Array]]:
        """Read rows of all columns, which are rows that the file has, ascending."""
        if isinstance(rows, RowRange) or not 0 < len(rows.rows) <= ROWS_MAX:
            return (yield from read_together([reader.read(rows) for reader in self._readers]))
        groups: list[tuple[tuple[int, ...], Reading[list[pa.Array]]]] = []
        for together in self._put_together():
            reading = together.read(rows.rows)
            if reading is None:
                self._misses += 1
            else:
                groups.append((together.places, reading))
        if not groups:
            return (yield from read_together([reader.read(rows) for reader in self._readers]))
        done = {place for places, _ in groups for place in places}
        others = [place for place in range(len(self._readers)) if place not in done]
        groups += [((place,), _alone(self._readers[place].read(rows))) for place in others]
        found = yield from read_together([reading for _, reading in groups])
        arrays: dict[int, pa.Array] = {}
        for (places, _), own in zip(groups, found, strict=True):
            arrays.update(zip(places, own, strict=True))
        return [arrays[place] for place in range(len(self._readers))]

    def _put_together(self) -> tuple[_Together, ...]:
        """Return what is put together; threads that do so at once come to the same."""
        if not self._together:
            self._misses += 1
        if self._misses > self._patience:
            self._misses, self._patience = 0, 2 * self._patience
            self._together = tuple(_groups(self._readers))
        return self._together


def _alone(reading: Reading[pa.Array]) -> Reading[list[pa.Array]]:
    return [(yield from reading)]


def _groups(readers: Sequence[FieldReader]) -> list[_Together]:
    """Return bare columns by their shape, where there are several of it."""
    by_shape: dict[_Shape, list[tuple[int, BareColumn]]] = {}
    for place, reader in enumerate(readers):
        column = reader.bare_column() if isinstance(reader, MaybeBare) else None
        # Rows of one column must not become rows of the next, whatever its pages claim.
        if column is not None and int(column.head.first_value[-1]) == reader.num_rows:
            by_shape.setdefault((column.bits, column.size_bytes), []).append((place, column))
    return [
        _Together.of(*zip(*group, strict=True))
        for group in by_shape.values()
        if len(group) > 1 and sum(len(column.head.position) for _, column in group) <= CHUNKS_MAX
    ]
