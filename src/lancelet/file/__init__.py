"""One data file of any generation, and the names of pylance's `lance.file`."""

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
