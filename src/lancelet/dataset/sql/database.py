"""In-memory databases of DuckDB.

Creating a DuckDB database takes 20 ms, ten times as long as a small query, so connections for
statements that only read share one. Tables registered with a connection are visible to it alone.
A statement with side effects gets a separate database. Statements over little data share a second
database with one thread, because waking more threads takes longer than a few thousand rows.
"""

from __future__ import annotations

import threading
from functools import lru_cache, partial
from typing import Any, Final

import pyarrow as pa

from lancelet.errors import UnsupportedError
from lancelet.expr.functions.base import Function
from lancelet.expr.functions.geometry import GEOMETRY_FUNCTIONS, call_on_columns
from lancelet.io.fork import reset_after_fork

_GEOMETRIC: Final = "st_"
"""The name prefix of geometry functions."""
_DUCKDB_TYPES: Final = {
    pa.bool_(): "BOOLEAN",
    pa.float64(): "DOUBLE",
    pa.string(): "VARCHAR",
    pa.large_binary(): "BLOB",
    pa.uint32(): "UINTEGER",
    pa.uint8(): "UTINYINT",
}


def duckdb_module() -> Any:
    """Return DuckDB, or raise `UnsupportedError`."""
    try:
        import duckdb  # noqa: PLC0415 - an extra
    except ImportError as error:
        raise UnsupportedError("SQL requires DuckDB; install `lancelet[sql]`") from error
    return duckdb


def connect(query: str, *, alone: bool = False) -> Any:
    """Return a connection for a statement, which the caller closes.

    Args:
        query: The statement.
        alone: Whether to execute it with a single thread.

    Raises:
        duckdb.Error: If the statement cannot be parsed.
    """
    with_geometry = _GEOMETRIC in query.lower()
    if only_selects(query):
        return (_ALONE if alone else _SHARED).connect(with_geometry=with_geometry)
    connection = _new_database()
    if with_geometry:
        _add_geometry(connection)
    return connection


def _add_geometry(connection: Any) -> None:
    """Register the geometry functions for the lifetime of the connection."""
    for function in GEOMETRY_FUNCTIONS:
        gives = function.gives
        assert not callable(gives), "the result type does not depend on the arguments"
        for name in function.names:
            connection.create_function(
                name,
                partial(_called, function),
                None,
                _DUCKDB_TYPES[gives],
                type="arrow",
                null_handling="special",
            )


def _called(function: Function, *columns: pa.ChunkedArray) -> pa.Array:
    return call_on_columns(function, [column.combine_chunks() for column in columns])


@lru_cache(maxsize=256)
def only_selects(query: str) -> bool:
    """Return whether a query is a single SELECT statement."""
    duckdb = duckdb_module()
    kinds = [statement.type for statement in duckdb.extract_statements(query)]
    return bool(kinds == [duckdb.StatementType.SELECT])


_OF_PARENTS: Final[list[Any]] = []
"""Connections of the parent process, referenced so that a forked child does not close them."""


class _Database:
    """A database that is created on first use, and again in a forked child."""

    def __init__(self, threads: int | None = None) -> None:
        self._threads = threads
        self._lock = threading.Lock()
        self._connection: Any = None
        self._has_geometry = False
        reset_after_fork(self, _Database._reset)

    def connect(self, *, with_geometry: bool) -> Any:
        """Return a new connection to the database, with its functions registered."""
        with self._lock:
            if self._connection is None:
                self._connection = _new_database(self._threads)
                self._has_geometry = False
            if with_geometry and not self._has_geometry:
                _add_geometry(self._connection)
                self._has_geometry = True
            return self._connection.cursor()

    def _reset(self) -> None:
        self._lock = threading.Lock()
        if self._connection is not None:
            # Closing it would wait for threads that exist in the parent only.
            _OF_PARENTS.append(self._connection)
        self._connection = None


def _new_database(threads: int | None = None) -> Any:
    connection = duckdb_module().connect(":memory:")
    if threads is not None:
        connection.execute(f"SET threads = {threads}")
    connection.execute("SET enable_external_access = false")
    connection.execute("SET lock_configuration = true")
    return connection


_SHARED: Final = _Database()
_ALONE: Final = _Database(threads=1)
