"""Namespace operations on versions, tags and branches of tables."""

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
    """Operations on versions, tags and branches."""

    # --- versions ------------------------------------------------------------------------------

    def list_table_versions(self, request: ListTableVersionsRequest) -> ListTableVersionsResponse:
        """Return the versions, oldest first by default."""
        if isinstance(request, Mapping):
            # pylance requests the newest version like this to open a table by name.
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
        """Return the manifest path of a version, by default the latest."""
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
        """Publish a staged manifest as a version."""
        path = self._begin_with("create_table_version", request.get("id") or ())
        uri, options = self._location_of(path)
        location = TableLocation.open(uri, options)
        if request.get("branch"):
            location = branch_location(location, request["branch"])
        version, staged = request["version"], request["manifest_path"]
        inner = staged.lstrip("/").removeprefix(f"{parse_uri(location.uri).path}/")
        if ".." in inner.split("/"):
            raise InvalidInputError(f"Invalid input: path traversal is not allowed: {staged}")
        naming = ManifestNaming[request.get("naming_scheme") or _manifest_naming(location).name]
        final, store = manifest_path(version, naming), location.store
        try:
            data = store.read(inner)
            _check_manifest(data, version, staged)
            store.put_if_absent(final, data)
        except ObjectNotFoundError as error:
            raise InvalidInputError(f"Invalid input: no manifest is staged at {staged}") from error
        except AlreadyExistsError as error:
            raise ConcurrentModificationError(
                f"Concurrent modification: version {version} already exists"
            ) from error
        size = request.get("manifest_size") or len(data)
        shown = TableVersion(
            version=version,
            manifest_path=join(parse_uri(location.uri).path, final),
            manifest_size=size,
        )
        return {"transaction_id": None, "version": shown.model_dump(exclude_none=True)}

    def batch_delete_table_versions(self, request: Mapping[str, Any]) -> dict[str, Any]:
        """Delete versions."""
        dataset = self._open_requested("batch_delete_table_versions", request)
        existing = {version["version"] for version in dataset.versions()}
        selected = sorted(existing & {int(number) for number in request.get("versions") or ()})
        dataset.cleanup_old_versions(versions=selected)
        return {"deleted_versions": selected}

    def restore_table(self, request: RestoreTableRequest) -> RestoreTableResponse:
        """Commit an old version as the latest."""
        path = self._begin("restore_table", request)
        dataset = self._open(path, request.version, request.branch)
        dataset.restore()
        return RestoreTableResponse(transaction_id=transaction_id_of(dataset))

    def get_table_stats(self, request: GetTableStatsRequest) -> GetTableStatsResponse:
        """Return the size of a table and the distribution of its rows over fragments."""
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
        """Return the version number of a tag."""
        dataset = self._dataset("get_table_tag_version", request)
        with _tag_errors(request.tag):
            return GetTableTagVersionResponse(version=dataset.tags.get_version(request.tag))

    def create_table_tag(self, request: CreateTableTagRequest) -> CreateTableTagResponse:
        """Create a tag for a version."""
        dataset = self._dataset("create_table_tag", request)
        with _tag_errors(request.tag):
            dataset.tags.create(request.tag, request.version)
        return CreateTableTagResponse()

    def update_table_tag(self, request: UpdateTableTagRequest) -> UpdateTableTagResponse:
        """Move a tag to another version."""
        dataset = self._dataset("update_table_tag", request)
        with _tag_errors(request.tag):
            dataset.tags.update(request.tag, request.version)
        return UpdateTableTagResponse()

    def delete_table_tag(self, request: DeleteTableTagRequest) -> DeleteTableTagResponse:
        """Delete a tag."""
        dataset = self._dataset("delete_table_tag", request)
        with _tag_errors(request.tag):
            dataset.tags.delete(request.tag)
        return DeleteTableTagResponse()

    def list_table_branches(self, request: ListTableBranchesRequest) -> ListTableBranchesResponse:
        """Return the branches with their parent versions."""
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
        """Create a branch at a version, by default the latest."""
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

    # --- transactions and unsupported operations ------------------------------------------------

    def describe_transaction(
        self, request: DescribeTransactionRequest
    ) -> DescribeTransactionResponse:
        """Return a transaction of a table; its id is the last part of the path."""
        *path, transaction_id = self._begin("describe_transaction", request)
        dataset = self._open(path)
        for transaction in dataset.get_transactions(len(dataset.versions())):
            if transaction is not None and transaction.uuid == transaction_id:
                properties = dict(transaction.transaction_properties or {})
                return DescribeTransactionResponse(status="SUCCEEDED", properties=properties)
        raise TransactionNotFoundError(f"Transaction not found: {transaction_id}")

    def alter_transaction(self, request: AlterTransactionRequest) -> AlterTransactionResponse:
        """Raise: committed transactions cannot be changed."""
        self._begin("alter_transaction", request)
        raise UnsupportedOperationError("Unsupported: committed transactions cannot be changed")

    def alter_table_backfill_columns(
        self, request: AlterTableBackfillColumnsRequest
    ) -> AlterTableBackfillColumnsResponse:
        """Raise: a directory namespace runs no jobs."""
        self._begin("alter_table_backfill_columns", request)
        raise UnsupportedOperationError("Unsupported: a directory namespace runs no jobs")

    def create_materialized_view(
        self, request: CreateMaterializedViewRequest
    ) -> CreateMaterializedViewResponse:
        """Raise: a directory namespace has no views."""
        self._begin("create_materialized_view", request)
        raise UnsupportedOperationError("Unsupported: a directory namespace has no views")

    def refresh_materialized_view(
        self, request: RefreshMaterializedViewRequest
    ) -> RefreshMaterializedViewResponse:
        """Raise: a directory namespace has no views."""
        self._begin("refresh_materialized_view", request)
        raise UnsupportedOperationError("Unsupported: a directory namespace has no views")

    def _written(self, path: Sequence[str], branch: str | None) -> LanceDataset | None:
        """Return a table or its branch, or None if it has no version yet."""
        self._location_of(path)
        try:
            return self._open(path, None, branch)
        except (TableNotFoundError, RefNotFoundError):
            return None

    def _open_requested(self, operation: str, request: Mapping[str, Any]) -> LanceDataset:
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
    """Raise if a staged manifest is missing or inconsistent with the table."""
    try:
        found = parse_manifest_file(np.frombuffer(data, np.uint8)).manifest.version
    except CorruptDataError as error:
        raise InvalidInputError(f"Invalid input: no manifest is staged at {staged}") from error
    if found != version:
        raise InvalidInputError(
            f"Invalid input: the manifest at {staged} has version {found}, not {version}"
        )


def _manifest_naming(location: TableLocation) -> ManifestNaming:
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
