"""Read rows of one fragment from one or more data files.

    reader = FragmentReader(snapshot, fragment)
    reader.read(fields, RowRange(0, 100))      an array for each field
    reader.read(fields, RowIndices(offsets))   the same for single rows

The assignment of fields to files is computed once for each set of fields.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Final, TypeVar

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from lancelet.buffers import ByteSlices, Int64s
from lancelet.encodings.base import RowRange, Rows
from lancelet.encodings.codecs.base import ValueFilter
from lancelet.errors import CorruptDataError
from lancelet.expr.scan_types import read_as, scan_type
from lancelet.file.base import DataFileReader, PageStatistics, ZoneStatistics
from lancelet.file.rows import RowReader, StoredValues
from lancelet.file.schedule import TASK_BYTES, decoded_row_bytes, fixed_row_bytes
from lancelet.format.field import Field
from lancelet.format.fragment import TOMBSTONE, DataFile, Fragment
from lancelet.io.metered import IoCounts
from lancelet.scan.field_parts import Piece, assemble, part_within
from lancelet.scan.node_meter import plan_meter
from lancelet.scan.overlays import Overlays
from lancelet.table.snapshot import Snapshot
from lancelet.values import dataclass

T = TypeVar("T")

_BATCH_ROWS_MIN: Final = 1024
_READER_BYTES: Final = 1024
_FIELD_BYTES: Final = 256
_PLANS_MAX: Final = 16
"""Maximum number of projections whose assignment to files is cached."""


@dataclass(frozen=True, slots=True, eq=False)
class StoredFields:
    """The parts of fields in one file, and the indices of these fields.

    `read` are the parts requested from the file.
    """

    read: tuple[Field, ...]
    parts: tuple[Field, ...]
    indices: tuple[int, ...]


@dataclass(frozen=True, slots=True, eq=False)
class FilePart(StoredFields):
    """Parts of fields, with the reader of their file."""

    reader: DataFileReader


_last_stored: tuple[Sequence[int], Sequence[Field], Sequence[tuple[int, StoredFields]]] = (), (), ()
"""The fields of the last file. Concurrent threads may overwrite it, which only costs time."""


class FragmentReader:
    """Reads the rows of one fragment of a version; row offsets include deleted rows."""

    def __init__(self, snapshot: Snapshot, fragment: Fragment) -> None:
        """Create a reader; data files are opened when one of their fields is first read."""
        self._snapshot = snapshot
        self._fragment = fragment
        self._plans: dict[tuple[Field, ...], tuple[FilePart, ...]] = {}
        """The files of recently read projections."""
        self._row_bytes: dict[tuple[Field, ...], float] = {}
        self._last: tuple[tuple[Field, ...], tuple[FilePart, ...]] | None = None
        self._overlays = Overlays(snapshot, fragment) if fragment.overlays else None
        self._meter = plan_meter(snapshot)
        self.num_rows = snapshot.physical_rows(fragment)

    @property
    def memory_bytes(self) -> int:
        """Approximate memory use, without the readers of its files."""
        return _READER_BYTES + sum(_FIELD_BYTES * len(fields) for fields in list(self._plans))

    def read(self, fields: Sequence[Field], rows: Rows) -> list[pa.Array]:
        """Return one array for each field."""
        requested = tuple(fields)
        with self._meter.counting_read(requested, len(rows)):
            parts = [
                (part, part.reader.read(part.read, rows)) for part in self.file_parts(requested)
            ]
            arrays = assemble_fields(requested, parts, len(rows))
            return (
                arrays if self._overlays is None else self._overlays.over(requested, arrays, rows)
            )

    def read_chunks(self, fields: Sequence[Field], rows: Rows) -> list[pa.ChunkedArray]:
        """Return chunked arrays, without concatenating decoded pages of a single file."""
        requested = tuple(fields)
        files = self.file_parts(requested)
        if len(files) == 1 and files[0].parts == requested and not self._is_overlaid(requested):
            reader = files[0].reader
            if isinstance(reader, RowReader):
                with self._meter.counting_read(requested, len(rows)):
                    return reader.read_chunks(files[0].read, rows)
        return [pa.chunked_array([array]) for array in self.read(requested, rows)]

    def read_value_slices(self, field: Field, rows: Int64s) -> ByteSlices | None:
        """Return the buffers of the values at ascending row offsets; see `RowReader`."""
        found = self._reader_of(field)
        if found is None:
            return None
        reader, stored = found
        with self._meter.counting_read((field,), len(rows)):
            return reader.read_value_slices(stored, rows)

    def stored_values(self, field: Field, rows: Int64s) -> StoredValues | None:
        """Return the stored values at ascending row offsets; see `RowReader.stored_values`."""
        found = self._reader_of(field)
        if found is None:
            return None
        reader, stored = found
        with self._meter.counting_read((field,), len(rows)):
            return reader.stored_values(stored, rows)

    def as_dictionary(self, field: Field) -> Field | None:
        """Return the field with a dictionary type; see `RowReader.as_dictionary`."""
        found = self._reader_of(field)
        return None if found is None else found[0].as_dictionary(found[1])

    def match(
        self, field: Field, rows: RowRange, values: ValueFilter
    ) -> npt.NDArray[np.bool_] | None:
        """Return whether the value of each row passes, or None; see `RowReader.match`."""
        return self._compared(field, len(rows), lambda file, own: file.match(own, rows, values))

    def select(
        self, field: Field, ranges: Sequence[RowRange], values: ValueFilter
    ) -> tuple[Int64s, pa.Array] | None:
        """Return the rows of ranges that pass, and the values; see `RowReader.select`."""
        num_rows = sum(map(len, ranges))
        return self._compared(field, num_rows, lambda file, own: file.select(own, ranges, values))

    def _compared(
        self, field: Field, num_rows: int, compare: Callable[[RowReader, Field], T | None]
    ) -> T | None:
        """Return a comparison by the reader of a field; its rows are counted unless it is None."""
        found = self._reader_of(field)
        if found is None:
            return None
        with self._meter.counting_read((field,), 0):
            result = compare(*found)
        with self._meter.counting_read((field,), 0 if result is None else num_rows):
            return result

    def _reader_of(self, field: Field) -> tuple[RowReader, Field] | None:
        """Return the reader of a field that one file stores, with the field to request from it."""
        files = self.file_parts((field,))
        if len(files) != 1 or files[0].parts != (field,) or self._is_overlaid((field,)):
            return None
        reader = files[0].reader
        return (reader, files[0].read[0]) if isinstance(reader, RowReader) else None

    def iter_batches(
        self, fields: Sequence[Field], rows: RowRange, batch_size: int | None = None
    ) -> Iterator[pa.RecordBatch]:
        """Yield the rows as ordered batches; the next few are decoded ahead."""
        requested = tuple(fields)
        return self._meter.counting_batches(requested, self._batches(requested, rows, batch_size))

    def _batches(
        self, requested: tuple[Field, ...], rows: RowRange, batch_size: int | None
    ) -> Iterator[pa.RecordBatch]:
        files = self.file_parts(requested)
        if self._is_overlaid(requested):
            yield from self._overlaid_batches(requested, rows, batch_size)
            return
        if len(files) == 1 and files[0].parts == requested:
            yield from files[0].reader.iter_batches(files[0].read, rows, batch_size)
            return
        size = batch_size or self._natural_batch(requested, rows)
        names = [field.name for field in requested]
        streams = [file.reader.iter_batches(file.read, rows, size) for file in files]
        for start in range(rows.start, rows.stop, size):
            count = min(size, rows.stop - start)
            parts = [
                (file, next(stream).columns) for file, stream in zip(files, streams, strict=True)
            ]
            yield pa.RecordBatch.from_arrays(assemble_fields(requested, parts, count), names)

    def row_bytes(self, fields: Sequence[Field]) -> float:
        """Estimate the memory of one row of the fields, in bytes."""
        requested = tuple(fields)
        row_bytes = self._row_bytes.get(requested)
        if row_bytes is None:
            total = self.decoded_bytes(requested, RowRange(0, self.num_rows))
            row_bytes = total / max(1, self.num_rows)
            if len(self._row_bytes) >= _PLANS_MAX:
                self._row_bytes.clear()
            self._row_bytes[requested] = row_bytes
        return row_bytes

    def decoded_bytes(self, fields: Sequence[Field], rows: RowRange) -> float:
        """Estimate the memory of a row range in bytes, from the sizes of its pages."""
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
        """Estimate the bytes read to fetch rows."""
        return sum(
            file.reader.encoded_bytes(file.read, rows) for file in self.file_parts(tuple(fields))
        )

    def estimate_reads(self, fields: Sequence[Field], rows: Rows) -> IoCounts:
        """Estimate the requests and bytes to read rows."""
        reads = IoCounts()
        for file in self.file_parts(tuple(fields)):
            reads += file.reader.estimate_reads(file.read, rows)
        return reads

    def opening_reads(self, fields: Sequence[Field]) -> IoCounts:
        """Return the requests and bytes to open the files of fields again."""
        reads = IoCounts()
        for file in self.file_parts(tuple(fields)):
            reads += file.reader.opening_reads()
        return reads

    def statistics_reads(self, fields: Sequence[Field]) -> IoCounts:
        """Return the reads so far for statistics of the files of fields."""
        reads = IoCounts()
        for file in self.file_parts(tuple(fields)):
            reads += file.reader.statistics_reads()
        return reads

    def check_rows(self) -> int:
        """Return the number of rows; raise if a data file has another number."""
        for index in range(len(self._fragment.files)):
            self._open(index)
        return self.num_rows

    def zone_statistics(self, leaf: Field) -> ZoneStatistics | None:
        """Return the statistics of a field by zone of rows, or None."""
        if self._is_overlaid((leaf,)):
            return None
        for file in self._fragment.files:
            if leaf.id in file.fields:
                return self._open(self._fragment.files.index(file)).zone_statistics(leaf)
        return None

    def page_statistics(self, leaf: Field) -> PageStatistics | None:
        """Return the statistics of a field by page of its column, or None."""
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
        """Return the files that store parts of fields."""
        # Projections share one tuple, and comparing many fields costs more than a read.
        last = self._last
        if last is not None and last[0] is fields:
            return last[1]
        parts = self._plans.get(fields) if self._plans else None
        if parts is None:
            parts = tuple(self._find_parts(fields))
            if len(self._plans) >= _PLANS_MAX:
                self._plans.clear()
            self._plans[fields] = parts
        self._last = fields, parts
        return parts

    def _find_parts(self, fields: tuple[Field, ...]) -> Iterator[FilePart]:
        for index, held in _stored_fields_cached(self._fragment.files, fields):
            yield FilePart(held.read, held.parts, held.indices, self._open(index))

    def _open(self, index: int) -> DataFileReader:
        reader = self._snapshot.open_file(self._fragment.files[index])
        if reader.num_rows != self.num_rows:
            raise CorruptDataError(
                "the number of rows of a data file differs from its fragment",
                path=reader.path,
                fragment_id=self._fragment.id,
                expected=self.num_rows,
                found=reader.num_rows,
            )
        return reader


def _stored_fields_cached(
    files: Sequence[DataFile], fields: tuple[Field, ...]
) -> Iterable[tuple[int, StoredFields]]:
    """Return the fields of files; consecutive fragments of equal layout share the result."""
    global _last_stored  # noqa: PLW0603 - read and written whole
    if len(files) != 1:
        return stored_fields(files, fields)
    field_ids, last_fields, stored = _last_stored
    if last_fields is not fields or field_ids != files[0].fields:
        stored = tuple(stored_fields(files, fields))
        _last_stored = files[0].fields, fields, stored
    return stored


def stored_fields(
    files: Sequence[DataFile], fields: Sequence[Field]
) -> Iterator[tuple[int, StoredFields]]:
    """Yield the file indices that store parts of fields, with these parts."""
    seen_ids: set[int] = set()
    for file_index, file in enumerate(files):
        # Old releases stored a field id twice; the first file takes precedence.
        field_ids = frozenset(file.fields) - seen_ids - {TOMBSTONE}
        seen_ids |= field_ids
        parts = [(index, part_within(field, field_ids)) for index, field in enumerate(fields)]
        stored: Mapping[int, Field] = {index: part for index, part in parts if part is not None}
        if stored:
            read = tuple(map(read_as, stored.values()))
            yield file_index, StoredFields(read, tuple(stored.values()), tuple(stored))


def assemble_fields(
    fields: Sequence[Field],
    file_arrays: Sequence[tuple[StoredFields, Sequence[pa.Array]]],
    num_rows: int,
) -> list[pa.Array]:
    """Assemble the values of fields from parts in several files."""
    if len(file_arrays) == 1 and file_arrays[0][0].parts == tuple(fields):
        return list(file_arrays[0][1])
    field_parts: list[list[Piece]] = [[] for _ in fields]
    for file, arrays in file_arrays:
        for index, part, array in zip(file.indices, file.parts, arrays, strict=True):
            field_parts[index].append((part, array))
    return [
        assemble(field, parts, num_rows) for field, parts in zip(fields, field_parts, strict=True)
    ]
