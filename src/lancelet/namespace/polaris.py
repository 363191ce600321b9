"""A namespace in Apache Polaris: Lance tables are generic tables.

    PolarisNamespace(endpoint="http://localhost:8181", auth_token="...")
    ["lake", "sales", "orders"]     catalog `lake`, namespace `sales`, table `orders`

Generic tables have a format, here `lance`, and a location.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from lance_namespace import InvalidInputError, UnsupportedOperationError

from lancelet.namespace.context import DynamicContextProvider
from lancelet.namespace.credentials import OAuthServer
from lancelet.namespace.external import (
    LANCE,
    TABLE_TYPE,
    ExternalNamespace,
    ExternalTable,
)
from lancelet.namespace.iceberg_rest import SEPARATOR, IcebergRequests
from lancelet.namespace.json_client import client_of, quoted
from lancelet.namespace.operations import text_of

_ICEBERG: Final = "api/catalog/v1"
_GENERIC: Final = "api/catalog/polaris/v1"
_OAUTH: Final = OAuthServer("api/catalog/v1/oauth/tokens", "PRINCIPAL_ROLE:ALL")
_VARIABLES: Final = {"client_id": "CLIENT_ID", "client_secret": "CLIENT_SECRET"}


class PolarisNamespace(ExternalNamespace):
    """A namespace in Apache Polaris."""

    def __init__(
        self, context_provider: DynamicContextProvider | None = None, **properties: str
    ) -> None:
        """Connect to a server.

        Args:
            context_provider: Called before each operation, as in `RestNamespace`.
            **properties: `endpoint`; `auth_token`, or `credential`, such as `id:secret`, with
                `scope`, by default the variables `CLIENT_ID` and `CLIENT_SECRET` of the command
                line of Polaris; `read_timeout` in seconds; `root`, the folder of new tables; and
                `storage.x` for each storage option `x`.
        """
        client, given = client_of(properties, "polaris", _OAUTH, _VARIABLES)
        super().__init__(_Polaris(client), given, context_provider)


class _Polaris(IcebergRequests):
    @property
    def name(self) -> str:
        return f"Polaris at {self._client.base}"

    def namespaces(self, parent: tuple[str, ...]) -> list[str]:
        if not parent:
            raise UnsupportedOperationError(
                "Unsupported: Polaris does not list catalogs; start with the name of a catalog"
            )
        query = {"parent": SEPARATOR.join(parent[1:])} if len(parent) > 1 else {}
        pages = self._pages(f"{_ICEBERG}/{quoted(parent[0])}/namespaces", query, parent)
        return [found[-1] for page in pages for found in page.get("namespaces") or ()]

    def namespace(self, path: tuple[str, ...]) -> dict[str, str]:
        if len(path) == 1:
            self.namespaces(path)
            return {}
        found = self._call(path, lambda: self._client.send("GET", _folder(_ICEBERG, path)))
        return dict(found.get("properties") or {})

    def create_namespace(self, path: tuple[str, ...], properties: Mapping[str, str]) -> None:
        _folder(_ICEBERG, path)
        body = {"namespace": list(path[1:]), "properties": dict(properties)}
        target = f"{_ICEBERG}/{quoted(path[0])}/namespaces"
        self._call(path, lambda: self._client.send("POST", target, body))

    def drop_namespace(self, path: tuple[str, ...]) -> None:
        self._call(path, lambda: self._client.send("DELETE", _folder(_ICEBERG, path)))

    def entries(self, path: tuple[str, ...]) -> Mapping[str, ExternalTable]:
        if len(path) == 1:
            return {}
        return self._entries(path, f"{_folder(_GENERIC, path)}/generic-tables")

    def table(self, path: tuple[str, ...]) -> ExternalTable:
        found = self._load(path)
        table = self._lance_table(found)
        if table is None:
            raise InvalidInputError(
                f"Invalid input: {text_of(path)} is no Lance table; its format is "
                f"{found.get('format')}"
            )
        return table

    def create_table(self, path: tuple[str, ...], table: ExternalTable) -> None:
        body = {
            "name": path[-1],
            "format": LANCE,
            "base-location": table.location,
            "properties": {**table.properties, TABLE_TYPE: LANCE},
        }
        target = f"{_folder(_GENERIC, path[:-1])}/generic-tables"
        self._call(path, lambda: self._client.send("POST", target, body), is_table=True)

    def delete_table(self, path: tuple[str, ...]) -> None:
        self._call(path, lambda: self._client.send("DELETE", _entry(path)), is_table=True)

    def _load(self, path: tuple[str, ...]) -> dict[str, Any]:
        found = self._call(path, lambda: self._client.send("GET", _entry(path)), is_table=True)
        return dict(found.get("table") or {})

    def _lance_table(self, found: Mapping[str, Any]) -> ExternalTable | None:
        if str(found.get("format", "")).lower() != LANCE:
            return None
        return ExternalTable(found["base-location"], dict(found.get("properties") or {}))


def _folder(api: str, path: tuple[str, ...]) -> str:
    """Return the path of a namespace within an API."""
    if len(path) < 2:
        raise InvalidInputError(
            "Invalid input: namespaces of Polaris start with a catalog, for example "
            f"['lake', 'sales']; found {list(path)}"
        )
    return f"{api}/{quoted(path[0])}/namespaces/{quoted(SEPARATOR.join(path[1:]))}"


def _entry(path: tuple[str, ...]) -> str:
    return f"{_folder(_GENERIC, path[:-1])}/generic-tables/{quoted(path[-1])}"
