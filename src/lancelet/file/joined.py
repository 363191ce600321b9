"""Small files read as one: their bytes side by side in memory, their pages those of one column.

    a.lance   1000 bytes, 10 rows    its page of column 0 at 64, rows 0..10
    b.lance    900 bytes, 12 rows    its page of column 0 at 64, rows 0..12
    joined    1900 bytes, 22 rows    pages of column 0 at 64 and 1064, rows 0..10 and 10..22

A table that was written a few rows at a time has thousands of files of a few hundred bytes, and
visiting a file takes far longer than decoding it. Pages that are encoded alike are decoded
together wherever they are (`encodings.structural`), so joined files cost as many array operations
as one file does. Bytes are verified file by file before they are joined.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import replace
from itertools import accumulate
from typing import Final

import numpy as np

from lancelet.buffers import Bytes, Int64s, Ranges, Slices
from lancelet.encodings.base import FieldReader, FileVersion, StoredColumn, StoredPage
from lancelet.errors import CorruptDataError, InternalError
from lancelet.file.rows import RowReader
from lancelet.file.selection import OpenedFields
from lancelet.file.v2.generation import generation_of
from lancelet.file.v2.reader import FileReader
from lancelet.format.schema import Field
from lancelet.io.store import check_ranges

JOINED_BYTES_MAX: Final = 256 * 1024
"""A file of more bytes is worth a visit of its own."""


class FilesInMemory(RowReader):
    """Reads the rows of files that lie side by side in memory, as those of one file."""

    def __init__(self, source: Bytes, *, path: str, version: FileVersion, num_rows: int) -> None:
        """Read the bytes of files; `path` is that of the first, the rest is what all have."""
        self._source = source
        self._path = path
        self._version = version
        self._num_rows = num_rows
        self._opened = OpenedFields()
        self._waits = False
        self._fetch = self._slices

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

    @abstractmethod
    def _joined_columns(self, fields: Sequence[Field]) -> Sequence[Sequence[StoredColumn]]:
        """Return the columns of each field, with the pages of all files."""

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


class JoinedFiles(FilesInMemory):
    """Reads the rows of several files of one version, in the order in which they are given."""

    def __init__(self, files: Sequence[FileReader]) -> None:
        """Read files whole, now; their columns are looked at when they are first wanted."""
        if len({file.version for file in files}) != 1:
            raise InternalError("files of one version are read as one", files=len(files))
        self._files = files
        sizes = [file.metadata.file_bytes for file in files]
        self._first_byte = list(accumulate(sizes, initial=0))
        source = np.concatenate(
            [
                file.fetch(Ranges.of((0, size))).slice_bytes(0)
                for file, size in zip(files, sizes, strict=True)
            ]
        )
        super().__init__(
            source,
            path=files[0].path,
            version=files[0].version,
            num_rows=sum(file.num_rows for file in files),
        )

    def _joined_columns(self, fields: Sequence[Field]) -> list[list[StoredColumn]]:
        columns = [file.columns_of(fields) for file in self._files]
        return [
            [self._joined(parts) for parts in zip(*(each[place] for each in columns), strict=True)]
            for place in range(len(fields))
        ]

    def _joined(self, parts: Sequence[StoredColumn]) -> StoredColumn:
        """Return what is one column of each file as one column."""
        pages: list[StoredPage] = []
        for part, first_byte in zip(parts, self._first_byte, strict=False):
            for page in part.pages:
                first_row = pages[-1].first_row + pages[-1].length if pages else 0
                pages.append(
                    StoredPage(
                        first_row,
                        page.length,
                        page.position + first_byte,
                        page.size,
                        page.encoding,
                        page.priority,
                    )
                )
        items = [part.items for part in parts if part.items is not None]
        behind = self._joined(items) if len(items) == len(parts) else None
        return replace(parts[0], pages=tuple(pages), items=behind)
