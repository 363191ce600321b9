"""Committing what an operation prepared, and doing the work again where others were first."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping
from dataclasses import field
from typing import TypeVar

from lancelet import surroundings
from lancelet.errors import CommitConflictError, InternalError
from lancelet.format.operation import Operation
from lancelet.format.transaction import COMMIT_MESSAGE_KEY, Transaction
from lancelet.io.trace_events import DATASET_EVENTS, LISTENERS
from lancelet.ops.cleanup import auto_cleanup
from lancelet.ops.progress import reporting
from lancelet.table.commit import CommitOptions, check_table_exists, commit, refresh_snapshot
from lancelet.table.location import TableLocation
from lancelet.table.snapshot import Snapshot
from lancelet.values import dataclass, replace

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Remarks:
    """What a committer says beside the change itself."""

    message: str | None = None
    properties: Mapping[str, str] = field(default_factory=dict)

    def to_properties(self) -> dict[str, str]:
        """Return the properties of the transaction."""
        said = {} if self.message is None else {COMMIT_MESSAGE_KEY: self.message}
        return {**self.properties, **said}


@dataclass(frozen=True, slots=True)
class Retries:
    """How often work is done again after a conflict, and for how long at most."""

    most: int = 10
    seconds: float = 30.0


def new_transaction(
    read_version: int, operation: Operation, remarks: Remarks | None = None
) -> Transaction:
    """Return a transaction with an id of its own."""
    properties = {} if remarks is None else remarks.to_properties()
    return Transaction(read_version, str(surroundings.new_uuid()), operation, properties)


def publish(
    snapshot: Snapshot,
    operation: Operation,
    options: CommitOptions | None = None,
    remarks: Remarks | None = None,
) -> Snapshot:
    """Commit an operation that was computed from a version, and return the new version."""
    transaction = new_transaction(snapshot.version, operation, remarks)
    known = replace(options or CommitOptions(), snapshot=snapshot)
    return commit_transaction(snapshot.location, transaction, known)


def commit_transaction(
    location: TableLocation, transaction: Transaction, options: CommitOptions | None = None
) -> Snapshot:
    """Commit, and clean up if the config of the table says that it is due with this version."""
    is_detached = options is not None and options.detached
    if options is None or options.snapshot is None:
        LISTENERS.tell(DATASET_EVENTS, event="loading", uri=location.uri)
    published = commit(location, transaction, options)
    LISTENERS.tell(
        DATASET_EVENTS,
        event="committed",
        uri=location.uri,
        read_version=transaction.read_version,
        committed_version=published.version,
        detached=str(is_detached).lower(),
        operation=type(transaction.operation).__name__,
    )
    if options is None or not (options.detached or options.skips_cleanup):
        with reporting(None):  # the commit is made, and nothing may stop it any more
            auto_cleanup(published)
    return published


def with_retries(
    snapshot: Snapshot,
    work: Callable[[Snapshot], T],
    retries: Retries,
    *,
    can_redo: Callable[[Snapshot], bool] | None = None,
) -> T:
    """Do work that ends in a commit, again from the latest version where others were first.

    `can_redo` says whether the work can be done from that version, which not all work can.
    """
    check_table_exists(snapshot)
    deadline = surroundings.monotonic() + retries.seconds
    for attempt in itertools.count():
        try:
            return work(snapshot)
        except CommitConflictError as error:
            is_last = attempt >= retries.most or surroundings.monotonic() > deadline
            if is_last or not error.facts.get("retryable"):
                raise error.with_facts(retries=attempt) from None
            latest = refresh_snapshot(snapshot)
            if can_redo is not None and not can_redo(latest):
                raise error.with_facts(retries=attempt) from None
        snapshot = latest
    raise InternalError("work ended without a result")
