"""Namespaces whose names are in an external catalog: Glue, Hive, Unity, Polaris, Iceberg.

    catalog entry   sales.orders   location s3://bucket/sales/orders_1f0c9a2e.lance
    files           s3://bucket/sales/orders_1f0c9a2e.lance

An `ExternalCatalog` has the requests of one kind of catalog. `ExternalNamespace` maps the
operations of Lance namespaces to them. One request decides whether an operation took effect:

    create                the creation of the entry, after its rows are written
    declare, register     the creation of the entry
    deregister, drop      the deletion of the entry; files are deleted afterwards
    rename                the request of the catalog, if it has one

Locations of new tables are unique, so an operation that was interrupted or overtaken by another one
never touches the files of another table. If the answer to a request is lost, its effect is read
back; if that does not tell, an `OutcomeUnknownError` says what to check.
"""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from typing import Any, Final

import lance_namespace as ln

from lancelet import surroundings
from lancelet.dataset.dataset import LanceDataset
from lancelet.dataset.write.write import write_dataset
from lancelet.errors import (
    AlreadyExistsError,
    DatasetNotFoundError,
    LanceletError,
    ObjectNotFoundError,
    StorageError,
    StorageUnavailableError,
    UnsupportedError,
)
from lancelet.io.open import open_folder
from lancelet.io.uri import join, parse_uri
from lancelet.namespace.context import DynamicContextProvider, provider_of, without_provider
from lancelet.namespace.history import HistoryOperations
from lancelet.namespace.operations import (
    OutcomeUnknownError,
    already_exists,
    mode_of,
    page_of,
    read_stream,
    text_of,
)
from lancelet.namespace.tables import TableOperations
from lancelet.values import dataclass

TABLE_TYPE: Final = "table_type"
LANCE: Final = "lance"
_STORAGE: Final = "storage."
_SHARED: Final = "_registered"
"""An object in the folders of tables that may have names in several namespaces."""
_UNSAFE: Final = re.compile(r"[^\w-]")
_SECRETS: Final = frozenset(
    {
        "access_key_id",
        "auth_token",
        "client_id",
        "client_secret",
        "credential",
        "secret_access_key",
        "session_token",
    }
)
"""The properties that are not pickled; the process that unpickles a namespace uses its own."""


@dataclass(frozen=True, slots=True)
class ExternalTable:
    """An entry of a catalog."""

    location: str
    properties: Mapping[str, str]

    def is_at(self, location: str) -> bool:
        """Return whether the files are at a location; catalogs may write it in another way."""
        return parse_uri(self.location) == parse_uri(location)


