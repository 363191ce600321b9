"""A namespace in Unity Catalog: the schemas of one catalog are namespaces.

    UnityNamespace(endpoint="http://localhost:8080", catalog="lake", root="s3://bucket/lake")
    ["lake", "sales", "orders"]     the table `orders` of the schema `sales`

Lance tables are external tables with the property `table_type = lance`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final, TypeVar

from lance_namespace import (
    InvalidInputError,
    NamespaceNotEmptyError,
    UnsupportedOperationError,
)

from lancelet.errors import InvalidInputError as OurInvalidInputError
from lancelet.namespace.context import DynamicContextProvider
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
    settings_of,
)
from lancelet.namespace.operations import already_exists, no_namespace, not_found, text_of

T = TypeVar("T")

_API: Final = "/api/2.1/unity-catalog"
_PAGE: Final = "100"


class UnityNamespace(ExternalNamespace):
    """A namespace in Unity Catalog."""

    def __init__(
        self, context_provider: DynamicContextProvider | None = None, **properties: str
    ) -> None:
        """Connect to a server.

        Args:
            context_provider: Called before each operation, as in `RestNamespace`.
            **properties: `endpoint` and `catalog`; `auth_token`; `api_path`, by default
                `/api/2.1/unity-catalog`; `read_timeout` in seconds; `root`, the folder of new
                tables; and `storage.x` for each storage option `x`.
        """
        given = settings_of(properties, "unity")
        if "catalog" not in given:
            raise OurInvalidInputError("a Unity namespace requires the property `catalog`")
        client = client_of(given, "unity", path=given.get("api_path", _API))
        super().__init__(_Unity(client, given["catalog"]), given, context_provider)


class _Unity(ExternalCatalog):
    def __init__(self, client: JsonClient, catalog: str) -> None:
        self._client = client
        self._catalog = catalog

    @property
    def name(self) -> str:
        return f'Unity Catalog: "{self._catalog}" at {self._client.base}'

    def namespaces(self, parent: tuple[str, ...]) -> list[str]:
        if not parent:
            return [self._catalog]
        self._check(parent[:1])
        if len(parent) > 1:
            self.namespace(parent)
            return []
        query = {"catalog_name": self._catalog}
        return [each["name"] for each in self._pages("schemas", query, parent)]

    def namespace(self, path: tuple[str, ...]) -> dict[str, str]:
        if len(path) == 1:
            self._check(path)
            return {}
        found = self._call(path, lambda: self._client.send("GET", self._schema(path)))
        return dict(found.get("properties") or {})

    def create_namespace(self, path: tuple[str, ...], properties: Mapping[str, str]) -> None:
        self._schema(path)
        body = {
            "name": path[-1],
            "catalog_name": self._catalog,
            "properties": dict(properties),
        }
        self._call(path, lambda: self._client.send("POST", "schemas", body))

    def drop_namespace(self, path: tuple[str, ...]) -> None:
        schema = self._schema(path)
        query = {"catalog_name": self._catalog, "schema_name": path[-1]}
        if next(self._pages("tables", query, path), None) is not None:
            raise NamespaceNotEmptyError(f"Namespace not empty: {text_of(path)}")
        self._call(path, lambda: self._client.send("DELETE", schema))

    def tables(self, path: tuple[str, ...]) -> list[str]:
        if len(path) == 1:
            self._check(path)
            return []
        self._schema(path)
        query = {"catalog_name": self._catalog, "schema_name": path[-1]}
        return [each["name"] for each in self._pages("tables", query, path) if _is_lance(each)]

    def table(self, path: tuple[str, ...]) -> ExternalTable:
        found = self._call(path, lambda: self._client.send("GET", self._table(path)))
        if not _is_lance(found):
            raise InvalidInputError(
                f"Invalid input: {text_of(path)} is no Lance table; its type is "
                f"{found.get('table_type')} and its property {TABLE_TYPE} is "
                f"{(found.get('properties') or {}).get(TABLE_TYPE)}"
            )
        return ExternalTable(found["storage_location"], dict(found["properties"]))

    def create_table(self, path: tuple[str, ...], table: ExternalTable) -> None:
        self._table(path)
        body = {
            "name": path[-1],
            "catalog_name": self._catalog,
            "schema_name": path[-2],
            "table_type": "EXTERNAL",
            "data_source_format": "TEXT",  # the catalog has no name for Lance
            "columns": [],
            "storage_location": table.location,
            "properties": {**table.properties, TABLE_TYPE: LANCE},
        }
        self._call(path, lambda: self._client.send("POST", "tables", body))

    def delete_table(self, path: tuple[str, ...]) -> None:
        self._call(path, lambda: self._client.send("DELETE", self._table(path)))

    def _pages(
        self, kind: str, query: Mapping[str, str], path: tuple[str, ...]
    ) -> Iterator[dict[str, Any]]:
        def send(query: dict[str, str]) -> dict[str, Any]:
            return self._call(path, lambda: self._client.send("GET", kind, query=query))

        full = {**query, "max_results": _PAGE}
        for page in pages_of(send, full, parameter="page_token", following="next_page_token"):
            yield from page.get(kind) or ()

    def _check(self, path: tuple[str, ...]) -> None:
        if path[0] != self._catalog:
            raise no_namespace(path[:1])

    def _schema(self, path: tuple[str, ...]) -> str:
        self._check(path)
        if len(path) != 2:
            raise UnsupportedOperationError(
                "Unsupported: namespaces of Unity Catalog are schemas, for example "
                f"['{self._catalog}', 'sales']; found {list(path)}"
            )
        return f"schemas/{quoted('.'.join(path))}"

    def _table(self, path: tuple[str, ...]) -> str:
        self._check(path)
        if len(path) != 3:
            raise InvalidInputError(
                "Invalid input: a table of Unity Catalog has a catalog, a schema and a name; found "
                f"{list(path)}"
            )
        return f"tables/{quoted('.'.join(path))}"

    def _call(self, path: tuple[str, ...], request: Callable[[], T]) -> T:
        try:
            return request()
        except JsonError as error:
            is_table = len(path) > 2
            if error.status == 404:
                is_missing = is_table and "schema" not in str(error).lower()
                raise (not_found(path) if is_missing else no_namespace(path[:2])) from error
            # The server answers 400 to duplicates in some releases.
            if error.status == 409 or "already exists" in str(error).lower():
                raise already_exists(path, is_table=is_table) from error
            raise InvalidInputError(f"Invalid input: {error}") from error


def _is_lance(table: Mapping[str, Any]) -> bool:
    return table.get("table_type") == "EXTERNAL" and is_lance(table.get("properties"))
