"""A namespace in a folder: a table of names beside the tables, and no server.

    root/__manifest/            which names there are, and where their tables lie
    root/orders.lance/          the table `orders` of the root
    root/1f0c9a2e_sales$q/      the table `q` of the namespace `sales`

Tables in the root are found by listing the folder too, so that those that were written without
the namespace have a name as well.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

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
    NamespaceNotEmptyError,
    NamespaceNotFoundError,
    RegisterTableRequest,
    RegisterTableResponse,
    RenameTableRequest,
    RenameTableResponse,
    TableAlreadyExistsError,
    TableExistsRequest,
    TableExistsResponse,
    TableNotFoundError,
    UnsupportedOperationError,
)
from lance_namespace_urllib3_client.models import JsonArrowSchema, TableBasicStats

from lancelet.dataset.session import Session
from lancelet.dataset.write.write import write_dataset
from lancelet.errors import InvalidInputError as OurInvalidInputError
from lancelet.io.uri import parse_uri
from lancelet.namespace.catalog import (
    NAMESPACE,
    SEPARATOR,
    TABLE,
    Catalog,
    Entry,
    Folder,
    check_location,
    check_name,
)
from lancelet.namespace.context import DynamicContextProvider, provider_of, without_provider
from lancelet.namespace.history import HistoryOperations
from lancelet.namespace.operations import read_stream
from lancelet.namespace.tables import TableOperations
from lancelet.namespace.types import schema_form
from lancelet.table.handlers.choose import MANIFEST_STORE

_STORAGE = "storage."


class DirectoryNamespace(TableOperations, HistoryOperations, LanceNamespace):  # type: ignore[misc]  # its stubs are not read
    """Names for the tables of a folder."""

    def __init__(
        self,
        session: Session | None = None,
        context_provider: DynamicContextProvider | None = None,
        **properties: str,
    ) -> None:
        """Look at a folder.

        Args:
            session: Has no effect: a dataset is given one when it is opened.
            context_provider: Asked before each operation, as it is by `RestNamespace`.
            **properties: `root`, the folder; `manifest_enabled` and `dir_listing_enabled`, both
                true by default; `storage.x` for each storage option `x`;
                `ops_metrics_enabled`, which counts operations; and
                `table_version_tracking_enabled`, which has tables that are opened by name ask
                here for their versions.
        """
        del session
        given = {name: str(value) for name, value in properties.items()}
        provider = context_provider or provider_of(given)
        settings = without_provider(given)
        if "root" not in settings:
            raise OurInvalidInputError("a namespace in a folder needs the property `root`")
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
        """Return text that identifies the namespace."""
        place = parse_uri(self._root)
        shown = f"{place.authority}{place.path}" if place.scheme == "file" else self._root
        return f'DirectoryNamespace {{ root: "{shown}" }}'

    def __repr__(self) -> str:
        return f"DirectoryNamespace({self.namespace_id()})"

    # --- namespaces ----------------------------------------------------------------------------

    def create_namespace(self, request: CreateNamespaceRequest) -> CreateNamespaceResponse:
        """Take a name for a namespace within one that there is."""
        path = self._begin("create_namespace", request)
        self._need_catalog()
        if not path:
            raise NamespaceAlreadyExistsError("Namespace already exists: root namespace")
        self._require_namespace(path[:-1], "parent namespace ")
        properties = request.properties or None
        if not self._catalog.add(Entry(path, NAMESPACE, None, properties)):
            raise NamespaceAlreadyExistsError(f"Namespace already exists: {_text(path)}")
        return CreateNamespaceResponse(properties=properties)

    def list_namespaces(self, request: ListNamespacesRequest) -> ListNamespacesResponse:
        """Return the names of the namespaces within one."""
        path = self._begin("list_namespaces", request)
        names = [entry.path[-1] for entry in self._catalog.children(path, NAMESPACE)]
        shown, token = _page(names, request)
        return ListNamespacesResponse(namespaces=shown, page_token=token)

    def describe_namespace(self, request: DescribeNamespaceRequest) -> DescribeNamespaceResponse:
        """Return the properties of a namespace."""
        path = self._begin("describe_namespace", request)
        entry = self._require_namespace(path)
        return DescribeNamespaceResponse(properties=dict(entry.properties or {}) if entry else {})

    def namespace_exists(self, request: NamespaceExistsRequest) -> NamespaceExistsResponse:
        """Raise unless there is a namespace."""
        self._require_namespace(self._begin("namespace_exists", request))
        return NamespaceExistsResponse()

    def drop_namespace(self, request: DropNamespaceRequest) -> DropNamespaceResponse:
        """Give up the name of a namespace that holds nothing."""
        path = self._begin("drop_namespace", request)
        if not path:
            raise InvalidInputError("Root namespace cannot be dropped")
        entry = self._require_namespace(path)
        held = self._catalog.children(path)
        if held:
            raise NamespaceNotEmptyError(
                f"Namespace not empty: '{_text(path)}' (contains {len(held)} child objects)"
            )
        self._catalog.remove(path)
        return DropNamespaceResponse(properties=dict((entry and entry.properties) or {}))

    # --- tables --------------------------------------------------------------------------------

    def list_tables(self, request: ListTablesRequest) -> ListTablesResponse:
        """Return the names of the tables within a namespace."""
        path = self._begin("list_tables", request)
        names = set(self._folder.listed_tables()) if self._is_listed and not path else set()
        if self._is_catalogued:
            names |= {entry.path[-1] for entry in self._catalog.children(path, TABLE)}
        shown, token = _page(sorted(names), request)
        return ListTablesResponse(tables=shown, page_token=token)

    def list_all_tables(self, request: ListTablesRequest) -> ListTablesResponse:
        """Return the tables of all namespaces, each by its path joined with `$`."""
        self._begin("list_all_tables", request)
        names = set(self._folder.listed_tables()) if self._is_listed else set()
        if self._is_catalogued:
            names |= {each.object_id for each in self._catalog.all() if each.object_type == TABLE}
        shown, token = _page(sorted(names), request)
        return ListTablesResponse(tables=shown, page_token=token)

    def describe_table(self, request: DescribeTableRequest) -> DescribeTableResponse:
        """Return where a table is, and what it is like if that is asked for."""
        path = self._begin("describe_table", request)
        entry = self._require_table(path)
        location = entry.location or ""
        answer = DescribeTableResponse(
            table=path[-1],
            namespace=list(path[:-1]),
            location=self._folder.uri_of(location),
            table_uri=self._folder.uri_of(location),
            properties=dict(entry.properties) if entry.properties else None,
            managed_versioning=self._manages,
        )
        if request.load_detailed_metadata or request.check_declared:
            answer.is_only_declared = not self._folder.has_table(location)
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
        """Raise unless there is a table."""
        self._require_table(self._begin("table_exists", request))
        return TableExistsResponse()

    def create_table(self, request: CreateTableRequest, request_data: bytes) -> CreateTableResponse:
        """Write a table, of rows in Arrow's stream format."""
        path = self._table_path("create_table", request)
        rows = read_stream(request_data, "create_table")
        mode = (request.mode or "create").lower().replace("exist_ok", "existok")
        entry = self._find_table(path)
        if entry is not None and mode == "create":
            raise TableAlreadyExistsError(f"Table already exists: {path[-1]}")
        if entry is not None and mode == "existok":
            return CreateTableResponse(location=self._folder.uri_of(entry.location or ""))
        if request.storage_options and MANIFEST_STORE in request.storage_options:
            raise InvalidInputError(
                f"Invalid input: {MANIFEST_STORE} is a setting of the namespace, not of a request"
            )
        entry = entry or self._enter(path, request.properties)
        location = self._folder.uri_of(entry.location or "")
        options = {**self._folder.storage_options, **(request.storage_options or {})}
        dataset = write_dataset(
            rows,
            location,
            mode="overwrite" if mode == "overwrite" else "create",
            storage_options=options or None,
        )
        return CreateTableResponse(
            location=location,
            version=dataset.version,
            properties=dict(entry.properties) if entry.properties else None,
        )

    def declare_table(self, request: DeclareTableRequest) -> DeclareTableResponse:
        """Take a name for a table that is written later."""
        path = self._table_path("declare_table", request)
        entry = self._enter(path, request.properties)
        location = entry.location or ""
        self._folder.reserve(location)
        return DeclareTableResponse(
            location=self._folder.uri_of(location),
            properties=dict(entry.properties) if entry.properties else None,
            managed_versioning=self._manages,
        )

    def create_empty_table(self, request: Any) -> Any:
        """Take a name for a table that is written later; an old name for `declare_table`."""
        asked = DeclareTableRequest(id=request.id, location=getattr(request, "location", None))
        return self.declare_table(asked)

    def register_table(self, request: RegisterTableRequest) -> RegisterTableResponse:
        """Give a name to a table that is in the folder already."""
        path = self._table_path("register_table", request)
        self._need_catalog()
        location = check_location(request.location)
        self._require_namespace(path[:-1], "parent namespace ")
        if not self._catalog.add(Entry(path, TABLE, location, request.properties)):
            raise TableAlreadyExistsError(f"Table already exists: {path[-1]}")
        return RegisterTableResponse(location=location, properties=request.properties)

    def deregister_table(self, request: DeregisterTableRequest) -> DeregisterTableResponse:
        """Give up the name of a table, which stays where it is."""
        path = self._table_path("deregister_table", request)
        self._need_catalog()
        entry = self._require_table(path)
        self._catalog.remove(path)
        location = self._folder.uri_of(entry.location or "")
        return DeregisterTableResponse(id=list(path), location=location)

    def drop_table(self, request: DropTableRequest) -> DropTableResponse:
        """Delete a table."""
        path = self._table_path("drop_table", request)
        entry = self._require_table(path)
        self._folder.check_droppable(entry.location or "")
        if self._is_catalogued:
            self._catalog.remove(path)
        self._folder.drop(entry.location or "")
        return DropTableResponse(id=list(path), location=self._folder.uri_of(entry.location or ""))

    def rename_table(self, request: RenameTableRequest) -> RenameTableResponse:
        """Give a table another name; it stays where it is."""
        path = self._table_path("rename_table", request)
        self._need_catalog()
        entry = self._require_table(path)
        parent = request.new_namespace_id
        target = (*(path[:-1] if parent is None else parent), request.new_table_name)
        for each in target:
            check_name(each)
        self._require_namespace(target[:-1], "parent namespace ")
        if not self._catalog.add(Entry(target, TABLE, entry.location, entry.properties)):
            raise TableAlreadyExistsError(f"Table already exists: {target[-1]}")
        self._catalog.remove(path)
        return RenameTableResponse()

    # --- what the methods share ----------------------------------------------------------------

    def _begin_with(self, operation: str, path: Sequence[str]) -> tuple[str, ...]:
        return super()._begin_with(operation, [check_name(part) for part in path])

    def _location_of(self, path: Sequence[str]) -> tuple[str, dict[str, str]]:
        entry = self._require_table(path)
        return self._folder.uri_of(entry.location or ""), self._folder.storage_options

    def _table_path(self, operation: str, request: Any) -> tuple[str, ...]:
        path = self._begin(operation, request)
        if not path:
            raise InvalidInputError("Invalid input: Table ID cannot be empty")
        if not self._is_catalogued and len(path) > 1:
            self._need_catalog()
        return path

    def _enter(self, path: tuple[str, ...], properties: dict[str, str] | None) -> Entry:
        """Take a name for a new table, and return where it goes."""
        location = self._folder.new_location(path, is_listed=self._is_listed)
        entry = Entry(path, TABLE, location, properties or None)
        is_free = self._catalog.add(entry) if self._is_catalogued else True
        if not is_free or (len(path) == 1 and self._folder.has_folder(location)):
            raise TableAlreadyExistsError(f"Table already exists: {path[-1]}")
        return entry

    def _find_table(self, path: Sequence[str]) -> Entry | None:
        entry = self._catalog.find(path) if self._is_catalogued else None
        if entry is not None:
            return entry if entry.object_type == TABLE else None
        if not self._is_listed or len(path) != 1:
            return None
        location = self._folder.new_location(path, is_listed=True)
        is_there = self._folder.has_folder(location)
        return Entry(tuple(path), TABLE, location) if is_there else None

    def _require_table(self, path: Sequence[str]) -> Entry:
        if not path:
            raise InvalidInputError("Invalid input: Table ID cannot be empty")
        entry = self._find_table(path)
        if entry is None:
            raise TableNotFoundError(f"Table not found: table id '{_text(path)}'")
        return entry

    def _require_namespace(self, path: Sequence[str], what: str = "") -> Entry | None:
        """Return what is known of a namespace; nothing is of the root."""
        if not path:
            return None
        entry = self._catalog.find(path) if self._is_catalogued else None
        if entry is None or entry.object_type != NAMESPACE:
            named = f"{what}'{_text(path)}'" if what else _text(path)
            raise NamespaceNotFoundError(f"Namespace not found: {named}")
        return entry

    def _need_catalog(self) -> None:
        if not self._is_catalogued:
            raise UnsupportedOperationError(
                "Unsupported: Child namespaces are only supported when manifest mode is enabled"
            )


def _is_true(value: str | None) -> bool:
    return (value or "true").lower() == "true"


def _text(path: Sequence[str]) -> str:
    return SEPARATOR.join(path)


def _page(names: list[str], request: Any) -> tuple[list[str], str | None]:
    """Return the names behind a token, and the token of the next page if there is one."""
    behind = [name for name in names if request.page_token is None or name > request.page_token]
    if request.limit is None or len(behind) <= request.limit:
        return behind, None
    shown = behind[: request.limit]
    return shown, shown[-1] if shown else None
