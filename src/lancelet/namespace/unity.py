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

_API: Final = "/api/2.1/unity-catalog"
_PAGE: Final = "100"
_OAUTH: Final = OAuthServer("oidc/v1/token", "all-apis", has_client_in_header=True)
_VARIABLES: Final = {
    "endpoint": "DATABRICKS_HOST",
    "auth_token": "DATABRICKS_TOKEN",
    "client_id": "DATABRICKS_CLIENT_ID",
    "client_secret": "DATABRICKS_CLIENT_SECRET",
}


class UnityNamespace(ExternalNamespace):
    """A namespace in Unity Catalog."""

    def __init__(
        self, context_provider: DynamicContextProvider | None = None, **properties: str
    ) -> None:
        """Connect to a server.

        Args:
            context_provider: Called before each operation, as in `RestNamespace`.
            **properties: `endpoint` and `catalog`; `auth_token`, or `client_id` and
                `client_secret`, by default the variables of Databricks, such as
                `DATABRICKS_TOKEN`; `api_path`, by default `/api/2.1/unity-catalog`;
                `read_timeout` in seconds; `root`, the folder of new tables; and `storage.x` for
                each storage option `x`.
        """
        client, given = client_of(properties, "unity", _OAUTH, _VARIABLES, path=_API)
        if "catalog" not in given:
            raise OurInvalidInputError("a Unity namespace requires the property `catalog`")
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
        # The service refuses to delete a schema with tables that were created since.
        self._call(path, lambda: self._client.send("DELETE", schema))

    def tables(self, path: tuple[str, ...]) -> list[str]:
        return list(self.entries(path))

    def entries(self, path: tuple[str, ...]) -> Mapping[str, ExternalTable]:
        if len(path) == 1:
            self._check(path)
            return {}
        self._schema(path)
        query = {"catalog_name": self._catalog, "schema_name": path[-1]}
        pages = self._pages("tables", query, path)
        return {each["name"]: _table(each) for each in pages if _is_lance(each)}

    def table(self, path: tuple[str, ...]) -> ExternalTable:
        found = self._call(path, lambda: self._client.send("GET", self._table(path)))
        if not _is_lance(found):
            raise InvalidInputError(
                f"Invalid input: {text_of(path)} is no Lance table; its type is "
                f"{found.get('table_type')} and its property {TABLE_TYPE} is "
                f"{(found.get('properties') or {}).get(TABLE_TYPE)}"
            )
        return _table(found)

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
            if "with tables" in str(error).lower() or "not empty" in str(error).lower():
                raise NamespaceNotEmptyError(f"Namespace not empty: {text_of(path)}") from error
            # The server answers 400 to duplicates in some releases.
            if error.status == 409 or "already exists" in str(error).lower():
                raise already_exists(path, is_table=is_table) from error
            raise InvalidInputError(f"Invalid input: {error}") from error


def _table(found: Mapping[str, Any]) -> ExternalTable:
    return ExternalTable(found["storage_location"], dict(found["properties"]))


def _is_lance(table: Mapping[str, Any]) -> bool:
    return table.get("table_type") == "EXTERNAL" and is_lance(table.get("properties"))
