"""A namespace in a Hive metastore: databases are namespaces.

    HiveNamespace(uri="thrift://localhost:9083", root="s3://bucket/lake")
    ["sales", "orders"]     the table `orders` of the database `sales`

Lance tables have the parameter `table_type = lance`. Each entry made here also has a random
`lancelet.entry`, which a rename replaces if it has not changed: the metastore stores all fields of
the renamed entry, and would overwrite an entry that another program made since it was read.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from typing import Any, Final
from urllib.parse import urlsplit

from lance_namespace import (
    ConcurrentModificationError,
    InvalidInputError,
    LanceNamespaceError,
    NamespaceNotEmptyError,
    PermissionDeniedError,
    ServiceUnavailableError,
    UnsupportedOperationError,
)

from lancelet import surroundings
from lancelet.errors import InvalidInputError as OurInvalidInputError
from lancelet.errors import redacted
from lancelet.namespace.context import DynamicContextProvider
from lancelet.namespace.external import (
    LANCE,
    TABLE_TYPE,
    ExternalCatalog,
    ExternalNamespace,
    ExternalTable,
    database_and_table,
    database_of,
    is_lance,
)
from lancelet.namespace.json_client import seconds_of, settings_of
from lancelet.namespace.operations import (
    OutcomeUnknownError,
    already_exists,
    no_namespace,
    not_found,
    text_of,
)
from lancelet.namespace.thrift import (
    Field,
    Kind,
    LostReplyError,
    Struct,
    ThriftClient,
    ThriftConnection,
    ThriftError,
    content_of,
    flag,
    record,
    text,
    text_map,
    texts,
)

_PORT: Final = 9083
_TABLES_PER_CALL: Final = 500
_ENTRY: Final = "lancelet.entry"
_EXTERNAL: Final = "EXTERNAL"
_FILE: Final = re.compile(r"file:(//)?(?=/)")

_EXCEPTIONS: Final[Mapping[str, tuple[str, ...]]] = {
    "alter_table_with_environment_context": ("InvalidOperation", "Meta"),
    "create_database": ("AlreadyExists", "InvalidObject", "Meta"),
    "create_table": ("AlreadyExists", "InvalidObject", "Meta", "NoSuchObject"),
    "drop_database": ("NoSuchObject", "InvalidOperation", "Meta"),
    "drop_table": ("NoSuchObject", "Meta"),
    "get_all_databases": ("Meta",),
    "get_all_tables": ("Meta",),
    "get_database": ("NoSuchObject", "Meta"),
    "get_table_objects_by_name_req": ("Meta", "InvalidOperation", "UnknownDB"),
    "get_table_req": ("Meta", "NoSuchObject"),
}
"""The exceptions of each method, in fields 1, 2 and so on of its result."""

_PERHAPS_NO_DATABASE: Final = {("create_table", "InvalidObject"), ("drop_database", "Meta")}
"""The exceptions whose message does not tell whether the database exists."""

_MISSING: Final = ("doesn't exist", "does not exist", "not found")


# Numbers of fields, in the interface of the metastore.
class _Database:
    NAME, DESCRIPTION, LOCATION, PARAMETERS, OWNER = 1, 2, 3, 4, 6


class _Table:
    NAME, DATABASE, STORAGE, PARTITION_KEYS, PARAMETERS, TYPE = 1, 2, 7, 8, 9, 12


class _Storage:
    COLUMNS, LOCATION, INPUT, OUTPUT, SERDE = 1, 2, 3, 4, 7


_SERDE_LIBRARY: Final = 2

_NO_COLUMNS: Final[Field] = (Kind.LIST, (Kind.STRUCT, []))

_TEXT_FORMAT: Final[Struct] = {
    _Storage.INPUT: text("org.apache.hadoop.mapred.TextInputFormat"),
    _Storage.OUTPUT: text("org.apache.hadoop.hive.ql.io.HiveIgnoreKeyTextOutputFormat"),
    _Storage.SERDE: record(
        {_SERDE_LIBRARY: text("org.apache.hadoop.hive.serde2.lazy.LazySimpleSerDe")}
    ),
}
"""The format that other engines see; the metastore requires one."""


class HiveNamespace(ExternalNamespace):
    """A namespace in a Hive metastore, of Hive 2.3 or later."""

    def __init__(
        self, context_provider: DynamicContextProvider | None = None, **properties: str
    ) -> None:
        """Connect to a metastore.

        Args:
            context_provider: Called before each operation, as in `RestNamespace`.
            **properties: `uri`, one or several addresses such as `thrift://localhost:9083`,
                separated by commas; `ugi`, the user and groups, such as `ann:staff,analysts`;
                `read_timeout` in seconds; `client.pool-size`, the number of idle connections;
                `root`, the folder of new databases and tables, by default that of the metastore;
                and `storage.x` for each storage option `x`.
        """
        given = settings_of(properties, "hive")
        super().__init__(_Hive(given), given, context_provider)


class _Hive(ExternalCatalog):
    def __init__(self, properties: Mapping[str, str]) -> None:
        refused = [name for name in properties if "sasl" in name or "kerberos" in name]
        if any(properties[name].lower() not in {"", "false", "none"} for name in refused):
            raise UnsupportedOperationError(
                f"Unsupported: the property {refused[0]!r}: connections with SASL or Kerberos are "
                "not implemented; use an address of the metastore that does not require them"
            )
        self._addresses = _addresses_of(properties.get("uri", f"thrift://localhost:{_PORT}"))
        self._user, _, groups = properties.get("ugi", "").partition(":")
        self._groups = [group for group in groups.split(",") if group]
        root = properties.get("root")
        self._root = None if root is None else _absolute(root).rstrip("/")
        idle = properties.get("client.pool-size", "3")
        if not idle.isdecimal():
            raise OurInvalidInputError("the property client.pool-size must be a number", found=idle)
        self._client = ThriftClient(
            self._addresses,
            seconds=seconds_of(properties),
            idle_max=int(idle),
            greeting=self._greet,
        )

    @property
    def name(self) -> str:
        return "Hive: " + ", ".join(f"{host}:{port}" for host, port in self._addresses)

    def namespaces(self, parent: tuple[str, ...]) -> list[str]:
        if parent:
            self.namespace(parent)
            return []
        return list(self._call((), "get_all_databases", {}))

    def namespace(self, path: tuple[str, ...]) -> dict[str, str]:
        found = self._database(path)
        described = {
            "location": _plain(content_of(found, _Database.LOCATION, "")),
            "comment": content_of(found, _Database.DESCRIPTION),
            "owner": content_of(found, _Database.OWNER),
        }
        own: dict[str, str] = content_of(found, _Database.PARAMETERS, {})
        return {key: value for key, value in described.items() if value} | own

    def create_namespace(self, path: tuple[str, ...], properties: Mapping[str, str]) -> None:
        name, parameters = _single(path), dict(properties)
        database: Struct = {_Database.NAME: text(name)}
        location = parameters.pop("location", None) or self.root_of(path, is_new=True)
        if location is not None:
            database[_Database.LOCATION] = text(_absolute(location))
        if "comment" in parameters:
            database[_Database.DESCRIPTION] = text(parameters.pop("comment"))
        if "owner" in parameters:
            database[_Database.OWNER] = text(parameters.pop("owner"))
        database[_Database.PARAMETERS] = text_map(parameters)
        self._call(path, "create_database", {1: record(database)})

    def drop_namespace(self, path: tuple[str, ...]) -> None:
        arguments = {1: text(_single(path)), 2: flag(value=False), 3: flag(value=False)}
        self._call(path, "drop_database", arguments)

    def tables(self, path: tuple[str, ...]) -> list[str]:
        return list(self.entries(path))

    def entries(self, path: tuple[str, ...]) -> Mapping[str, ExternalTable]:
        database, found = _single(path), dict[str, ExternalTable]()
        names = self._call(path, "get_all_tables", {1: text(database)})
        if not names:
            self._database(path)  # raises if there is no such database
        for start in range(0, len(names), _TABLES_PER_CALL):
            request = {1: text(database), 2: texts(names[start : start + _TABLES_PER_CALL])}
            tables = self._call(path, "get_table_objects_by_name_req", {1: record(request)})
            found |= {
                content_of(each, _Table.NAME): _entry(each)
                for each in content_of(tables, 1, [])
                if is_lance(content_of(each, _Table.PARAMETERS))
            }
        return found

    def table(self, path: tuple[str, ...]) -> ExternalTable:
        return _entry(self._table(path))

    def create_table(self, path: tuple[str, ...], table: ExternalTable) -> None:
        database, name = _pair(path)
        parameters = {
            **table.properties,
            TABLE_TYPE: LANCE,
            "managed_by": "storage",
            _EXTERNAL: "TRUE",
            _ENTRY: str(surroundings.new_uuid()),
        }
        storage: Struct = {
            _Storage.COLUMNS: _NO_COLUMNS,
            _Storage.LOCATION: text(_absolute(table.location)),
            **_TEXT_FORMAT,
        }
        created: Struct = {
            _Table.NAME: text(name),
            _Table.DATABASE: text(database),
            _Table.STORAGE: record(storage),
            _Table.PARTITION_KEYS: _NO_COLUMNS,
            _Table.PARAMETERS: text_map(parameters),
            _Table.TYPE: text("EXTERNAL_TABLE"),
        }
        self._call(path, "create_table", {1: record(created)})

    def delete_table(self, path: tuple[str, ...]) -> None:
        database, name = _pair(path)
        arguments = {1: text(database), 2: text(name), 3: flag(value=False)}
        self._call(path, "drop_table", arguments)

    def rename_table(self, path: tuple[str, ...], target: tuple[str, ...]) -> None:
        database, name = _pair(path)
        new_database, new_name = _pair(target)
        renamed = self._table(path)
        parameters = content_of(renamed, _Table.PARAMETERS)
        if parameters.get(_EXTERNAL, "").upper() != "TRUE":
            raise UnsupportedOperationError(
                f"Unsupported: the metastore would move the files of {text_of(path)}, because its "
                f"parameter {_EXTERNAL} is not TRUE; deregister it and register its location as "
                f"{text_of(target)}"
            )
        renamed |= {
            _Table.NAME: text(new_name),
            _Table.DATABASE: text(new_database),
            _Table.PARAMETERS: text_map({**parameters, _ENTRY: str(surroundings.new_uuid())}),
        }
        context = {"DO_NOT_UPDATE_STATS": "true"}  # the metastore would list the files
        if _ENTRY in parameters:
            # Metastores with HIVE-26882 compare and replace this parameter in the transaction.
            context["expected_parameter_key"] = _ENTRY
            context["expected_parameter_value"] = parameters[_ENTRY]
        arguments = {
            1: text(database),
            2: text(name),
            3: record(renamed),
            4: record({1: text_map(context)}),
        }
        self._call(path, "alter_table_with_environment_context", arguments, target=target)

    def root_of(self, path: tuple[str, ...], *, is_new: bool = False) -> str | None:
        if self._root is not None:
            return f"{self._root}/{_single(path)}.db"
        if is_new:
            return None  # the metastore chooses
        return _plain(content_of(self._database(path), _Database.LOCATION, "")) or None

    def _greet(self, connection: ThriftConnection) -> None:
        if self._user:
            found = connection.call("set_ugi", {1: text(self._user), 2: texts(self._groups)})
            if 1 in found:
                raise ThriftError(content_of(content_of(found, 1), 1))

    def _database(self, path: tuple[str, ...]) -> Struct:
        found: Struct = self._call(path, "get_database", {1: text(_single(path))})
        return found

    def _table(self, path: tuple[str, ...]) -> Struct:
        """Return the entry of a Lance table, with all its fields."""
        database, name = _pair(path)
        request = record({1: text(database), 2: text(name)})
        found: Struct = content_of(self._call(path, "get_table_req", {1: request}), 1)
        parameters = content_of(found, _Table.PARAMETERS, {})
        if not is_lance(parameters):
            raise InvalidInputError(
                f"Invalid input: {text_of(path)} is no Lance table; its parameter {TABLE_TYPE} is "
                f"{parameters.get(TABLE_TYPE)}"
            )
        return found

    def _call(
        self,
        path: tuple[str, ...],
        method: str,
        arguments: Struct,
        *,
        target: tuple[str, ...] = (),
    ) -> Any:
        """Return the result of a call, and convert its exceptions; only reads are sent again."""
        is_read = method.startswith("get_")
        try:
            result = self._client.call(method, arguments, repeats=is_read)
        except LostReplyError as error:
            message = redacted(f"{self.name} did not answer {method}: {error}")
            if not is_read:
                raise OutcomeUnknownError(message) from error
            raise ServiceUnavailableError(
                f"{message}; the metastore may require SASL, Kerberos or TLS, which are not "
                "implemented"
            ) from error
        for number, kind in enumerate(_EXCEPTIONS[method], 1):
            if number in result:
                message = redacted(str(content_of(content_of(result, number), 1)))
                if (method, kind) in _PERHAPS_NO_DATABASE:
                    self._database(path[:1])  # raises if there is no such database
                failure = ServiceUnavailableError if is_read else OutcomeUnknownError
                raise _converted(kind, message, path, target) or failure(
                    f"the metastore failed: {message}"
                )
        return content_of(result, 0)


def _converted(
    kind: str, message: str, path: tuple[str, ...], target: tuple[str, ...]
) -> LanceNamespaceError | None:
    """Return the error for an exception of the metastore; None if the call failed within it."""
    is_table, lower = len(path) > 1, message.lower()
    is_taken = kind == "AlreadyExists" or (target and "already exists" in lower)
    is_missing = kind in {"NoSuchObject", "UnknownDB"} or (
        kind != "Meta" and any(each in lower for each in _MISSING)
    )
    found: LanceNamespaceError | None = None
    if is_taken:
        found = already_exists(target or path, is_table=is_table)
    elif is_missing:
        is_database = not is_table or "database" in lower
        found = no_namespace((target or path)[:1]) if is_database else not_found(path)
    elif kind == "InvalidOperation" and "not empty" in lower:
        found = NamespaceNotEmptyError(f"Namespace not empty: {text_of(path)}")
    elif kind != "Meta":
        found = InvalidInputError(f"Invalid input: {message}")
    elif "has been modified" in lower:
        found = ConcurrentModificationError(f"{text_of(path)} was changed by another program")
    elif "permission denied" in lower or "accesscontrolexception" in lower:
        found = PermissionDeniedError(message)
    return found


def _entry(table: Struct) -> ExternalTable:
    location = content_of(content_of(table, _Table.STORAGE, {}), _Storage.LOCATION, "")
    return ExternalTable(_plain(location), content_of(table, _Table.PARAMETERS))


def _addresses_of(uris: str) -> list[tuple[str, int]]:
    """Return the hosts and ports of a list of URIs.

    >>> _addresses_of("thrift://a, thrift://b:9000")
    [('a', 9083), ('b', 9000)]
    """
    found = []
    for uri in uris.split(","):
        parts = urlsplit(uri.strip())
        try:
            host, port = parts.hostname, parts.port
        except ValueError:
            host = port = None
        if parts.scheme != "thrift" or not host:
            raise OurInvalidInputError(
                "the uri of a Hive metastore must be like thrift://localhost:9083",
                uri=redacted(uri),
            )
        found.append((host, port or _PORT))
    return found


def _absolute(location: str) -> str:
    """Return a location that means the same to the metastore."""
    is_uri = re.match(r"[\w+.-]+:", location)
    return location if is_uri else os.path.abspath(location)  # noqa: PTH100 - links are kept


def _plain(location: str) -> str:
    """Return the location of a local file without a scheme.

    >>> _plain("file:/lake/sales.db"), _plain("s3://bucket/sales.db")
    ('/lake/sales.db', 's3://bucket/sales.db')
    """
    return _FILE.sub("", location, count=1)


def _single(path: tuple[str, ...]) -> str:
    return database_of(path, "Hive").lower()


def _pair(path: tuple[str, ...]) -> tuple[str, str]:
    database, name = database_and_table(path, "Hive")
    return database.lower(), name.lower()
