"""A few rows of several columns, read by one call of a kernel from the map of a file.

A take of one row is a chain of array operations for every column: find the chunk, find its parts,
unpack or decompress, pick. Each of them costs more than the value. All that they find out, but
for what depends on the row, is put into records once (`run_record`), and a kernel does the rest:

    records     id: chunks at .., packed    name: chunks at .., zstd, FSST    vector: items at ..
    row 7       ----------------------------- one call ----------------------------->   3 arrays

Where chunks are is learned first, for the pages with the rows. The kernel declines what it does not
know: other pages, encodings that are rare, bytes that are damaged. Then the readers of the columns
read the rows, which learns what is not known, or finds out what is wrong.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, NamedTuple

import numpy as np
import pyarrow as pa

from lancelet import kernels
from lancelet.buffers import Fetch, Int64s, run_together
from lancelet.encodings.base import FieldReader, RowIndices
from lancelet.encodings.column_record import ColumnRecord
from lancelet.kernels import FewColumns, MappedFile
from lancelet.values import dataclass

ROWS_MAX: Final = 256
"""Of more rows, so much is decoded that what it takes to get there does not matter; and rows that
are in no order come back to chunks, which the kernel decodes again."""

_CHUNKS_MAX: Final = 1 << 17
"""Where more chunks are is not held for the kernel: whoever keeps heads of pages may drop them."""

_RECORD_BYTES: Final = 1024
_CHUNK_BYTES: Final = 32
"""What the record of a column takes, and where one of its chunks is."""


@dataclass(frozen=True, slots=True, eq=False)
class _Prepared:
    """Columns that the kernel can read, by their places among all."""

    columns: dict[int, ColumnRecord]
    prepared: FewColumns
    others: tuple[int, ...]

    @staticmethod
    def of(readers: Sequence[FieldReader | None]) -> _Prepared:
        """Make the records of columns, as far as their pages are known."""
        columns: dict[int, ColumnRecord] = {}
        for place, reader in enumerate(readers):
            if reader is None:
                continue
            record = ColumnRecord.of(reader.data_type, reader.known_column())
            if record is not None and record.num_chunks <= _CHUNKS_MAX:
                columns[place] = record
        prepared = kernels.prepare_few([record.column for record in columns.values()])
        others = tuple(place for place in range(len(readers)) if place not in columns)
        return _Prepared(columns, prepared, others)


class FoundRows(NamedTuple):
    """The rows of columns by their places, and what was read for them.

    `others` are the places of columns that are to be read in the general way.
    """

    arrays: dict[int, pa.Array]
    others: tuple[int, ...]
    num_ranges: int
    num_bytes: int


class FewRowsReader:
    """Reads a few rows of columns; threads that prepare at once come to the same."""

    def __init__(self, readers: Sequence[FieldReader | None]) -> None:
        """Prepare to read; a column without a reader here is left to the general way."""
        self._readers = readers
        self._prepared: _Prepared | None = None
        self._misses = 0
        self._patience = 1
        """After so many reads that were declined records are made anew, then after twice."""

    @property
    def memory_bytes(self) -> int:
        """How much memory the records take, with where the chunks of their columns are."""
        prepared = self._prepared
        columns = () if prepared is None else prepared.columns.values()
        return sum(_RECORD_BYTES + _CHUNK_BYTES * each.num_chunks for each in columns)

    def read(self, file: MappedFile, fetch: Fetch, rows: Int64s) -> FoundRows | None:
        """Return rows in any order, or None if they are to be read in the general way.

        All of them are rows that the columns have. What is to be learned is read by `fetch`.
        """
        found = None if self._prepared is None else self._take(self._prepared, file, rows)
        if found is None:
            self._misses += 1
            if self._misses >= self._patience:
                self._misses, self._patience = 0, 2 * self._patience
                found = self._take(self._prepare(fetch, rows), file, rows)
        return found

    def _take(self, prepared: _Prepared, file: MappedFile, rows: Int64s) -> FoundRows | None:
        columns, count = prepared.columns, len(rows)
        if not columns:
            return None
        room = sum(column.room(count) for column in columns.values())
        found = kernels.take_few(file, rows, prepared.prepared, room)
        if found is None:
            return None
        data = pa.py_buffer(found.data)
        arrays = {
            place: column.to_arrow(data, count, where)
            for (place, column), where in zip(columns.items(), found.places, strict=True)
        }
        return FoundRows(arrays, prepared.others, found.num_ranges, found.num_bytes)

    def _prepare(self, fetch: Fetch, rows: Int64s) -> _Prepared:
        """Learn of the pages that have the rows; threads that do so at once come to the same."""
        ordered = np.sort(rows)  # `np.unique` would import masked arrays, which takes long
        wanted = RowIndices(ordered[np.diff(ordered, prepend=-1) > 0])
        run_together([reader.learn(wanted) for reader in self._readers if reader], fetch)
        self._prepared = _Prepared.of(self._readers)
        return self._prepared
