"""A namespace in a folder: a catalog table next to the tables, without a server.

    root/__manifest/            the names and locations of the tables
    root/orders.lance/          the table `orders` of the root
    root/1f0c9a2e_sales$q/      the table `q` of the namespace `sales`

Tables of the root are also found by listing the folder, so tables written without the namespace
have names as well. A listed table is ignored if a row of the catalog contains its location, so a
renamed table has one name. For each operation, one request decides whether it took effect:

    create       the first version of the table, or the row if listings do not show the location
    register     the row
    rename       the commit that replaces the row
    deregister   the commit that removes the row
    drop         the commit that replaces the row; the files are deleted afterwards
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Any, Final

import lance_namespace as ln

from lancelet.dataset.session import Session
from lancelet.dataset.write.write import write_dataset
from lancelet.errors import (
    AlreadyExistsError,
    CommitError,
    InvalidInputError,
    LanceletError,
    StorageError,
    redacted,
)
from lancelet.io.uri import parse_uri
from lancelet.namespace.catalog import (
    NAMESPACE,
    TABLE,
    Catalog,
    Entry,
    Folder,
    TableState,
    check_location,
    check_name,
    is_listed_location,
    listed_location,
)
from lancelet.namespace.context import DynamicContextProvider, provider_of, without_provider
from lancelet.namespace.history import HistoryOperations
from lancelet.namespace.operations import mode_of, not_found, page_of, read_stream, text_of
from lancelet.namespace.tables import TableOperations

_STORAGE = "storage."

_REQUEST_OPTIONS: Final = frozenset(
    {
        "access_key_id",
        "aws_access_key_id",
        "aws_region",
        "aws_secret_access_key",
        "aws_session_token",
        "azure_storage_sas_key",
        "azure_storage_sas_token",
        "azure_storage_token",
        "bearer_token",
        "expires_at_millis",
        "google_bearer_token",
        "region",
        "sas_key",
        "sas_token",
        "secret_access_key",
        "session_token",
        "token",
    }
)
"""The storage options accepted in requests, in lower case: the region and credentials of the
caller."""


class DirectoryNamespace(TableOperations, HistoryOperations, ln.LanceNamespace):  # type: ignore[misc]  # its stubs are not read
    """A namespace of the tables in a folder."""

    def __init__(
        self,
        session: Session | None = None,
        context_provider: DynamicContextProvider | None = None,
        **properties: str,
    ) -> None:
        """Open a folder.

        Args:
            session: Has no effect: sessions are given when a dataset is opened.
            context_provider: Called before each operation, as in `RestNamespace`.
            **properties: `root`, the folder; `manifest_enabled` and `dir_listing_enabled`, both
                true by default; `storage.x` for each storage option `x`; `ops_metrics_enabled`,
                which counts operations; and `table_version_tracking_enabled`, which makes the
                namespace manage the versions of tables that are opened by name.
        """
        del session
        given = {name: str(value) for name, value in properties.items()}
        provider = context_provider or provider_of(given)
        settings = without_provider(given)
        if "root" not in settings:
            raise InvalidInputError("a directory namespace requires the property `root`")
        options = {
            name.removeprefix(_STORAGE): value
            for name, value in settings.items()
            if name.startswith(_STORAGE)
        }
        self._root = settings["root"].rstrip("/") or "/"
        self._is_catalogued = _is_true(settings.get("manifest_enabled"))
        self._is_listed = _is_true(settings.get("dir_listing_enabled"))
        self._manages = settings.get("table_version_tracking_enabled") == "true" or None
        super().__init__(provider, counts=settings.get("ops_metrics_enabled") == "true")
        self._catalog = Catalog(self._root, options)
        self._folder = Folder(self._root, options)

    def namespace_id(self) -> str:
        """Return a text that identifies the namespace."""
        parsed = parse_uri(self._root)
        shown = f"{parsed.authority}{parsed.path}" if parsed.scheme == "file" else self._root
        return f'DirectoryNamespace {{ root: "{redacted(shown)}" }}'

    def __repr__(self) -> str:
        return f"DirectoryNamespace({self.namespace_id()})"

    # --- namespaces ----------------------------------------------------------------------------

    def create_namespace(self, request: ln.CreateNamespaceRequest) -> ln.CreateNamespaceResponse:
        """Create a namespace within an existing parent."""
        path = self._begin("create_namespace", request)
        self._need_catalog()
        if not path:
            raise ln.NamespaceAlreadyExistsError("Namespace already exists: root namespace")
        self._require_namespace(path[:-1], "parent namespace ")
        properties = request.properties or None
        is_free = self._find(path) is None
        if not is_free or not self._catalog.add(Entry(path, NAMESPACE, None, properties)):
            raise ln.NamespaceAlreadyExistsError(f"Namespace already exists: {text_of(path)}")
        return ln.CreateNamespaceResponse(properties=properties)

    def list_namespaces(self, request: ln.ListNamespacesRequest) -> ln.ListNamespacesResponse:
        """Return the names of the child namespaces."""
        path = self._begin("list_namespaces", request)
        names = [entry.path[-1] for entry in self._catalog.children(path, NAMESPACE)]
        shown, token = page_of(names, request)
        return ln.ListNamespacesResponse(namespaces=shown, page_token=token)

    def describe_namespace(
        self, request: ln.DescribeNamespaceRequest
    ) -> ln.DescribeNamespaceResponse:
        """Return the properties of a namespace."""
        path = self._begin("describe_namespace", request)
        entry = self._require_namespace(path)
        return ln.DescribeNamespaceResponse(
            properties=dict(entry.properties or {}) if entry else {}
        )

    def namespace_exists(self, request: ln.NamespaceExistsRequest) -> ln.NamespaceExistsResponse:
        """Raise if a namespace does not exist."""
        self._require_namespace(self._begin("namespace_exists", request))
        return ln.NamespaceExistsResponse()

    def drop_namespace(self, request: ln.DropNamespaceRequest) -> ln.DropNamespaceResponse:
        """Drop an empty namespace."""
        path = self._begin("drop_namespace", request)
        if not path:
            raise ln.InvalidInputError("Root namespace cannot be dropped")
        entry = self._require_namespace(path)
        children = self._catalog.children(path)
        if children:
            raise ln.NamespaceNotEmptyError(
                f"Namespace not empty: '{text_of(path)}' (contains {len(children)} child objects)"
            )
        if entry is not None:
            self._catalog.remove(entry)
        return ln.DropNamespaceResponse(properties=dict((entry and entry.properties) or {}))

    # --- tables --------------------------------------------------------------------------------

    def list_tables(self, request: ln.ListTablesRequest) -> ln.ListTablesResponse:
        """Return the names of the tables in a namespace."""
        path = self._begin("list_tables", request)
        rows = self._catalog.all() if self._is_catalogued else []
        tables = [row.path for row in rows if row.object_type == TABLE]
        names = {table[-1] for table in tables if table[:-1] == path}
        if not path:
            names |= self._listed_names(rows)
        shown, token = page_of(sorted(names), request)
        return ln.ListTablesResponse(tables=shown, page_token=token)

    def list_all_tables(self, request: ln.ListTablesRequest) -> ln.ListTablesResponse:
        """Return the paths of the tables of all namespaces, joined with `$`."""
        self._begin("list_all_tables", request)
        rows = self._catalog.all() if self._is_catalogued else []
        names = {row.object_id for row in rows if row.object_type == TABLE}
        shown, token = page_of(sorted(names | self._listed_names(rows)), request)
        return ln.ListTablesResponse(tables=shown, page_token=token)

    def describe_table(self, request: ln.DescribeTableRequest) -> ln.DescribeTableResponse:
        """Return the location of a table and, on request, its schema and version."""
        path = self._begin("describe_table", request)
        entry = self._require_table(path)
        location = entry.location or ""
        answer = ln.DescribeTableResponse(
            table=path[-1],
            namespace=list(path[:-1]),
            location=self._folder.uri_of(location),
            table_uri=self._folder.uri_of(location),
            properties=dict(entry.properties) if entry.properties else None,
            managed_versioning=self._manages,
        )
        return self._with_details(answer, request, lambda: self._folder.has_table(location))

    def table_exists(self, request: ln.TableExistsRequest) -> ln.TableExistsResponse:
        """Raise if a table does not exist."""
        self._require_table(self._begin("table_exists", request))
        return ln.TableExistsResponse()

    def create_table(
        self, request: ln.CreateTableRequest, request_data: bytes
    ) -> ln.CreateTableResponse:
        """Create a table from rows in the Arrow IPC stream format."""
        path = self._table_path("create_table", request)
        rows = read_stream(request_data, "create_table")
        mode = mode_of(request)
        entry = self._find(path)
        location = (entry.location or "") if entry is not None else self._new_location(path)
        if entry is not None and (entry.object_type != TABLE or self._folder.has_table(location)):
            if entry.object_type != TABLE or mode == "create":
                raise ln.TableAlreadyExistsError(f"Table already exists: {path[-1]}")
            if mode == "existok":
                return ln.CreateTableResponse(location=self._folder.uri_of(location))
        given = _request_options(request.storage_options)
        options = {**self._folder.storage_options, **given}
        try:
            dataset = write_dataset(
                rows,
                self._folder.uri_of(location),
                mode="overwrite" if mode == "overwrite" else "create",
                storage_options=options or None,
            )
        except AlreadyExistsError as error:
            raise ln.TableAlreadyExistsError(f"Table already exists: {path[-1]}") from error
        if entry is None:
            entry = Entry(path, TABLE, location, request.properties or None)
            self._record_created(entry)
        return ln.CreateTableResponse(
            location=self._folder.uri_of(location),
            version=dataset.version,
            properties=dict(entry.properties) if entry.properties else None,
        )

    def declare_table(self, request: ln.DeclareTableRequest) -> ln.DeclareTableResponse:
        """Reserve a name for a table that is written later."""
        path = self._table_path("declare_table", request)
        found = self._find(path)
        if found is not None and (
            found.is_recorded
            or not self._is_catalogued
            or self._folder.state_of(found.location or "") is not TableState.DECLARED
        ):
            raise ln.TableAlreadyExistsError(f"Table already exists: {path[-1]}")
        location = (found.location or "") if found is not None else self._new_location(path)
        entry = Entry(path, TABLE, location, request.properties or None)
        self._folder.reserve(location)
        if self._is_catalogued and not self._catalog.add(entry):
            raise ln.TableAlreadyExistsError(f"Table already exists: {path[-1]}")
        return ln.DeclareTableResponse(
            location=self._folder.uri_of(location),
            properties=dict(entry.properties) if entry.properties else None,
            managed_versioning=self._manages,
        )

    def register_table(self, request: ln.RegisterTableRequest) -> ln.RegisterTableResponse:
        """Register an existing table of the folder under a name."""
        path = self._table_path("register_table", request)
        self._need_catalog()
        location = check_location(request.location)
        self._require_namespace(path[:-1], "parent namespace ")
        found = self._find(path)
        if found is not None and (found.is_recorded or found.location != location):
            raise ln.TableAlreadyExistsError(f"Table already exists: {path[-1]}")
        self._refuse_registered(location)
        if self._folder.state_of(location) is TableState.DROPPED:
            raise ln.InvalidInputError(
                f"Invalid input: the table at {location!r} is being dropped; register another one"
            )
        self._folder.show(location)
        if not self._catalog.add(Entry(path, TABLE, location, request.properties)):
            raise ln.TableAlreadyExistsError(f"Table already exists: {path[-1]}")
        return ln.RegisterTableResponse(location=location, properties=request.properties)

    def deregister_table(self, request: ln.DeregisterTableRequest) -> ln.DeregisterTableResponse:
        """Remove the name of a table without deleting its files."""
        path = self._table_path("deregister_table", request)
        self._need_catalog()
        entry = self._recorded(self._require_table(path))
        location = entry.location or ""
        if is_listed_location(location) and len(self._catalog.at_location(location)) == 1:
            self._folder.hide(location)
        if not self._catalog.remove(entry):
            raise not_found(path)
        return ln.DeregisterTableResponse(id=list(path), location=self._folder.uri_of(location))

    def drop_table(self, request: ln.DropTableRequest) -> ln.DropTableResponse:
        """Delete a table.

        If deleting the files fails, the name is already removed, and a repeated drop deletes them.
        """
        path = self._table_path("drop_table", request)
        entry = self._find_table(path)
        if entry is None:
            location = self._finish_drop(path)
            return ln.DropTableResponse(id=list(path), location=self._folder.uri_of(location))
        location = entry.location or ""
        self._folder.check_droppable(location)
        if self._is_catalogued:
            entry = self._recorded(entry)
            self._refuse_registered(location, entry)
            dropped = self._catalog.drop(entry)
            if dropped is None:
                raise not_found(path)
            self._delete_files(dropped)
        else:
            self._folder.hide(location, drops=True)
            self._folder.drop(location)
        return ln.DropTableResponse(id=list(path), location=self._folder.uri_of(location))

    def rename_table(self, request: ln.RenameTableRequest) -> ln.RenameTableResponse:
        """Change the name of a table; its files are not moved."""
        path = self._table_path("rename_table", request)
        self._need_catalog()
        entry = self._require_table(path)
        parent = request.new_namespace_id
        target = (*(path[:-1] if parent is None else parent), request.new_table_name)
        for each in target:
            check_name(each)
        self._require_namespace(target[:-1], "parent namespace ")
        is_free = self._find(target) is None
        is_renamed = is_free and self._catalog.rename(self._recorded(entry), target)
        if is_renamed is None:
            raise not_found(path)
        if not is_renamed:
            raise ln.TableAlreadyExistsError(f"Table already exists: {target[-1]}")
        return ln.RenameTableResponse()

    # --- shared helpers ------------------------------------------------------------------------

    def _begin_with(self, operation: str, path: Sequence[str]) -> tuple[str, ...]:
        return super()._begin_with(operation, [check_name(part) for part in path])

    def _location_of(self, path: Sequence[str]) -> tuple[str, dict[str, str]]:
        entry = self._require_table(path)
        return self._folder.uri_of(entry.location or ""), self._folder.storage_options

    def _table_path(self, operation: str, request: Any) -> tuple[str, ...]:
        path = self._begin(operation, request)
        if not path:
            raise ln.InvalidInputError("Invalid input: Table ID cannot be empty")
        if not self._is_catalogued and len(path) > 1:
            self._need_catalog()
        return path

    def _listed_names(self, rows: Sequence[Entry]) -> set[str]:
        """Return the listed tables of the root that are not in the catalog."""
        if not self._is_listed:
            return set()
        return set(self._folder.listed_names({row.location for row in rows if row.location}))

    def _new_location(self, path: tuple[str, ...]) -> str:
        """Return the location of a new table: its name if listings show it and it is free."""
        if not self._is_listed or len(path) > 1:
            return self._folder.new_location(path)
        location = listed_location(path)
        hidden = {TableState.DEREGISTERED, TableState.DROPPED}
        is_hidden = self._folder.state_of(location) in hidden
        if not self._is_catalogued:
            if is_hidden:
                raise ln.TableAlreadyExistsError(
                    f"Table already exists: the files of a deregistered or dropped table are at "
                    f"{location!r}; drop it again or choose another name"
                )
            return location
        is_taken = is_hidden or self._catalog.at_location(location)
        return self._folder.new_location(path) if is_taken else location

    def _record_created(self, entry: Entry) -> None:
        """Add a catalog row for a table that was just written.

        A listed table without properties needs no row, so it exists even if adding the row fails.
        Any other table is deleted again, because its name does not exist.
        """
        if not self._is_catalogued:
            return
        location = entry.location or ""
        try:
            is_free = self._catalog.add(entry)
        except (StorageError, CommitError):
            if self._is_listed and is_listed_location(location) and not entry.properties:
                return
            if any(row.location == location for row in self._catalog.find(entry.path)):
                return  # the row was added before the failed request
            self._delete_unnamed(location)
            raise
        if not is_free:
            self._delete_unnamed(location)
            raise ln.TableAlreadyExistsError(f"Table already exists: {entry.path[-1]}")

    def _delete_unnamed(self, location: str) -> None:
        """Delete the files of a table that could not be created; ignore errors."""
        with suppress(LanceletError):
            self._folder.drop(location)

    def _finish_drop(self, path: tuple[str, ...]) -> str:
        """Delete the files left by an interrupted drop, and return their location."""
        location = ""
        for dropped in self._catalog.dropped(path) if self._is_catalogued else []:
            location = dropped.location or ""
            self._delete_files(dropped)
        if location:
            return location
        location = listed_location(path)
        if (
            len(path) > 1
            or not self._is_listed
            or self._folder.state_of(location) is not TableState.DROPPED
        ):
            raise not_found(path)
        self._folder.drop(location)
        return location

    def _delete_files(self, dropped: Entry) -> None:
        location = dropped.location or ""
        if is_listed_location(location):
            self._folder.hide(location, drops=True)
        self._folder.drop(location)
        # A remaining row reserves the location, and the next drop removes it.
        with suppress(StorageError, CommitError):
            self._catalog.remove(dropped)

    def _recorded(self, entry: Entry) -> Entry:
        """Return the entry of a table; add its catalog row if missing."""
        if not entry.is_recorded:
            self._catalog.add(entry)
        return entry

    def _refuse_registered(self, location: str, own: Entry | None = None) -> None:
        """Raise if a location is registered under another name.

        Raises:
            ln.InvalidInputError: If an entry other than `own` has the location.
        """
        for other in self._catalog.at_location(location):
            if own is None or other.path != own.path:
                named = "a table that is being dropped"
                if other.object_type == TABLE:
                    named = f"the table '{text_of(other.path)}'"
                raise ln.InvalidInputError(
                    f"Invalid input: the location {location!r} belongs to {named}; rename or "
                    "deregister that one first"
                )

    def _find(self, path: Sequence[str]) -> Entry | None:
        """Return the entry of a namespace or table, or None."""
        is_shown = self._is_listed and len(path) == 1
        location = listed_location(path) if is_shown else None
        found = self._catalog.find(path, location) if self._is_catalogued else []
        for entry in found:
            if entry.path == tuple(path):
                return entry
        if location is None or found:
            return None
        if self._folder.state_of(location) not in {TableState.WRITTEN, TableState.DECLARED}:
            return None
        return Entry(tuple(path), TABLE, location, is_recorded=False)

    def _find_table(self, path: Sequence[str]) -> Entry | None:
        entry = self._find(path)
        return entry if entry is not None and entry.object_type == TABLE else None

    def _require_table(self, path: Sequence[str]) -> Entry:
        if not path:
            raise ln.InvalidInputError("Invalid input: Table ID cannot be empty")
        entry = self._find_table(path)
        if entry is None:
            raise not_found(path)
        return entry

    def _require_namespace(self, path: Sequence[str], prefix: str = "") -> Entry | None:
        """Return the entry of a namespace; None for the root."""
        if not path:
            return None
        found = self._catalog.find(path) if self._is_catalogued else []
        entry = found[0] if found else None
        if entry is None or entry.object_type != NAMESPACE:
            named = f"{prefix}'{text_of(path)}'" if prefix else text_of(path)
            raise ln.NamespaceNotFoundError(f"Namespace not found: {named}")
        return entry

    def _need_catalog(self) -> None:
        if not self._is_catalogued:
            raise ln.UnsupportedOperationError(
                "Unsupported: Child namespaces are only supported when manifest mode is enabled"
            )


def _is_true(value: str | None) -> bool:
    return (value or "true").lower() == "true"


def _request_options(given: Mapping[str, str] | None) -> dict[str, str]:
    """Return the storage options of a request, which are limited to credentials.

    Raises:
        ln.InvalidInputError: If an option would change the storage of the namespace.
    """
    refused = sorted(name for name in given or {} if name.lower() not in _REQUEST_OPTIONS)
    if refused:
        raise ln.InvalidInputError(
            f"Invalid input: the storage option {refused[0]!r} cannot be set by a request; "
            f"accepted options are {', '.join(sorted(_REQUEST_OPTIONS))}"
        )
    return {name.lower(): value for name, value in (given or {}).items()}
