"""Reading rows in parallel tasks, independent of the file version.

    fields, rows  --plan_read-->  splits x groups of fields
    each task     --FieldReader.read of all fields-->  ByteRanges  --store-->  ByteSlices
    results       --in order-->   arrays or batches

The requests of all decoders of a task are combined, so a read of many columns needs as many round
trips as a read of one. Fields of mapped files are read by column plans where possible, all with one
kernel call (`encodings.pages.planned`).
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from itertools import islice
from typing import Final, NamedTuple, TypeVar

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from lancelet import kernels
from lancelet.buffers import (
    ByteRanges,
    Bytes,
    ByteSlices,
    Fetch,
    Int64s,
    ReadCoroutine,
    run_together,
)
from lancelet.config import CPU_THREADS, machine_memory_bytes
from lancelet.encodings.arrow import copy_if_shared
from lancelet.encodings.base import (
    FieldReader,
    FileVersion,
    RowIndices,
    RowRange,
    Rows,
)
from lancelet.encodings.codecs.base import ValueFilter
from lancelet.encodings.pages.planned import PlannedField
from lancelet.encodings.take import take_rows
from lancelet.errors import (
    ArrayOverflowError,
    InvalidInputError,
    LanceletError,
    MemoryLimitError,
)
from lancelet.file.base import check_rows, distinct_rows
from lancelet.file.batches import rebatch
from lancelet.file.estimate import estimate_field_reads
from lancelet.file.pool import PARALLEL_LONG_TASKS_MIN, PARALLEL_TASKS_MIN, map_ordered
from lancelet.file.schedule import TASK_BYTES, Plan, plan_read
from lancelet.file.selection import (
    OpenedField,
    OpenFields,
    Selection,
    is_plain,
    user_schema,
)
from lancelet.format.schema import Field
from lancelet.io.metered import IoCounts
from lancelet.io.store import MappedObject
from lancelet.kernels import MappedFile

T = TypeVar("T")

_DICTIONARY_ITEMS: Final = frozenset(
    {"string", "large_string", "binary", "large_binary", "int32", "int64", "float", "double"}
)
"""Logical types that can be read as dictionaries."""

_TAKE_ROWS_MIN: Final = 1024
_LONG_TAKE_ROWS_MIN: Final = 4096
_LONG_TAKE_BYTES_MIN: Final = 1 << 21
_CHUNK_BYTES: Final = 1 << 13
_SPLITS_ESTIMATED: Final = 4096
_FORGET_FROM_BYTES: Final = 256 * 1024 * 1024
_FORGET_TASK_BYTES: Final = 1 << 20
_CHECKED_BYTES_MIN: Final = 1 << 30


class StoredValues(NamedTuple):
    """Values in a file or a memory map."""

    slices: ByteSlices
    mapped: MappedObject | None

    def copy_to(self, out: Bytes, position: Int64s) -> None:
        """Copy each value to its position; raise if the file was truncated."""
        kernels.copy_slices(self.slices, out, position)
        if self.mapped is not None:
            self.mapped.check_intact()


class RowReader(ABC):
    """The base class of file readers; schedules tasks and decodes fields."""

    _opened: OpenFields
    _fetch: Fetch
    """Reads bytes for immediate decoding; mapped files are not copied."""
    _waits: bool
    """Whether tasks wait for storage requests, which allows more concurrent tasks."""
    _mapped: MappedObject | None = None
    """The memory map of the file, or None."""
    _mapped_file: MappedFile | None = None
    """The memory map in the form used by kernels, or None."""
    _refresh_cache: Callable[[], None] | None = None
    """Updates the cached size of the metadata after it has grown."""
    _block_bytes: int = 0
    """The block size of verified requests; 0 if ranges are not extended to blocks."""

    @property
    @abstractmethod
    def path(self) -> str:
        """The path of the file in its store."""

    @property
    @abstractmethod
    def version(self) -> FileVersion:
        """The version of the file format."""

    @property
    @abstractmethod
    def num_rows(self) -> int:
        """The number of rows."""

    @abstractmethod
    def _open(self, fields: Sequence[Field]) -> list[FieldReader]:
        """Return a reader for each field."""

    @abstractmethod
    def _page_starts(self, fields: Sequence[Field]) -> Int64s | None:
        """Return the first rows of pages, ascending, or None."""

    # --- reading ------------------------------------------------------------------------------

    def read(self, fields: Sequence[Field], rows: Rows) -> list[pa.Array]:
        """Return one array per field."""
        arrays = self._read_at_once(fields, rows)
        if arrays is not None:
            return arrays
        return [_joined(chunks) for chunks in self._read_chunks(fields, rows)]

    def read_value_slices(self, field: Field, rows: Int64s) -> ByteSlices | None:
        """Return a copy of the stored values of ascending rows; see `stored_values`."""
        values = self.stored_values(field, rows)
        if values is None:
            return None
        # The bytes outlive the check for truncation.
        return values.slices if self._mapped is None else self._mapped.copied(values.slices)

    def stored_values(self, field: Field, rows: Int64s) -> StoredValues | None:
        """Return the stored values of ascending rows, which may refer to the memory map.

        Returns None if rows are repeated or descending, if values are null, if the encoding is not
        the Arrow layout, or if the file is not in memory.
        """
        with self._adding_file_facts():
            opened = self._open_fields((field,))[0]
            is_ascending = len(rows) > 0 and bool((rows[1:] > rows[:-1]).all())
            if self._waits or not opened.is_as_stored or not is_ascending:
                return None
            coroutine = opened.reader.value_ranges(rows)
            ranges = None if coroutine is None else self._run([coroutine])[0]
            if ranges is None or len(ranges) < len(rows):
                return None
            return StoredValues(self._fetch(ranges), self._mapped)

    def _fetch_copied(self, ranges: ByteRanges) -> ByteSlices:
        """Read bytes that outlive the check for truncation; mapped bytes are copied."""
        slices = self._fetch(ranges)
        return slices if self._mapped is None else self._mapped.copied(slices)

    def read_chunks(self, fields: Sequence[Field], rows: Rows) -> list[pa.ChunkedArray]:
        """Return one chunked array per field, without concatenating the decoded chunks."""
        arrays = self._read_at_once(fields, rows)
        if arrays is not None:
            return [pa.chunked_array([array], array.type) for array in arrays]
        return self._read_chunks(fields, rows)

    def _read_chunks(self, fields: Sequence[Field], rows: Rows) -> list[pa.ChunkedArray]:
        with self._adding_file_facts():
            check_rows(rows, num_rows=self.num_rows)
            selection = self._select(fields)
            match rows:
                case RowRange():
                    if (error := _exceeded_memory(selection, rows)) is not None:
                        raise error
                    split_arrays = list(self._scan(selection, rows, batch_size=None))
                case RowIndices(indices):
                    split_arrays = self._take(selection, indices)
            if len(split_arrays) == 1:
                return [pa.chunked_array([array], array.type) for array in split_arrays[0]]
            return [
                pa.chunked_array([array[index] for array in split_arrays], data_type)
                for index, data_type in enumerate(selection.data_types)
            ]

    def as_dictionary(self, field: Field) -> Field | None:
        """Return the field with a dictionary type, or None if not all its pages have dictionaries.

        Reading it returns distinct values and indices instead of one value per row.
        """
        if not is_plain(field) or field.logical_type not in _DICTIONARY_ITEMS:
            return None
        with self._adding_file_facts():
            items = self._open_fields((field,))[0].reader.num_dictionary_items
        if items is None:
            return None
        index_type = "int8" if items < 1 << 7 else "int16" if items < 1 << 15 else "int32"
        return replace(field, logical_type=f"dict:{field.logical_type}:{index_type}:false")

    def match(
        self, field: Field, rows: RowRange, values: ValueFilter
    ) -> npt.NDArray[np.bool_] | None:
        """Return whether the value of each row passes, without decoding to an array.

        Returns None if the encoding is not supported, or if the file is not on this machine: its
        bytes would be requested again for rows that match.
        """
        return self._compared(field, rows, lambda reader: reader.match(rows, values))

    def select(
        self, field: Field, ranges: Sequence[RowRange], values: ValueFilter
    ) -> tuple[Int64s, pa.Array] | None:
        """Return the rows of ranges that pass, and the values, or None if `match` returns None.

        Ranges are ascending and not empty.
        """
        rows = RowRange(ranges[0].start, ranges[-1].stop)
        return self._compared(field, rows, lambda reader: reader.select(ranges, values))

    def _compared(
        self,
        field: Field,
        rows: RowRange,
        compare: Callable[[FieldReader], ReadCoroutine[T] | None],
    ) -> T | None:
        if self._waits or not is_plain(field):
            return None
        with self._adding_file_facts():
            check_rows(rows, num_rows=self.num_rows)
            coroutine = compare(self._open_fields((field,))[0].reader)
            if coroutine is None:
                return None
            found = self._run([coroutine])[0]
            if self._mapped is not None:
                self._mapped.check_intact()
            return found

    def iter_batches(
        self, fields: Sequence[Field], rows: Rows, batch_size: int | None = None
    ) -> Iterator[pa.RecordBatch]:
        """Yield batches in row order, decoding ahead."""
        if batch_size is not None and batch_size < 1:
            raise InvalidInputError("a batch must have at least one row", batch_size=batch_size)
        arrays = self._read_at_once(fields, rows)
        if arrays is not None:
            schema = user_schema(fields, [array.type for array in arrays])
            batches = iter([pa.RecordBatch.from_arrays(arrays, schema=schema)])
            yield from batches if batch_size is None else rebatch(batches, batch_size)
            return
        with self._adding_file_facts():
            check_rows(rows, num_rows=self.num_rows)
            selection = self._select(fields)
        match rows:
            case RowRange():
                split_arrays = self._scan(selection, rows, batch_size=batch_size)
            case RowIndices(indices):
                step = batch_size or max(_TAKE_ROWS_MIN, len(indices))
                parts = (indices[start : start + step] for start in range(0, len(indices), step))
                group = range(len(selection.units))
                tasks = ((RowIndices(part), group) for part in parts)
                read = partial(self._read_part, selection)
                split_arrays = map_ordered(read, tasks, waits=self._waits)
        batches = self._batches(selection.schema, split_arrays)
        yield from batches if batch_size is None else rebatch(batches, batch_size)

    def encoded_bytes(self, fields: Sequence[Field], rows: Rows) -> int:
        """Estimate the encoded bytes of the rows."""
        with self._adding_file_facts():
            check_rows(rows, num_rows=self.num_rows)
            selection = self._select(fields)
        match rows:
            case RowRange():
                return selection.encoded_bytes(rows)
            case RowIndices(indices):
                total = selection.encoded_bytes(RowRange(0, self.num_rows))
                return total * len(indices) // max(1, self.num_rows)

    def estimate_reads(self, fields: Sequence[Field], *parts: Rows) -> IoCounts:
        """Estimate the requests and bytes to read each of `parts`, including its splits."""
        with self._adding_file_facts():
            selection, tasks = self._select(fields), list[Rows]()
            for rows in parts:
                check_rows(rows, num_rows=self.num_rows)
                if isinstance(rows, RowIndices):
                    tasks.append(rows)
                else:
                    tasks += self._splits(selection, rows)
            readers = [field.reader for field in self._open_fields(selection.fields)]
            plans = [unit if isinstance(unit, PlannedField) else None for unit in selection.units]
            counts = estimate_field_reads(list(zip(readers, plans, strict=True)), tasks)
            # Ranges are extended to whole blocks, which adjacent ranges may share.
            return counts + IoCounts(0, counts.read_iops * self._block_bytes // 2)

    def opening_reads(self) -> IoCounts:
        """Return the requests and bytes to open the file again, if known."""
        return IoCounts()

    def statistics_reads(self) -> IoCounts:
        """Return the requests and bytes read for zone statistics so far."""
        return IoCounts()

    def _planned(self, fields: Sequence[Field]) -> Sequence[PlannedField | None]:
        """Return the plans of the columns of each field, or None if it has none."""
        return [None] * len(fields)

    # --- tasks --------------------------------------------------------------------------------

    def _select(self, fields: Sequence[Field]) -> Selection:
        """Return a selection of the fields; recent selections are cached."""
        cached = self._opened.recent.find(fields)
        if cached is not None:
            return cached
        if not fields:
            raise InvalidInputError("at least one field must be read")
        planned = self._planned(fields)
        missing = [field for field, plan in zip(fields, planned, strict=True) if plan is None]
        opened = iter(self._open_fields(missing))
        units = tuple(next(opened) if plan is None else plan for plan in planned)
        selection = Selection(tuple(fields), units, self.num_rows)
        self._opened.recent.put(selection.fields, selection)
        return selection

    def _open_fields(self, fields: Sequence[Field]) -> list[OpenedField]:
        opened = self._opened.each
        missing = [field for field in fields if field not in opened]
        if missing:
            readers = self._open(missing)
            for field, reader in zip(missing, readers, strict=True):
                opened[field] = OpenedField.of(field, reader)
        return [opened[field] for field in fields]

    def _read_at_once(self, fields: Sequence[Field], rows: Rows) -> list[pa.Array] | None:
        """Return rows that one task can read, in any order, or None if there are more or none."""
        with self._adding_file_facts():
            check_rows(rows, num_rows=self.num_rows)
            selection = self._select(fields)
            is_one_task = (
                selection.is_one_task(rows)
                if isinstance(rows, RowRange)
                else len(rows) <= _TAKE_ROWS_MIN
            )
            if not is_one_task or not len(rows) or _exceeded_memory(selection, rows):
                return None
            return self._read_part_or_none(selection, (rows, range(len(fields))))

    def _scan(
        self, selection: Selection, rows: RowRange, *, batch_size: int | None
    ) -> Iterator[list[pa.Array]]:
        """Yield the arrays of all fields for each split."""
        plan = self._plan(selection, rows, batch_size=batch_size)
        tasks = ((split, group) for split in plan.splits() for group in plan.groups)
        # Tasks of plans take milliseconds, without the interpreter lock.
        is_long = selection.is_packed or len(selection.opened) < len(selection.units)
        few = PARALLEL_LONG_TASKS_MIN if is_long else PARALLEL_TASKS_MIN
        read = partial(self._read_part_or_none, selection)
        results = map_ordered(read, tasks, waits=self._waits, few=few)
        for split in plan.splits():
            parts = list(islice(results, len(plan.groups)))
            arrays = [array for part in parts if part is not None for array in part]
            if None in parts:
                yield from self._scan_halves(selection, split)
            else:
                yield arrays

    def _scan_halves(self, selection: Selection, rows: RowRange) -> Iterator[list[pa.Array]]:
        """Yield the arrays of halves of a split that overflows an Arrow array."""
        middle = (rows.start + rows.stop) // 2
        for half in (RowRange(rows.start, middle), RowRange(middle, rows.stop)):
            arrays = self._read_part_or_none(selection, (half, range(len(selection.units))))
            if arrays is None:
                yield from self._scan_halves(selection, half)
            else:
                yield arrays

    def _plan(self, selection: Selection, rows: RowRange, *, batch_size: int | None) -> Plan:
        """Return the splits and field groups of a read."""
        page_starts = None
        if batch_size is None and selection.opened:
            page_starts = selection.page_starts(self._page_starts)
        return plan_read(
            rows,
            selection.row_bytes,
            num_fields=len(selection.fields),
            page_starts=page_starts,
            batch_size=batch_size,
            split_rows_min=selection.split_rows_min,
        )

    def _splits(self, selection: Selection, rows: RowRange) -> Iterator[RowRange]:
        """Yield the splits of a read; the last one combines all splits after the first 4096."""
        stop = rows.start
        for split in islice(
            self._plan(selection, rows, batch_size=None).splits(), _SPLITS_ESTIMATED
        ):
            yield split
            stop = split.stop
        if stop < rows.stop:
            yield RowRange(stop, rows.stop)

    def _take(self, selection: Selection, indices: Int64s) -> list[list[pa.Array]]:
        """Read rows by index, in several tasks if there are many."""
        rows, inverse = distinct_rows(indices)
        step = max(_TAKE_ROWS_MIN, int(TASK_BYTES / max(sum(selection.row_bytes), 1.0)))
        is_long = self._is_long_take(selection, len(rows))
        if is_long:
            step = min(step, -(-len(rows) // CPU_THREADS))
        tasks = [
            (RowIndices(rows.rows[start : start + step]), range(len(selection.units)))
            for start in range(0, len(rows), step)
        ]
        read = partial(self._read_part, selection)
        few = PARALLEL_LONG_TASKS_MIN if is_long else PARALLEL_TASKS_MIN
        split_arrays = list(map_ordered(read, tasks, waits=self._waits, few=few))
        if inverse is None or not split_arrays:
            return split_arrays
        joined = [_joined(pa.chunked_array(column)) for column in zip(*split_arrays, strict=True)]
        return [[take_rows(array, inverse) for array in joined]]

    def _is_long_take(self, selection: Selection, count: int) -> bool:
        """Return whether reading so many rows takes longer than starting threads.

        Each row is likely to be in another chunk.
        """
        if self._waits or count < _LONG_TAKE_ROWS_MIN:
            return False
        stored = selection.encoded_bytes(RowRange(0, self.num_rows))
        return min(stored, count * _CHUNK_BYTES * len(selection.units)) >= _LONG_TAKE_BYTES_MIN

    def _read_part(self, selection: Selection, task: tuple[Rows, range]) -> list[pa.Array]:
        """Read rows of some fields; this is the body of each task.

        Indices may be in any order. The requests of all decoders are combined. The arrays do not
        reference the memory map.
        """
        rows, group = task
        mapped = self._mapped
        arrays = self._read_planned(selection, rows, group)
        missing = [index for index, array in zip(group, arrays, strict=True) if array is None]
        general: Iterator[pa.Array] = iter(())
        if missing:
            fields = self._open_fields([selection.fields[index] for index in missing])
            general = iter(self._read_fields(fields, rows))
        read = [next(general) if array is None else array for array in arrays]
        if mapped is not None:
            mapped.check_intact()
            if mapped.source.nbytes >= _FORGET_FROM_BYTES and (
                sum(array.nbytes for array in read) >= _FORGET_TASK_BYTES
            ):
                # Mapped pages count as process memory; a scan would accumulate all of them.
                mapped.release_pages()
        return read

    def _read_planned(
        self, selection: Selection, rows: Rows, group: range
    ) -> list[pa.Array | None]:
        """Read rows of the fields with plans; None for others, and for unusual or damaged pages."""
        mapped, watched = self._mapped, self._mapped_file
        columns = selection.planned(group.start, group.stop)
        if columns is None or not len(rows):
            return [None] * len(group)
        if mapped is None or watched is None:
            planned = self._run([columns.read_ranges(rows)])[0]
        else:
            planned = columns.read(watched, rows)
        if planned is None:
            return [None] * len(group)
        if planned.learned and self._refresh_cache is not None:
            self._refresh_cache()
        if mapped is not None and mapped.count is not None:
            mapped.count(planned.num_ranges, planned.num_bytes)
        if len(planned.arrays) == len(group):
            return list(planned.arrays)
        arrays = iter(planned.arrays)
        units = selection.units[group.start : group.stop]
        return [next(arrays) if isinstance(unit, PlannedField) else None for unit in units]

    def _read_fields(self, fields: Sequence[OpenedField], rows: Rows) -> list[pa.Array]:
        """Read rows of fields by their readers."""
        inverse = None
        if isinstance(rows, RowIndices):
            rows, inverse = distinct_rows(rows.rows)
        stored = self._run([field.reader.read(rows) for field in fields])
        arrays = [field.to_user(array) for field, array in zip(fields, stored, strict=True)]
        if self._mapped is not None:
            arrays = [copy_if_shared(array, self._mapped.source) for array in arrays]
        return arrays if inverse is None else [take_rows(array, inverse) for array in arrays]

    def _run(self, coroutines: Sequence[ReadCoroutine[T]]) -> list[T]:
        """Run decoders; a truncated file is reported as such, not as corrupt data."""
        try:
            return run_together(coroutines, self._fetch)
        except LanceletError:
            if self._mapped is not None:
                self._mapped.check_intact()
            raise

    def _read_part_or_none(
        self, selection: Selection, task: tuple[Rows, range]
    ) -> list[pa.Array] | None:
        """Read rows of some fields, or return None if several rows overflow an Arrow array.

        Values that are stored once for many rows have an unknown size until they are decoded.
        """
        try:
            return self._read_part(selection, task)
        except ArrayOverflowError:
            if len(task[0]) < 2:
                raise
            return None

    def _batches(
        self, schema: pa.Schema, split_arrays: Iterator[list[pa.Array]]
    ) -> Iterator[pa.RecordBatch]:
        while True:
            with self._adding_file_facts():
                arrays = next(split_arrays, None)
            if arrays is None:
                return
            yield pa.RecordBatch.from_arrays(arrays, schema=schema)

    @contextmanager
    def _adding_file_facts(self) -> Iterator[None]:
        """Add the path and version of the file to errors."""
        try:
            yield
        except LanceletError as error:
            self._with_facts(error)
            raise

    def _with_facts(self, error: LanceletError) -> None:
        error.with_facts(path=self.path, version=self.version.value)


def _exceeded_memory(selection: Selection, rows: Rows) -> MemoryLimitError | None:
    """Return an error if the rows of a range exceed the memory of the machine.

    Corrupt pages may declare any number of rows.
    """
    needed = sum(selection.row_bytes) * len(rows) if isinstance(rows, RowRange) else 0
    available_bytes = machine_memory_bytes() if needed >= _CHECKED_BYTES_MIN else None
    if available_bytes is None or needed <= available_bytes:
        return None
    return MemoryLimitError(
        "the rows exceed the memory of the machine; read them in batches",
        rows=len(rows),
        needed_bytes=int(needed),
        machine_bytes=available_bytes,
    )


def _joined(chunks: pa.ChunkedArray) -> pa.Array:
    """Concatenate chunks to one array; a single chunk is not copied."""
    if chunks.num_chunks == 1:
        return chunks.chunk(0)
    try:
        return pa.concat_arrays(chunks.chunks) if chunks.num_chunks else pa.nulls(0, chunks.type)
    except pa.ArrowInvalid as error:
        raise InvalidInputError(
            "the values exceed the size limit of an Arrow array; read them as chunks or batches",
            type=str(chunks.type),
            values=len(chunks),
        ) from error
