"""What a stream may be made of: rows that each version brings, which are counted and read in parts.

InsertedRows   what each version inserted
ChangedRows    what each version changed, with the values before and after
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Protocol

import pyarrow as pa

from lancelet.errors import VersionNotFoundError
from lancelet.ops.jobs.table_ref import TableRef
from lancelet.spark.stream_offset import Offset
from lancelet.table.snapshot import Snapshot


class NewRows(Protocol):
    """The rows of each version, in an order that never changes."""

    def count(self, at: Offset) -> int:
        """Return how many rows the version of an offset brings."""
        ...

    def row_bytes(self, at: Offset) -> float:
        """Return how many bytes a row of that version takes, about."""
        ...

    def tasks(self, at: Offset, stop: int) -> Iterator[Any]:
        """Yield values for tasks that together read the rows from an offset to before a number."""
        ...

    def read(self, task: Any) -> Iterator[pa.RecordBatch]:
        """Yield the rows of a task, with the schema of the stream."""
        ...


def open_version(table: TableRef, version: int) -> Snapshot:
    """Open a version that a stream is about to read.

    Raises:
        VersionNotFoundError: It was removed before.
    """
    try:
        return table.at(version).open()
    except VersionNotFoundError as error:
        error.add_note(
            "the stream had not read this version when it was removed; start the stream anew, "
            "or clean up later than the stream may fall behind"
        )
        raise
