"""Checkpoints of column computations, stored in a SQLite database.

    batches     fragment 3, batch 0, 1, 2 ...     results, until the data file is complete
    fragments   fragment 0, 1, 2                  entries of fragments with complete data files
    job         the table URI, input columns, batch size and output columns

A restarted computation reuses the results in its checkpoint, unless they belong to another job or
the rows have changed since. Jobs are identified by the row `job`, and fragments by their files.
Batches are stored as Arrow IPC, which is safe to deserialize.
"""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import NamedTuple

import pyarrow as pa

from lancelet.errors import InvalidInputError

_TABLES = """
CREATE TABLE IF NOT EXISTS batches
    (fragment_id INT, batch_index INT, source TEXT, result BLOB,
     PRIMARY KEY (fragment_id, batch_index));
CREATE TABLE IF NOT EXISTS fragments (fragment_id INT PRIMARY KEY, data BLOB);
CREATE TABLE IF NOT EXISTS job (description TEXT);
"""


class BatchInfo(NamedTuple):
    """A batch of a fragment, counted from 0."""

    fragment_id: int
    batch_index: int


class BatchUDFCheckpoint:
    """Persistent results of a column computation; safe to use from several threads."""

    BatchInfo = BatchInfo

    def __init__(self, path: str | os.PathLike[str]) -> None:
        """Open the database at a path, creating it if it does not exist."""
        self.path = Path(path)
        with self._connected() as connection:
            connection.executescript(_TABLES)

    def begin(self, job: str) -> None:
        """Begin or resume a job, and delete the results of other jobs."""
        with self._connected() as connection:
            found = connection.execute("SELECT description FROM job").fetchone()
            if found == (job,):
                return
            if found is not None:
                connection.executescript("DELETE FROM batches; DELETE FROM fragments")
            connection.execute("DELETE FROM job")
            connection.execute("INSERT INTO job VALUES (?)", (job,))

    def get_batch(self, info: tuple[int, int], rows: str = "") -> pa.RecordBatch | None:
        """Return the saved result of a batch of `rows`, or None."""
        with self._connected() as connection:
            row = connection.execute(
                "SELECT result FROM batches "
                "WHERE fragment_id = ? AND batch_index = ? AND source = ?",
                (*info, rows),
            ).fetchone()
        if row is None:
            return None
        with pa.ipc.open_stream(row[0]) as stream:
            return stream.read_next_batch()

    def insert_batch(self, info: tuple[int, int], batch: pa.RecordBatch, rows: str = "") -> None:
        """Save the result of a batch."""
        sink = pa.BufferOutputStream()
        with pa.ipc.new_stream(sink, batch.schema) as stream:
            stream.write_batch(batch)
        with self._connected() as connection:
            connection.execute(
                "INSERT OR REPLACE INTO batches VALUES (?, ?, ?, ?)",
                (*info, rows, sink.getvalue().to_pybytes()),
            )

    def get_fragment(self, fragment_id: int) -> str | None:
        """Return the saved entry of a fragment, or None if its data file is not complete."""
        with self._connected() as connection:
            row = connection.execute(
                "SELECT data FROM fragments WHERE fragment_id = ?", (fragment_id,)
            ).fetchone()
        return None if row is None else str(row[0])

    def insert_fragment(self, fragment_id: int, fragment: str) -> None:
        """Save the entry of a fragment with a complete data file, and delete its batches."""
        with self._connected() as connection:
            connection.execute(
                "INSERT OR REPLACE INTO fragments VALUES (?, ?)", (fragment_id, fragment)
            )
            connection.execute("DELETE FROM batches WHERE fragment_id = ?", (fragment_id,))

    def cleanup(self) -> None:
        """Delete the database after the computation is complete."""
        self.path.unlink(missing_ok=True)

    @contextmanager
    def _connected(self) -> Iterator[sqlite3.Connection]:
        # SQLite connections cannot be shared between threads.
        try:
            with closing(sqlite3.connect(self.path)) as connection, connection:
                yield connection
        except sqlite3.Error as error:
            raise InvalidInputError(
                f"the checkpoint file cannot be used: {error}", path=str(self.path)
            ) from error
