"""What a long computation of columns has done so far, kept in a file of SQLite.

    batches     fragment 3, batch 0, 1, 2 ...     results, until the fragment's file is written
    fragments   fragment 0, 1, 2                  entries of fragments whose files are written
    job         what is computed from what

A process that is killed and started again takes from here what is done. Results of another job,
or of rows that have changed since, are not taken: the job is known by the columns it reads and
makes, a fragment by its files. Batches are kept in the format of Arrow, which runs no code when
it is read.
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
    """Results of a computation that outlive the process; safe to use from several threads."""

    BatchInfo = BatchInfo

    def __init__(self, path: str | os.PathLike[str]) -> None:
        """Use the file at a path, which is made if it is not there."""
        self.path = Path(path)
        with self._connected() as connection:
            connection.executescript(_TABLES)

    def begin(self, job: str) -> None:
        """Say what is computed; what is kept of anything else is dropped."""
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
        """Keep the result for a batch."""
        sink = pa.BufferOutputStream()
        with pa.ipc.new_stream(sink, batch.schema) as stream:
            stream.write_batch(batch)
        with self._connected() as connection:
            connection.execute(
                "INSERT OR REPLACE INTO batches VALUES (?, ?, ?, ?)",
                (*info, rows, sink.getvalue().to_pybytes()),
            )

    def get_fragment(self, fragment_id: int) -> str | None:
        """Return what was kept of a fragment whose file is written."""
        with self._connected() as connection:
            row = connection.execute(
                "SELECT data FROM fragments WHERE fragment_id = ?", (fragment_id,)
            ).fetchone()
        return None if row is None else str(row[0])

    def insert_fragment(self, fragment_id: int, fragment: str) -> None:
        """Keep what is known of a fragment whose file is written, and drop its batches."""
        with self._connected() as connection:
            connection.execute(
                "INSERT OR REPLACE INTO fragments VALUES (?, ?)", (fragment_id, fragment)
            )
            connection.execute("DELETE FROM batches WHERE fragment_id = ?", (fragment_id,))

    def cleanup(self) -> None:
        """Delete the file; the computation is done."""
        self.path.unlink(missing_ok=True)

    @contextmanager
    def _connected(self) -> Iterator[sqlite3.Connection]:
        # A connection belongs to the thread that made it, so each use has its own.
        try:
            with closing(sqlite3.connect(self.path)) as connection, connection:
                yield connection
        except sqlite3.Error as error:
            raise InvalidInputError(
                f"the checkpoint file cannot be used: {error}", path=str(self.path)
            ) from error
