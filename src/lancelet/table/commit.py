"""Committing a transaction: the next version of a table, or why there is none.

    latest is 7, ours was computed from 5
    6, 7      judged one by one: compatible, rebase, retry, incompatible
    rebased   on version 7
    manifest  of version 8, put if absent
              taken?      version 8 is somebody's; judge it, build version 9
              no reply?   is the transaction in version 8 ours?

Nothing that readers see changes before that put, and nothing needs undoing after a failure: files
that were written for a lost commit have names nobody else uses, and cleaning up finds them.
"""

from __future__ import annotations

import random
import secrets
import time
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from typing import Final

from lancelet import __version__
from lancelet.errors import (
    AlreadyExistsError,
    CommitConflictError,
    CommitContentionError,
    CommitOutcomeUnknownError,
    DatasetNotFoundError,
    ObjectNotFoundError,
    StorageError,
)
from lancelet.format.flags import check_writable
from lancelet.format.index_metadata import IndexSection
from lancelet.format.manifest import Manifest, WriterVersion
from lancelet.format.manifest_file import render_manifest_file
from lancelet.format.operation import Operation, Overwrite, Restore
from lancelet.format.paths import (
    DETACHED_BIT,
    LATEST_VERSION_HINT,
    TRANSACTIONS,
    ManifestNaming,
    manifest_path,
    render_version_hint,
)
from lancelet.format.transaction import Transaction
from lancelet.format.version import FileVersion
from lancelet.table.apply import CommitContext, State, apply_operation
from lancelet.table.conflict.rebase import AffectedRows, Rebased, rebase_rows
from lancelet.table.conflict.rules import judge
from lancelet.table.conflict.verdict import Outcome, Verdict, incompatible
from lancelet.table.dictionaries import dictionary_values_of, with_dictionaries
from lancelet.table.handlers import CommitHandler, PutIfAbsent
from lancelet.table.location import TableLocation
from lancelet.table.manifests import find_latest
from lancelet.table.snapshot import Snapshot, open_entry, open_snapshot, unsaved_snapshot

ATTEMPTS: Final = 20
_WAIT_MS_FIRST: Final = 2.0
_WAIT_MS_MAX: Final = 500.0
_LIBRARY: Final = "lancelet"


@dataclass(frozen=True, slots=True)
class CommitOptions:
    """How a transaction is committed.

    `stable_row_ids`, `data_version` and `naming` are for a table that the commit creates; an
    overwrite may change the second.
    """

    attempts: int = ATTEMPTS
    handler: CommitHandler = field(default_factory=PutIfAbsent)
    affected: AffectedRows | None = None
    detached: bool = False
    stable_row_ids: bool = False
    data_version: FileVersion | None = None
    naming: ManifestNaming = ManifestNaming.V2
    must_create: bool = False
    """Whether it is an error if a table is there already."""


def commit(
    location: TableLocation, transaction: Transaction, options: CommitOptions | None = None
) -> Snapshot:
    """Publish `transaction` as the next version, adjusting it when other writers were first.

    Raises:
        CommitConflictError: Another transaction changed the same things; `retryable` in its facts
            says whether doing the work again from the latest version can succeed.
        CommitContentionError: Every attempt lost the race for a version.
        CommitOutcomeUnknownError: The store lost its reply and could not be asked.
    """
    options = options or CommitOptions()
    for attempt in range(max(1, options.attempts)):
        latest = _latest(location, transaction.operation, must_create=options.must_create)
        prepared = _prepare(location, transaction, latest, options)
        try:
            return _publish(location, prepared, latest, options)
        except AlreadyExistsError:
            _wait(attempt)
    raise CommitContentionError(
        "lost the race for every version; nothing conflicts, so trying again may work",
        uri=location.uri,
        attempts=options.attempts,
    )


@dataclass(frozen=True, slots=True)
class PreparedCommit:
    """A transaction that fits on top of the latest version, not yet published."""

    transaction: Transaction
    state: State


def _latest(location: TableLocation, operation: Operation, *, must_create: bool) -> Snapshot | None:
    entry = find_latest(location.store)
    if entry is not None and must_create:
        raise AlreadyExistsError("Dataset already exists", uri=location.uri)
    if entry is not None:
        return open_entry(location, entry)
    if isinstance(operation, Overwrite):
        return None
    raise DatasetNotFoundError("there is no dataset to commit to", uri=location.uri)


def _prepare(
    location: TableLocation,
    transaction: Transaction,
    latest: Snapshot | None,
    options: CommitOptions,
) -> PreparedCommit:
    context = CommitContext(
        version=_next_version(latest, options),
        stable_row_ids=options.stable_row_ids,
        data_version=options.data_version,
        restored=_restored(location, transaction.operation),
    )
    if latest is None:
        state = apply_operation(transaction.operation, None, context)
        return PreparedCommit(replace(transaction, read_version=0), state)
    check_writable(latest.manifest.reader_flags, latest.manifest.writer_flags)
    base = latest
    if options.detached:
        base = open_snapshot(location, transaction.read_version)
        rebased = transaction
    else:
        rebased = _rebase(location, transaction, latest, options)
    before = State(base.manifest, base.indices.indices)
    return PreparedCommit(rebased, apply_operation(rebased.operation, before, context))


