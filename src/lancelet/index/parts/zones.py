"""Zones of rows: a fixed number of live rows of one fragment.

    fragment 3, rows 0 1 2 3 4 5, of which 1 is deleted, zones of 3
    zone 0     rows 0 2 3     start 0, length 4
    zone 1     rows 4 5       start 4, length 2

This module splits rows into zones and converts matching zones to row sets; the index kind defines
the statistics per zone. Row numbers are addresses. Rows arrive as runs of consecutive zones, so
that a kind processes many zones at a time without holding the whole table. Small result tables are
concatenated before they are written:

    tables of      3 1 2 900 000 4 rows
    written as     900 006           4
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from pyroaring import BitMap, FrozenBitMap

from lancelet.buffers import Int64s
from lancelet.encodings.arrow import to_numpy
from lancelet.errors import CorruptDataError
from lancelet.index.base import IndexedRows, Move, SearchResult
from lancelet.index.folder import SegmentFolder, StoredFile
from lancelet.index.query import IsNull, ScalarQuery
from lancelet.rowids.address import OFFSET_BITS, UInt64s, fragments_of, offsets_of
from lancelet.rowids.selection import NO_ROWS, RowSet
from lancelet.values import cached_property, dataclass

ZONE_FIELDS: Final = tuple(
    pa.field(name, pa.uint64(), nullable=False)
    for name in ("fragment_id", "zone_start", "zone_length")
)
ZONE_ROWS: Final = 8192
_NULLS: Final = "null_bitmap"

_TABLE_BYTES_MIN: Final = 1 << 20
_TABLES_MAX: Final = 1024


@dataclass(frozen=True, slots=True, eq=False)
class ZoneRun:
    """Consecutive zones of one fragment. Only the last zone may have fewer rows."""

    values: pa.Array
    addresses: UInt64s
    zone_rows: int

    @property
    def stops(self) -> Int64s:
        """End of each zone, as row index within the run."""
        count = -(-len(self.addresses) // self.zone_rows)
        stops = np.arange(1, count + 1, dtype=np.int64) * self.zone_rows
        stops[-1] = len(self.addresses)
        return stops

    def columns(self) -> list[pa.Array]:
        """Return the columns of `ZONE_FIELDS` for these zones."""
        start = offsets_of(self.addresses[:: self.zone_rows])
        lengths = offsets_of(self.addresses[self.stops - 1]) + 1 - start
        fragment_ids = np.full(len(start), self.addresses[0] >> np.uint64(OFFSET_BITS))
        return [pa.array(each, pa.uint64()) for each in (fragment_ids, start, lengths)]

    def null_counts(self) -> npt.NDArray[np.uint32]:
        """Return the number of nulls in each zone."""
        stops = self.stops
        if not self.values.null_count:
            return np.zeros(len(stops), np.uint32)
        is_null = self.values.is_null().to_numpy(zero_copy_only=False)
        counts = np.add.reduceat(is_null, np.append(0, stops[:-1]), dtype=np.uint32)
        found: npt.NDArray[np.uint32] = counts
        return found


class NullRows:
    """Accumulates the null rows of runs."""

    def __init__(self) -> None:
        """Start without rows."""
        self._offsets: dict[int, BitMap] = {}

    def add(self, run: ZoneRun) -> None:
        """Add the null rows of a run."""
        if not run.values.null_count:
            return
        addresses = run.addresses[run.values.is_null().to_numpy(zero_copy_only=False)]
        fragment_id = int(addresses[0]) >> OFFSET_BITS
        offsets = BitMap(addresses.astype(np.uint32))
        self._offsets.setdefault(fragment_id, BitMap()).update(offsets)

    def rows(self) -> RowSet:
        """Return the accumulated rows."""
        return RowSet({part: FrozenBitMap(rows) for part, rows in self._offsets.items()})


@dataclass(frozen=True, slots=True, eq=False)
class ZoneLocations:
    """Location of each zone."""

    fragment_ids: Int64s
    starts: Int64s
    lengths: Int64s

    @staticmethod
    def of(columns: list[pa.Array]) -> ZoneLocations:
        """Build from the columns of `ZONE_FIELDS`."""
        fragment_ids, starts, lengths = (to_numpy(column).astype(np.int64) for column in columns)
        if len(starts) and (
            min(starts.min(), lengths.min(), fragment_ids.min()) < 0
            or (starts + lengths).max() > 1 << 32
        ):
            raise CorruptDataError("a zone of an index is outside of the range of row offsets")
        return ZoneLocations(fragment_ids, starts, lengths)

    def rows(self, mask: npt.NDArray[np.bool_]) -> RowSet:
        """Return the rows of the zones selected by a mask."""
        parts: dict[int, BitMap] = {}
        zones = np.flatnonzero(mask)
        for fragment_id, start, length in zip(
            self.fragment_ids[zones].tolist(),
            self.starts[zones].tolist(),
            self.lengths[zones].tolist(),
            strict=True,
        ):
            parts.setdefault(fragment_id, BitMap()).add_range(start, start + length)
        return RowSet({part: FrozenBitMap(rows) for part, rows in parts.items()})

    def unmoved(self, move: Move) -> npt.NDArray[np.bool_]:
        """Return a mask of the zones in fragments that were not rewritten."""
        first = self.fragment_ids.astype(np.uint64) << np.uint64(OFFSET_BITS)
        is_unchanged: npt.NDArray[np.bool_] = move(first) == first
        return is_unchanged

    def num_rows(self, mask: npt.NDArray[np.bool_]) -> int:
        """Return the number of rows in the zones selected by a mask, including deleted rows."""
        return int(self.lengths[mask].sum())

    def __len__(self) -> int:
        """Return the number of zones."""
        return len(self.starts)


class ZonedSegment(ABC):
    """An open zone-based segment, held in memory. Subclasses select the zones for a query."""

    def __init__(self, folder: SegmentFolder, name: str, columns: Sequence[str]) -> None:
        """Read the zone locations and these columns of a file."""
        self._file: StoredFile = folder.open(name)
        self._loads = folder.loads
        names = [*columns, *(field.name for field in ZONE_FIELDS)]
        self._columns = dict(zip(names, self._file.read(names), strict=True))
        self.table = pa.table(self._columns)
        self.locations = ZoneLocations.of([self._columns[field.name] for field in ZONE_FIELDS])
        self._last_result: tuple[ScalarQuery, npt.NDArray[np.bool_] | None] | None = None

    def estimate(self, query: ScalarQuery) -> int | None:
        """Return the number of rows in zones that may match."""
        if isinstance(query, IsNull) and self.null_rows is not None:
            return self.null_rows.num_listed
        mask = self._zones(query)
        return None if mask is None else self.locations.num_rows(mask)

    def search(self, query: ScalarQuery) -> SearchResult:
        """Return the rows of zones that may match. Results for nulls are exact."""
        if isinstance(query, IsNull) and self.null_rows is not None:
            return SearchResult(self.null_rows)
        mask = self._zones(query)
        assert mask is not None, "search requires a supported query"
        self._loads.count(comparisons=len(self.locations))
        return SearchResult(self.locations.rows(mask), is_exact=False)

    def nulls(self) -> RowSet | None:
        """Return the null rows, or None for the oldest files, which do not record them."""
        return self.null_rows

    @cached_property
    def null_rows(self) -> RowSet | None:
        """The null rows, or None if the file does not record them."""
        number = self._file.metadata.get(_NULLS)
        return None if number is None else RowSet.parse(self._file.global_buffer(number))

    def _zones(self, query: ScalarQuery) -> npt.NDArray[np.bool_] | None:
        """Return a mask of the zones that may match, cached because searches follow estimates."""
        last = self._last_result
        if last is None or last[0] is not query:
            self._last_result = last = query, self._find_zones(query)
        return last[1]

    @abstractmethod
    def _find_zones(self, query: ScalarQuery) -> npt.NDArray[np.bool_] | None:
        """Return a mask of the zones that may match, or None if the query is not supported."""


def write_zones(
    folder: SegmentFolder,
    name: str,
    schema: pa.Schema,
    retained: Iterable[tuple[pa.Table, RowSet]],
    new_zones: Callable[[NullRows], Iterator[pa.Table]],
    metadata: Mapping[str, object],
) -> None:
    """Write the retained zones, then new zones, and `metadata` as schema metadata.

    `new_zones` yields the statistics of new zones and adds their null rows.
    """
    null_rows, nulls = NullRows(), NO_ROWS
    with folder.create(name, schema) as file:
        for table, retained_nulls in retained:
            file.write(table)
            nulls |= retained_nulls
        for table in concatenate_small(new_zones(null_rows)):
            file.write(table)
        for key, value in metadata.items():
            file.add_schema_metadata(key, str(value))
        nulls |= null_rows.rows()
        file.add_schema_metadata(_NULLS, str(file.add_global_buffer(nulls.render())))


def unmoved_zones(
    segments: Iterable[ZonedSegment], moves: Iterable[Move], schema: pa.Schema
) -> Iterator[tuple[pa.Table, RowSet]]:
    """Yield the zones of fragments that were not rewritten, and their null rows."""
    for segment, move in zip(segments, moves, strict=True):
        unmoved = segment.table.filter(pa.array(segment.locations.unmoved(move)))
        yield unmoved.select(schema.names).cast(schema), _unmoved_rows(segment.nulls(), move)


def _unmoved_rows(rows: RowSet | None, move: Move) -> RowSet:
    """Return the rows whose numbers are unchanged."""
    numbers = (rows or NO_ROWS).listed()
    return RowSet.of(numbers[move(numbers) == numbers])


def zone_runs(rows: IndexedRows, zone_rows: int) -> Iterator[ZoneRun]:
    """Split rows in table order into zones."""
    pending: list[tuple[pa.Array, UInt64s]] = []
    fragment_id = -1
    for values, addresses in _by_fragment(rows):
        if int(addresses[0]) >> OFFSET_BITS != fragment_id:
            yield from _to_run(pending, zone_rows)
            pending, fragment_id = [], int(addresses[0]) >> OFFSET_BITS
        pending.append((values, addresses))
        count = sum(len(own) for _, own in pending)
        if count >= zone_rows:
            joined, numbers = _concatenate(pending)
            whole = count - count % zone_rows
            yield ZoneRun(joined.slice(0, whole), numbers[:whole], zone_rows)
            pending = [(joined.slice(whole), numbers[whole:])] if whole < count else []
    yield from _to_run(pending, zone_rows)


def _by_fragment(rows: IndexedRows) -> Iterator[tuple[pa.Array, UInt64s]]:
    """Yield parts that contain rows of one fragment only."""
    for values, addresses in rows.parts:
        if not len(addresses):
            continue
        if (addresses[0] ^ addresses[-1]) >> np.uint64(OFFSET_BITS) == 0:
            yield values, addresses
            continue
        borders = np.flatnonzero(np.diff(fragments_of(addresses))) + 1
        for start, stop in zip([0, *borders], [*borders, len(addresses)], strict=True):
            yield values.slice(start, stop - start), addresses[start:stop]


def _to_run(parts: Sequence[tuple[pa.Array, UInt64s]], zone_rows: int) -> Iterator[ZoneRun]:
    if parts:
        yield ZoneRun(*_concatenate(parts), zone_rows)


def _concatenate(parts: Sequence[tuple[pa.Array, UInt64s]]) -> tuple[pa.Array, UInt64s]:
    if len(parts) == 1:
        return parts[0]
    return pa.concat_arrays([values for values, _ in parts]), np.concatenate(
        [addresses for _, addresses in parts]
    )


def concatenate_small(tables: Iterable[pa.Table]) -> Iterator[pa.Table]:
    """Concatenate small tables."""
    pending: list[pa.Table] = []
    pending_bytes = 0
    for table in tables:
        pending.append(table)
        pending_bytes += table.nbytes
        if pending_bytes >= _TABLE_BYTES_MIN or len(pending) >= _TABLES_MAX:
            yield pa.concat_tables(pending).combine_chunks()
            pending, pending_bytes = [], 0
    if pending:
        yield pa.concat_tables(pending).combine_chunks()
