"""Small files of one kind, opened and read at once: their pages are those of one column.

    a.lance   1000 bytes, 10 rows    its page of column 0 at 64, rows 0..10
    b.lance    900 bytes, 12 rows    its page of column 0 at 64, rows 0..12
    joined    1900 bytes, 22 rows    pages of column 0 at 64 and 1064, rows 0..10 and 10..22

To open a file takes hundreds of calls. Where a table has thousands of files of a few hundred bytes
that were all written alike, their footers and tables have the same shape, and so the numbers of
all files are looked at together:

    footer of a    columns at 640, 2 columns, 2 buffers      columns at [640, 704]
    footer of b    columns at 704, 2 columns, 2 buffers      2 columns, 2 buffers

Everything that is verified of a file that is opened alone is verified here. Where anything is not
as expected in any of them, damage for instance, there is no answer: whoever then opens one after
the other is told by an error what is wrong with which.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate
from typing import Final, TypeAlias

import numpy as np
import numpy.typing as npt
from google.protobuf.message import DecodeError

from lancelet.buffers import Bytes, Int64s, Ranges, Slices
from lancelet.encodings.base import FieldReader, FileVersion, StoredColumn, StoredPage
from lancelet.errors import CorruptDataError, FieldNotFoundError, LanceletError
from lancelet.file.checksums import CHECKSUMS_MARK, are_intact
from lancelet.file.open import StoredFields
from lancelet.file.rows import RowReader
from lancelet.file.selection import OpenedFields
from lancelet.file.v2.footer import FOOTER_BYTES, MAGIC, TABLE_ROW_BYTES
from lancelet.file.v2.generation import generation_of
from lancelet.format.field import Field
from lancelet.format.paths import data_file_identity
from lancelet.format.protos import file2_pb, file_pb
from lancelet.format.trailer import name_checksum, split_name_checksum
from lancelet.io.store import Store, check_ranges
from lancelet.values import dataclass

_VERSIONS: Final = frozenset({FileVersion.V2_1, FileVersion.V2_2, FileVersion.V2_3})
SMALL_BYTES_MAX: Final = 256 * 1024
"""A file of more bytes is worth a visit of its own."""

_TABLE_ROWS_MAX: Final = 1024
"""In wider files there is so much to be done for each that nothing is saved."""

_COLUMN_BYTES: Final = 1024
"""What a column of a file weighs besides its bytes, about."""

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
"""Files, columns or buffers of each, position and size of these; positions count in memory."""


@dataclass(frozen=True, slots=True)
class SmallFile:
    """A file: its path, and the size and the rows that the table says it has."""

    path: str
    size: int
    num_rows: int


class SmallFiles(RowReader):
    """Reads the rows of files, side by side in memory, as those of one file.

    They are in the order in which they are given to `open_together`, which makes it.
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
        """Read files of which all was verified but the metadata of columns."""
        self._source = source
        self._path = files[0].path
        self._version = version
        self._num_rows = sum(file.num_rows for file in files)
        self._opened = OpenedFields()
        self._waits = False
        self._fetch = self._slices
        self._placement = stored.columns
        self._start, self._stop = _bounds(files)
        self._column_table = column_table

    @property
    def memory_bytes(self) -> int:
        """How much memory the reader takes, about, once its columns were looked at."""
        return self._source.nbytes + _COLUMN_BYTES * self._column_table.size // 2

    @property
    def path(self) -> str:
        """The path of the first file."""
        return self._path

    @property
    def version(self) -> FileVersion:
        """The version of the format that all the files were written in."""
        return self._version

    @property
    def num_rows(self) -> int:
        """How many rows the files have together."""
        return self._num_rows

    def _open(self, fields: Sequence[Field]) -> list[FieldReader]:
        generation = generation_of(self.version)
        readers: list[FieldReader] = []
        for field, columns in zip(fields, self._joined_columns(fields), strict=True):
            reader = generation.open_field(field, columns, self.version, None)
            if reader.num_rows != self.num_rows:
                raise CorruptDataError(
                    "the pages of a field do not have the rows of the files",
                    field=field.name,
                    expected=self.num_rows,
                    found=reader.num_rows,
                )
            readers.append(reader)
        return readers

    def _page_borders(self, fields: Sequence[Field]) -> Int64s | None:  # noqa: ARG002 - all is small
        return None

    def _slices(self, ranges: Ranges) -> Slices:
        check_ranges(ranges, path=self.path, size=self._source.nbytes)
        return Slices(self._source, ranges.position, ranges.size)

    def _joined_columns(self, fields: Sequence[Field]) -> list[list[StoredColumn]]:
        generation = generation_of(self.version)
        found: list[list[StoredColumn]] = []
        for field in fields:
            owners = generation.columns_of(field, self.version)
            if any(owner.id not in self._placement for owner in owners):
                raise FieldNotFoundError("the files have no column of the field", field=field.name)
            found.append([self._column(self._placement[owner.id]) for owner in owners])
        return found

    def _column(self, index: int) -> StoredColumn:
        """Return one column of all the files; its pages are at their places in memory."""
        if index >= self._column_table.shape[1]:
            raise CorruptDataError("the files do not have the column of a field", column=index)
        # There are thousands of pages, so what is done for each is kept short.
        pages: list[file2_pb.ColumnMetadata.Page] = []
        counts: list[int] = []
        for position, size in self._column_table[:, index].tolist():
            message = self._message(position, size, index)
            pages += message.pages
            counts.append(len(message.pages))
        offsets = [offset for page in pages for offset in page.buffer_offsets]
        sizes = [size for page in pages for size in page.buffer_sizes]
        buffers = [len(page.buffer_offsets) for page in pages]
        if buffers != [len(page.buffer_sizes) for page in pages]:
            raise CorruptDataError("buffers of pages lack a position or a size", column=index)
        file = np.repeat(np.repeat(np.arange(len(counts)), counts), buffers)
        within = self._placed(file, np.array([offsets, sizes], np.uint64), index)
        ends = list(accumulate(buffers, initial=0))
        rows = list(accumulate((page.length for page in pages), initial=0))
        stored = tuple(
            StoredPage(
                rows[place],
                page.length,
                within[0, ends[place] : ends[place + 1]],
                within[1, ends[place] : ends[place + 1]],
                page.encoding.direct.encoding,
                page.priority,
            )
            for place, page in enumerate(pages)
        )
        nothing = np.empty(0, np.int64)
        return StoredColumn(index, message.encoding.direct.encoding, stored, nothing, nothing)

    def _message(self, position: int, size: int, index: int) -> file2_pb.ColumnMetadata:
        data = self._source[position : position + size].tobytes()
        try:
            message = file2_pb.ColumnMetadata.FromString(data)
        except DecodeError as error:
            raise CorruptDataError(
                "the metadata of a column cannot be parsed", column=index
            ) from error
        if message.buffer_offsets or any(
            page.encoding.HasField("indirect") for page in message.pages
        ):
            raise CorruptDataError("a column is described in another way here", column=index)
        return message

    def _placed(
        self, file: Int64s, places: npt.NDArray[np.uint64], index: int
    ) -> npt.NDArray[np.int64]:
        """Return positions within files as positions in memory, and the sizes."""
        file_bytes = (self._stop - self._start)[file].astype(np.uint64)
        if not _lie_within(places[0], places[1], file_bytes):
            raise CorruptDataError("a buffer of a page lies outside of its file", column=index)
        found = places.astype(np.int64)
        found[0] += self._start[file]
        return found


