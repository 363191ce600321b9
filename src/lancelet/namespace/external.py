"""Namespaces whose names are in an external catalog: Glue, Unity Catalog, Polaris, Iceberg REST.

    catalog entry   sales.orders   location s3://bucket/sales/orders.lance, table_type = lance
    files           s3://bucket/sales/orders.lance

An `ExternalCatalog` has the requests of one kind of catalog. `ExternalNamespace` maps the
operations of Lance namespaces to them. One request decides whether an operation took effect:

    create, declare, register   the creation of the entry; rows are written afterwards
    deregister, drop            the deletion of the entry; files are deleted afterwards
    rename                      the request of the catalog, if it has one
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Any, Final

from lance_namespace import (
    CreateNamespaceRequest,
    CreateNamespaceResponse,
    CreateTableRequest,
    CreateTableResponse,
    DeclareTableRequest,
    DeclareTableResponse,
    DeregisterTableRequest,
    DeregisterTableResponse,
    DescribeNamespaceRequest,
    DescribeNamespaceResponse,
    DescribeTableRequest,
    DescribeTableResponse,
    DropNamespaceRequest,
    DropNamespaceResponse,
    DropTableRequest,
    DropTableResponse,
    InvalidInputError,
    LanceNamespace,
    ListNamespacesRequest,
    ListNamespacesResponse,
    ListTablesRequest,
    ListTablesResponse,
    NamespaceAlreadyExistsError,
    NamespaceExistsRequest,
    NamespaceExistsResponse,
    RegisterTableRequest,
    RegisterTableResponse,
    RenameTableRequest,
    RenameTableResponse,
    TableAlreadyExistsError,
    TableExistsRequest,
    TableExistsResponse,
    UnsupportedOperationError,
)
from lance_namespace_urllib3_client.models import JsonArrowSchema, TableBasicStats

from lancelet.dataset.dataset import LanceDataset
from lancelet.dataset.write.write import write_dataset
from lancelet.errors import AlreadyExistsError, DatasetNotFoundError, LanceletError
from lancelet.io.uri import join
from lancelet.namespace.context import DynamicContextProvider, provider_of, without_provider
from lancelet.namespace.history import HistoryOperations
from lancelet.namespace.operations import page_of, read_stream, text_of
from lancelet.namespace.tables import TableOperations
from lancelet.namespace.types import schema_form
from lancelet.values import dataclass

TABLE_TYPE: Final = "table_type"
LANCE: Final = "lance"
_STORAGE: Final = "storage."


@dataclass(frozen=True, slots=True)
class ExternalTable:
    """An entry of a catalog."""

    location: str
    properties: Mapping[str, str]


class ExternalCatalog(ABC):
    """The requests of one kind of catalog.

    A path has the names of namespaces, and of a table. Errors are those of `lance_namespace`.
    """

    @property
    @abstractmethod
    def name(self) -> str:
        """A text that identifies the catalog, without secrets."""

    @abstractmethod
    def namespaces(self, parent: tuple[str, ...]) -> list[str]:
        """Return the names of the child namespaces."""

    @abstractmethod
    def namespace(self, path: tuple[str, ...]) -> dict[str, str]:
        """Return the properties of a namespace."""

    @abstractmethod
    def create_namespace(self, path: tuple[str, ...], properties: Mapping[str, str]) -> None:
        """Create a namespace."""

    @abstractmethod
    def drop_namespace(self, path: tuple[str, ...]) -> None:
        """Drop an empty namespace."""

    @abstractmethod
    def tables(self, path: tuple[str, ...]) -> list[str]:
        """Return the names of the Lance tables of a namespace."""

    @abstractmethod
    def table(self, path: tuple[str, ...]) -> ExternalTable:
        """Return the entry of a Lance table."""

    @abstractmethod
    def create_table(self, path: tuple[str, ...], table: ExternalTable) -> None:
        """Create an entry, or raise if the name is taken."""

    @abstractmethod
    def delete_table(self, path: tuple[str, ...]) -> None:
        """Delete an entry."""

    def rename_table(self, path: tuple[str, ...], target: tuple[str, ...]) -> None:
        """Rename an entry in one request."""
        raise UnsupportedOperationError(
            f"Unsupported: {self.name} cannot rename a table in one request; register the location "
            f"of {text_of(path)} as {text_of(target)}, then deregister {text_of(path)}"
        )

    def root_of(self, path: tuple[str, ...]) -> str | None:
        """Return the folder of new tables of a namespace, if the catalog has one."""
        del path
        return None


class ExternalNamespace(TableOperations, HistoryOperations, LanceNamespace):  # type: ignore[misc]  # its stubs are not read
    """A namespace whose names are in an external catalog."""

    def __init__(
        self,
        catalog: ExternalCatalog,
        properties: Mapping[str, str],
        context_provider: DynamicContextProvider | None = None,
    ) -> None:
        """Use a catalog; `root` and `storage.x` are those of `DirectoryNamespace`."""
        settings = without_provider(dict(properties))
        counts = settings.get("ops_metrics_enabled") == "true"
        super().__init__(context_provider or provider_of(dict(properties)), counts=counts)
        self._catalog = catalog
        self._root = settings.get("root")
        self._options = {
            name.removeprefix(_STORAGE): value
            for name, value in settings.items()
            if name.startswith(_STORAGE)
        }

    def namespace_id(self) -> str:
        """Return a text that identifies the namespace."""
        return f"{type(self).__name__} {{ {self._catalog.name} }}"

    def __repr__(self) -> str:
        return self.namespace_id()

    # --- namespaces ----------------------------------------------------------------------------

    def create_namespace(self, request: CreateNamespaceRequest) -> CreateNamespaceResponse:
        """Create a namespace within an existing parent."""
        path = self._begin("create_namespace", request)
        if not path:
            raise NamespaceAlreadyExistsError("Namespace already exists: root namespace")
        self._catalog.create_namespace(path, request.properties or {})
        return CreateNamespaceResponse(properties=request.properties or None)

    def list_namespaces(self, request: ListNamespacesRequest) -> ListNamespacesResponse:
        """Return the names of the child namespaces."""
        names = self._catalog.namespaces(self._begin("list_namespaces", request))
        shown, token = page_of(sorted(names), request)
        return ListNamespacesResponse(namespaces=shown, page_token=token)

    def describe_namespace(self, request: DescribeNamespaceRequest) -> DescribeNamespaceResponse:
        """Return the properties of a namespace."""
        path = self._begin("describe_namespace", request)
        return DescribeNamespaceResponse(properties=self._catalog.namespace(path) if path else {})

    def namespace_exists(self, request: NamespaceExistsRequest) -> NamespaceExistsResponse:
        """Raise if a namespace does not exist."""
        path = self._begin("namespace_exists", request)
        if path:
            self._catalog.namespace(path)
        return NamespaceExistsResponse()

    def drop_namespace(self, request: DropNamespaceRequest) -> DropNamespaceResponse:
        """Drop an empty namespace."""
        path = self._begin("drop_namespace", request)
        if not path:
            raise InvalidInputError("Root namespace cannot be dropped")
        if (request.behavior or "restrict").lower() == "cascade":
            raise UnsupportedOperationError(
                "Unsupported: only empty namespaces are dropped; drop their tables first"
            )
        properties = self._catalog.namespace(path)
        self._catalog.drop_namespace(path)
        return DropNamespaceResponse(properties=properties)

    # --- tables --------------------------------------------------------------------------------

    def list_tables(self, request: ListTablesRequest) -> ListTablesResponse:
        """Return the names of the Lance tables in a namespace."""
        path = self._begin("list_tables", request)
        names = self._catalog.tables(path) if path else []
        shown, token = page_of(sorted(names), request)
        return ListTablesResponse(tables=shown, page_token=token)

    def list_all_tables(self, request: ListTablesRequest) -> ListTablesResponse:
        """Return the paths of the Lance tables of all namespaces, joined with `$`."""
        self._begin("list_all_tables", request)
        found, pending = list[str](), [tuple[str, ...]()]
        while pending:
            path = pending.pop()
            pending += [(*path, name) for name in self._catalog.namespaces(path)]
            found += [text_of((*path, name)) for name in self._catalog.tables(path)] if path else []
        shown, token = page_of(sorted(found), request)
        return ListTablesResponse(tables=shown, page_token=token)

    def describe_table(self, request: DescribeTableRequest) -> DescribeTableResponse:
        """Return the location of a table and, on request, its schema and version."""
        path = self._table_path("describe_table", request)
        table = self._catalog.table(path)
        answer = DescribeTableResponse(
            table=path[-1],
            namespace=list(path[:-1]),
            location=table.location,
            table_uri=table.location,
            properties=dict(table.properties) or None,
            storage_options=self._options or None,
        )
        if request.load_detailed_metadata or request.check_declared:
            answer.is_only_declared = not self._is_written(table)
        if request.load_detailed_metadata and not answer.is_only_declared:
            dataset = self._open(path, request.version, request.branch)
            statistics = dataset.stats.dataset_stats()
            answer.version = dataset.version
            answer.var_schema = JsonArrowSchema.from_dict(schema_form(dataset.schema))
            answer.stats = TableBasicStats(
                num_deleted_rows=statistics["num_deleted_rows"],
                num_fragments=statistics["num_fragments"],
            )
        return answer

    def table_exists(self, request: TableExistsRequest) -> TableExistsResponse:
        """Raise if a table does not exist."""
        self._catalog.table(self._table_path("table_exists", request))
        return TableExistsResponse()

    def declare_table(self, request: DeclareTableRequest) -> DeclareTableResponse:
        """Reserve a name for a table that is written later."""
        path = self._table_path("declare_table", request)
        table = ExternalTable(
            request.location or self._new_location(path), request.properties or {}
        )
        is_taken = request.location is None and self._is_written(table)
        self._catalog.create_table(path, table)
        if is_taken:
            raise self._taken(path, table)
        return DeclareTableResponse(
            location=table.location,
            properties=dict(table.properties) or None,
            storage_options=self._options or None,
        )

    def create_table(self, request: CreateTableRequest, request_data: bytes) -> CreateTableResponse:
        """Create a table from rows in the Arrow IPC stream format.

        The entry is created before the rows are written: of two concurrent calls, one fails. If
        writing fails, the entry is deleted again.
        """
        path = self._table_path("create_table", request)
        rows = read_stream(request_data, "create_table")
        mode = (request.mode or "create").lower().replace("exist_ok", "existok")
        if mode not in {"create", "existok", "overwrite"}:
            raise InvalidInputError(f"Invalid input: mode {request.mode}")
        table = ExternalTable(self._new_location(path), request.properties or {})
        is_new, is_taken = True, self._is_written(table)
        try:
            self._catalog.create_table(path, table)
            if is_taken:
                raise self._taken(path, table)
        except TableAlreadyExistsError:
            table, is_new = self._catalog.table(path), False
            if self._is_written(table):
                if mode == "create":
                    raise
                if mode == "existok":
                    return CreateTableResponse(location=table.location)
        try:
            dataset = write_dataset(
                rows,
                table.location,
                mode="overwrite" if mode == "overwrite" else "create",
                storage_options=self._options or None,
            )
        except AlreadyExistsError as error:
            raise TableAlreadyExistsError(f"Table already exists: {text_of(path)}") from error
        except LanceletError:
            if is_new:
                with suppress(Exception):
                    self._catalog.delete_table(path)
            raise
        return CreateTableResponse(
            location=table.location,
            version=dataset.version,
            properties=dict(table.properties) or None,
        )

    def create_empty_table(self, request: Any) -> Any:
        """Reserve a name for a table that is written later. Deprecated: use `declare_table`."""
        declaration = DeclareTableRequest(
            id=request.id, location=getattr(request, "location", None)
        )
        return self.declare_table(declaration)

    def register_table(self, request: RegisterTableRequest) -> RegisterTableResponse:
        """Register an existing table under a name."""
        path = self._table_path("register_table", request)
        table = ExternalTable(request.location, request.properties or {})
        if not self._is_written(table):
            raise InvalidInputError(
                f"Invalid input: there is no table at {request.location!r}; write it first, or use "
                "declare_table"
            )
        self._catalog.create_table(path, table)
        return RegisterTableResponse(location=table.location, properties=request.properties)

    def deregister_table(self, request: DeregisterTableRequest) -> DeregisterTableResponse:
        """Remove the name of a table without deleting its files."""
        path = self._table_path("deregister_table", request)
        table = self._catalog.table(path)
        self._catalog.delete_table(path)
        return DeregisterTableResponse(id=list(path), location=table.location)

    def drop_table(self, request: DropTableRequest) -> DropTableResponse:
        """Remove the name of a table, then delete its files."""
        path = self._table_path("drop_table", request)
        table = self._catalog.table(path)
        self._catalog.delete_table(path)
        try:
            LanceDataset.drop(table.location, storage_options=self._options or None)
        except DatasetNotFoundError:
            pass  # the table was declared, but never written
        except LanceletError as error:
            error.add_note(f"The name was removed. Delete the remaining files at {table.location}.")
            raise
        return DropTableResponse(id=list(path), location=table.location)

    def rename_table(self, request: RenameTableRequest) -> RenameTableResponse:
        """Change the name of a table; its files are not moved."""
        path = self._table_path("rename_table", request)
        parent = request.new_namespace_id
        target = (*(path[:-1] if parent is None else parent), request.new_table_name)
        self._catalog.rename_table(path, target)
        return RenameTableResponse()

    # --- shared helpers ------------------------------------------------------------------------

    def _location_of(self, path: Sequence[str]) -> tuple[str, dict[str, str]]:
        return self._catalog.table(tuple(path)).location, self._options

    def _table_path(self, operation: str, request: Any) -> tuple[str, ...]:
        path = self._begin(operation, request)
        if len(path) < 2:
            raise InvalidInputError(
                "Invalid input: a table id has a namespace and a name, for example "
                f"['sales', 'orders']; found {list(path)}"
            )
        return path

    def _new_location(self, path: tuple[str, ...]) -> str:
        """Return the location of a new table."""
        root = self._catalog.root_of(path[:-1])
        folders = path[-1:] if root else path
        root = root or self._root
        if root is None:
            raise InvalidInputError(
                f"Invalid input: {self._catalog.name} has no folder for new tables; set the "
                "property `root`, or pass a location"
            )
        return join(root, *folders[:-1], f"{folders[-1]}.lance")

    def _taken(self, path: tuple[str, ...], table: ExternalTable) -> Exception:
        """Delete a new entry at the location of another table, and return the error."""
        self._catalog.delete_table(path)
        error: Exception = InvalidInputError(
            f"Invalid input: {table.location} has a table that was renamed or deregistered; call "
            f"register_table to name it {text_of(path)}, or declare_table with another location"
        )
        return error

    def _is_written(self, table: ExternalTable) -> bool:
        """Return whether there is a table at the location of an entry."""
        try:
            LanceDataset(table.location, storage_options=self._options or None)
        except DatasetNotFoundError:
            return False
        return True


def is_lance(properties: Mapping[str, str] | None) -> bool:
    """Return whether the properties of an entry mark a Lance table."""
    return (properties or {}).get(TABLE_TYPE, "").lower() == LANCE
