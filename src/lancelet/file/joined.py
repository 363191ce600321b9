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

from collections.abc import Sequence
from dataclasses import replace
from itertools import accumulate
from typing import Final

import numpy as np

from lancelet.buffers import Int64s, Ranges, Slices
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


class JoinedFiles(RowReader):
    """Reads the rows of several files of one version, in the order in which they are given."""

    def __init__(self, files: Sequence[FileReader]) -> None:
        """Read files whole, now; their columns are looked at when they are first wanted."""
        if len({file.version for file in files}) != 1:
            raise InternalError("files of one version are read as one", files=len(files))
        self._files = files
        self._opened = OpenedFields()
        self._waits = False
        self._first_row = list(accumulate((file.num_rows for file in files), initial=0))
        sizes = [file.metadata.file_bytes for file in files]
        self._first_byte = list(accumulate(sizes, initial=0))
        self._source = np.concatenate(
            [
                file.fetch(Ranges.of((0, size))).slice_bytes(0)
                for file, size in zip(files, sizes, strict=True)
            ]
        )
        self._fetch = self._slices

    @property
    def path(self) -> str:
        """The path of the first file."""
        return self._files[0].path

    @property
    def version(self) -> FileVersion:
        """The version of the format that all the files were written in."""
        return self._files[0].version

    @property
    def num_rows(self) -> int:
        """How many rows the files have together."""
        return self._first_row[-1]

    def _open(self, fields: Sequence[Field]) -> list[FieldReader]:
        generation = generation_of(self.version)
        columns = [file.columns_of(fields) for file in self._files]
        readers: list[FieldReader] = []
        for place, field in enumerate(fields):
            joined = [
                self._joined(parts)
                for parts in zip(*(each[place] for each in columns), strict=True)
            ]
            reader = generation.open_field(field, joined, self.version, None)
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

    def _slices(self, ranges: Ranges) -> Slices:
        check_ranges(ranges, path=self.path, size=self._source.nbytes)
        return Slices(self._source, ranges.position, ranges.size)