def open_together(
    store: Store, files: Sequence[SmallFile], stored: StoredFields
) -> SmallFiles | None:
    """Read small files that have the same fields in the same columns, verified in full.

    Returns None if they have to be opened one by one, because they differ in more than numbers,
    or the store saves nothing by this, or something is wrong with one of them.
    """
    source = store.read_together([file.path for file in files], [file.size for file in files])
    if source is None or min(file.size for file in files) < FOOTER_BYTES:
        return None
    start, stop = _bounds(files)
    footers = _gathered(source, stop - FOOTER_BYTES, FOOTER_BYTES).view(_FOOTER)[:, 0]
    version = _common_version(footers)
    if version is None or not _are_end_to_end(footers, stop - start):
        return None
    tables = [
        _table(source, start + footers[position].astype(np.int64), int(footers[count][0]))
        for position, count in (("column_table", "num_columns"), ("buffer_table", "num_buffers"))
    ]
    limit = (stop - start - FOOTER_BYTES)[:, None].astype(np.uint64)
    if not all(_lie_within(table[..., 0], table[..., 1], limit) for table in tables):
        return None
    columns, buffers = (table.astype(np.int64) for table in tables)
    if not are_intact(source, start, stop, last_buffer=buffers[:, -1]):
        return None
    for table in (columns, buffers):
        table[..., 0] += start[:, None]
    if not _describe(source, buffers[:, 0], files):
        return None
    return SmallFiles(source, files, version=version, stored=stored, column_table=columns)


