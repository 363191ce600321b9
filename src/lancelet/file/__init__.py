"""Readers and writers of data files of all versions, with the API of `lance.file` in pylance."""

# ruff: noqa: TC004 - lazy imports; the imports below are for type checkers only

from typing import TYPE_CHECKING

from lancelet.on_demand import import_on_demand

if TYPE_CHECKING:
    from lancelet.dataset.file.describe import (
        LanceBufferDescriptor,
        LanceColumnMetadata,
        LanceFileMetadata,
        LanceFileStatistics,
        LancePageMetadata,
    )
    from lancelet.dataset.file.reader import LanceFileReader, ReaderResults
    from lancelet.dataset.file.session import LanceFileSession, ListResult
    from lancelet.dataset.file.writer import LanceFileWriter, stable_version
    from lancelet.encodings.base import ColumnChoice

__all__ = [
    "ColumnChoice",
    "LanceBufferDescriptor",
    "LanceColumnMetadata",
    "LanceFileMetadata",
    "LanceFileReader",
    "LanceFileSession",
    "LanceFileStatistics",
    "LanceFileWriter",
    "LancePageMetadata",
    "ListResult",
    "ReaderResults",
    "stable_version",
]

import_on_demand(
    __name__,
    {
        "ColumnChoice": "lancelet.encodings.base",
        "LanceBufferDescriptor": "lancelet.dataset.file.describe",
        "LanceColumnMetadata": "lancelet.dataset.file.describe",
        "LanceFileMetadata": "lancelet.dataset.file.describe",
        "LanceFileReader": "lancelet.dataset.file.reader",
        "LanceFileSession": "lancelet.dataset.file.session",
        "LanceFileStatistics": "lancelet.dataset.file.describe",
        "LanceFileWriter": "lancelet.dataset.file.writer",
        "LancePageMetadata": "lancelet.dataset.file.describe",
        "ListResult": "lancelet.dataset.file.session",
        "ReaderResults": "lancelet.dataset.file.reader",
        "stable_version": "lancelet.dataset.file.writer",
    },
)
