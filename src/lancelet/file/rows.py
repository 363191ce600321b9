"""Reading rows of fields in tasks that run side by side, in whatever way a file keeps fields.

    fields, rows  --plan_read-->  splits x groups of fields
    each task     --FieldReader.read of every field, run together-->  Ranges  --store-->  Slices
    results       --in order-->   arrays, or batches

The decoders of a task run side by side, so that the columns of a table cost no more round trips
than one column does. Of many fields those that are alike are not even opened one by one, but read
as bundles (`encodings.bundle`):

    fields a b c d e      bundle of a c d, alone b e
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from itertools import islice
from typing import Final

import numpy as np
import pyarrow as pa

from lancelet.buffers import Fetch, Int64s, Ranges, Reading, Slices, read_together, run_together
from lancelet.config import machine_memory_bytes
from lancelet.encodings.arrow import copy_if_shared
from lancelet.encodings.base import (
    FieldReader,
    FileVersion,
    RowIndices,
    RowRange,
    Rows,
)
from lancelet.encodings.bundle import Bundle
from lancelet.encodings.planned import RANGE_MAX, ROWS_MAX, PlannedColumns
from lancelet.encodings.take import take_rows
from lancelet.errors import (
    ArrayOverflowError,
    CorruptDataError,
    InvalidInputError,
    LanceletError,
    MemoryLimitError,
    UnsupportedError,
)
from lancelet.file.base import check_rows, distinct_rows
from lancelet.file.batches import rebatch
from lancelet.file.expected import expected_of_units
from lancelet.file.pool import FEW_LONG_TASKS, FEW_TASKS, map_ordered
from lancelet.file.schedule import TASK_BYTES, Plan, plan_read
from lancelet.file.selection import (
    OpenedField,
    OpenedFields,
    Selection,
    users_schema,
)
from lancelet.format.schema import Field
from lancelet.io.metered import IoCounts
from lancelet.io.store import MappedObject
from lancelet.kernels import MappedFile

_TAKE_ROWS_MIN: Final = 1024
_FEW_UNITS: Final = 64

_MANY_FIELDS: Final = 24
"""Of so many fields those that are alike are read as one."""

_MANY_VALUES: Final = 1 << 19
"""A range of so many values is no few rows: bundles of its fields take less."""

_SPLITS_ESTIMATED: Final = 4096
_FORGET_FROM_BYTES: Final = 256 * 1024 * 1024
_FORGET_TASK_BYTES: Final = 1 << 20
_CERTAINLY_FITS: Final = 1 << 30


class RowReader(ABC):
    """Reads rows of a file whose fields are opened one by one."""

    _opened: OpenedFields
    _fetch: Fetch
    """Reads bytes that are decoded at once; of a mapped file nothing is copied."""
    _waits: bool
    """Whether a task waits for storage, so that more of them should be under way."""
    _mapped: MappedObject | None = None
    """The map of the file, if there is one."""
    _watched: MappedFile | None = None
    """What kernels need that read from the map by themselves."""
    _weigh: Callable[[], None] | None = None
    """Weighs what is known of the file anew, when it has become more."""
    _block_bytes: int = 0
    """Requests are for whole blocks of so many bytes, which are verified; 0 for any range."""

    @property
    @abstractmethod
    def path(self) -> str:
        """The path of the file in its store."""

    @property
    @abstractmethod
    def version(self) -> FileVersion:
        """The version of the format that the file was written in."""

    @property
    @abstractmethod
    def num_rows(self) -> int:
        """How many rows the file has."""

    @abstractmethod
    def _open(self, fields: Sequence[Field]) -> list[FieldReader]:
        """Return a reader of each field."""

    def _bundle(self, fields: Sequence[Field]) -> Sequence[Bundle]:  # noqa: ARG002 - few have any
        """Return readers of fields that are alike; others are opened one by one."""
        return ()

    @abstractmethod
    def _page_borders(self, fields: Sequence[Field]) -> Int64s | None:
        """Return rows, ascending, at which it is cheap to cut a read of the fields."""

    # --- reading ------------------------------------------------------------------------------

    def read(self, fields: Sequence[Field], rows: Rows) -> list[pa.Array]:
        """Return the values of fields as one array each."""
        found = self._read_few(fields, rows)
        if found is not None:
            return found
        return [_joined(chunks) for chunks in self._read_chunks(fields, rows)]

    def read_in_place(self, field: Field, rows: Int64s) -> Slices | None:
        """Return the values of ascending rows as the file keeps them, behind each other.

        None if they are not kept in the file as Arrow has them, or the file is not in memory.
        """
        with self._facts():
            opened = self._open_alone((field,))[0]
            if self._waits or not opened.is_as_stored:
                return None
            ranges = opened.reader.value_ranges(rows)
            return None if ranges is None else self._fetch_kept(ranges)

    def _fetch_kept(self, ranges: Ranges) -> Slices:
        """Read bytes that are kept for longer than the file is known to be whole."""
        slices = self._fetch(ranges)
        return slices if self._mapped is None else self._mapped.copied(slices)

    def read_chunks(self, fields: Sequence[Field], rows: Rows) -> list[pa.ChunkedArray]:
        """Return the values of fields as they were decoded, without joining the pieces."""
        found = self._read_few(fields, rows)
        if found is not None:
            return [pa.chunked_array([array], array.type) for array in found]
        return self._read_chunks(fields, rows)

    def _read_chunks(self, fields: Sequence[Field], rows: Rows) -> list[pa.ChunkedArray]:
        with self._facts():
            check_rows(rows, num_rows=self.num_rows)
            selection = self._select(fields)
            match rows:
                case RowRange():
                    _check_memory(selection, rows)
                    pieces = list(self._scan(selection, rows, batch_size=None))
                case RowIndices(indices):
                    pieces = self._take(selection, indices)
            if len(pieces) == 1:
                return [pa.chunked_array([array], array.type) for array in pieces[0]]
            return [
                pa.chunked_array([piece[place] for piece in pieces], data_type)
                for place, data_type in enumerate(selection.data_types)
            ]

    def iter_batches(
        self, fields: Sequence[Field], rows: Rows, batch_size: int | None = None
    ) -> Iterator[pa.RecordBatch]:
        """Yield batches in the order of the rows, decoding a few of them ahead."""
        if batch_size is not None and batch_size < 1:
            raise InvalidInputError("a batch has at least one row", batch_size=batch_size)
        found = self._read_few(fields, rows)
        if found is not None:
            schema = users_schema(fields, [array.type for array in found])
            batches = iter([pa.RecordBatch.from_arrays(found, schema=schema)])
            yield from batches if batch_size is None else rebatch(batches, batch_size)
            return
        with self._facts():
            check_rows(rows, num_rows=self.num_rows)
            selection = self._select(fields)
        match rows:
            case RowRange():
                pieces = self._scan(selection, rows, batch_size=batch_size)
            case RowIndices(indices):
                step = batch_size or max(_TAKE_ROWS_MIN, len(indices))
                parts = (indices[start : start + step] for start in range(0, len(indices), step))
                pieces = map_ordered(partial(self._take_part, selection), parts, waits=self._waits)
        batches = self._batches(selection.schema, pieces)
        yield from batches if batch_size is None else rebatch(batches, batch_size)

    def encoded_bytes(self, fields: Sequence[Field], rows: Rows) -> int:
        """Estimate the bytes that reading these rows would fetch."""
        with self._facts():
            check_rows(rows, num_rows=self.num_rows)
            selection = self._select(fields)
        match rows:
            case RowRange():
                return selection.encoded_bytes(rows)
            case RowIndices(indices):
                total = selection.encoded_bytes(RowRange(0, self.num_rows))
                return total * len(indices) // max(1, self.num_rows)

    def estimate_reads(self, fields: Sequence[Field], *parts: Rows) -> IoCounts:
        """Return about what reading rows would ask of storage, split as reading splits them."""
        with self._facts():
            selection, tasks = self._select(fields), list[Rows]()
            for rows in parts:
                check_rows(rows, num_rows=self.num_rows)
                if isinstance(rows, RowIndices):
                    tasks.append(rows)
                else:
                    tasks += self._splits(selection, rows)
            found = expected_of_units(selection, tasks)
            # A range begins and ends within blocks, some of which others want as well.
            return found + IoCounts(0, found.read_iops * self._block_bytes // 2)

    def opening_reads(self) -> IoCounts:
        """Return what opening the file once more would ask of storage, where that is known."""
        return IoCounts()

    def statistics_reads(self) -> IoCounts:
        """Return what was read for statistics of zones so far, where it is worth telling."""
        return IoCounts()

    def _read_few(self, fields: Sequence[Field], rows: Rows) -> list[pa.Array] | None:
        """Read a few rows from the map of the file, by the plans of the columns.

        None if the file is not mapped, the rows are many or none, or all of this has to be read in
        the general way.
        """
        mapped, watched = self._mapped, self._watched
        is_range = isinstance(rows, RowRange)
        if mapped is None or watched is None:
            return None
        if not 0 < len(rows) <= (RANGE_MAX if is_range else ROWS_MAX):
            return None
        if is_range and len(rows) * len(fields) >= _MANY_VALUES:
            return None
        with self._facts():
            check_rows(rows, num_rows=self.num_rows)
            planned = self._planned(fields)
        if planned is None:
            return None
        wanted = rows.rows if isinstance(rows, RowIndices) else np.arange(rows.start, rows.stop)
        found = planned.read(watched, wanted)
        if found is None or not mapped.is_whole():
            return None
        if found.learned and self._weigh is not None:
            self._weigh()
        if mapped.count is not None:
            mapped.count(found.num_ranges, found.num_bytes)
        others = [field for field, array in zip(fields, found.arrays, strict=True) if array is None]
        general = map(_joined, self._read_chunks(others, rows) if others else ())
        return [next(general) if array is None else array for array in found.arrays]

    def _planned(self, fields: Sequence[Field]) -> PlannedColumns | None:  # noqa: ARG002
        """Return the plans of fields, of which some may have none, or None if no field has one."""
        return None

    # --- tasks --------------------------------------------------------------------------------

    def _select(self, fields: Sequence[Field]) -> Selection:
        """Open fields that were not opened before; the last selection is not made again."""
        found = self._opened.recent.find(fields)
        if found is not None:
            return found
        if not fields:
            raise InvalidInputError("at least one field must be read")
        bundles = self._bundle(fields) if len(fields) >= _MANY_FIELDS else ()
        bundled = {place for bundle in bundles for place in bundle.field_indices}
        alone = [field for place, field in enumerate(fields) if place not in bundled]
        selection = Selection(
            tuple(fields),
            tuple(self._open_alone(alone)),
            tuple(bundles),
            self.num_rows,
        )
        self._opened.recent.keep(selection.fields, selection)
        return selection

    def _open_alone(self, fields: Sequence[Field]) -> list[OpenedField]:
        opened = self._opened.each
        missing = [field for field in fields if field not in opened]
        if missing:
            readers = self._open(missing)
            for field, reader in zip(missing, readers, strict=True):
                opened[field] = OpenedField.of(field, reader)
        return [opened[field] for field in fields]

    def _scan(
        self, selection: Selection, rows: RowRange, *, batch_size: int | None
    ) -> Iterator[list[pa.Array]]:
        """Yield the arrays of all fields split by split."""
        units = selection.units
        if 0 < len(rows) <= selection.rows_at_once and len(units) <= _FEW_UNITS:
            # So few are never cut, and a plan would take as long as reading them.
            arrays = self._read_part_or_none(selection, (rows, units))
            if arrays is not None:
                yield selection.in_order(arrays)
            else:
                yield from self._scan_halves(selection, rows)
            return
        plan = self._plan(selection, rows, batch_size=batch_size)
        groups = [units[group.start : group.stop] for group in plan.groups]
        tasks = ((split, group) for split in plan.splits() for group in groups)
        few = FEW_LONG_TASKS if selection.is_packed else FEW_TASKS
        read = partial(self._read_part_or_none, selection)
        results = map_ordered(read, tasks, waits=self._waits, few=few)
        for split in plan.splits():
            parts = list(islice(results, len(groups)))
            arrays = [array for part in parts if part is not None for array in part]
            if None in parts:
                yield from self._scan_halves(selection, split)
            else:
                yield selection.in_order(arrays)

    def _scan_halves(self, selection: Selection, rows: RowRange) -> Iterator[list[pa.Array]]:
        """Yield the arrays of rows that do not fit one array each, in parts that do."""
        middle = (rows.start + rows.stop) // 2
        for half in (RowRange(rows.start, middle), RowRange(middle, rows.stop)):
            task = (half, selection.units)
            arrays = self._read_part_or_none(selection, task)
            if arrays is None:
                yield from self._scan_halves(selection, half)
            else:
                yield selection.in_order(arrays)

    def _plan(self, selection: Selection, rows: RowRange, *, batch_size: int | None) -> Plan:
        """Return the tasks of a read of many rows."""
        borders = None
        if batch_size is None and selection.alone:
            borders = selection.borders(self._page_borders)
        return plan_read(
            rows,
            selection.row_bytes,
            num_fields=len(selection.fields),
            borders=borders,
            batch_size=batch_size,
            least=selection.rows_at_once,
        )

    def _splits(self, selection: Selection, rows: RowRange) -> Iterator[RowRange]:
        """Yield the splits of a read; behind the first so many, one stands for all others."""
        stop = rows.start
        for split in islice(
            self._plan(selection, rows, batch_size=None).splits(), _SPLITS_ESTIMATED
        ):
            yield split
            stop = split.stop
        if stop < rows.stop:
            yield RowRange(stop, rows.stop)

    def _take(self, selection: Selection, indices: Int64s) -> list[list[pa.Array]]:
        """Read single rows, cut into tasks where they are many."""
        if len(indices) <= _TAKE_ROWS_MIN:
            return [self._take_part(selection, indices)]
        rows, where = distinct_rows(indices)
        step = max(_TAKE_ROWS_MIN, int(TASK_BYTES / max(sum(selection.row_bytes), 1.0)))
        tasks = [
            (RowIndices(rows.rows[start : start + step]), selection.units)
            for start in range(0, len(rows), step)
        ]
        read = partial(self._read_part, selection)
        pieces = [selection.in_order(part) for part in map_ordered(read, tasks, waits=self._waits)]
        if where is None:
            return pieces
        joined = [_joined(pa.chunked_array(column)) for column in zip(*pieces, strict=True)]
        return [[take_rows(array, where) for array in joined]]

    def _read_part(
        self, selection: Selection, task: tuple[Rows, Sequence[OpenedField | Bundle]]
    ) -> list[pa.Array]:
        """Read some rows of some units: the body of every task.

        Decoders run side by side, and what they return holds nothing of a map.
        """
        rows, units = task
        readings = [self._read_unit(selection, unit, rows) for unit in units]
        mapped = self._mapped
        try:
            parts = run_together(readings, self._fetch)
            arrays = [array for part in parts for array in part]
            if mapped is not None:
                arrays = [copy_if_shared(array, mapped.source) for array in arrays]
        except LanceletError:
            # What was cut is no damage of what is there.
            if mapped is not None:
                mapped.check_whole()
            raise
        if mapped is not None:
            mapped.check_whole()
            if mapped.source.nbytes >= _FORGET_FROM_BYTES and (
                sum(array.nbytes for array in arrays) >= _FORGET_TASK_BYTES
            ):
                # Pages of a map count as memory of the process, and a scan would gather all.
                mapped.release_pages()
        return arrays

    def _read_part_or_none(
        self, selection: Selection, task: tuple[Rows, Sequence[OpenedField | Bundle]]
    ) -> list[pa.Array] | None:
        """Read some rows of some units; None if they are several and do not fit one array.

        How large values are that are stored once for many rows is only known afterwards.
        """
        try:
            return self._read_part(selection, task)
        except ArrayOverflowError:
            if len(task[0]) < 2:
                raise
            return None

    def _take_part(self, selection: Selection, indices: Int64s) -> list[pa.Array]:
        """Read single rows in the order asked for."""
        rows, where = distinct_rows(indices)
        arrays = selection.in_order(self._read_part(selection, (rows, selection.units)))
        return arrays if where is None else [take_rows(array, where) for array in arrays]

    def _read_unit(
        self, selection: Selection, unit: OpenedField | Bundle, rows: Rows
    ) -> Reading[list[pa.Array]]:
        """Read rows of a unit, as users see them."""
        if isinstance(unit, OpenedField):
            return [unit.to_user((yield from unit.reader.read(rows)))]
        try:
            return (yield from unit.read(rows))
        except (ArrayOverflowError, CorruptDataError, UnsupportedError):
            # What does not fit one array may fit several, and what one read of many columns
            # rejects may be readable column by column; if it is not, the error names the column.
            pass
        alone = self._open_alone([selection.fields[place] for place in unit.field_indices])
        stored = yield from read_together([column.reader.read(rows) for column in alone])
        return [column.to_user(array) for column, array in zip(alone, stored, strict=True)]

    def _batches(
        self, schema: pa.Schema, pieces: Iterator[list[pa.Array]]
    ) -> Iterator[pa.RecordBatch]:
        while True:
            with self._facts():
                arrays = next(pieces, None)
            if arrays is None:
                return
            yield pa.RecordBatch.from_arrays(arrays, schema=schema)

    @contextmanager
    def _facts(self) -> Iterator[None]:
        """Add what only the file knows to errors of those who know only bytes."""
        try:
            yield
        except LanceletError as error:
            self._with_facts(error)
            raise

    def _with_facts(self, error: LanceletError) -> None:
        error.with_facts(path=self.path, version=self.version.value)


def _check_memory(selection: Selection, rows: RowRange) -> None:
    """Refuse what cannot be in memory, as a page may claim any number of rows."""
    needed = sum(selection.row_bytes) * len(rows)
    if needed < _CERTAINLY_FITS:
        return
    there = machine_memory_bytes()
    if there is not None and needed > there:
        raise MemoryLimitError(
            "the rows take more memory than the machine has; read them in batches",
            rows=len(rows),
            needed_bytes=int(needed),
            machine_bytes=there,
        )


def _joined(chunks: pa.ChunkedArray) -> pa.Array:
    """Return chunks as one array, copied only if there are several."""
    if chunks.num_chunks == 1:
        return chunks.chunk(0)
    try:
        return pa.concat_arrays(chunks.chunks) if chunks.num_chunks else pa.nulls(0, chunks.type)
    except pa.ArrowInvalid as error:
        raise InvalidInputError(
            "the values do not fit into one array; read them as chunks or batches",
            type=str(chunks.type),
            values=len(chunks),
        ) from error
