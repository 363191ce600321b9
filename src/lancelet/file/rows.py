"""Reading rows of fields in tasks that run side by side, in whatever way a file keeps fields.

    fields, rows  --plan_read-->  splits x groups of fields
    each task     --FieldReader.read of every field, run together-->  Ranges  --store-->  Slices
    results       --in order-->   arrays, or batches

The decoders of a task run side by side, so that the columns of a table cost no more round trips
than one column does.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property, partial
from itertools import islice
from operator import is_
from typing import Final

import pyarrow as pa

from lancelet.buffers import Fetch, Int64s, Slices, run, run_together
from lancelet.config import machine_memory_bytes
from lancelet.encodings.base import (
    FieldReader,
    FileVersion,
    RowIndices,
    RowRange,
    Rows,
    places_in,
)
from lancelet.encodings.side_by_side import SideBySide
from lancelet.encodings.take import take_rows
from lancelet.errors import InvalidInputError, LanceletError, MemoryLimitError
from lancelet.file.base import check_rows, distinct_rows
from lancelet.file.batches import rebatch
from lancelet.file.pool import FEW_LONG_TASKS, FEW_TASKS, map_ordered
from lancelet.file.schedule import SPLIT_ROWS_MIN, TASK_BYTES, decoded_row_bytes, plan_read
from lancelet.file.storage import from_storage, has_json
from lancelet.format.schema import Field

_TAKE_ROWS_MIN: Final = 1024
_FEW_FIELDS: Final = 64

_CERTAINLY_FITS: Final = 1 << 30


@dataclass(frozen=True, slots=True, eq=False)
class OpenedField:
    """A field that was opened, and the type its users see."""

    field: Field
    reader: FieldReader
    data_type: pa.DataType
    is_as_stored: bool

    @staticmethod
    def of(field: Field, reader: FieldReader) -> OpenedField:
        """Find out what users see of a field."""
        stored = reader.data_type
        data_type = from_storage(pa.nulls(0, stored), field).type
        return OpenedField(field, reader, data_type, data_type == stored and not has_json(field))

    def to_user(self, array: pa.Array) -> pa.Array:
        """Return a stored array as users see it."""
        return array if self.is_as_stored else from_storage(array, self.field)


@dataclass(frozen=True, eq=False)
class Selection:
    """Fields that are read together, and what every such read needs to know of them."""

    fields: tuple[Field, ...]
    columns: tuple[OpenedField, ...]
    num_rows: int

    def is_of(self, fields: Sequence[Field]) -> bool:
        """Say whether these are the very fields."""
        return len(fields) == len(self.fields) and all(map(is_, fields, self.fields))

    @cached_property
    def schema(self) -> pa.Schema:
        """The schema of batches, as users see them."""
        return pa.schema(
            [column.field.to_arrow().with_type(column.data_type) for column in self.columns]
        )

    @cached_property
    def side_by_side(self) -> SideBySide:
        """The readers of the fields, for reads of single rows."""
        return SideBySide([column.reader for column in self.columns])

    @cached_property
    def row_bytes(self) -> list[float]:
        """Estimate the decoded bytes per row of each field."""
        return [
            decoded_row_bytes(column.reader.data_type, encoded)
            for column, encoded in zip(self.columns, self._encoded_row_bytes, strict=True)
        ]

    @cached_property
    def is_packed(self) -> bool:
        """Whether decoding makes twice as many bytes as there are, which takes its time."""
        return 2 * sum(self._encoded_row_bytes) <= sum(self.row_bytes)

    @cached_property
    def _encoded_row_bytes(self) -> list[float]:
        rows, count = RowRange(0, self.num_rows), max(1, self.num_rows)
        return [column.reader.encoded_bytes(rows) / count for column in self.columns]


class RowReader(ABC):
    """Reads rows of a file whose fields are opened one by one."""

    _opened: dict[Field, OpenedField]
    """The fields that were opened; whoever opens one twice gets the same."""

    _last: Selection | None = None
    _fetch: Fetch
    _waits: bool
    """Whether a task waits for storage, so that more of them should be under way."""

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

    @abstractmethod
    def _page_borders(self, fields: Sequence[Field]) -> Int64s | None:
        """Return rows, ascending, at which it is cheap to cut a read of the fields."""

    # --- reading ------------------------------------------------------------------------------

    def read(self, fields: Sequence[Field], rows: Rows) -> list[pa.Array]:
        """Return the values of fields as one array each."""
        return [_joined(chunks) for chunks in self.read_chunks(fields, rows)]

    def read_in_place(self, field: Field, rows: Int64s) -> Slices | None:
        """Return where the values of ascending rows are in memory, without copying them.

        None if they are not kept in the file as Arrow has them, or the file is not in memory.
        """
        with self._facts():
            opened = self._opened.get(field) or self._select((field,)).columns[0]
            if self._waits or not opened.is_as_stored:
                return None
            ranges = places_in(opened.reader, rows)
            return None if ranges is None else self._fetch(ranges)

    def read_chunks(self, fields: Sequence[Field], rows: Rows) -> list[pa.ChunkedArray]:
        """Return the values of fields as they were decoded, without joining the pieces."""
        with self._facts():
            check_rows(rows, num_rows=self.num_rows)
            selection = self._select(fields)
            match rows:
                case RowRange():
                    _check_memory(selection, rows)
                    pieces = list(self._scan(selection, rows, batch_size=None))
                case RowIndices(indices):
                    pieces = self._take(selection, indices)
            return [
                pa.chunked_array([piece[place] for piece in pieces], column.data_type)
                for place, column in enumerate(selection.columns)
            ]

    def iter_batches(
        self, fields: Sequence[Field], rows: Rows, batch_size: int | None = None
    ) -> Iterator[pa.RecordBatch]:
        """Yield batches in the order of the rows, decoding a few of them ahead."""
        if batch_size is not None and batch_size < 1:
            raise InvalidInputError("a batch has at least one row", batch_size=batch_size)
        with self._facts():
            check_rows(rows, num_rows=self.num_rows)
            selection = self._select(fields)
        match rows:
            case RowRange():
                pieces = self._scan(selection, rows, batch_size=batch_size)
            case RowIndices(indices):
                step = batch_size or max(_TAKE_ROWS_MIN, len(indices))
                parts = (indices[start : start + step] for start in range(0, len(indices), step))
                pieces = map_ordered(
                    partial(_take_part, self._fetch, selection), parts, waits=self._waits
                )
        batches = self._batches(selection.schema, pieces)
        yield from batches if batch_size is None else rebatch(batches, batch_size)

    def encoded_bytes(self, fields: Sequence[Field], rows: Rows) -> int:
        """Estimate the bytes that reading these rows would fetch."""
        with self._facts():
            check_rows(rows, num_rows=self.num_rows)
            readers = [column.reader for column in self._select(fields).columns]
        match rows:
            case RowRange():
                return sum(reader.encoded_bytes(rows) for reader in readers)
            case RowIndices(indices):
                everything = RowRange(0, self.num_rows)
                total = sum(reader.encoded_bytes(everything) for reader in readers)
                return total * len(indices) // max(1, self.num_rows)

    # --- tasks --------------------------------------------------------------------------------

    def _select(self, fields: Sequence[Field]) -> Selection:
        """Open fields that were not opened before; the last selection is not made again."""
        last = self._last
        if last is not None and last.is_of(fields):
            return last
        if not fields:
            raise InvalidInputError("at least one field must be read")
        missing = [field for field in fields if field not in self._opened]
        if missing:
            readers = self._open(missing)
            for field, reader in zip(missing, readers, strict=True):
                self._opened[field] = OpenedField.of(field, reader)
        columns = tuple(self._opened[field] for field in fields)
        selection = self._last = Selection(tuple(fields), columns, self.num_rows)
        return selection

    def _scan(
        self, selection: Selection, rows: RowRange, *, batch_size: int | None
    ) -> Iterator[list[pa.Array]]:
        """Yield the arrays of all fields split by split."""
        columns = selection.columns
        if 0 < len(rows) <= SPLIT_ROWS_MIN and len(columns) <= _FEW_FIELDS:
            # So few are never cut, and a plan would take as long as reading them.
            yield _read_part(self._fetch, (rows, columns))
            return
        borders = self._page_borders(selection.fields) if batch_size is None else None
        plan = plan_read(rows, selection.row_bytes, borders=borders, batch_size=batch_size)
        groups = [columns[group.start : group.stop] for group in plan.groups]
        tasks = ((split, group) for split in plan.splits for group in groups)
        few = FEW_LONG_TASKS if selection.is_packed else FEW_TASKS
        read = partial(_read_part, self._fetch)
        results = map_ordered(read, tasks, waits=self._waits, few=few)
        for _ in plan.splits:
            yield [array for part in islice(results, len(groups)) for array in part]

    def _take(self, selection: Selection, indices: Int64s) -> list[list[pa.Array]]:
        """Read single rows, cut into tasks where they are many."""
        columns = selection.columns
        if len(indices) <= _TAKE_ROWS_MIN:
            return [_take_part(self._fetch, selection, indices)]
        rows, where = distinct_rows(indices)
        step = max(_TAKE_ROWS_MIN, int(TASK_BYTES / max(sum(selection.row_bytes), 1.0)))
        tasks = [
            (RowIndices(rows.rows[start : start + step]), columns)
            for start in range(0, len(rows), step)
        ]
        pieces = list(map_ordered(partial(_read_part, self._fetch), tasks, waits=self._waits))
        if where is None:
            return pieces
        chosen = pa.array(where)
        joined = [_joined(pa.chunked_array(column)) for column in zip(*pieces, strict=True)]
        return [[take_rows(array, chosen) for array in joined]]

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
            error.with_facts(path=self.path, version=self.version.value)
            raise


def _check_memory(selection: Selection, rows: RowRange) -> None:
    """Refuse what cannot be in memory, as a page of few bytes may claim as many rows as it likes.

    What lies in a file as it is in memory may be larger than the memory: it is mapped.
    """
    needed = sum(selection.row_bytes) * len(rows)
    if needed < _CERTAINLY_FITS or not selection.is_packed:
        return
    there = machine_memory_bytes()
    if there is not None and needed > there:
        raise MemoryLimitError(
            "the rows take more memory than the machine has; read them in batches",
            rows=len(rows),
            needed_bytes=int(needed),
            machine_bytes=there,
        )


def _read_part(fetch: Fetch, task: tuple[Rows, Sequence[OpenedField]]) -> list[pa.Array]:
    """Read some rows of some columns: the body of every task."""
    rows, columns = task
    arrays = run_together([column.reader.read(rows) for column in columns], fetch)
    return [column.to_user(array) for column, array in zip(columns, arrays, strict=True)]


def _take_part(fetch: Fetch, selection: Selection, indices: Int64s) -> list[pa.Array]:
    """Read single rows in the order asked for."""
    rows, where = distinct_rows(indices)
    stored = run(selection.side_by_side.read(rows), fetch)
    columns = selection.columns
    arrays = [column.to_user(array) for column, array in zip(columns, stored, strict=True)]
    return arrays if where is None else [take_rows(array, pa.array(where)) for array in arrays]


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