def _next_version(latest: Snapshot | None, options: CommitOptions) -> int:
    if options.detached:
        return secrets.randbits(63) | DETACHED_BIT
    return 1 if latest is None else latest.version + 1


def _restored(location: TableLocation, operation: Operation) -> State | None:
    if not isinstance(operation, Restore):
        return None
    old = open_snapshot(location, operation.version)
    return State(old.manifest, old.indices.indices)


def _rebase(
    location: TableLocation, transaction: Transaction, latest: Snapshot, options: CommitOptions
) -> Transaction:
    """Return the transaction as it must be to follow the latest version, or raise."""
    disputed: set[int] = set()
    for theirs in _transactions_since(location, transaction.read_version, latest):
        verdict = _judge(transaction, theirs.transaction)
        if verdict.outcome is Outcome.REBASE:
            disputed |= verdict.fragments
        elif verdict.outcome is not Outcome.COMPATIBLE:
            raise _conflict(transaction, theirs, verdict, options)
    if not disputed:
        return replace(transaction, read_version=latest.version)
    result = rebase_rows(transaction.operation, frozenset(disputed), options.affected, latest)
    if isinstance(result, Verdict):
        raise _conflict(transaction, latest, result, options)
    return _write_rebased(location, transaction, result, latest)


def _write_rebased(
    location: TableLocation, transaction: Transaction, rebased: Rebased, latest: Snapshot
) -> Transaction:
    for path, data in rebased.deletion_files.items():
        location.store.put(path, data)
    return replace(transaction, operation=rebased.operation, read_version=latest.version)


def _transactions_since(
    location: TableLocation, read_version: int, latest: Snapshot
) -> Iterable[Snapshot]:
    """Yield the versions that were committed since, oldest first."""
    for version in range(read_version + 1, latest.version):
        yield open_snapshot(location, version)
    if latest.version > read_version:
        yield latest


def _judge(ours: Transaction, theirs: Transaction | None) -> Verdict:
    if theirs is None:
        return incompatible("a version in between does not say what it changed")
    return judge(ours.operation, theirs.operation)


def _conflict(
    ours: Transaction, theirs: Snapshot, verdict: Verdict, options: CommitOptions
) -> CommitConflictError:
    other = theirs.transaction
    advice = (
        "do the work again from the latest version"
        if verdict.outcome is not Outcome.INCOMPATIBLE
        else "doing the work again would not help"
    )
    return CommitConflictError(
        f"another transaction was committed first, and {verdict.reason}; {advice}",
        retryable=verdict.outcome is not Outcome.INCOMPATIBLE,
        ours=type(ours.operation).__name__,
        ours_uuid=ours.uuid,
        read_version=ours.read_version,
        theirs=None if other is None else type(other.operation).__name__,
        theirs_uuid=None if other is None else other.uuid,
        version=theirs.version,
        fragments=sorted(verdict.fragments),
        fields=sorted(verdict.fields),
        names=sorted(verdict.names),
        attempts=options.attempts,
    )


def _publish(
    location: TableLocation,
    prepared: PreparedCommit,
    latest: Snapshot | None,
    options: CommitOptions,
) -> Snapshot:
    """Write the manifest under the name of its version; the one request that decides."""
    transaction, store = prepared.transaction, location.store
    manifest = _stamped(prepared.state.manifest, transaction)
    naming = options.naming if latest is None else latest.entry.naming
    path = manifest_path(manifest.version, naming)
    store.put(f"{TRANSACTIONS}/{transaction.file_name}", transaction.render())
    values = dictionary_values_of(unsaved_snapshot(location, manifest))
    manifest, head = with_dictionaries(manifest, values)
    indices = IndexSection(prepared.state.indices)
    data = render_manifest_file(manifest, indices, transaction, dictionary_values=head)
    try:
        options.handler.publish(store, path, data, version=manifest.version)
    except CommitOutcomeUnknownError as lost:
        _check_outcome(location, manifest.version, transaction, lost)
    published = open_snapshot(location, manifest.version)
    if not options.detached:
        _write_hint(location, manifest.version)
    return published


def _stamped(manifest: Manifest, transaction: Transaction) -> Manifest:
    return replace(
        manifest,
        timestamp_ns=time.time_ns(),
        transaction_file=transaction.file_name,
        writer_version=WriterVersion(_LIBRARY, __version__),
        tag=transaction.tag,
    )


def _check_outcome(
    location: TableLocation, version: int, ours: Transaction, lost: CommitOutcomeUnknownError
) -> None:
    """Find out whose commit it is that landed, after the reply to ours was lost."""
    try:
        found = open_snapshot(location, version)
    except ObjectNotFoundError as error:
        raise lost from error
    transaction = found.transaction
    if transaction is None or transaction.uuid != ours.uuid:
        raise AlreadyExistsError("another writer has the version", version=version) from lost


def _write_hint(location: TableLocation, version: int) -> None:
    """Leave a note of the latest version; a note that is missing or old does no harm."""
    try:
        location.store.put(LATEST_VERSION_HINT, render_version_hint(version))
    except StorageError:
        return


def _wait(attempt: int) -> None:
    """Wait a random time that grows with every attempt, so that writers spread out."""
    bound = min(_WAIT_MS_FIRST * 2**attempt, _WAIT_MS_MAX)
    time.sleep(random.uniform(0, bound) / 1000)  # noqa: S311 - not a secret
