"""The versions, tags and branches of a table of a namespace."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, Final

import numpy as np
from lance_namespace import (
    AlterTableBackfillColumnsRequest,
    AlterTableBackfillColumnsResponse,
    AlterTransactionRequest,
    AlterTransactionResponse,
    ConcurrentModificationError,
    CreateMaterializedViewRequest,
    CreateMaterializedViewResponse,
    CreateTableBranchRequest,
    CreateTableBranchResponse,
    CreateTableTagRequest,
    CreateTableTagResponse,
    DeleteTableBranchRequest,
    DeleteTableBranchResponse,
    DeleteTableTagRequest,
    DeleteTableTagResponse,
    DescribeTransactionRequest,
    DescribeTransactionResponse,
    GetTableStatsRequest,
    GetTableStatsResponse,
    GetTableTagVersionRequest,
    GetTableTagVersionResponse,
    InvalidInputError,
    ListTableBranchesRequest,
    ListTableBranchesResponse,
    ListTableTagsRequest,
    ListTableTagsResponse,
    ListTableVersionsRequest,
    ListTableVersionsResponse,
    RefreshMaterializedViewRequest,
    RefreshMaterializedViewResponse,
    RestoreTableRequest,
    RestoreTableResponse,
    TableBranchAlreadyExistsError,
    TableBranchNotFoundError,
    TableNotFoundError,
    TableTagAlreadyExistsError,
    TableTagNotFoundError,
    TableVersionNotFoundError,
    TransactionNotFoundError,
    UnsupportedOperationError,
    UpdateTableTagRequest,
    UpdateTableTagResponse,
)
from lance_namespace_urllib3_client.models import (
    BranchContents,
    FragmentStats,
    FragmentSummary,
    TableVersion,
    TagContents,
)

from lancelet.dataset.dataset import LanceDataset
from lancelet.errors import (
    AlreadyExistsError,
    CorruptDataError,
    ObjectNotFoundError,
    RefNotFoundError,
    VersionNotFoundError,
)
from lancelet.format.manifest_file import parse_manifest_file
from lancelet.format.paths import ManifestNaming, manifest_path
from lancelet.io.uri import join, parse_uri
from lancelet.namespace.operations import Operations, transaction_id_of
from lancelet.table.location import TableLocation
from lancelet.table.manifests import find_latest, find_version
from lancelet.table.refs import branch_location

_MILLION: Final = 1_000_000


class HistoryOperations(Operations):
    """Looks at what tables were, and gives versions names."""

    # --- versions ------------------------------------------------------------------------------

    def list_table_versions(self, request: ListTableVersionsRequest) -> ListTableVersionsResponse:
        """Return the versions, oldest first unless asked otherwise."""
        if isinstance(request, Mapping):
            # Tables that pylance opens by name ask so.
            request = ListTableVersionsRequest(**request)
        path = self._begin("list_table_versions", request)
        dataset = self._written(path, request.branch)
        if dataset is None:
            return ListTableVersionsResponse(versions=[])
        numbers = [version["version"] for version in dataset.versions()]
        if request.descending:
            numbers.reverse()
        if request.page_token is not None:
            last = int(request.page_token)
            numbers = [
                each for each in numbers if (each < last if request.descending else each > last)
            ]
        shown = numbers[: request.limit]
        token = str(shown[-1]) if shown and len(shown) < len(numbers) else None
        return ListTableVersionsResponse(
            versions=[_version(dataset, number) for number in shown], page_token=token
        )

    def describe_table_version(self, request: Mapping[str, Any]) -> dict[str, Any]:
        """Return where the manifest of a version is, by default of the latest."""
        path = self._begin_with("describe_table_version", request.get("id") or ())
        dataset = self._written(path, request.get("branch"))
        number = request.get("version")
        try:
            if dataset is None:
                raise TableVersionNotFoundError(f"Table has no versions: {list(path)}")
            found = _version(dataset, number or dataset.version)
        except VersionNotFoundError as error:
            raise TableVersionNotFoundError(f"Table version not found: {number}") from error
        return {"version": found.model_dump(exclude_none=True)}

    def create_table_version(self, request: Mapping[str, Any]) -> dict[str, Any]:
        """Publish a manifest that was written elsewhere in the store as a version."""
        path = self._begin_with("create_table_version", request.get("id") or ())
        uri, options = self._location_of(path)
        location = TableLocation.open(uri, options)
        if request.get("branch"):
            location = branch_location(location, request["branch"])
        version, staged = request["version"], request["manifest_path"]
        inner = staged.lstrip("/").removeprefix(f"{parse_uri(location.uri).path}/")
        if ".." in inner.split("/"):
            raise InvalidInputError(f"Invalid input: path traversal is not allowed: {staged}")
        naming = ManifestNaming[request.get("naming_scheme") or _naming_of(location).name]
        final, store = manifest_path(version, naming), location.store
        try:
            data = store.read(inner)
            _check_manifest(data, version, staged)
            store.put_if_absent(final, data)
        except ObjectNotFoundError as error:
            raise InvalidInputError(f"Invalid input: no manifest is staged at {staged}") from error
        except AlreadyExistsError as error:
            raise ConcurrentModificationError(
                f"Concurrent modification: version {version} is there already"
            ) from error
        size = request.get("manifest_size") or len(data)
        shown = TableVersion(
            version=version,
            manifest_path=join(parse_uri(location.uri).path, final),
            manifest_size=size,
        )
        return {"transaction_id": None, "version": shown.model_dump(exclude_none=True)}

    def batch_delete_table_versions(self, request: Mapping[str, Any]) -> dict[str, Any]:
        """Clean versions up."""
        dataset = self._asked("batch_delete_table_versions", request)
        there = {version["version"] for version in dataset.versions()}
        wanted = sorted(there & {int(number) for number in request.get("versions") or ()})
        dataset.cleanup_old_versions(versions=wanted)
        return {"deleted_versions": wanted}

    def restore_table(self, request: RestoreTableRequest) -> RestoreTableResponse:
        """Make the contents of a version the latest."""
        path = self._begin("restore_table", request)
        dataset = self._open(path, request.version, request.branch)
        dataset.restore()
        return RestoreTableResponse(transaction_id=transaction_id_of(dataset))

    def get_table_stats(self, request: GetTableStatsRequest) -> GetTableStatsResponse:
        """Return how big a table is, and how its rows are spread over fragments."""
        dataset = self._dataset("get_table_stats", request)
        lengths = [fragment.count_rows() for fragment in dataset.get_fragments()]
        p25, p50, p75, p99 = map(int, np.percentile(lengths or [0], [25, 50, 75, 99]))
        summary = FragmentSummary(
            min=min(lengths, default=0),
            max=max(lengths, default=0),
            mean=sum(lengths) // max(len(lengths), 1),
            p25=p25,
            p50=p50,
            p75=p75,
            p99=p99,
        )
        counted = dataset.stats.dataset_stats()
        return GetTableStatsResponse(
            total_bytes=sum(field.bytes_on_disk for field in dataset.stats.data_stats().fields),
            num_rows=sum(lengths),
            num_indices=len(dataset.describe_indices()),
            fragment_stats=FragmentStats(
                num_fragments=counted["num_fragments"],
                num_small_fragments=counted["num_small_files"],
                lengths=summary,
            ),
        )

    # --- tags and branches ---------------------------------------------------------------------

    def list_table_tags(self, request: ListTableTagsRequest) -> ListTableTagsResponse:
        """Return the tags with their versions."""
        found = self._dataset("list_table_tags", request).tags.list()
        tags = {
            name: TagContents(
                branch=tag["branch"],
                version=tag["version"],
                manifest_size=tag["manifest_size"] or 0,
            )
            for name, tag in found.items()
        }
        return ListTableTagsResponse(tags=tags)

    def get_table_tag_version(
        self, request: GetTableTagVersionRequest
    ) -> GetTableTagVersionResponse:
        """Return the version of a tag."""
        dataset = self._dataset("get_table_tag_version", request)
        with _tag_errors(request.tag):
            return GetTableTagVersionResponse(version=dataset.tags.get_version(request.tag))

    def create_table_tag(self, request: CreateTableTagRequest) -> CreateTableTagResponse:
        """Give a version a name."""
        dataset = self._dataset("create_table_tag", request)
        with _tag_errors(request.tag):
            dataset.tags.create(request.tag, request.version)
        return CreateTableTagResponse()

    def update_table_tag(self, request: UpdateTableTagRequest) -> UpdateTableTagResponse:
        """Give the name of a version to another one."""
        dataset = self._dataset("update_table_tag", request)
        with _tag_errors(request.tag):
            dataset.tags.update(request.tag, request.version)
        return UpdateTableTagResponse()

    def delete_table_tag(self, request: DeleteTableTagRequest) -> DeleteTableTagResponse:
        """Give the name of a version up."""
        dataset = self._dataset("delete_table_tag", request)
        with _tag_errors(request.tag):
            dataset.tags.delete(request.tag)
        return DeleteTableTagResponse()

    def list_table_branches(self, request: ListTableBranchesRequest) -> ListTableBranchesResponse:
        """Return the branches with where they began."""
        found = self._dataset("list_table_branches", request).branches.list()
        branches = {
            name: BranchContents(
                parent_branch=branch["parent_branch"],
                parent_version=branch["parent_version"],
                create_at=branch["create_at"],
                manifest_size=branch["manifest_size"] or 0,
            )
            for name, branch in found.items()
        }
        return ListTableBranchesResponse(branches=branches)

    def create_table_branch(self, request: CreateTableBranchRequest) -> CreateTableBranchResponse:
        """Begin a branch at a version, by default the latest."""
        dataset = self._dataset("create_table_branch", request)
        begin: Any = request.from_version
        if request.from_branch is not None:
            begin = (request.from_branch, request.from_version)
        try:
            dataset.create_branch(request.name, begin)
        except AlreadyExistsError as error:
            raise TableBranchAlreadyExistsError(
                f"Table branch already exists: {request.name}"
            ) from error
        return CreateTableBranchResponse()

    def delete_table_branch(self, request: DeleteTableBranchRequest) -> DeleteTableBranchResponse:
        """Delete a branch."""
        dataset = self._dataset("delete_table_branch", request)
        try:
            dataset.branches.delete(request.name)
        except RefNotFoundError as error:
            raise TableBranchNotFoundError(f"Table branch not found: {request.name}") from error
        return DeleteTableBranchResponse()

    # --- transactions, and what a folder has no means for ---------------------------------------

    def describe_transaction(
        self, request: DescribeTransactionRequest
    ) -> DescribeTransactionResponse:
        """Return a transaction of a table, whose id is the last part of the path."""
        *path, wanted = self._begin("describe_transaction", request)
        dataset = self._open(path)
        for transaction in dataset.get_transactions(len(dataset.versions())):
            if transaction is not None and transaction.uuid == wanted:
                properties = dict(transaction.transaction_properties or {})
                return DescribeTransactionResponse(status="SUCCEEDED", properties=properties)
        raise TransactionNotFoundError(f"Transaction not found: {wanted}")

    def alter_transaction(self, request: AlterTransactionRequest) -> AlterTransactionResponse:
        """Refuse: what is committed stays as it is."""
        self._begin("alter_transaction", request)
        raise UnsupportedOperationError("Unsupported: a transaction of a folder is final")

    def alter_table_backfill_columns(
        self, request: AlterTableBackfillColumnsRequest
    ) -> AlterTableBackfillColumnsResponse:
        """Refuse: there is nobody to do the work."""
        self._begin("alter_table_backfill_columns", request)
        raise UnsupportedOperationError("Unsupported: a folder has no jobs")

    def create_materialized_view(
        self, request: CreateMaterializedViewRequest
    ) -> CreateMaterializedViewResponse:
        """Refuse: there is nobody to do the work."""
        self._begin("create_materialized_view", request)
        raise UnsupportedOperationError("Unsupported: a folder has no views")

    def refresh_materialized_view(
        self, request: RefreshMaterializedViewRequest
    ) -> RefreshMaterializedViewResponse:
        """Refuse: there is nobody to do the work."""
        self._begin("refresh_materialized_view", request)
        raise UnsupportedOperationError("Unsupported: a folder has no views")

    def _written(self, path: Sequence[str], branch: str | None) -> LanceDataset | None:
        """Return a table or its branch, or None if nothing was written there yet."""
        self._location_of(path)
        try:
            return self._open(path, None, branch)
        except (TableNotFoundError, RefNotFoundError):
            return None

    def _asked(self, operation: str, request: Mapping[str, Any]) -> LanceDataset:
        path = self._begin_with(operation, request.get("id") or ())
        return self._open(path, None, request.get("branch"))


def _version(dataset: LanceDataset, number: int) -> TableVersion:
    location = dataset.handle.location
    manifest = find_version(location.store, number, uri=location.uri)
    at_version = dataset if dataset.version == number else dataset.checkout_version(number)
    return TableVersion(
        version=number,
        manifest_path=parse_uri(join(location.uri, manifest.path)).path,
        manifest_size=manifest.size,
        e_tag=manifest.etag,
        timestamp_millis=at_version.snapshot.manifest.timestamp_ns // _MILLION,
    )


def _check_manifest(data: bytes, version: int, staged: str) -> None:
    """Refuse to publish what would leave a table that nobody can read."""
    try:
        found = parse_manifest_file(np.frombuffer(data, np.uint8)).manifest.version
    except CorruptDataError as error:
        raise InvalidInputError(f"Invalid input: no manifest is staged at {staged}") from error
    if found != version:
        raise InvalidInputError(
            f"Invalid input: the manifest at {staged} is of version {found}, not {version}"
        )


def _naming_of(location: TableLocation) -> ManifestNaming:
    latest = find_latest(location.store)
    return ManifestNaming.V2 if latest is None else latest.naming


@contextmanager
def _tag_errors(tag: str) -> Iterator[None]:
    try:
        yield
    except RefNotFoundError as error:
        raise TableTagNotFoundError(f"Table tag not found: '{tag}'") from error
    except AlreadyExistsError as error:
        raise TableTagAlreadyExistsError(f"Table tag already exists: '{tag}'") from error
