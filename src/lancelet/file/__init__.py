"""Readers and writers of data files of all versions, with the API of `lance.file` in pylance."""

# ruff: noqa: TC004 - lazy imports; the imports below are for type checkers only

from typing import TYPE_CHECKING

from lancelet.on_demand import import_on_demand

if TYPE_CHECKING:
    from lancelet.encodings.base import ColumnChoice
    from lancelet.file.api import LanceFileReader, ReaderResults
    from lancelet.file.api_writer import LanceFileWriter, stable_version
    from lancelet.file.describe import (
        LanceBufferDescriptor,
        LanceColumnMetadata,
        LanceFileMetadata,
        LanceFileStatistics,
        LancePageMetadata,
    )
    from lancelet.file.session import LanceFileSession, ListResult

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
        "LanceBufferDescriptor": "lancelet.file.describe",
        "LanceColumnMetadata": "lancelet.file.describe",
        "LanceFileMetadata": "lancelet.file.describe",
        "LanceFileReader": "lancelet.file.api",
        "LanceFileSession": "lancelet.file.session",
        "LanceFileStatistics": "lancelet.file.describe",
        "LanceFileWriter": "lancelet.file.api_writer",
        "LancePageMetadata": "lancelet.file.describe",
        "ListResult": "lancelet.file.session",
        "ReaderResults": "lancelet.file.api",
        "stable_version": "lancelet.file.api_writer",
    },
)
