"""A namespace in an Iceberg REST catalog.

    IcebergNamespace(endpoint="http://localhost:8181", root="s3://bucket/lake")
    ["sales", "orders"]     the table `orders` of the namespace `sales`

The catalog stores Iceberg tables only, so a Lance table has an entry with one unused column, the
location of the Lance table, and the property `table_type = lance`.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Iterator, Mapping
from contextvars import copy_context
from typing import Any, Final, TypeVar

from lance_namespace import InvalidInputError, NamespaceNotEmptyError, TableNotFoundError

from lancelet import surroundings
from lancelet.namespace.context import DynamicContextProvider
from lancelet.namespace.credentials import OAuthServer
from lancelet.namespace.external import (
    LANCE,
    TABLE_TYPE,
    ExternalCatalog,
    ExternalNamespace,
    ExternalTable,
    is_lance,
)
from lancelet.namespace.json_client import (
    JsonClient,
    JsonError,
    client_of,
    pages_of,
    quoted,
)
from lancelet.namespace.operations import already_exists, no_namespace, not_found, text_of

T = TypeVar("T")

SEPARATOR: Final = "\x1f"
"""Joins the parts of a namespace in a path."""

_OAUTH: Final = OAuthServer("v1/oauth/tokens", "catalog")
_VARIABLES: Final = {
    "endpoint": "PYICEBERG_CATALOG__DEFAULT__URI",
    "auth_token": "PYICEBERG_CATALOG__DEFAULT__TOKEN",
    "credential": "PYICEBERG_CATALOG__DEFAULT__CREDENTIAL",
    "oauth2_server_uri": "PYICEBERG_CATALOG__DEFAULT__OAUTH2_SERVER_URI",
    "scope": "PYICEBERG_CATALOG__DEFAULT__SCOPE",
    "warehouse": "PYICEBERG_CATALOG__DEFAULT__WAREHOUSE",
}

_LOAD_THREADS: Final = 8

_COLUMN: Final = {"id": 1, "name": "dummy", "required": False, "type": "string"}


class IcebergNamespace(ExternalNamespace):
    """A namespace in an Iceberg REST catalog."""

    def __init__(
        self, context_provider: DynamicContextProvider | None = None, **properties: str
    ) -> None:
        """Connect to a server.

        Args:
            context_provider: Called before each operation, as in `RestNamespace`.
            **properties: `endpoint`; `prefix` and `warehouse` of the catalog; `auth_token`, or
                `credential`, such as `id:secret`, with `scope` and `oauth2_server_uri`, by default
                the variables of PyIceberg for the catalog `default`; `read_timeout` in seconds;
                `root`, the folder of new tables; and `storage.x` for each storage option `x`.
        """
        client, given = client_of(properties, "iceberg", _OAUTH, _VARIABLES, path="v1")
        catalog = _Iceberg(client, given.get("prefix"), given.get("warehouse"))
        super().__init__(catalog, given, context_provider)


class IcebergRequests(ExternalCatalog):
    """Requests with the pages and errors of the Iceberg REST API."""

    def __init__(self, client: JsonClient) -> None:
        """Use a client."""
        self._client = client

    def _pages(
        self, target: str, query: Mapping[str, str], path: tuple[str, ...]
    ) -> Iterator[dict[str, Any]]:
        def send(query: dict[str, str]) -> dict[str, Any]:
            return self._call(path, lambda: self._client.send("GET", target, query=query))

        return pages_of(send, query, parameter="pageToken", following="next-page-token")

    def tables(self, path: tuple[str, ...]) -> list[str]:
        """Return the names of the Lance tables of a namespace."""
        return list(self.entries(path))

    def _entries(self, path: tuple[str, ...], target: str) -> Mapping[str, ExternalTable]:
        """Load the tables of a listing, and return those of Lance by name."""

        def load(name: str) -> ExternalTable | None:
            try:
                return self._lance_table(self._load((*path, name)))
            except TableNotFoundError:  # dropped since it was listed
                return None

        pages = self._pages(target, {}, path)
        names = [each["name"] for page in pages for each in page.get("identifiers") or ()]
        context = copy_context()
        with surroundings.executor(_LOAD_THREADS, "lancelet-catalog") as pool:
            found = list(pool.map(lambda name: context.copy().run(load, name), names))
        return {name: table for name, table in zip(names, found, strict=True) if table is not None}

    @abstractmethod
    def _load(self, path: tuple[str, ...]) -> dict[str, Any]:
        """Return the content of an entry."""

    @abstractmethod
    def _lance_table(self, found: Mapping[str, Any]) -> ExternalTable | None:
        """Return the entry of a Lance table, or None for other tables."""

    def _call(
        self, path: tuple[str, ...], request: Callable[[], T], *, is_table: bool = False
    ) -> T:
        try:
            return request()
        except JsonError as error:
            text = str(error).lower()
            if error.status == 404:
                is_missing = is_table and "namespace" not in text
                raise (
                    not_found(path) if is_missing else no_namespace(path[:-1] if is_table else path)
                ) from error
            if error.status == 409 and "not empty" in text:
                raise NamespaceNotEmptyError(f"Namespace not empty: {text_of(path)}") from error
            if error.status == 409:
                raise already_exists(path, is_table=is_table) from error
            raise InvalidInputError(f"Invalid input: {error}") from error


class _Iceberg(IcebergRequests):
    def __init__(self, client: JsonClient, prefix: str | None, warehouse: str | None) -> None:
        super().__init__(client)
        self._warehouse = warehouse
        self._given_prefix = prefix

    @property
    def name(self) -> str:
        return f"Iceberg catalog at {self._client.base}"

    @property
    def _prefix(self) -> str:
        """The prefix of paths, which the server gives for a warehouse."""
        if self._given_prefix is None:
            query = {} if self._warehouse is None else {"warehouse": self._warehouse}
            config = self._call((), lambda: self._client.send("GET", "config", query=query))
            settings = {**(config.get("defaults") or {}), **(config.get("overrides") or {})}
            self._given_prefix = str(settings.get("prefix") or "")
        return f"{self._given_prefix.strip('/')}/" if self._given_prefix else ""

    def namespaces(self, parent: tuple[str, ...]) -> list[str]:
        query = {"parent": SEPARATOR.join(parent)} if parent else {}
        pages = self._pages(f"{self._prefix}namespaces", query, parent)
        return [found[-1] for page in pages for found in page.get("namespaces") or ()]

    def namespace(self, path: tuple[str, ...]) -> dict[str, str]:
        found = self._call(path, lambda: self._client.send("GET", self._folder(path)))
        return dict(found.get("properties") or {})

    def create_namespace(self, path: tuple[str, ...], properties: Mapping[str, str]) -> None:
        body = {"namespace": list(path), "properties": dict(properties)}
        target = f"{self._prefix}namespaces"
        self._call(path, lambda: self._client.send("POST", target, body))

    def drop_namespace(self, path: tuple[str, ...]) -> None:
        self._call(path, lambda: self._client.send("DELETE", self._folder(path)))

    def entries(self, path: tuple[str, ...]) -> Mapping[str, ExternalTable]:
        return self._entries(path, f"{self._folder(path)}/tables")

    def table(self, path: tuple[str, ...]) -> ExternalTable:
        found = self._load(path)
        table = self._lance_table(found)
        if table is None:
            raise InvalidInputError(
                f"Invalid input: {text_of(path)} is no Lance table: its property {TABLE_TYPE} is "
                f"{(found.get('properties') or {}).get(TABLE_TYPE)}"
            )
        return table

    def create_table(self, path: tuple[str, ...], table: ExternalTable) -> None:
        body = {
            "name": path[-1],
            "location": table.location,
            "schema": {"type": "struct", "schema-id": 0, "fields": [_COLUMN]},
            "properties": {**table.properties, TABLE_TYPE: LANCE},
        }
        target = f"{self._folder(path[:-1])}/tables"
        self._call(path, lambda: self._client.send("POST", target, body), is_table=True)

    def delete_table(self, path: tuple[str, ...]) -> None:
        query = {"purgeRequested": "false"}
        self._call(
            path,
            lambda: self._client.send("DELETE", self._entry(path), query=query),
            is_table=True,
        )

    def rename_table(self, path: tuple[str, ...], target: tuple[str, ...]) -> None:
        source, destination = (
            {"namespace": list(each[:-1]), "name": each[-1]} for each in (path, target)
        )
        body = {"source": source, "destination": destination}
        renames = f"{self._prefix}tables/rename"
        try:
            self._client.send("POST", renames, body)
        except JsonError as error:
            if error.status == 409:
                raise already_exists(target, is_table=True) from error
            if error.status == 404:
                is_source = "table" in str(error).lower()
                raise (not_found(path) if is_source else no_namespace(target[:-1])) from error
            raise InvalidInputError(f"Invalid input: {error}") from error

    def _load(self, path: tuple[str, ...]) -> dict[str, Any]:
        found = self._call(path, lambda: self._client.send("GET", self._entry(path)), is_table=True)
        return dict(found.get("metadata") or {})

    def _lance_table(self, found: Mapping[str, Any]) -> ExternalTable | None:
        properties = found.get("properties") or {}
        return ExternalTable(found["location"], dict(properties)) if is_lance(properties) else None

    def _folder(self, path: tuple[str, ...]) -> str:
        return f"{self._prefix}namespaces/{quoted(SEPARATOR.join(path))}"

    def _entry(self, path: tuple[str, ...]) -> str:
        return f"{self._folder(path[:-1])}/tables/{quoted(path[-1])}"
