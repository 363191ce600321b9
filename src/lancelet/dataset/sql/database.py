"""Connections of DuckDB for queries, of which those that only read share one database.

To make a database takes DuckDB twenty milliseconds, ten times as long as a small query. What a
connection registers is known to it alone, and a statement that selects leaves nothing behind:

    SELECT ...            a connection to the database that this process keeps
    anything else         a connection to a database of its own, which goes with it

Queries over little data share another database, which has one thread.
"""

from __future__ import annotations

import threading
from functools import lru_cache, partial
from typing import Any, Final

import pyarrow as pa

from lancelet.errors import UnsupportedError
from lancelet.io.fork import renew_after_fork
from lancelet.query.functions.base import Function
from lancelet.query.functions.geometry import GEOMETRY_FUNCTIONS, call_on_columns

_GEOMETRIC: Final = "st_"
"""How the names of functions of geometries begin."""
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
        raise UnsupportedError("SQL is run by DuckDB; install `lancelet[sql]`") from error
    return duckdb


def connect(query: str, *, alone: bool = False) -> Any:
    """Return a connection for a query, which reads nothing but what is registered with it.

    The caller closes it. A query that cannot be parsed is an error of DuckDB. One that runs
    `alone` has a single thread: to wake others takes longer than a few thousand rows.
    """
    with_geometry = _GEOMETRIC in query.lower()
    if only_selects(query):
        return (_ALONE if alone else _SHARED).connect(with_geometry=with_geometry)
    connection = _new_database()
    if with_geometry:
        _add_geometry(connection)
    return connection


def _add_geometry(connection: Any) -> None:
    """Register the functions of geometries; they live as long as the connection."""
    for function in GEOMETRY_FUNCTIONS:
        gives = function.gives
        assert not callable(gives), "they give the same type for all arguments"
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
    """Return whether a query is a single statement that leaves nothing behind."""
    duckdb = duckdb_module()
    kinds = [statement.type for statement in duckdb.extract_statements(query)]
    return bool(kinds == [duckdb.StatementType.SELECT])


_OF_PARENTS: Final[list[Any]] = []
"""Connections of the process that forked this one."""


class _Database:
    """A database that is made when it is first asked for; a forked child makes its own."""

    def __init__(self, threads: int | None = None) -> None:
        self._threads = threads
        self._lock = threading.Lock()
        self._connection: Any = None
        self._has_geometry = False
        renew_after_fork(self, _Database._renew)

    def connect(self, *, with_geometry: bool) -> Any:
        """Return a new connection to the database, whose statements can call its functions."""
        with self._lock:
            if self._connection is None:
                self._connection = _new_database(self._threads)
                self._has_geometry = False
            if with_geometry and not self._has_geometry:
                _add_geometry(self._connection)
                self._has_geometry = True
            return self._connection.cursor()

    def _renew(self) -> None:
        self._lock = threading.Lock()
        if self._connection is not None:
            # To close it would wait for threads that only the parent has.
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