class ExternalCatalog(ABC):
    """The requests of one kind of catalog.

    A path has the names of namespaces, and of a table. Errors are those of `lance_namespace`.
    Requests that change the catalog are sent once, and raise `OutcomeUnknownError` if their answer
    is lost.
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

    def entries(self, path: tuple[str, ...]) -> Mapping[str, ExternalTable]:
        """Return the entries of the Lance tables of a namespace, by name."""
        found = {}
        for name in self.tables(path):
            with suppress(ln.TableNotFoundError):  # dropped since
                found[name] = self.table((*path, name))
        return found

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
        raise ln.UnsupportedOperationError(
            f"Unsupported: {self.name} cannot rename a table in one request; register the location "
            f"of {text_of(path)} as {text_of(target)}, then deregister {text_of(path)}"
        )

    def root_of(self, path: tuple[str, ...]) -> str | None:
        """Return the folder of new tables of a namespace, if the catalog has one."""
        del path
        return None


def database_of(path: tuple[str, ...], kind: str) -> str:
    """Return the database of a path in a catalog whose databases have no children."""
    if len(path) != 1:
        raise ln.UnsupportedOperationError(
            f"Unsupported: a {kind} database has no child namespaces; found {text_of(path)}"
        )
    return path[0]


def database_and_table(path: tuple[str, ...], kind: str) -> tuple[str, str]:
    """Return the database and the name of a table in such a catalog."""
    if len(path) != 2:
        raise ln.InvalidInputError(
            f"Invalid input: a {kind} table has a database and a name; found {text_of(path)}"
        )
    return path[0], path[1]


class ExternalNamespace(TableOperations, HistoryOperations, ln.LanceNamespace):  # type: ignore[misc]  # its stubs are not read
    """A namespace whose names are in an external catalog."""

    def __init__(
        self,
        catalog: ExternalCatalog,
        properties: Mapping[str, str],
        context_provider: DynamicContextProvider | None = None,
    ) -> None:
        """Use a catalog; `root` and `storage.x` are those of `DirectoryNamespace`."""
        self._properties = dict(properties)
        settings = without_provider(self._properties)
        counts = settings.get("ops_metrics_enabled") == "true"
        super().__init__(context_provider or provider_of(self._properties), counts=counts)
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

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickle the properties without the credentials of the catalog."""
        public = {
            name: value
            for name, value in self._properties.items()
            if name.rpartition(".")[2] not in _SECRETS or name.startswith(_STORAGE)
        }
        return _reopened, (type(self), self._provider, public)

    # --- namespaces ----------------------------------------------------------------------------

    def create_namespace(self, request: ln.CreateNamespaceRequest) -> ln.CreateNamespaceResponse:
        """Create a namespace within an existing parent."""
        path = self._begin("create_namespace", request)
        if not path:
            raise ln.NamespaceAlreadyExistsError("Namespace already exists: root namespace")
        properties = request.properties or {}

        def is_created() -> bool:
            found = self._find_namespace(path)
            return found is not None and properties.items() <= found.items()

        _send_and_verify(
            lambda: self._catalog.create_namespace(path, properties),
            is_created,
            f"check whether the namespace {text_of(path)} exists before a retry",
        )
        return ln.CreateNamespaceResponse(properties=request.properties or None)

    def list_namespaces(self, request: ln.ListNamespacesRequest) -> ln.ListNamespacesResponse:
        """Return the names of the child namespaces."""
        names = self._catalog.namespaces(self._begin("list_namespaces", request))
        shown, token = page_of(sorted(names), request)
        return ln.ListNamespacesResponse(namespaces=shown, page_token=token)

    def describe_namespace(
        self, request: ln.DescribeNamespaceRequest
    ) -> ln.DescribeNamespaceResponse:
        """Return the properties of a namespace."""
        path = self._begin("describe_namespace", request)
        return ln.DescribeNamespaceResponse(
            properties=self._catalog.namespace(path) if path else {}
        )

    def namespace_exists(self, request: ln.NamespaceExistsRequest) -> ln.NamespaceExistsResponse:
        """Raise if a namespace does not exist."""
        path = self._begin("namespace_exists", request)
        if path:
            self._catalog.namespace(path)
        return ln.NamespaceExistsResponse()

    def drop_namespace(self, request: ln.DropNamespaceRequest) -> ln.DropNamespaceResponse:
        """Drop an empty namespace."""
        path = self._begin("drop_namespace", request)
        if not path:
            raise ln.InvalidInputError("Root namespace cannot be dropped")
        if (request.behavior or "restrict").lower() == "cascade":
            raise ln.UnsupportedOperationError(
                "Unsupported: only empty namespaces are dropped; drop their tables first"
            )
        properties = self._catalog.namespace(path)
        _send_and_verify(
            lambda: self._catalog.drop_namespace(path),
            lambda: self._find_namespace(path) is None,
            f"check whether the namespace {text_of(path)} still exists before a retry",
        )
        return ln.DropNamespaceResponse(properties=properties)

    # --- tables --------------------------------------------------------------------------------

    def list_tables(self, request: ln.ListTablesRequest) -> ln.ListTablesResponse:
        """Return the names of the Lance tables in a namespace."""
        path = self._begin("list_tables", request)
        names = self._catalog.tables(path) if path else []
        shown, token = page_of(sorted(names), request)
        return ln.ListTablesResponse(tables=shown, page_token=token)

    def list_all_tables(self, request: ln.ListTablesRequest) -> ln.ListTablesResponse:
        """Return the paths of the Lance tables of all namespaces, joined with `$`."""
        self._begin("list_all_tables", request)
        found, pending = list[str](), [tuple[str, ...]()]
        while pending:
            path = pending.pop()
            pending += [(*path, name) for name in self._catalog.namespaces(path)]
            found += [text_of((*path, name)) for name in self._catalog.tables(path)] if path else []
        shown, token = page_of(sorted(found), request)
        return ln.ListTablesResponse(tables=shown, page_token=token)

    def describe_table(self, request: ln.DescribeTableRequest) -> ln.DescribeTableResponse:
        """Return the location of a table and, on request, its schema and version."""
        path = self._table_path("describe_table", request)
        table = self._catalog.table(path)
        answer = ln.DescribeTableResponse(
            table=path[-1],
            namespace=list(path[:-1]),
            location=table.location,
            table_uri=table.location,
            properties=dict(table.properties) or None,
            storage_options=self._options or None,
        )
        return self._with_details(answer, request, lambda: self._is_written(table.location))

    def table_exists(self, request: ln.TableExistsRequest) -> ln.TableExistsResponse:
        """Raise if a table does not exist."""
        self._catalog.table(self._table_path("table_exists", request))
        return ln.TableExistsResponse()

    def declare_table(self, request: ln.DeclareTableRequest) -> ln.DeclareTableResponse:
        """Reserve a name for a table that is written later."""
        path = self._table_path("declare_table", request)
        location = request.location or self._new_location(path)
        table = ExternalTable(location, request.properties or {})
        if request.location is not None:
            self._mark_shared(location)
        self._create_entry(path, table, is_new=request.location is None)
        return ln.DeclareTableResponse(
            location=table.location,
            properties=dict(table.properties) or None,
            storage_options=self._options or None,
        )

    def create_table(
        self, request: ln.CreateTableRequest, request_data: bytes
    ) -> ln.CreateTableResponse:
        """Create a table from rows in the Arrow IPC stream format.

        The rows are written before the entry is created: of two concurrent calls, one fails or
        changes the table of the other, depending on the mode, and other programs never see an
        incomplete table. A declared table is written at its location.
        """
        path = self._table_path("create_table", request)
        rows = read_stream(request_data, "create_table")
        mode = mode_of(request)
        table = self._find(path)
        if table is None:
            table = ExternalTable(self._new_location(path), request.properties or {})
            try:
                dataset = self._write_new(path, table, rows)
            except ln.TableAlreadyExistsError:
                if mode == "create":
                    raise
                table = self._catalog.table(path)
            else:
                return _created(table, dataset)
        if mode == "overwrite":
            return _created(table, self._write(table, rows, "overwrite"))
        if not self._is_written(table.location):
            try:
                return _created(table, self._write(table, rows, "create"))
            except AlreadyExistsError:  # written by another program
                pass
        if mode == "create":
            raise already_exists(path, is_table=True)
        return ln.CreateTableResponse(location=table.location)

    def register_table(self, request: ln.RegisterTableRequest) -> ln.RegisterTableResponse:
        """Register an existing table under a name."""
        path = self._table_path("register_table", request)
        table = ExternalTable(request.location, request.properties or {})
        if not self._is_written(table.location):
            raise ln.InvalidInputError(
                f"Invalid input: there is no table at {request.location!r}; write it first, or use "
                "declare_table"
            )
        self._mark_shared(table.location)
        self._create_entry(path, table, is_new=False)
        return ln.RegisterTableResponse(location=table.location, properties=request.properties)

    def deregister_table(self, request: ln.DeregisterTableRequest) -> ln.DeregisterTableResponse:
        """Remove the name of a table without deleting its files."""
        path = self._table_path("deregister_table", request)
        table = self._catalog.table(path)
        self._delete_entry(path, table)
        return ln.DeregisterTableResponse(id=list(path), location=table.location)

    def drop_table(self, request: ln.DropTableRequest) -> ln.DropTableResponse:
        """Remove the name of a table, then delete its files unless they have another name."""
        path = self._table_path("drop_table", request)
        table = self._catalog.table(path)
        if not self._delete_entry(path, table):
            raise OutcomeUnknownError(
                f"the name {text_of(path)} was removed, but the answer of the catalog was lost; "
                f"the files at {table.location} were kept, because another program may have "
                "deregistered them. Delete them with LanceDataset.drop if they are unused."
            )
        try:
            if not self._has_other_name(path, table.location):
                LanceDataset.drop(table.location, self._options or None, ignore_not_found=True)
        except (LanceletError, ln.LanceNamespaceError) as error:
            raise ln.ServiceUnavailableError(
                f"the name {text_of(path)} was removed, but the files at {table.location} remain: "
                f"{error}. Delete them with LanceDataset.drop if no other name refers to them."
            ) from error
        return ln.DropTableResponse(id=list(path), location=table.location)

    def rename_table(self, request: ln.RenameTableRequest) -> ln.RenameTableResponse:
        """Change the name of a table; its files are not moved."""
        path = self._table_path("rename_table", request)
        parent = request.new_namespace_id
        target = (*(path[:-1] if parent is None else parent), request.new_table_name)
        location = self._catalog.table(path).location

        def is_renamed() -> bool:
            found = self._find(target)
            return found is not None and found.is_at(location) and self._find(path) is None

        _send_and_verify(
            lambda: self._catalog.rename_table(path, target),
            is_renamed,
            f"check whether {text_of(path)} or {text_of(target)} exists before a retry",
        )
        return ln.RenameTableResponse()

    # --- shared helpers ------------------------------------------------------------------------

    def _location_of(self, path: Sequence[str]) -> tuple[str, dict[str, str]]:
        return self._catalog.table(tuple(path)).location, self._options

    def _table_path(self, operation: str, request: Any) -> tuple[str, ...]:
        path = self._begin(operation, request)
        if len(path) < 2:
            raise ln.InvalidInputError(
                "Invalid input: a table id has a namespace and a name, for example "
                f"['sales', 'orders']; found {list(path)}"
            )
        return path

    def _new_location(self, path: tuple[str, ...]) -> str:
        """Return a location that no other table has or had."""
        root = self._catalog.root_of(path[:-1])
        folders = path[-1:] if root else path
        root = root or self._root
        if root is None:
            raise ln.InvalidInputError(
                f"Invalid input: {self._catalog.name} has no folder for new tables; set the "
                "property `root`, or pass a location"
            )
        *parents, name = (_UNSAFE.sub("_", each) for each in folders)
        return join(root, *parents, f"{name}_{surroundings.new_uuid().hex[:8]}.lance")

    def _write(self, table: ExternalTable, rows: Any, mode: Any) -> LanceDataset:
        return write_dataset(rows, table.location, mode=mode, storage_options=self._options or None)

    def _write_new(self, path: tuple[str, ...], table: ExternalTable, rows: Any) -> LanceDataset:
        """Write a table and create its entry; delete the files if there will be no entry."""
        try:
            dataset = self._write(table, rows, "create")
            self._create_entry(path, table, is_new=True)
        except OutcomeUnknownError:
            raise
        except (LanceletError, ln.LanceNamespaceError):
            with suppress(LanceletError):
                open_folder(table.location, self._options).delete_folder("")
            raise
        return dataset

    def _create_entry(self, path: tuple[str, ...], table: ExternalTable, *, is_new: bool) -> None:
        """Create an entry; `is_new` says that no other entry has its location."""

        def create() -> None:
            try:
                self._catalog.create_table(path, table)
            except ln.TableAlreadyExistsError as error:
                # Proxies may send a request twice: the entry may be ours.
                raise (OutcomeUnknownError(str(error)) if is_new else error) from error

        def is_created() -> bool:
            found = self._find(path)
            if found is None:
                return False
            if not found.is_at(table.location):
                raise already_exists(path, is_table=True)
            return table.properties.items() <= found.properties.items()

        _send_and_verify(
            create,
            is_created,
            f"check whether {text_of(path)} exists, at {table.location}, before a retry",
        )

    def _delete_entry(self, path: tuple[str, ...], table: ExternalTable) -> bool:
        """Delete an entry; return False if it is gone, but possibly by another program."""

        def is_deleted() -> bool:
            found = self._find(path)
            return found is None or not found.is_at(table.location)

        return _send_and_verify(
            lambda: self._catalog.delete_table(path),
            is_deleted,
            f"check whether {text_of(path)} still exists before a retry; its location is "
            f"{table.location}",
        )

    def _find(self, path: tuple[str, ...]) -> ExternalTable | None:
        try:
            return self._catalog.table(path)
        except ln.TableNotFoundError:
            return None

    def _find_namespace(self, path: tuple[str, ...]) -> dict[str, str] | None:
        try:
            return self._catalog.namespace(path)
        except ln.NamespaceNotFoundError:
            return None

    def _mark_shared(self, location: str) -> None:
        """Record that the files of a table may have several names."""
        try:
            open_folder(location, self._options).put(_SHARED, b"")
        except StorageUnavailableError:
            raise
        except (StorageError, UnsupportedError):
            pass  # read-only files are not deleted with these credentials either

    def _has_other_name(self, path: tuple[str, ...], location: str) -> bool:
        """Return whether another entry has the files of a dropped table.

        Registered tables have a marker, and their names can be anywhere in the catalog. Without
        it, only the namespace of the table is listed, for names that other programs created.
        """
        try:
            open_folder(location, self._options).info(_SHARED)
        except ObjectNotFoundError:
            try:
                others: Iterable[ExternalTable] = self._catalog.entries(path[:-1]).values()
            except ln.NamespaceNotFoundError:  # dropped since
                return False
        else:
            others = self._all_entries(path[:1])
        return any(other.is_at(location) for other in others)

    def _all_entries(self, first: tuple[str, ...]) -> Iterator[ExternalTable]:
        """Yield the entries of the catalog that can be listed.

        Args:
            first: The namespace to start with if the catalog does not list its root.
        """
        pending = [tuple[str, ...]()]
        while pending:
            path = pending.pop()
            try:
                children = self._catalog.namespaces(path)
                own = self._catalog.entries(path) if path else {}
            except ln.UnsupportedOperationError:
                pending += [] if path else [first]
            except (ln.NamespaceNotFoundError, ln.PermissionDeniedError):
                pass  # dropped since, or of others
            else:
                pending += [(*path, name) for name in children]
                yield from own.values()

    def _is_written(self, location: str) -> bool:
        """Return whether there is a table at a location."""
        try:
            LanceDataset(location, storage_options=self._options or None)
        except DatasetNotFoundError:
            return False
        return True