def _bounds(files: Sequence[SmallFile]) -> tuple[Int64s, Int64s]:
    ends = np.cumsum([0, *(file.size for file in files)])
    return ends[:-1], ends[1:]


def _gathered(source: Bytes, start: Int64s, size: int) -> npt.NDArray[np.uint8]:
    """Return as many bytes from each of some positions, all of which are in the source."""
    found: npt.NDArray[np.uint8] = source[start[:, None] + np.arange(size)]
    return found


def _common_version(footers: npt.NDArray[np.void]) -> FileVersion | None:
    """Return the version of all files, if their footers differ only in positions."""
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


def _are_end_to_end(footers: npt.NDArray[np.void], sizes: Int64s) -> bool:
    """Return whether the tables and the footer follow each other, behind the metadata."""
    columns, buffers = footers["column_table"], footers["buffer_table"]
    file_bytes = sizes.astype(np.uint64)
    if (footers["column_metadata"] > columns).any() or (columns > file_bytes).any():
        return False
    if (buffers > file_bytes).any():
        return False
    column_end = columns + footers["num_columns"].astype(np.uint64) * TABLE_ROW_BYTES
    buffer_end = buffers + footers["num_buffers"].astype(np.uint64) * TABLE_ROW_BYTES
    return bool((column_end == buffers).all() and (buffer_end + FOOTER_BYTES == file_bytes).all())


def _table(source: Bytes, position: Int64s, rows: int) -> npt.NDArray[np.uint64]:
    """Return a table of each file: position and size of each of its rows."""
    found = _gathered(source, position, rows * TABLE_ROW_BYTES).view("<u8")
    return found.reshape(len(position), rows, 2).astype(np.uint64)


def _lie_within(
    position: npt.NDArray[np.uint64],
    size: npt.NDArray[np.uint64],
    limit: npt.NDArray[np.uint64],
) -> bool:
    return bool(((position <= limit) & (size <= limit - np.minimum(position, limit))).all())


def _describe(source: Bytes, descriptors: _Table, files: Sequence[SmallFile]) -> bool:
    """Return whether descriptors are those of the files: their rows, and the names they keep.

    Most say how many rows there are in the same words.
    """
    texts: list[bytes] = []
    for (start, size), file in zip(descriptors.tolist(), files, strict=True):
        text = source[start : start + size].tobytes()
        text, found = split_name_checksum(text.removesuffix(CHECKSUMS_MARK))
        if found is not None and found != name_checksum(data_file_identity(file.path)):
            return False
        texts.append(text)
    try:
        rows = {text: file_pb.FileDescriptor.FromString(text).length for text in set(texts)}
    except DecodeError:
        return False
    return all(rows[text] == file.num_rows for text, file in zip(texts, files, strict=True))
