"""Namespaces with the API of pylance's native module: requests and responses are dicts.

For example:

    PyDirectoryNamespace(root="tables").list_tables({"id": []})     {"tables": [...], ...}
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from lance_namespace import LanceNamespace

from lancelet.namespace.context import DynamicContextProvider
from lancelet.namespace.directory import DirectoryNamespace
from lancelet.namespace.rest import RestNamespace
from lancelet.namespace.routes import ROUTES

_PLAIN: Final = {"count_table_rows": "count", "query_table": "data"}
"""The operations that return a single field of the response."""


class _DictNamespace:
    """Converts between dicts and the requests and responses of a namespace."""

    def __init__(self, inner: LanceNamespace) -> None:
        self._inner = inner

    def namespace_id(self) -> str:
        """Return a text that identifies the namespace."""
        return str(self._inner.namespace_id())

    def retrieve_ops_metrics(self) -> dict[str, int]:
        """Return the number of calls per operation, if enabled."""
        return dict(self._inner.retrieve_ops_metrics())

    def reset_ops_metrics(self) -> None:
        """Reset the counts."""
        self._inner.reset_ops_metrics()

    def __getattr__(self, name: str) -> Any:
        """Return an operation that accepts a dict, and bytes for operations with rows."""
        if name not in ROUTES:
            raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")
        operation = getattr(self._inner, name)

        def call(request: Mapping[str, Any], *data: bytes) -> Any:
            found = operation(dict(request), *data)
            if name in _PLAIN:
                return getattr(found, _PLAIN[name])
            return found.model_dump() if hasattr(found, "model_dump") else found

        return call


class PyDirectoryNamespace(_DictNamespace):
    """A namespace of the tables in a folder; see `DirectoryNamespace`."""

    def __init__(
        self,
        session: Any = None,
        context_provider: DynamicContextProvider | None = None,
        **properties: str,
    ) -> None:
        """Open a folder."""
        super().__init__(DirectoryNamespace(session, context_provider, **properties))


class PyRestNamespace(_DictNamespace):
    """A namespace on a server; see `RestNamespace`."""

    def __init__(
        self, context_provider: DynamicContextProvider | None = None, **properties: str
    ) -> None:
        """Connect to a server."""
        super().__init__(RestNamespace(context_provider, **properties))
