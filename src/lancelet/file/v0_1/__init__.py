"""Data files of version 0.1: batches of plain pages, a page table, and statistics."""

from lancelet.file.v0_1.reader import LegacyFileReader, open_file
from lancelet.file.v0_1.writer import LegacyFileWriter, LegacyWriterOptions, create_file

__all__ = [
    "LegacyFileReader",
    "LegacyFileWriter",
    "LegacyWriterOptions",
    "create_file",
    "open_file",
]
