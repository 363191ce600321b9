"""Version records in an SQLite file, for several processes on one machine.

    manifests   base_uri    version   path                                size   e_tag
                data/t      7         data/t/_versions/<..>.manifest      812    NULL

The primary key resolves races: a second insert of a version fails.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from lancelet.errors import AlreadyExistsError, StorageError, StorageUnavailableError
from lancelet.table.handlers.external import ManifestRecord, ManifestRecords
from lancelet.values import dataclass

_WAIT_SECONDS: Final = 30.0
"""Maximum time a writer waits for another; a commit locks the file for about a millisecond."""

_SCHEMA: Final = """
CREATE TABLE IF NOT EXISTS manifests (
    base_uri TEXT NOT NULL,
    version INTEGER NOT NULL,
    path TEXT NOT NULL,
    size INTEGER,
    e_tag TEXT,
    PRIMARY KEY (base_uri, version)
) WITHOUT ROWID
"""
_COLUMNS: Final = "SELECT version, path, size, e_tag FROM manifests WHERE base_uri = ?"


@dataclass(frozen=True, slots=True)
class SqliteRecords(ManifestRecords):
    """The records in the database file at `path`, which is created if missing."""

    path: str

    def latest(self, table: str) -> ManifestRecord | None:
        """Return the record of a table's highest version."""
        with self._connection() as connection:
            return _record(
                connection.execute(f"{_COLUMNS} ORDER BY version DESC LIMIT 1", (table,))
            )

    def get(self, table: str, version: int) -> ManifestRecord | None:
        """Return the record of a version."""
        with self._connection() as connection:
            return _record(connection.execute(f"{_COLUMNS} AND version = ?", (table, version)))

    def put_if_absent(self, table: str, record: ManifestRecord) -> None:
        """Record a version that has no record yet."""
        values = (table, record.version, record.path, record.size, record.etag)
        with self._connection() as connection:
            try:
                connection.execute("INSERT INTO manifests VALUES (?, ?, ?, ?, ?)", values)
            except sqlite3.IntegrityError as error:
                raise AlreadyExistsError(
                    "another writer has the version", table=table, version=record.version
                ) from error

    def update(self, table: str, record: ManifestRecord) -> None:
        """Replace the record of a version that has one."""
        values = (record.path, record.size, record.etag, table, record.version)
        with self._connection() as connection:
            connection.execute(
                "UPDATE manifests SET path = ?, size = ?, e_tag = ?"
                " WHERE base_uri = ? AND version = ?",
                values,
            )

    def every(self, table: str) -> list[ManifestRecord]:
        """Return the records of all versions of a table."""
        with self._connection() as connection:
            return [ManifestRecord(*row) for row in connection.execute(_COLUMNS, (table,))]

    def forget(self, table: str, record: ManifestRecord) -> None:
        """Delete the record of a version if it still has the path of this one."""
        with self._connection() as connection:
            connection.execute(
                "DELETE FROM manifests WHERE base_uri = ? AND version = ? AND path = ?",
                (table, record.version, record.path),
            )

    @contextmanager
    def _connection(self) -> Iterator[sqlite3.Connection]:
        """Open the file for one statement, so that threads and forks share no connection."""
        try:
            # In autocommit mode, a statement is committed when it returns.
            connection = sqlite3.connect(self.path, timeout=_WAIT_SECONDS, isolation_level=None)
            try:
                connection.execute(_SCHEMA)
                yield connection
            finally:
                connection.close()
        except sqlite3.OperationalError as error:
            kind = StorageUnavailableError if "locked" in str(error) else StorageError
            raise kind(
                "the database of versions cannot be used", path=self.path, reason=str(error)
            ) from error


def _record(rows: sqlite3.Cursor) -> ManifestRecord | None:
    row = rows.fetchone()
    return None if row is None else ManifestRecord(*row)
