"""Reading many small files with the same layout as one file.

    a.lance   1000 bytes, 10 rows    page of column 0 at 64, rows 0..10
    b.lance    900 bytes, 12 rows    page of column 0 at 64, rows 0..12
    joined    1900 bytes, 22 rows    pages of column 0 at 64 and 1064, rows 0..10 and 10..22

Opening a file takes hundreds of Python calls. If a table has thousands of files of a few hundred
bytes with the same layout, their footers and tables have the same shape and are parsed together as
arrays:

    footer of a    columns at 640, 2 columns, 2 buffers      columns at [640, 704]
    footer of b    columns at 704, 2 columns, 2 buffers      2 columns, 2 buffers

The same properties are verified as when files are opened separately. If a file is damaged or has
a different layout, nothing is returned; the caller then opens the files separately, which reports
the error.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, TypeAlias

import numpy as np
import numpy.typing as npt

from lancelet.buffers import ByteRanges, Bytes, ByteSlices, Int64s
from lancelet.encodings.base import FieldReader, FileVersion, StoredColumn
from lancelet.errors import CorruptDataError, FieldNotFoundError, LanceletError
from lancelet.file.checksums import verify_small_files
from lancelet.file.open import StoredFields
from lancelet.file.rows import RowReader
from lancelet.file.selection import OpenFields
from lancelet.file.v2.column_metadata import decode_plain_columns
from lancelet.file.v2.footer import (
    FOOTER_BYTES,
    MAGIC,
    TABLE_ROW_BYTES,
    is_contiguous,
    is_outside,
)
from lancelet.file.v2.generation import generation_of
from lancelet.file.v2.metadata import parse_descriptor
from lancelet.format.field import Field
from lancelet.format.paths import data_file_identity
from lancelet.format.trailer import name_checksum
from lancelet.io.store import Store, check_ranges
from lancelet.values import dataclass

_VERSIONS: Final = frozenset({FileVersion.V2_1, FileVersion.V2_2, FileVersion.V2_3})
SMALL_BYTES_MAX: Final = 256 * 1024
"""Larger files are opened separately."""

_TABLE_ROWS_MAX: Final = 1024
"""Wider files are opened separately, because parsing dominates."""

_COLUMN_BYTES: Final = 1024
"""The approximate memory usage of a column of a file, without its bytes."""

_FOOTER: Final = np.dtype(
    [
        ("column_metadata", "<u8"),
        ("column_table", "<u8"),
        ("buffer_table", "<u8"),
        ("num_buffers", "<u4"),
        ("num_columns", "<u4"),
        ("version", "<u4"),
        ("magic", "<u4"),
    ]
)
assert _FOOTER.itemsize == FOOTER_BYTES
_MAGIC_NUMBER: Final = int.from_bytes(MAGIC, "little")

_Table: TypeAlias = npt.NDArray[np.int64]
"""Shape (files, columns or buffers, 2): memory position and size."""


@dataclass(frozen=True, slots=True)
class SmallFile:
    """The path of a file, and its size and row count as recorded by the table."""

    path: str
    size: int
    num_rows: int


class SmallFiles(RowReader):
    """Reads the rows of files, which are concatenated in memory, as those of one file.

    Instances are created by `open_small_files`; rows are in the order of its `files`.
    """

    def __init__(
        self,
        source: Bytes,
        files: Sequence[SmallFile],
        *,
        version: FileVersion,
        stored: StoredFields,
        column_table: _Table,
    ) -> None:
        """Read verified files; column metadata is validated when it is parsed."""
        self._source = source
        self._path = files[0].path
        self._version = version
        self._num_rows = sum(file.num_rows for file in files)
        self._opened = OpenFields()
        self._waits = False
        self._fetch = self._slice
        self._placement = stored.columns
        self._start, self._stop = _bounds(files)
        self._column_table = column_table

    @property
    def memory_bytes(self) -> int:
        """The approximate memory usage in bytes after all columns were read."""
        return self._source.nbytes + _COLUMN_BYTES * self._column_table.size // 2

    @property
    def path(self) -> str:
        """The path of the first file."""
        return self._path

    @property
    def version(self) -> FileVersion:
        """The version of the file format."""
        return self._version

    @property
    def num_rows(self) -> int:
        """The total number of rows."""
        return self._num_rows

    def _open(self, fields: Sequence[Field]) -> list[FieldReader]:
        generation = generation_of(self.version)
        readers: list[FieldReader] = []
        for field, columns in zip(fields, self._joined_columns(fields), strict=True):
            reader = generation.open_field(field, columns, self.version, None)
            if reader.num_rows != self.num_rows:
                raise CorruptDataError(
                    "the pages of a field have a different number of rows than the files",
                    field=field.name,
                    expected=self.num_rows,
                    found=reader.num_rows,
                )
            readers.append(reader)
        return readers

    def _page_starts(self, fields: Sequence[Field]) -> Int64s | None:  # noqa: ARG002 - interface
        return None

    def _slice(self, ranges: ByteRanges) -> ByteSlices:
        check_ranges(ranges, path=self.path, size=self._source.nbytes)
        return ByteSlices(self._source, ranges.position, ranges.size)

    def _joined_columns(self, fields: Sequence[Field]) -> list[list[StoredColumn]]:
        generation = generation_of(self.version)
        columns_of_fields: list[list[StoredColumn]] = []
        for field in fields:
            owners = generation.columns_of(field, self.version)
            if any(owner.id not in self._placement for owner in owners):
                raise FieldNotFoundError("the files have no column of the field", field=field.name)
            columns_of_fields.append([self._column(self._placement[owner.id]) for owner in owners])
        return columns_of_fields

    def _column(self, index: int) -> StoredColumn:
        """Return a column of all files; the positions of its pages are memory positions."""
        if index >= self._column_table.shape[1]:
            raise CorruptDataError("the files do not have the column", column=index)
        position, size = np.ascontiguousarray(self._column_table[:, index].T)
        plain = decode_plain_columns(
            ByteSlices(self._source, position, size),
            [index] * len(position),
            file_bytes=self._stop - self._start,
        )
        if plain is None:
            raise CorruptDataError(
                "the metadata of a column is damaged or has an unusual structure", column=index
            )
        return plain.joined(self._start)


def open_small_files(
    store: Store, files: Sequence[SmallFile], stored: StoredFields
) -> SmallFiles | None:
    """Read small files that have the same fields in the same columns, with full verification.

    Returns None if the files must be opened separately, because their layouts differ, the store
    does not support combined reads, or a file is damaged.
    """
    source = store.read_together([file.path for file in files], [file.size for file in files])
    if source is None or min(file.size for file in files) < FOOTER_BYTES:
        return None
    start, stop = _bounds(files)
    footers = _gather(source, stop - FOOTER_BYTES, FOOTER_BYTES).view(_FOOTER)[:, 0]
    version = _common_version(footers)
    if version is None or not _are_adjacent(footers, stop - start):
        return None
    tables = [
        _table(source, start + footers[position].astype(np.int64), int(footers[count][0]))
        for position, count in (("column_table", "num_columns"), ("buffer_table", "num_buffers"))
    ]
    limit = (stop - start - FOOTER_BYTES)[:, None].astype(np.uint64)
    if any(is_outside(table[..., 0], table[..., 1], limit).any() for table in tables):
        return None
    columns, buffers = (table.astype(np.int64) for table in tables)
    if not verify_small_files(source, start, stop, last_buffer=buffers[:, -1]):
        return None
    for table in (columns, buffers):
        table[..., 0] += start[:, None]
    if not _match_files(source, buffers[:, 0], files):
        return None
    return SmallFiles(source, files, version=version, stored=stored, column_table=columns)


def _bounds(files: Sequence[SmallFile]) -> tuple[Int64s, Int64s]:
    ends = np.cumsum([0, *(file.size for file in files)])
    return ends[:-1], ends[1:]


def _gather(source: Bytes, start: Int64s, size: int) -> npt.NDArray[np.uint8]:
    """Return an array with `size` bytes from each start position."""
    rows: npt.NDArray[np.uint8] = source[start[:, None] + np.arange(size)]
    return rows


def _common_version(footers: npt.NDArray[np.void]) -> FileVersion | None:
    """Return the version of all files, or None if footers differ in more than positions."""
    shape = footers[["num_buffers", "num_columns", "version", "magic"]]
    first = shape[0]
    if (shape != first).any() or first["magic"] != _MAGIC_NUMBER:
        return None
    if not 0 < max(first["num_buffers"], first["num_columns"]) <= _TABLE_ROWS_MAX:
        return None
    if not first["num_buffers"]:
        return None
    number = int(first["version"])
    try:
        version = FileVersion.from_numbers(number & 0xFFFF, number >> 16)
    except LanceletError:
        return None
    return version if version in _VERSIONS else None


def _are_adjacent(footers: npt.NDArray[np.void], sizes: Int64s) -> bool:
    """Return whether metadata, tables and footer are adjacent and in order."""
    columns, buffers = footers["column_table"], footers["buffer_table"]
    end = (sizes - FOOTER_BYTES).astype(np.uint64)
    if (columns > end).any() or (buffers > end).any():
        return False
    num_columns, num_buffers = (
        footers[name].astype(np.uint64) for name in ("num_columns", "num_buffers")
    )
    metadata, counts = footers["column_metadata"], (num_columns, num_buffers)
    return bool(is_contiguous(metadata, columns, buffers, counts, end).all())


def _table(source: Bytes, position: Int64s, rows: int) -> npt.NDArray[np.uint64]:
    """Return the positions and sizes in a table of each file."""
    found = _gather(source, position, rows * TABLE_ROW_BYTES).view("<u8")
    return found.reshape(len(position), rows, 2).astype(np.uint64)


def _match_files(source: Bytes, descriptors: _Table, files: Sequence[SmallFile]) -> bool:
    """Return whether descriptors match the row counts and names of the files."""
    try:
        for (start, size), file in zip(descriptors.tolist(), files, strict=True):
            descriptor, name = parse_descriptor(source[start : start + size].tobytes())
            if descriptor.length != file.num_rows:
                return False
            if name is not None and name != name_checksum(data_file_identity(file.path)):
                return False
    except CorruptDataError:
        return False
    return True
