"""Data files of version 0.1: batches of plain pages, a page table and statistics."""

# ruff: noqa: TC004 - lazy imports; the imports below are for type checkers only

from typing import TYPE_CHECKING

from lancelet.on_demand import import_on_demand

if TYPE_CHECKING:
    from lancelet.file.v0_1.reader import LegacyFileReader, open_file
    from lancelet.file.v0_1.writer import LegacyFileWriter, LegacyWriterOptions, create_file

__all__ = [
    "LegacyFileReader",
    "LegacyFileWriter",
    "LegacyWriterOptions",
    "create_file",
    "open_file",
]

import_on_demand(
    __name__,
    {
        "LegacyFileReader": "lancelet.file.v0_1.reader",
        "LegacyFileWriter": "lancelet.file.v0_1.writer",
        "LegacyWriterOptions": "lancelet.file.v0_1.writer",
        "create_file": "lancelet.file.v0_1.writer",
        "open_file": "lancelet.file.v0_1.reader",
    },
)
