"""Version records in PostgreSQL, for writers on several machines.

    lance_manifests   base_uri   version   path                           size   e_tag
                      data/t     7         data/t/_versions/<..>.manifest  812   NULL

The primary key resolves races: a second insert of a version changes nothing, and its row count is
0. A statement without a response may have been executed, so an insert whose connection broke has an
  unknown outcome; reading and replacing a record can be repeated.
"""

from __future__ import annotations

import atexit
import os
from collections.abc import Sequence
from dataclasses import field
from typing import Any, Final

from lancelet.errors import (
    AlreadyExistsError,
    CommitOutcomeUnknownError,
    InvalidInputError,
    StorageError,
    StorageUnavailableError,
    UnsupportedError,
)
from lancelet.table.handlers.external import ManifestRecord, ManifestRecords
from lancelet.values import dataclass

_SCHEMA: Final = """
CREATE TABLE IF NOT EXISTS lance_manifests (
    base_uri text NOT NULL,
    version bigint NOT NULL,
    path text NOT NULL,
    size bigint,
    e_tag text,
    PRIMARY KEY (base_uri, version)
)
"""
_EXISTS: Final = "SELECT to_regclass('lance_manifests') IS NOT NULL"
_COLUMNS: Final = "SELECT version, path, size, e_tag FROM lance_manifests WHERE base_uri = %s"
_INSERT: Final = (
    "INSERT INTO lance_manifests (base_uri, version, path, size, e_tag)"
    " VALUES (%s, %s, %s, %s, %s) ON CONFLICT DO NOTHING"
)
_UPDATE: Final = (
    "UPDATE lance_manifests SET path = %s, size = %s, e_tag = %s"
    " WHERE base_uri = %s AND version = %s"
)
_DELETE: Final = "DELETE FROM lance_manifests WHERE base_uri = %s AND version = %s AND path = %s"

_CONNECTIONS: Final[dict[tuple[int, str], Any]] = {}
"""The open connections by process and database."""


@dataclass(frozen=True, slots=True)
class PostgresRecords(ManifestRecords):
    """The records in the database `dsn`; their table is created if missing.

    Each process opens one connection on first use, and again after it broke.
    """

    dsn: str = field(repr=False)

    def latest(self, table: str) -> ManifestRecord | None:
        """Return the record of a table's highest version."""
        return self._read(f"{_COLUMNS} ORDER BY version DESC LIMIT 1", (table,))

    def get(self, table: str, version: int) -> ManifestRecord | None:
        """Return the record of a version."""
        return self._read(f"{_COLUMNS} AND version = %s", (table, version))

    def put_if_absent(self, table: str, record: ManifestRecord) -> None:
        """Record a version that has no record yet."""
        psycopg = _driver()
        values = (table, record.version, record.path, record.size, record.etag)
        connection = _connection(self.dsn)
        try:
            inserted = connection.execute(_INSERT, values).rowcount
        except psycopg.OperationalError as error:
            _disconnect(self.dsn)
            raise CommitOutcomeUnknownError(
                "the connection to the database of versions broke",
                table=table,
                version=record.version,
                reason=str(error),
            ) from error
        except psycopg.Error as error:
            raise _refused(error) from error
        if not inserted:
            raise AlreadyExistsError(
                "another writer has the version", table=table, version=record.version
            )

    def update(self, table: str, record: ManifestRecord) -> None:
        """Replace the record of a version that has one."""
        self._run(_UPDATE, (record.path, record.size, record.etag, table, record.version))

    def every(self, table: str) -> list[ManifestRecord]:
        """Return the records of all versions of a table."""
        return [ManifestRecord(*row) for row in self._run(_COLUMNS, (table,)).fetchall()]

    def forget(self, table: str, record: ManifestRecord) -> None:
        """Delete the record of a version if it still has the path of this one."""
        self._run(_DELETE, (table, record.version, record.path))

    def _read(self, statement: str, values: Sequence[object]) -> ManifestRecord | None:
        row = self._run(statement, values).fetchone()
        return None if row is None else ManifestRecord(*row)

    def _run(self, statement: str, values: Sequence[object]) -> Any:
        """Run an idempotent statement, once more if the connection was broken."""
        psycopg = _driver()
        try:
            return _connection(self.dsn).execute(statement, values)
        except psycopg.OperationalError:
            _disconnect(self.dsn)
        except psycopg.Error as error:
            raise _refused(error) from error
        try:
            return _connection(self.dsn).execute(statement, values)
        except psycopg.OperationalError as error:
            _disconnect(self.dsn)
            raise StorageUnavailableError(
                "the database of versions does not answer", reason=str(error)
            ) from error


def _connection(dsn: str) -> Any:
    """Return the connection of this process; inherited connections belong to the parent."""
    key = os.getpid(), dsn
    existing = _CONNECTIONS.get(key)
    if existing is not None:
        return existing
    psycopg = _driver()
    if not _is_connection_string(dsn):
        raise InvalidInputError(
            "the connection string of the database of versions is malformed; it is like "
            "postgresql://user:password@host:5432/database with special characters encoded"
        )
    try:
        connection = psycopg.connect(dsn, autocommit=True)
        _create_table(connection, psycopg)
    except psycopg.OperationalError as error:
        raise StorageUnavailableError(
            "the database of versions cannot be reached", reason=str(error)
        ) from error
    except psycopg.Error as error:
        raise _refused(error) from error
    shared = _CONNECTIONS.setdefault(key, connection)
    if shared is not connection:
        connection.close()  # Another thread was faster.
    return shared


def _is_connection_string(dsn: str) -> bool:
    """Return whether a connection string can be parsed; libpq errors may quote a password."""
    from psycopg.conninfo import conninfo_to_dict  # noqa: PLC0415 - an extra

    try:
        conninfo_to_dict(dsn)
    except (_driver().ProgrammingError, ValueError):
        return False
    return True


def _disconnect(dsn: str) -> None:
    """Close a connection; the next statement opens another."""
    connection = _CONNECTIONS.pop((os.getpid(), dsn), None)
    if connection is not None:
        connection.close()


@atexit.register
def _disconnect_all() -> None:
    for pid, dsn in list(_CONNECTIONS):
        if pid == os.getpid():
            _disconnect(dsn)


def _create_table(connection: Any, psycopg: Any) -> None:
    """Create the table if missing.

    If two processes create it concurrently, one gets an error that the table or its type exists.
    """
    if connection.execute(_EXISTS).fetchone()[0]:
        return
    duplicate_errors = psycopg.errors.DuplicateTable, psycopg.errors.DuplicateObject
    try:
        connection.execute(_SCHEMA)
    except (psycopg.IntegrityError, *duplicate_errors):
        return


def _refused(error: BaseException) -> StorageError:
    return StorageError("the database of versions cannot be used", reason=str(error))


def _driver() -> Any:
    try:
        import psycopg  # noqa: PLC0415 - an extra
    except ImportError as error:
        raise UnsupportedError(
            "versions in PostgreSQL need a driver; install `lancelet[postgres]`"
        ) from error
    return psycopg
