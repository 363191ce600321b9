"""A Hive metastore on loopback, in memory, with the exceptions and messages of Hive 2.3.

    with HiveServer() as server:
        HiveNamespace(uri=server.uri)

A test can let the next call fail, close the connection before it takes effect, before its reply, or
after its reply:

    server.fault = "fail"     "refuse"     "lose_reply"     "close"
"""

import io
import re
import socketserver
import threading
from typing import Any, Self

from lancelet.namespace.thrift import (
    Kind,
    Struct,
    content_of,
    read_message,
    record,
    text,
    text_map,
    texts,
    write_message,
)

Pair = tuple[str, str]

_META_EXCEPTION = {"get_all": 1, "get_tab": 1, "get_dat": 2, "drop_ta": 2, "alter_t": 2}
"""The field of a `MetaException` in the results of methods, by the start of their names."""


class RefusedError(Exception):
    """An exception of the metastore: the number of its field in the result, and a message."""

    def __init__(self, number: int, message: str) -> None:
        super().__init__(message)
        self.number = number


class HiveServer:
    """A metastore with the database `default`."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.databases: dict[str, Struct] = {}
        self.tables: dict[Pair, Struct] = {}
        self.calls: list[str] = []
        self.users: list[tuple[str, list[str]]] = []
        self.fault: str | None = None
        self.create_database({1: record({1: text("default")})})
        owner = self

        class Handler(socketserver.StreamRequestHandler):
            def handle(self) -> None:
                assert isinstance(self.rfile, io.BufferedReader)
                while self.rfile.peek(1) and owner.answer(self.rfile, self.wfile):
                    pass

        class Server(socketserver.ThreadingTCPServer):
            daemon_threads = True
            block_on_close = False

        self._server = Server(("127.0.0.1", 0), Handler)
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.01,))

    @property
    def uri(self) -> str:
        return f"thrift://127.0.0.1:{self._server.server_address[1]}"

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()

    def answer(self, source: Any, target: Any) -> bool:
        """Answer one call; return whether to keep the connection."""
        _, name, sequence, arguments = read_message(source)
        with self.lock:
            self.calls.append(name)
            fault, self.fault = self.fault, None
            method = getattr(self, name, None)
            if method is None:
                unknown = {1: text(f"Invalid method name: '{name}'"), 2: (Kind.I32, 1)}
                target.write(write_message(3, name, sequence, unknown))
                return True
            if fault == "refuse":
                return False
            try:
                result = self._failure(name) if fault == "fail" else method(arguments)
            except RefusedError as error:
                result = {error.number: record({1: text(str(error))})}
        if fault == "lose_reply":
            return False
        target.write(write_message(2, name, sequence, result))
        return fault != "close"

    def _failure(self, name: str) -> Struct:
        return {_META_EXCEPTION.get(name[:7], 3): record({1: text("a planned failure")})}

    def set_ugi(self, arguments: Struct) -> Struct:
        self.users.append((content_of(arguments, 1), content_of(arguments, 2)))
        return {0: texts([])}

    def get_all_databases(self, _: Struct) -> Struct:
        return {0: texts(sorted(self.databases))}

    def get_database(self, arguments: Struct) -> Struct:
        return {0: record(self._database(content_of(arguments, 1), missing=1))}

    def create_database(self, arguments: Struct) -> Struct:
        database = content_of(arguments, 1)
        name = content_of(database, 1).lower()
        if not re.fullmatch(r"\w+", name):
            raise RefusedError(2, f"{name} is not a valid database name")
        if name in self.databases:
            raise RefusedError(1, f"Database {name} already exists")
        location = content_of(database, 3) or f"/warehouse/{name}.db"
        location = f"file:{location}" if location.startswith("/") else location
        self.databases[name] = {**database, 1: text(name), 3: text(location)}
        return {}

    def drop_database(self, arguments: Struct) -> Struct:
        name = content_of(arguments, 1).lower()
        self._database(name, missing=1)
        if any(database == name for database, _ in self.tables):
            raise RefusedError(2, f"Database {name} is not empty. One or more tables exist.")
        del self.databases[name]
        return {}

    def get_all_tables(self, arguments: Struct) -> Struct:
        name = content_of(arguments, 1).lower()
        return {0: texts(sorted(table for database, table in self.tables if database == name))}

    def get_table_req(self, arguments: Struct) -> Struct:
        return {0: record({1: record(self._table(self._pair_of(arguments), missing=2))})}

    def get_table(self, arguments: Struct) -> Struct:
        return {0: record(self._table(self._pair_of({1: record(arguments)}), missing=2))}

    def get_table_objects_by_name_req(self, arguments: Struct) -> Struct:
        request = content_of(arguments, 1)
        database = content_of(request, 1).lower()
        found = [self.tables.get((database, name.lower())) for name in content_of(request, 2)]
        tables = [each for each in found if each is not None]
        return {0: record({1: (Kind.LIST, (Kind.STRUCT, tables))})}

    def create_table(self, arguments: Struct) -> Struct:
        table = content_of(arguments, 1)
        pair = content_of(table, 2).lower(), content_of(table, 1).lower()
        if not re.fullmatch(r"\w+", pair[1]):
            raise RefusedError(2, f"{pair[1]} is not a valid object name")
        if pair[0] not in self.databases:
            raise RefusedError(2, pair[0])
        if pair in self.tables:
            raise RefusedError(1, f"Table {pair[1]} already exists")
        self._store(pair, table)
        return {}

    def drop_table(self, arguments: Struct) -> Struct:
        pair = content_of(arguments, 1).lower(), content_of(arguments, 2).lower()
        self._table(pair, missing=1)
        del self.tables[pair]
        return {}

    def alter_table_with_environment_context(self, arguments: Struct) -> Struct:
        pair = content_of(arguments, 1).lower(), content_of(arguments, 2).lower()
        renamed = content_of(arguments, 3)
        target = content_of(renamed, 2).lower(), content_of(renamed, 1).lower()
        if target != pair and target in self.tables:
            raise RefusedError(1, f"new table {'.'.join(target)} already exists")
        previous = content_of(self._table(pair, missing=1), 9)
        if target[0] not in self.databases:
            raise RefusedError(
                1,
                "Unable to change partition or table. "
                f"Database {target[0]} does not exist Check metastore logs for detailed stack.",
            )
        context = content_of(content_of(arguments, 4), 1)
        key, expected = (context.get(f"expected_parameter_{each}") for each in ("key", "value"))
        if key is not None and previous.get(key) != expected:
            raise RefusedError(
                2,
                f"The table has been modified. The parameter value for key '{key}' is "
                f"'{previous.get(key)}'. The expected was value was '{expected}'",
            )
        del self.tables[pair]
        self._store(target, renamed)
        return {}

    def _store(self, pair: Pair, table: Struct) -> None:
        storage = dict(content_of(table, 7))
        location = content_of(storage, 2)
        storage[2] = text(f"file:{location}" if location.startswith("/") else location)
        parameters = {"transient_lastDdlTime": "0", **content_of(table, 9, {})}
        self.tables[pair] = {
            **table,
            1: text(pair[1]),
            2: text(pair[0]),
            4: (Kind.I32, 1),
            7: record(storage),
            9: text_map(parameters),
        }

    def _database(self, name: str, *, missing: int) -> Struct:
        if name.lower() not in self.databases:
            raise RefusedError(missing, name.lower())
        return self.databases[name.lower()]

    def _table(self, pair: Pair, *, missing: int) -> Struct:
        if pair not in self.tables:
            raise RefusedError(missing, f"{'.'.join(pair)} table not found")
        return self.tables[pair]

    def _pair_of(self, arguments: Struct) -> Pair:
        request = content_of(arguments, 1)
        return content_of(request, 1).lower(), content_of(request, 2).lower()
