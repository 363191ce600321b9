"""Namespaces as pylance's native module has them: requests and answers are dicts.

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
"""The operations that are answered by one field of the answer."""


class _DictNamespace:
    """Passes dicts to a namespace, and makes dicts of its answers."""

    def __init__(self, inner: LanceNamespace) -> None:
        self._inner = inner

    def namespace_id(self) -> str:
        """Return text that identifies the namespace."""
        return str(self._inner.namespace_id())

    def retrieve_ops_metrics(self) -> dict[str, int]:
        """Return how often each operation was asked for, if they are counted."""
        return dict(self._inner.retrieve_ops_metrics())

    def reset_ops_metrics(self) -> None:
        """Begin to count anew."""
        self._inner.reset_ops_metrics()

    def __getattr__(self, name: str) -> Any:
        """Return an operation that takes a dict, and bytes where it takes rows."""
        if name not in ROUTES:
            raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")
        operation = getattr(self._inner, name)

        def ask(request: Mapping[str, Any], *data: bytes) -> Any:
            found = operation(dict(request), *data)
            if name in _PLAIN:
                return getattr(found, _PLAIN[name])
            return found.model_dump() if hasattr(found, "model_dump") else found

        return ask


class PyDirectoryNamespace(_DictNamespace):
    """Names for the tables of a folder; see `DirectoryNamespace`."""

    def __init__(
        self,
        session: Any = None,
        context_provider: DynamicContextProvider | None = None,
        **properties: str,
    ) -> None:
        """Look at a folder."""
        super().__init__(DirectoryNamespace(session, context_provider, **properties))


class PyRestNamespace(_DictNamespace):
    """Names for tables that a server keeps; see `RestNamespace`."""

    def __init__(
        self, context_provider: DynamicContextProvider | None = None, **properties: str
    ) -> None:
        """Talk to a server."""
        super().__init__(RestNamespace(context_provider, **properties))
