"""Commits with the API of pylance: publishing operations, and reading transactions.

For example:

    fragments = write_fragments(rows, uri)                      on many machines
    LanceDataset.commit(uri, LanceOperation.Append(fragments), read_version=3)      on one
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import field, replace
from datetime import timedelta
from typing import TYPE_CHECKING, Any, Final, TypedDict, cast

from lancelet import change, surroundings, upkeep
from lancelet.dataset.arguments import checks_types
from lancelet.dataset.dry_runs import previews_class, previews_class_dataset
from lancelet.dataset.handle import (
    Handle,
    OpenOptions,
    locate,
    open_reference,
    text_of,
)
from lancelet.dataset.named_table import named_table
from lancelet.dataset.write.operation_forms import operation_from_user, operation_to_user
from lancelet.dataset.write.operations import LanceOperation
from lancelet.errors import InvalidInputError, UnsupportedError, VersionNotFoundError
from lancelet.format import transaction as stored
from lancelet.format.operation import Append
from lancelet.format.paths import ManifestNaming
from lancelet.table.commit import CommitOptions
from lancelet.table.location import TableLocation
from lancelet.table.snapshot import Snapshot, latest_snapshot
from lancelet.values import dataclass

if TYPE_CHECKING:
    from lancelet.change.dry_run import ChangeReport
    from lancelet.dataset.dataset import LanceDataset

LANCE_COMMIT_MESSAGE_KEY: Final = stored.COMMIT_MESSAGE_KEY
"""The transaction property of the commit message."""

_ATTEMPTS: Final = 20
_TIMEOUT: Final = timedelta(minutes=30)


class CommitTypeError(InvalidInputError, TypeError):
    """An argument of a commit is of the wrong type."""


@dataclass
class Transaction:
    """An operation and the version it was computed from.

    Attributes:
        read_version: The version; 0 for none.
        operation: The change.
        uuid: The unique id of the transaction.
        transaction_properties: Metadata by key.
    """

    read_version: int
    operation: LanceOperation.BaseOperation
    uuid: str = field(default_factory=lambda: str(surroundings.new_uuid()))
    transaction_properties: dict[str, str] | None = field(default_factory=dict)


class BulkCommitResult(TypedDict):
    """The dataset after a bulk commit, and the merged transaction."""

    dataset: LanceDataset
    merged: Transaction


@dataclass(frozen=True, slots=True)
class _Destination:
    """The destination and options of a commit."""

    handle: Handle | None
    uri: str
    opening: OpenOptions
    options: CommitOptions

    def publish(self, transaction: stored.Transaction) -> Handle:
        location, meter = self._location()
        if self.options.detached:
            _check_supports_detached(location)
        # Unlike a URI, a dataset refers to one table; never change another table at its path.
        snapshot_before = None if self.handle is None else self.handle.snapshot
        options = replace(self.options, snapshot=snapshot_before, checks_files=True)
        snapshot = change.publish.commit_transaction(location, transaction, options)
        return Handle(snapshot, meter, self.opening)

    def dry_run(self, transaction: stored.Transaction) -> ChangeReport:
        """Report the changes of a transaction; its files are already written."""
        location, _ = self._location()
        if self.options.detached:
            _check_supports_detached(location)
        options = replace(self.options, handler=None)
        return change.dry_run.dry_run_write(
            location,
            lambda there: change.publish.commit_transaction(there, transaction, options),
            if_unchanged=type(transaction.operation).__name__,
        )

    def latest_version(self) -> int:
        """Return the latest version number, or 0 if the table does not exist."""
        latest = latest_snapshot(self._location()[0])
        return 0 if latest is None else latest.version

    def _location(self) -> tuple[Any, Any]:
        if self.handle is not None:
            return self.handle.location, self.handle.meter
        return locate(self.uri, self.opening)


class CommitOptionError(InvalidInputError, OSError):
    """A combination of commit options is not supported."""


class TransactionCountError(InvalidInputError, OverflowError):
    """The number of transactions is negative."""


class CommitMethods:
    """Methods that commit operations and list transactions."""

    _handle: Handle

    @previews_class_dataset
    @checks_types
    def commit(
        cls,
        base_uri: str | os.PathLike[str] | LanceDataset,
        operation: LanceOperation.BaseOperation | Transaction,
        read_version: int | None = None,
        commit_lock: Any = None,
        storage_options: Mapping[str, str] | None = None,
        enable_v2_manifest_paths: bool | None = None,
        detached: bool = False,
        max_retries: int = _ATTEMPTS,
        *,
        commit_message: str | None = None,
        enable_stable_row_ids: bool | None = None,
        namespace_client: Any = None,
        table_id: Sequence[str] | None = None,
        namespace_client_managed_versioning: bool = False,
        base_store_params: Mapping[str, Mapping[str, str]] | None = None,
        commit_timeout: timedelta | None = _TIMEOUT,
        dry_run: bool = False,
    ) -> LanceDataset | ChangeReport:
        """Commit an operation as a new version.

        Args:
            base_uri: The dataset or its URI; an overwrite creates a missing dataset.
            operation: The operation, or a transaction.
            read_version: The version that the operation was computed from; required except for
                overwrite and restore.
            commit_lock: A lock held during the commit, for stores without conditional puts.
            storage_options: Options of the object store.
            enable_v2_manifest_paths: Whether a new dataset uses manifest names that list the newest
                version first.
            detached: Whether to commit outside of the history; the version has only a number.
            max_retries: Number of rebases on concurrent commits; with 0 an overwrite fails if
                `read_version` is not the latest version.
            commit_message: A message to record with the transaction.
            enable_stable_row_ids: Whether a new dataset has stable row ids.
            namespace_client: The namespace of the table.
            table_id: The id of the table in the namespace.
            namespace_client_managed_versioning: Whether the namespace manages the versions of a
                table given by `base_uri`.
            base_store_params: Storage options of base paths, by path.
            commit_timeout: The time limit of retries.
            dry_run: If True, return a `ChangeReport` without committing.

        Returns:
            The dataset at the new version; with `dry_run`, the `ChangeReport`.

        Raises:
            CommitConflictError: If a concurrent commit made a conflicting change.
            InvalidInputError: If an argument is invalid.

        Example:
            ```python
            fragments = lance.fragment.write_fragments(new_books, dataset)
            append = lance.LanceOperation.Append(fragments)
            dataset = lance.LanceDataset.commit(dataset, append, read_version=dataset.version)
            ```
        """
        named = named_table(base_uri, namespace_client, table_id)
        if named is not None:
            named = replace(named, is_managed=namespace_client_managed_versioning)
        destination = _destination(
            base_uri,
            OpenOptions(storage_options, base_store_params, commit_lock, named=named),
            CommitOptions(
                attempts=max_retries,
                detached=detached,
                naming=_manifest_naming(enable_v2_manifest_paths),
                stable_row_ids=bool(enable_stable_row_ids),
                seconds=_seconds(commit_timeout),
            ),
        )
        if isinstance(operation, Transaction):
            if commit_message is not None:
                raise InvalidInputError(
                    "commit_message is not supported when calling commit with a Transaction. "
                    "Set the message on the transaction properties instead."
                )
            made = transaction_from_user(operation)
        else:
            converted = operation_from_user(operation)
            if read_version is None:
                if not isinstance(operation, LanceOperation.Overwrite | LanceOperation.Restore):
                    raise InvalidInputError(
                        "read_version is required for all operations except Overwrite and Restore"
                    )
                read_version = destination.latest_version()
            made = change.publish.new_transaction(
                read_version, converted, change.publish.CommitProperties(commit_message)
            )
        if dry_run:
            return destination.dry_run(made)
        own = cast("type[LanceDataset]", cls)  # the class that uses this mixin
        return own(destination.uri, _handle=destination.publish(made))

    @previews_class
    @checks_types
    def commit_batch(
        cls,
        dest: str | os.PathLike[str] | LanceDataset,
        transactions: Sequence[Transaction],
        commit_lock: Any = None,
        storage_options: Mapping[str, str] | None = None,
        enable_v2_manifest_paths: bool | None = None,
        detached: bool | None = False,
        max_retries: int = _ATTEMPTS,
        base_store_params: Mapping[str, Mapping[str, str]] | None = None,
        commit_timeout: timedelta | None = _TIMEOUT,
        *,
        dry_run: bool = False,
    ) -> BulkCommitResult | ChangeReport:
        """Commit several append transactions as one version.

        Args:
            dest: The dataset or its URI.
            transactions: The append transactions.
            commit_lock: A lock held during the commit, for stores without conditional puts.
            storage_options: Options of the object store.
            enable_v2_manifest_paths: Whether a new dataset uses manifest names that list the newest
                version first.
            detached: Whether to commit outside of the history.
            max_retries: Number of rebases on concurrent commits.
            base_store_params: Storage options of base paths, by path.
            commit_timeout: The time limit of retries.
            dry_run: If True, return a `ChangeReport` without committing.

        Returns:
            The dataset at the new version and the merged transaction; with `dry_run`, the
            `ChangeReport`.

        Raises:
            CommitConflictError: If a concurrent commit made a conflicting change.
            InvalidInputError: If an argument is invalid.

        Example:
            ```python
            written = [lance.fragment.write_fragments(new_books, dataset) for _ in range(2)]
            appends = [
                lance.Transaction(dataset.version, lance.LanceOperation.Append(fragments))
                for fragments in written
            ]
            dataset = lance.LanceDataset.commit_batch(dataset, appends)["dataset"]
            ```
        """
        destination = _destination(
            dest,
            OpenOptions(storage_options, base_store_params, commit_lock),
            CommitOptions(
                attempts=max_retries,
                detached=bool(detached),
                naming=_manifest_naming(enable_v2_manifest_paths),
                seconds=_seconds(commit_timeout),
            ),
        )
        if not transactions:
            raise InvalidInputError("No transactions to commit")
        changes = [operation_from_user(each.operation) for each in transactions]
        appends = [change for change in changes if isinstance(change, Append)]
        if len(appends) < len(changes):
            raise UnsupportedError("Only append transactions are supported in batch commits")
        fragments = tuple(fragment for append in appends for fragment in append.fragments)
        read_version = min(each.read_version for each in transactions)
        merged = change.publish.new_transaction(read_version, Append(fragments))
        if dry_run:
            return destination.dry_run(merged)
        own = cast("type[LanceDataset]", cls)
        published = own(destination.uri, _handle=destination.publish(merged))
        return BulkCommitResult(dataset=published, merged=transaction_to_user(merged))

    def read_transaction(self, version: int) -> Transaction | None:
        """Return the transaction that created a version.

        Args:
            version: The version number.

        Returns:
            The transaction, or None if its file was cleaned up.

        Raises:
            VersionNotFoundError: If the version does not exist or was cleaned up.

        Example:
            ```python
            dataset.read_transaction(1).operation
            ```
        """
        return _transaction_of(open_reference(self._handle, version))

    @checks_types
    def get_transactions(self, recent_transactions: int = 10) -> list[Transaction | None]:
        """Return the latest transactions, newest first.

        Args:
            recent_transactions: The maximum number of transactions.

        Returns:
            The transactions; None for a transaction that was cleaned up.

        Example:
            ```python
            dataset.get_transactions(5)
            ```
        """
        if recent_transactions < 0:
            raise TransactionCountError("negative recent_transactions", found=recent_transactions)
        found = [_transaction_of(self._handle.snapshot)]
        version = self._handle.snapshot.version - 1
        while len(found) < recent_transactions and version > 0:
            try:
                found.append(self.read_transaction(version))
            except VersionNotFoundError:
                break
            version -= 1
        return found

    def migrate_manifest_paths_v2(self, *, dry_run: bool = False) -> ChangeReport | None:
        """Rename all manifests so that listings return the newest version first.

        No other process may write during the migration.

        Args:
            dry_run: If True, return a `ChangeReport` without committing.

        Returns:
            None; with `dry_run`, the `ChangeReport`.

        Example:
            ```python
            dataset.migrate_manifest_paths_v2()
            ```
        """
        location = self._handle.location
        if dry_run:
            return change.dry_run.dry_run_without_commit(
                location, "RenameManifests", upkeep.rename_manifests.rename_manifests
            )
        upkeep.rename_manifests.rename_manifests(location)
        entry = location.handler.find_version(
            location.store, self._handle.snapshot.version, uri=location.uri
        )
        self._handle.snapshot = replace(self._handle.snapshot, entry=entry)
        return None


def transaction_from_user(transaction: Transaction) -> stored.Transaction:
    """Convert a transaction of the public API."""
    return stored.Transaction(
        transaction.read_version,
        transaction.uuid,
        operation_from_user(transaction.operation),
        dict(transaction.transaction_properties or {}),
    )


def transaction_to_user(transaction: stored.Transaction) -> Transaction:
    """Convert a transaction to the public API."""
    return Transaction(
        transaction.read_version,
        operation_to_user(transaction.operation),
        transaction.uuid,
        dict(transaction.properties),
    )


def _transaction_of(snapshot: Snapshot) -> Transaction | None:
    found = snapshot.transaction
    return None if found is None else transaction_to_user(found)


def _destination(
    base_uri: str | os.PathLike[str] | LanceDataset, opening: OpenOptions, options: CommitOptions
) -> _Destination:
    if opening.commit_lock is not None and not callable(opening.commit_lock):
        raise CommitTypeError(f"commit_lock must be a function, got {type(opening.commit_lock)}")
    if isinstance(base_uri, CommitMethods):
        handle = base_uri._handle  # noqa: SLF001 - the same class
        handler = opening.handler
        own = replace(options, handler=handler) if handler is not None else options
        return _Destination(handle, handle.location.uri, handle.options, own)
    if not isinstance(base_uri, str | os.PathLike):
        raise CommitTypeError(f"base_uri must be str, Path, or LanceDataset, got {type(base_uri)}")
    return _Destination(None, text_of(base_uri), opening, options)


def _check_supports_detached(location: TableLocation) -> None:
    """Raise for detached commits with V1 manifest names, which cannot represent them."""
    latest = latest_snapshot(location)
    if latest is not None and latest.entry.naming is ManifestNaming.V1:
        raise CommitOptionError(
            "detached commits cannot be used with v1 manifest paths; see migrate_manifest_paths_v2",
            uri=location.uri,
        )


def _seconds(timeout: timedelta | None) -> float | None:
    """Return the commit timeout in seconds, None for no limit."""
    if timeout is None:
        return None
    seconds = timeout.total_seconds()
    if seconds < 0:
        raise InvalidInputError("commit_timeout must not be negative", seconds=seconds)
    if seconds == 0:
        raise CommitOptionError("commit_timeout must be non-zero; None disables the timeout")
    return seconds


def _manifest_naming(enable_v2: bool | None) -> ManifestNaming:
    return ManifestNaming.V1 if enable_v2 is False else ManifestNaming.V2
