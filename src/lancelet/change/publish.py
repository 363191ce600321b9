"""Commit prepared operations, and retry operations after conflicts."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping
from dataclasses import field
from typing import TypeVar

from lancelet import surroundings
from lancelet.change.progress import reporting
from lancelet.errors import CommitConflictError, InternalError
from lancelet.format.operation import Operation
from lancelet.format.transaction import COMMIT_MESSAGE_KEY, Transaction
from lancelet.io.trace_events import DATASET_EVENTS, EVENT_SINKS
from lancelet.table.commit import CommitOptions, check_table_exists, commit, refresh_snapshot
from lancelet.table.location import TableLocation
from lancelet.table.snapshot import Snapshot
from lancelet.upkeep.cleanup import auto_cleanup
from lancelet.values import dataclass, replace

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class CommitProperties:
    """The commit message and custom properties of a transaction."""

    message: str | None = None
    properties: Mapping[str, str] = field(default_factory=dict)

    def to_properties(self) -> dict[str, str]:
        """Return the transaction properties, including the message."""
        message_entry = {} if self.message is None else {COMMIT_MESSAGE_KEY: self.message}
        return {**self.properties, **message_entry}


@dataclass(frozen=True, slots=True)
class Retries:
    """The maximum number of retries after a conflict, and their maximum total time in seconds."""

    max_retries: int = 10
    seconds: float = 30.0


def new_transaction(
    read_version: int, operation: Operation, properties: CommitProperties | None = None
) -> Transaction:
    """Return a transaction with a new id."""
    values = {} if properties is None else properties.to_properties()
    return Transaction(read_version, str(surroundings.new_uuid()), operation, values)


def publish(
    snapshot: Snapshot,
    operation: Operation,
    options: CommitOptions | None = None,
    properties: CommitProperties | None = None,
) -> Snapshot:
    """Commit an operation that is based on a snapshot, and return the new version."""
    transaction = new_transaction(snapshot.version, operation, properties)
    based_on = replace(options or CommitOptions(), snapshot=snapshot)
    return commit_transaction(snapshot.location, transaction, based_on)


def commit_transaction(
    location: TableLocation, transaction: Transaction, options: CommitOptions | None = None
) -> Snapshot:
    """Commit a transaction, then run automatic cleanup if it is due."""
    is_detached = options is not None and options.detached
    if options is None or options.snapshot is None:
        EVENT_SINKS.emit(DATASET_EVENTS, event="loading", uri=location.uri)
    published = commit(location, transaction, options)
    EVENT_SINKS.emit(
        DATASET_EVENTS,
        event="committed",
        uri=location.uri,
        read_version=transaction.read_version,
        committed_version=published.version,
        detached=str(is_detached).lower(),
        operation=type(transaction.operation).__name__,
    )
    if options is None or not (options.detached or options.skips_cleanup):
        with reporting(None):  # The version is committed; a callback must not cancel anything now.
            auto_cleanup(published)
    return published


def with_retries(
    snapshot: Snapshot,
    work: Callable[[Snapshot], T],
    retries: Retries,
    *,
    can_redo: Callable[[Snapshot], bool] | None = None,
) -> T:
    """Run work that ends in a commit; after a conflict, repeat it on the latest version.

    `can_redo` returns whether the work can be repeated on a version.
    """
    check_table_exists(snapshot)
    deadline = surroundings.monotonic() + retries.seconds
    for attempt in itertools.count():
        try:
            return work(snapshot)
        except CommitConflictError as error:
            is_last = attempt >= retries.max_retries or surroundings.monotonic() > deadline
            if is_last or not error.facts.get("retryable"):
                raise error.with_facts(retries=attempt) from None
            latest = refresh_snapshot(snapshot)
            if can_redo is not None and not can_redo(latest):
                raise error.with_facts(retries=attempt) from None
        snapshot = latest
    raise InternalError("retry loop ended without a result")
