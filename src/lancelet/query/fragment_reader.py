"""Reading rows of one fragment, whose columns may be spread over several files.

    reader = FragmentReader(snapshot, fragment)
    reader.read(fields, RowRange(0, 100))      an array for each field
    reader.read(fields, RowIndices(offsets))   the same for single rows

Which file has which part of a field is worked out once for each set of fields.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Final

import pyarrow as pa

from lancelet.buffers import Int64s, Slices
from lancelet.encodings.base import RowRange, Rows
from lancelet.errors import CorruptDataError
from lancelet.file.base import DataFileReader, PageStatistics, ZoneStatistics
from lancelet.file.rows import RowReader
from lancelet.file.schedule import TASK_BYTES, decoded_row_bytes, fixed_row_bytes
from lancelet.format.field import Field
from lancelet.format.fragment import TOMBSTONE, DataFile, Fragment
from lancelet.io.metered import IoCounts
from lancelet.query.node_meter import meter_of
from lancelet.query.parts import Overlays, Piece, assemble, part_within
from lancelet.query.scan_types import read_as, scan_type
from lancelet.table.snapshot import Snapshot
from lancelet.values import dataclass

_BATCH_ROWS_MIN: Final = 1024
_READER_BYTES: Final = 1024
_FIELD_BYTES: Final = 256
_PLANS_MAX: Final = 16
"""Of more projections than so many it is worked out again which file has what."""


@dataclass(frozen=True, slots=True, eq=False)
class HeldFields:
    """The parts of fields that one file has, and which of the fields each is a part of.

    `read` are the parts as the file is asked for them.
    """

    read: tuple[Field, ...]
    parts: tuple[Field, ...]
    places: tuple[int, ...]


@dataclass(frozen=True, slots=True, eq=False)
class FilePart(HeldFields):
    """Parts of fields with the file that has them."""

    reader: DataFileReader


_held_last: tuple[Sequence[int], Sequence[Field], Sequence[tuple[int, HeldFields]]] = (), (), ()
"""What the last file held of some fields; threads that do so at once may lose it."""


class FragmentReader:
    """Reads the rows of one fragment of a version; offsets count deleted rows too."""

    def __init__(self, snapshot: Snapshot, fragment: Fragment) -> None:
        """Read a fragment; its files are opened when a field of theirs is first read."""
        self._snapshot = snapshot
        self._fragment = fragment
        self._plans: dict[tuple[Field, ...], tuple[FilePart, ...]] = {}
        """The files of projections that were read lately, which somebody reads again."""
        self._row_bytes: dict[tuple[Field, ...], float] = {}
        self._last: tuple[tuple[Field, ...], tuple[FilePart, ...]] | None = None
        self._overlays = Overlays(snapshot, fragment) if fragment.overlays else None
        self._meter = meter_of(snapshot)
        self.num_rows = snapshot.physical_rows(fragment)

    @property
    def memory_bytes(self) -> int:
        """How much memory it takes beside its files, about."""
        return _READER_BYTES + sum(_FIELD_BYTES * len(fields) for fields in list(self._plans))

    def read(self, fields: Sequence[Field], rows: Rows) -> list[pa.Array]:
        """Return the values of fields as one array each."""
        wanted = tuple(fields)
        with self._meter.reading(wanted, len(rows)):
            found = [(part, part.reader.read(part.read, rows)) for part in self.file_parts(wanted)]
            arrays = assembled(wanted, found, len(rows))
            return arrays if self._overlays is None else self._overlays.over(wanted, arrays, rows)

    def read_chunks(self, fields: Sequence[Field], rows: Rows) -> list[pa.ChunkedArray]:
        """Return the same without joining the pieces in which fields of one file were decoded."""
        wanted = tuple(fields)
        files = self.file_parts(wanted)
        if len(files) == 1 and files[0].parts == wanted and not self._is_overlaid(wanted):
            reader = files[0].reader
            if isinstance(reader, RowReader):
                with self._meter.reading(wanted, len(rows)):
                    return reader.read_chunks(files[0].read, rows)
        return [pa.chunked_array([array]) for array in self.read(wanted, rows)]

    def read_in_place(self, field: Field, rows: Int64s) -> Slices | None:
        """Return where the values of ascending rows are in memory; see `RowReader`."""
        files = self.file_parts((field,))
        if len(files) != 1 or files[0].parts != (field,) or self._is_overlaid((field,)):
            return None
        reader = files[0].reader
        if not isinstance(reader, RowReader):
            return None
        with self._meter.reading((field,), len(rows)):
            return reader.read_in_place(files[0].read[0], rows)

    def iter_batches(
        self, fields: Sequence[Field], rows: RowRange, batch_size: int | None = None
    ) -> Iterator[pa.RecordBatch]:
        """Yield the rows as batches in their order, decoding a few ahead."""
        wanted = tuple(fields)
        return self._meter.reading_batches(wanted, self._batches(wanted, rows, batch_size))

    def _batches(
        self, wanted: tuple[Field, ...], rows: RowRange, batch_size: int | None
    ) -> Iterator[pa.RecordBatch]:
        files = self.file_parts(wanted)
        if self._is_overlaid(wanted):
            yield from self._overlaid_batches(wanted, rows, batch_size)
            return
        if len(files) == 1 and files[0].parts == wanted:
            yield from files[0].reader.iter_batches(files[0].read, rows, batch_size)
            return
        size = batch_size or self._natural_batch(wanted, rows)
        names = [field.name for field in wanted]
        streams = [file.reader.iter_batches(file.read, rows, size) for file in files]
        for start in range(rows.start, rows.stop, size):
            count = min(size, rows.stop - start)
            found = [
                (file, next(stream).columns) for file, stream in zip(files, streams, strict=True)
            ]
            yield pa.RecordBatch.from_arrays(assembled(wanted, found, count), names)

    def row_bytes(self, fields: Sequence[Field]) -> float:
        """Estimate the bytes of a row of fields in memory."""
        wanted = tuple(fields)
        known = self._row_bytes.get(wanted)
        if known is None:
            everything = self.decoded_bytes(wanted, RowRange(0, self.num_rows))
            known = everything / max(1, self.num_rows)
            if len(self._row_bytes) >= _PLANS_MAX:
                self._row_bytes.clear()
            self._row_bytes[wanted] = known
        return known

    def decoded_bytes(self, fields: Sequence[Field], rows: RowRange) -> float:
        """Estimate the bytes of rows of fields in memory, by what their pages take."""
        total = 0.0
        for file in self.file_parts(tuple(fields)):
            for part in file.read:
                data_type = scan_type(part)
                fixed = fixed_row_bytes(data_type)
                if fixed is None:
                    stored = file.reader.encoded_bytes([part], rows)
                    fixed = decoded_row_bytes(data_type, stored / max(1, len(rows)))
                total += fixed * len(rows)
        return total

    def encoded_bytes(self, fields: Sequence[Field], rows: Rows) -> int:
        """Estimate the bytes that reading these rows would fetch."""
        return sum(
            file.reader.encoded_bytes(file.read, rows) for file in self.file_parts(tuple(fields))
        )

    def expected_reads(self, fields: Sequence[Field], rows: Rows) -> IoCounts:
        """Return about what reading these rows would ask of storage."""
        found = IoCounts()
        for file in self.file_parts(tuple(fields)):
            found += file.reader.expected_reads(file.read, rows)
        return found

    def opening_reads(self, fields: Sequence[Field]) -> IoCounts:
        """Return what opening the files that have fields once more would ask of storage."""
        found = IoCounts()
        for file in self.file_parts(tuple(fields)):
            found += file.reader.opening_reads()
        return found

    def statistics_reads(self, fields: Sequence[Field]) -> IoCounts:
        """Return what was read so far for statistics of the files that have fields."""
        found = IoCounts()
        for file in self.file_parts(tuple(fields)):
            found += file.reader.statistics_reads()
        return found

    def check_rows(self) -> int:
        """Return how many rows the fragment has, which its files must have too."""
        for index in range(len(self._fragment.files)):
            self._open(index)
        return self.num_rows

    def zone_statistics(self, leaf: Field) -> ZoneStatistics | None:
        """Return what is known of a field per zone of rows, or None."""
        if self._is_overlaid((leaf,)):
            return None
        for file in self._fragment.files:
            if leaf.id in file.fields:
                return self._open(self._fragment.files.index(file)).zone_statistics(leaf)
        return None

    def page_statistics(self, leaf: Field) -> PageStatistics | None:
        """Return what is known of a field per page of its column, or None."""
        if self._is_overlaid((leaf,)):
            return None
        for file in self._fragment.files:
            if leaf.id in file.fields:
                return self._open(self._fragment.files.index(file)).page_statistics(leaf)
        return None

    def _is_overlaid(self, fields: Sequence[Field]) -> bool:
        return self._overlays is not None and self._overlays.touch(fields)

    def _overlaid_batches(
        self, fields: tuple[Field, ...], rows: RowRange, batch_size: int | None
    ) -> Iterator[pa.RecordBatch]:
        size = batch_size or self._natural_batch(fields, rows)
        names = [field.name for field in fields]
        for start in range(rows.start, rows.stop, size):
            part = RowRange(start, min(start + size, rows.stop))
            yield pa.RecordBatch.from_arrays(self.read(fields, part), names)

    def _natural_batch(self, fields: Sequence[Field], rows: RowRange) -> int:
        width = max(self.row_bytes(fields), 1.0)
        return max(_BATCH_ROWS_MIN, min(int(TASK_BYTES / width), max(len(rows), 1)))

    def file_parts(self, fields: tuple[Field, ...]) -> tuple[FilePart, ...]:
        """Return the files that have parts of fields, and which."""
        # The fields of a projection are one tuple, and to compare many costs more than a read.
        last = self._last
        if last is not None and last[0] is fields:
            return last[1]
        found = self._plans.get(fields) if self._plans else None
        if found is None:
            found = tuple(self._find_parts(fields))
            if len(self._plans) >= _PLANS_MAX:
                self._plans.clear()
            self._plans[fields] = found
        self._last = fields, found
        return found

    def _find_parts(self, fields: tuple[Field, ...]) -> Iterator[FilePart]:
        for index, held in _held_as_before(self._fragment.files, fields):
            yield FilePart(held.read, held.parts, held.places, self._open(index))

    def _open(self, index: int) -> DataFileReader:
        reader = self._snapshot.open_file(self._fragment.files[index])
        if reader.num_rows != self.num_rows:
            raise CorruptDataError(
                "a data file does not have the rows of its fragment",
                path=reader.path,
                fragment_id=self._fragment.id,
                expected=self.num_rows,
                found=reader.num_rows,
            )
        return reader


def _held_as_before(
    files: Sequence[DataFile], fields: tuple[Field, ...]
) -> Iterable[tuple[int, HeldFields]]:
    """Return what files hold; the very same of fragments that are alike, one after another."""
    global _held_last  # noqa: PLW0603 - read and written whole
    if len(files) != 1:
        return held_fields(files, fields)
    field_ids, others, held = _held_last
    if others is not fields or field_ids != files[0].fields:
        held = tuple(held_fields(files, fields))
        _held_last = files[0].fields, fields, held
    return held


def held_fields(
    files: Sequence[DataFile], fields: Sequence[Field]
) -> Iterator[tuple[int, HeldFields]]:
    """Yield the files of a fragment that have parts of fields, by number, and which they have."""
    taken: set[int] = set()
    for index, file in enumerate(files):
        # Old releases gave an id twice; the first file that has it is the one that counts.
        held = frozenset(file.fields) - taken - {TOMBSTONE}
        taken |= held
        parts = [(place, part_within(field, held)) for place, field in enumerate(fields)]
        own: Mapping[int, Field] = {place: part for place, part in parts if part is not None}
        if own:
            read = tuple(map(read_as, own.values()))
            yield index, HeldFields(read, tuple(own.values()), tuple(own))


def assembled(
    fields: Sequence[Field],
    found: Sequence[tuple[HeldFields, Sequence[pa.Array]]],
    num_rows: int,
) -> list[pa.Array]:
    """Return the values of fields, of which each file has some part."""
    if len(found) == 1 and found[0][0].parts == tuple(fields):
        return list(found[0][1])
    pieces: list[list[Piece]] = [[] for _ in fields]
    for file, arrays in found:
        for place, part, array in zip(file.places, file.parts, arrays, strict=True):
            pieces[place].append((part, array))
    return [assemble(field, own, num_rows) for field, own in zip(fields, pieces, strict=True)]
