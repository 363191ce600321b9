"""Zones of rows: so many live rows each, within one fragment.

    fragment 3, rows 0 1 2 3 4 5, of which 1 is deleted, zones of 3
    zone 0     rows 0 2 3     start 0, length 4
    zone 1     rows 4 5       start 4, length 2

What is known of a zone is for its kind to say; here is how rows are cut, and what is found put
together again. Rows are numbered by address, and come as runs: zones that follow each other, so
that a kind looks at many at once and never at all of a table.

Tables of few rows, put together until they are worth writing.

tables of    3 1 2 900 000 4 rows
pieces of    900 006           4
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
from lancelet.encodings.arrow import numpy_of
from lancelet.errors import CorruptDataError
from lancelet.index.base import Found, IndexedRows, Move
from lancelet.index.folder import SegmentFolder, StoredFile
from lancelet.index.question import IsNull, Question
from lancelet.rowids.address import OFFSET_BITS, UInt64s, fragments_of, offsets_of
from lancelet.rowids.selection import NO_ROWS, RowSet
from lancelet.values import cached_property, dataclass

ZONE_FIELDS: Final = tuple(
    pa.field(name, pa.uint64(), nullable=False)
    for name in ("fragment_id", "zone_start", "zone_length")
)
ZONE_ROWS: Final = 8192
_NULLS: Final = "null_bitmap"

_BYTES: Final = 1 << 20
_TABLES_MAX: Final = 1024


@dataclass(frozen=True, slots=True, eq=False)
class ZoneRun:
    """Zones of one fragment that follow each other; only the last may have fewer rows."""

    values: pa.Array
    addresses: UInt64s
    zone_rows: int

    @property
    def stops(self) -> Int64s:
        """Which row stands behind each zone, counted from the first."""
        count = -(-len(self.addresses) // self.zone_rows)
        stops = np.arange(1, count + 1, dtype=np.int64) * self.zone_rows
        stops[-1] = len(self.addresses)
        return stops

    def columns(self) -> list[pa.Array]:
        """Return the columns of `ZONE_FIELDS`: where the zones are."""
        start = offsets_of(self.addresses[:: self.zone_rows])
        lengths = offsets_of(self.addresses[self.stops - 1]) + 1 - start
        fragment_ids = np.full(len(start), self.addresses[0] >> np.uint64(OFFSET_BITS))
        return [pa.array(each, pa.uint64()) for each in (fragment_ids, start, lengths)]

    def null_counts(self) -> npt.NDArray[np.uint32]:
        """Return how many rows of each zone have no value."""
        stops = self.stops
        if not self.values.null_count:
            return np.zeros(len(stops), np.uint32)
        is_null = self.values.is_null().to_numpy(zero_copy_only=False)
        counts = np.add.reduceat(is_null, np.append(0, stops[:-1]), dtype=np.uint32)
        found: npt.NDArray[np.uint32] = counts
        return found


class NullRows:
    """The rows without a value that runs have had so far."""

    def __init__(self) -> None:
        """Begin with none."""
        self._offsets: dict[int, BitMap] = {}

    def add(self, run: ZoneRun) -> None:
        """Take note of the rows of a run."""
        if not run.values.null_count:
            return
        found = run.addresses[run.values.is_null().to_numpy(zero_copy_only=False)]
        fragment_id = int(found[0]) >> OFFSET_BITS
        own = BitMap(found.astype(np.uint32))
        self._offsets.setdefault(fragment_id, BitMap()).update(own)

    def rows(self) -> RowSet:
        """Return all of them."""
        return RowSet({part: FrozenBitMap(rows) for part, rows in self._offsets.items()})


@dataclass(frozen=True, slots=True, eq=False)
class ZonePlaces:
    """Where zones are, an element for each."""

    fragment_ids: Int64s
    starts: Int64s
    lengths: Int64s

    @staticmethod
    def of(columns: list[pa.Array]) -> ZonePlaces:
        """Return the zones of the three columns that say where they are."""
        fragment_ids, starts, lengths = (numpy_of(column).astype(np.int64) for column in columns)
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


class ZonedSegment(ABC):
    """An open segment of zones, all of which is in memory; a kind says which zones may answer."""

    def __init__(self, folder: SegmentFolder, name: str, columns: Sequence[str]) -> None:
        """Read the columns of a file, and where its zones are."""
        self._file: StoredFile = folder.open(name)
        self._loads = folder.loads
        names = [*columns, *(field.name for field in ZONE_FIELDS)]
        self._columns = dict(zip(names, self._file.read(names), strict=True))
        self.table = pa.table(self._columns)
        self.places = ZonePlaces.of([self._columns[field.name] for field in ZONE_FIELDS])
        self._last: tuple[Question, npt.NDArray[np.bool_] | None] | None = None

    def estimate(self, question: Question) -> int | None:
        """Return how many rows the zones have that may answer."""
        if isinstance(question, IsNull) and self.null_rows is not None:
            return self.null_rows.num_listed
        chosen = self._zones(question)
        return None if chosen is None else self.places.num_rows(chosen)

    def search(self, question: Question) -> Found:
        """Return the rows of zones that may answer; nulls are known exactly."""
        if isinstance(question, IsNull) and self.null_rows is not None:
            return Found(self.null_rows)
        chosen = self._zones(question)
        assert chosen is not None, "only what has an estimate is searched"
        self._loads.count(comparisons=len(self.places))
        return Found(self.places.rows(chosen), is_exact=False)

    def nulls(self) -> RowSet | None:
        """Return the rows without a value; the oldest files do not say."""
        return self.null_rows

    @cached_property
    def null_rows(self) -> RowSet | None:
        """The rows without a value, if the file says which."""
        number = self._file.metadata.get(_NULLS)
        return None if number is None else RowSet.parse(self._file.global_buffer(number))

    def _zones(self, question: Question) -> npt.NDArray[np.bool_] | None:
        """Return which zones may have an answer; what is estimated is mostly searched next."""
        last = self._last
        if last is None or last[0] is not question:
            self._last = last = question, self._find_zones(question)
        return last[1]

    @abstractmethod
    def _find_zones(self, question: Question) -> npt.NDArray[np.bool_] | None:
        """Return which zones may have an answer, or None if the kind cannot say."""


def write_zones(
    folder: SegmentFolder,
    name: str,
    schema: pa.Schema,
    kept: Iterable[tuple[pa.Table, RowSet]],
    fresh: Callable[[NullRows], Iterator[pa.Table]],
    facts: Mapping[str, object],
) -> None:
    """Write the zones that are kept, those of rows as they come, and `facts` of how they are cut.

    `fresh` yields what is known of new zones, and takes note of their rows without a value.
    """
    found, nulls = NullRows(), NO_ROWS
    with folder.create(name, schema) as file:
        for table, own_nulls in kept:
            file.write(table)
            nulls |= own_nulls
        for table in in_pieces(fresh(found)):
            file.write(table)
        for key, value in facts.items():
            file.add_schema_metadata(key, str(value))
        nulls |= found.rows()
        file.add_schema_metadata(_NULLS, str(file.add_global_buffer(nulls.render())))


def staying_zones(
    segments: Iterable[ZonedSegment], moves: Iterable[Move], schema: pa.Schema
) -> Iterator[tuple[pa.Table, RowSet]]:
    """Yield what segments know of zones whose rows stay, and which of those have no value."""
    for segment, move in zip(segments, moves, strict=True):
        own = segment.table.filter(pa.array(segment.places.staying(move)))
        yield own.select(schema.names).cast(schema), _staying_rows(segment.nulls(), move)


def _staying_rows(rows: RowSet | None, move: Move) -> RowSet:
    """Return the rows that stay where they are."""
    numbers = (rows or NO_ROWS).listed()
    return RowSet.of(numbers[move(numbers) == numbers])


def zone_runs(rows: IndexedRows, zone_rows: int) -> Iterator[ZoneRun]:
    """Yield the zones of rows that come in the order of the table."""
    waiting: list[tuple[pa.Array, UInt64s]] = []
    fragment_id = -1
    for values, addresses in _by_fragment(rows):
        if int(addresses[0]) >> OFFSET_BITS != fragment_id:
            yield from _run(waiting, zone_rows)
            waiting, fragment_id = [], int(addresses[0]) >> OFFSET_BITS
        waiting.append((values, addresses))
        count = sum(len(own) for _, own in waiting)
        if count >= zone_rows:
            joined, numbers = _joined(waiting)
            whole = count - count % zone_rows
            yield ZoneRun(joined.slice(0, whole), numbers[:whole], zone_rows)
            waiting = [(joined.slice(whole), numbers[whole:])] if whole < count else []
    yield from _run(waiting, zone_rows)


def _by_fragment(rows: IndexedRows) -> Iterator[tuple[pa.Array, UInt64s]]:
    """Yield rows such that those of two fragments never come together."""
    for values, addresses in rows.parts:
        if not len(addresses):
            continue
        if (addresses[0] ^ addresses[-1]) >> np.uint64(OFFSET_BITS) == 0:
            yield values, addresses
            continue
        borders = np.flatnonzero(np.diff(fragments_of(addresses))) + 1
        for start, stop in zip([0, *borders], [*borders, len(addresses)], strict=True):
            yield values.slice(start, stop - start), addresses[start:stop]


def _run(parts: Sequence[tuple[pa.Array, UInt64s]], zone_rows: int) -> Iterator[ZoneRun]:
    if parts:
        yield ZoneRun(*_joined(parts), zone_rows)


def _joined(parts: Sequence[tuple[pa.Array, UInt64s]]) -> tuple[pa.Array, UInt64s]:
    if len(parts) == 1:
        return parts[0]
    return pa.concat_arrays([values for values, _ in parts]), np.concatenate(
        [addresses for _, addresses in parts]
    )


def in_pieces(tables: Iterable[pa.Table]) -> Iterator[pa.Table]:
    """Yield the same rows in fewer tables."""
    waiting: list[pa.Table] = []
    waiting_bytes = 0
    for table in tables:
        waiting.append(table)
        waiting_bytes += table.nbytes
        if waiting_bytes >= _BYTES or len(waiting) >= _TABLES_MAX:
            yield pa.concat_tables(waiting).combine_chunks()
            waiting, waiting_bytes = [], 0
    if waiting:
        yield pa.concat_tables(waiting).combine_chunks()
