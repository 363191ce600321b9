"""Catalogs of the command line; tables have dotted names.

    lancelet ls --catalog hive --property uri=thrift://localhost:9083
    lancelet head sales.orders --catalog hive --property uri=thrift://localhost:9083

Errors of catalogs become errors of lancelet, which have exit codes.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import datetime
from typing import TYPE_CHECKING, Any, Final

from lancelet.errors import (
    AlreadyExistsError,
    InvalidInputError,
    NotFoundError,
    StorageError,
    StorageUnavailableError,
    UnsupportedError,
    redacted,
)
from lancelet.values import dataclass

if TYPE_CHECKING:
    import pyarrow as pa

    from lancelet.dataset import LanceDataset
    from lancelet.dataset.handle import VersionLike

_CONVERTED: Final = {
    "NamespaceNotFoundError": NotFoundError,
    "PermissionDeniedError": StorageError,
    "ServiceUnavailableError": StorageUnavailableError,
    "TableAlreadyExistsError": AlreadyExistsError,
    "TableNotFoundError": NotFoundError,
    "ThrottlingError": StorageUnavailableError,
    "UnauthenticatedError": StorageError,
    "UnsupportedOperationError": UnsupportedError,
}
"""The classes for errors of catalogs; of others, the input is invalid."""


@dataclass(frozen=True, slots=True)
class Catalog:
    """A catalog.

    Attributes:
        kind: The kind, as in `lancelet.namespace.connect`.
        namespace: The connected namespace.
    """

    kind: str
    namespace: Any

    def open(
        self,
        path: Sequence[str],
        version: VersionLike | datetime | None,
        storage_options: dict[str, str] | None,
    ) -> LanceDataset:
        """Open a table at a version."""
        from lancelet.dataset import dataset  # noqa: PLC0415 - not needed for `--help`

        at: dict[str, Any] = {"version": version}
        if isinstance(version, datetime):
            at = {"asof": version}
        with catalog_errors():
            return dataset(
                namespace_client=self.namespace,
                table_id=list(path),
                storage_options=storage_options,
                **at,
            )

    def write(self, rows: pa.RecordBatchReader, path: Sequence[str], **options: Any) -> None:
        """Write a table."""
        from lancelet.dataset import write_dataset  # noqa: PLC0415 - not needed for `--help`

        with catalog_errors():
            write_dataset(rows, namespace_client=self.namespace, table_id=list(path), **options)

    def location(self, path: Sequence[str]) -> tuple[str, dict[str, str]]:
        """Return the location of a table and its storage options."""
        request = _names().DescribeTableRequest(id=list(path), vend_credentials=True)
        with catalog_errors():
            found = self.namespace.describe_table(request)
        return found.location, dict(found.storage_options or {})

    def tables(self, root: Sequence[str] = ()) -> dict[tuple[str, ...], list[str]]:
        """Return the names of the tables of a namespace and those within it, by namespace."""
        found, pending, names = {}, [tuple(root)], _names()
        with catalog_errors():
            while pending:
                path = pending.pop()
                children = _all(
                    self.namespace.list_namespaces, names.ListNamespacesRequest, path, "namespaces"
                )
                pending += [(*path, name) for name in children]
                tables = _all(self.namespace.list_tables, names.ListTablesRequest, path, "tables")
                if tables or (path and not children):
                    found[path] = sorted(tables)
        return dict(sorted(found.items()))


def connect_catalog(kind: str, properties: Mapping[str, str]) -> Catalog:
    """Connect to a catalog."""
    _names()  # raises if the extra is not installed
    from lancelet.namespace.kinds import KINDS, connect  # noqa: PLC0415 - an extra

    if kind not in KINDS and "." not in kind:
        raise InvalidInputError("unknown kind of catalog", found=kind, expected=list(KINDS))
    with catalog_errors():
        return Catalog(kind, connect(kind, properties))


def path_of(name: str) -> tuple[str, ...]:
    """Return the path of a dotted name.

    >>> path_of("lake.sales.orders"), path_of("")
    (('lake', 'sales', 'orders'), ())
    """
    return tuple(name.split(".")) if name else ()


def name_of(path: Sequence[str]) -> str:
    """Return the dotted name of a path."""
    return ".".join(path)


@contextmanager
def catalog_errors() -> Iterator[None]:
    """Convert errors of catalogs."""
    try:
        yield
    except _names().LanceNamespaceError as error:
        names = (kind.__name__ for kind in type(error).__mro__)
        kind = next((_CONVERTED[name] for name in names if name in _CONVERTED), InvalidInputError)
        raise kind(redacted(str(error))) from error


def _names() -> Any:
    """Return the module of requests and errors of namespaces."""
    from lancelet.dataset.named_table import namespace_module  # noqa: PLC0415 - slow to import

    return namespace_module()


def _all(call: Any, request: Any, path: tuple[str, ...], field: str) -> list[str]:
    """Return the names of all pages of a listing."""
    page = call(request(id=list(path)))
    names = list(getattr(page, field) or ())
    while page.page_token:
        page = call(request(id=list(path), page_token=page.page_token))
        names += getattr(page, field) or ()
    return names
