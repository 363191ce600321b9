"""Zones of rows: so many live rows each, within one fragment.

    fragment 3, rows 0 1 2 3 4 5, of which 1 is deleted, zones of 3
    zone 0     rows 0 2 3     start 0, length 4
    zone 1     rows 4 5       start 4, length 2

What is known of a zone is for its kind to say; here is how rows are cut, and what is found put
together again. Rows are numbered by address.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Final, Protocol

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from pyroaring import BitMap, FrozenBitMap

from lancelet.buffers import Int64s
from lancelet.errors import CorruptDataError
from lancelet.index.base import IndexedRows, Move
from lancelet.rowids.address import OFFSET_BITS, UInt64s, fragments_of, offsets_of
from lancelet.rowids.selection import NO_ROWS, RowSet

ZONE_FIELDS: Final = tuple(
    pa.field(name, pa.uint64(), nullable=False)
    for name in ("fragment_id", "zone_start", "zone_length")
)
ZONE_ROWS: Final = 8192


@dataclass(frozen=True, slots=True, eq=False)
class ZoneOfRows:
    """The values of a zone, and where its rows are."""

    fragment_id: int
    start: int
    length: int
    values: pa.Array

    def without_values(self) -> ZoneOfRows:
        """Return where the zone is, and nothing else."""
        return replace(self, values=self.values.slice(0, 0))


@dataclass(frozen=True, slots=True, eq=False)
class ZonePlaces:
    """Where zones are, an element for each."""

    fragment_ids: Int64s
    starts: Int64s
    lengths: Int64s

    @staticmethod
    def of(columns: list[pa.Array]) -> ZonePlaces:
        """Return the zones of the three columns that say where they are."""
        fragment_ids, starts, lengths = (column.to_numpy().astype(np.int64) for column in columns)
        if len(starts) and (
            min(starts.min(), lengths.min(), fragment_ids.min()) < 0
            or (starts + lengths).max() > 1 << 32
        ):
            raise CorruptDataError("a zone of an index lies outside of every fragment")
        return ZonePlaces(fragment_ids, starts, lengths)

    def rows(self, chosen: npt.NDArray[np.bool_]) -> RowSet:
        """Return the rows of zones that were chosen."""
        parts: dict[int, BitMap] = {}
        places = np.flatnonzero(chosen)
        for fragment_id, start, length in zip(
            self.fragment_ids[places].tolist(),
            self.starts[places].tolist(),
            self.lengths[places].tolist(),
            strict=True,
        ):
            parts.setdefault(fragment_id, BitMap()).add_range(start, start + length)
        return RowSet({part: FrozenBitMap(rows) for part, rows in parts.items()})

    def staying(self, move: Move) -> npt.NDArray[np.bool_]:
        """Return which zones are in fragments whose rows stay where they are."""
        first = self.fragment_ids.astype(np.uint64) << np.uint64(OFFSET_BITS)
        stays: npt.NDArray[np.bool_] = move(first) == first
        return stays

    def num_rows(self, chosen: npt.NDArray[np.bool_]) -> int:
        """Return how many rows zones that were chosen have, deleted ones too."""
        return int(self.lengths[chosen].sum())

    def __len__(self) -> int:
        """Return how many zones there are."""
        return len(self.starts)


def columns_of_zones(zones: Sequence[ZoneOfRows]) -> list[pa.Array]:
    """Return the columns of `ZONE_FIELDS` for zones."""
    return [
        pa.array([zone.fragment_id for zone in zones], pa.uint64()),
        pa.array([zone.start for zone in zones], pa.uint64()),
        pa.array([zone.length for zone in zones], pa.uint64()),
    ]


def split_off_nulls(rows: IndexedRows, found: list[UInt64s]) -> IndexedRows:
    """Return the same rows; the numbers of those without a value go to `found` as they pass."""

    def watched() -> Iterator[tuple[pa.Array, UInt64s]]:
        for values, numbers in rows.parts:
            if values.null_count:
                found.append(numbers[values.is_null().to_numpy(zero_copy_only=False)])
            yield values, numbers

    return IndexedRows(rows.data_type, watched())


class ZonedSegment(Protocol):
    """A segment of zones, all of which is in memory."""

    table: pa.Table
    places: ZonePlaces

    def nulls(self) -> RowSet | None:
        """Return the rows without a value, if the segment knows them."""


def join_zones(
    table: pa.Table, nulls: RowSet, segments: Iterable[ZonedSegment], moves: Iterable[Move]
) -> tuple[pa.Table, RowSet]:
    """Return zones and rows without a value with those of segments whose rows stay, in order."""
    tables = [table]
    for segment, move in zip(segments, moves, strict=True):
        own = segment.table.filter(pa.array(segment.places.staying(move)))
        tables.append(own.select(table.schema.names).cast(table.schema))
        nulls |= _staying_rows(segment.nulls() or NO_ROWS, move)
    joined = pa.concat_tables(tables).sort_by(
        [("fragment_id", "ascending"), ("zone_start", "ascending")]
    )
    return joined.cast(table.schema), nulls


def _staying_rows(rows: RowSet, move: Move) -> RowSet:
    """Return the rows that stay where they are."""
    numbers = rows.listed()
    return RowSet.of(numbers[move(numbers) == numbers])


def null_rows_of(found: list[UInt64s]) -> RowSet:
    """Return the rows that `split_off_nulls` came across."""
    return RowSet.of(np.concatenate([np.empty(0, np.uint64), *found]))


def cut_into_zones(rows: IndexedRows, zone_rows: int) -> Iterator[ZoneOfRows]:
    """Yield zones of rows that come in the order of the table."""
    arrays: list[pa.Array] = []
    numbers: list[UInt64s] = []
    waiting = 0
    fragment = -1
    for values, addresses in rows.parts:
        fragments = fragments_of(addresses)
        borders = np.flatnonzero(np.diff(fragments)) + 1
        for start, stop in zip([0, *borders], [*borders, len(addresses)], strict=True):
            if start == stop:
                continue
            if fragments[start] != fragment:
                yield from _finish(arrays, numbers, fragment)
                arrays, numbers, waiting = [], [], 0
                fragment = int(fragments[start])
            while stop - start >= zone_rows - waiting:
                middle = start + zone_rows - waiting
                arrays.append(values.slice(start, middle - start))
                numbers.append(addresses[start:middle])
                yield from _finish(arrays, numbers, fragment)
                arrays, numbers, waiting = [], [], 0
                start = middle  # noqa: PLW2901 - what is left of the part
            if start < stop:
                arrays.append(values.slice(start, stop - start))
                numbers.append(addresses[start:stop])
                waiting += int(stop - start)
    yield from _finish(arrays, numbers, fragment)


def _finish(arrays: list[pa.Array], numbers: list[UInt64s], fragment: int) -> Iterator[ZoneOfRows]:
    if arrays:
        start, last = int(offsets_of(numbers[0][:1])[0]), int(offsets_of(numbers[-1][-1:])[0])
        yield ZoneOfRows(fragment, start, last + 1 - start, pa.concat_arrays(arrays))