def _send_and_verify(request: Callable[[], None], is_done: Callable[[], bool], advice: str) -> bool:
    """Send a request; if its answer is lost, read back whether it took effect.

    Returns:
        Whether the answer arrived.

    Raises:
        OutcomeUnknownError: If the request has no effect yet, or the effect cannot be read.
    """
    try:
        request()
    except OutcomeUnknownError as error:
        with suppress(ln.ServiceUnavailableError, ln.PermissionDeniedError, ln.ThrottlingError):
            if is_done():
                return False
        raise OutcomeUnknownError(f"{error}; {advice}") from error
    return True


def _created(table: ExternalTable, dataset: LanceDataset) -> ln.CreateTableResponse:
    return ln.CreateTableResponse(
        location=table.location,
        version=dataset.version,
        properties=dict(table.properties) or None,
    )


def _reopened(
    kind: type[ExternalNamespace], provider: DynamicContextProvider | None, given: dict[str, str]
) -> ExternalNamespace:
    open_namespace: Any = kind
    namespace: ExternalNamespace = open_namespace(provider, **given)
    return namespace


def is_lance(properties: Mapping[str, str] | None) -> bool:
    """Return whether the properties of an entry mark a Lance table."""
    return (properties or {}).get(TABLE_TYPE, "").lower() == LANCE
