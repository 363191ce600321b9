"""Committing a transaction: the next version of a table, or why there is none.

    latest is 7, ours was computed from 5
    6, 7      judged one by one: compatible, rebase, retry, incompatible
    rebased   on version 7
    manifest  of version 8, put if absent
              taken?      version 8 is somebody's; judge it, build version 9
              no reply?   look for our transaction, then try again: our id tells our own version

Nothing that readers see changes before that put, and nothing needs undoing after a failure: files
that were written for a lost commit have names nobody else uses, and cleaning up finds them.

Of what a commit writes, data and deletion files and the manifest must survive a loss of power,
and those are flushed. The transaction's file repeats what the manifest's file holds, and the note
of the latest version is only advice; the disk may write both when it likes.
"""

from __future__ import annotations

import random
import secrets
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Final

from lancelet.about import __version__
from lancelet.errors import (
    AlreadyExistsError,
    CommitContentionError,
    CommitOutcomeUnknownError,
    DatasetNotFoundError,
    NotFoundError,
    StorageError,
    VersionNotFoundError,
)
from lancelet.format.flags import check_writable
from lancelet.format.index_metadata import IndexSection
from lancelet.format.manifest import Manifest, WriterVersion
from lancelet.format.manifest_file import write_manifest_file
from lancelet.format.operation import Operation, Overwrite, Restore
from lancelet.format.paths import (
    DETACHED_BIT,
    LATEST_VERSION_HINT,
    TRANSACTIONS,
    ManifestNaming,
    is_detached,
    manifest_path,
    render_version_hint,
)
from lancelet.format.seal import sealed
from lancelet.format.transaction import Transaction
from lancelet.format.version import FileVersion
from lancelet.io import Store
from lancelet.table.apply import CommitContext, State, apply_operation
from lancelet.table.apply.index_catchup import has_merged_tables, with_index_catchup
from lancelet.table.conflict.rebase import AffectedRows
from lancelet.table.conflict.resolve import KeysAreNew, Resolver
from lancelet.table.counted_rows import with_counted_rows
from lancelet.table.dictionaries import dictionary_values_of, with_dictionaries
from lancelet.table.fragment_reuse import current_coverage, with_recorded_moves
from lancelet.table.handlers import CommitHandler
from lancelet.table.location import TableLocation
from lancelet.table.manifests import ManifestEntry, keep_manifest
from lancelet.table.mark import Mark
from lancelet.table.moved_rows import with_creation_versions
from lancelet.table.snapshot import (
    Snapshot,
    latest_snapshot,
    open_snapshot,
    unsaved_snapshot,
    written_snapshot,
)

ATTEMPTS: Final = 20
_WAIT_MS_FIRST: Final = 2.0
_WAIT_MS_MAX: Final = 128.0
_ROUNDS_MAX: Final = 16
"""How often one attempt looks for what was committed while it judged what was there."""
_LATE_SECONDS: Final = 0.25
"""How long after reading the latest version a commit looks whether it came too late."""
_LIBRARY: Final = "lancelet"


@dataclass(frozen=True, slots=True)
class CommitOptions:
    """How a transaction is committed.

    `handler` is None for that of the location. `stable_row_ids`, `data_version` and `naming` are
    for a table that the commit creates; an overwrite may change the second. With 0 attempts an
    overwrite follows the version it was computed from or none. A rewrite that `keeps_order` has the
    live rows of its old fragments in their order and reserved ids, so that rows which others
    deleted meanwhile can be found in the new ones.
    """

    attempts: int = ATTEMPTS
    handler: CommitHandler | None = None
    affected: AffectedRows | None = None
    keeps_order: bool = False
    detached: bool = False
    stable_row_ids: bool = False
    activates_row_ids: bool = False
    """Whether a merge that brings row ids for all rows makes them stable from then on."""
    data_version: FileVersion | None = None
    naming: ManifestNaming = ManifestNaming.V2
    must_create: bool = False
    """Whether it is an error if a table is there already."""
    seconds: float | None = None
    """For how long to go on adjusting to other writers; None for as often as `attempts` says."""
    skips_cleanup: bool = False
    """Whether old versions are left alone even if the config says that they are to be cleaned."""
    keys_are_new: KeysAreNew | None = None
    """Asked where others added rows that may have keys which a merge inserted."""
    settle: Callable[[], None] | None = None
    """Waits, before the manifest has its name, until the files it names survive a loss of power."""
    known: Snapshot | None = None
    """A version that was read already, which is not read again if it is the latest."""
    mark: Mark | None = None
    """Which batch of a sequence this is; a table that has it already stays as it is."""


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
    resolver = Resolver(
        transaction,
        options.affected,
        attempts=options.attempts,
        keeps_order=options.keeps_order,
        keys_are_new=options.keys_are_new,
    )
    lost: CommitOutcomeUnknownError | None = None
    deadline = None if options.seconds is None else time.monotonic() + options.seconds
    for attempt in range(max(1, options.attempts)):
        if attempt and deadline is not None and time.monotonic() > deadline:
            break
        try:
            # A version may have come unseen just when the known one was read: then its name is
            # taken, and from the second attempt on the latest is looked for.
            known = None if attempt else options.known
            published = _attempt(location, resolver, options, known)
        except CommitOutcomeUnknownError as error:
            # Ours may be there, or come to be there late: the next attempt meets it either way.
            published, lost = None, error
        except StorageError as error:
            if lost is None:
                raise
            raise lost from error
        if published is not None:
            return published
        _wait(attempt)
    if lost is not None:
        raise lost
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
    naming: ManifestNaming


def _attempt(
    location: TableLocation, resolver: Resolver, options: CommitOptions, known: Snapshot | None
) -> Snapshot | None:
    """Publish on top of what is the latest version now; None if another writer was faster."""
    ours = resolver.ours
    resolver.num_tried += 1
    began = time.monotonic()
    latest = latest_snapshot(location, options.handler, known=known)
    if latest is None:
        if not isinstance(ours.operation, Overwrite):
            raise DatasetNotFoundError("there is no dataset to commit to", uri=location.uri)
        return _publish(location, _prepare_first(ours, options), options)
    if options.must_create:
        own = resolver.own_first(latest)
        if own is None:
            raise AlreadyExistsError("Dataset already exists", uri=location.uri)
        return own
    if ours.read_version > latest.version and not is_detached(ours.read_version):
        raise VersionNotFoundError(
            "the version that the transaction read was never committed",
            uri=location.uri,
            version=ours.read_version,
            latest=latest.version,
        )
    check_writable(latest.manifest.reader_flags, latest.manifest.writer_flags)
    if options.detached:
        base = open_snapshot(location, ours.read_version)
        version = secrets.randbits(63) | DETACHED_BIT
        return _publish(location, _prepare(ours, base, version, options), options)
    own = resolver.own_version(latest)
    for _ in range(_ROUNDS_MAX):
        # Judging many versions takes a while; a commit on top of the last would come too late.
        if own is not None or resolver.num_judged < 2:
            break
        began = time.monotonic()
        latest = latest_snapshot(location, options.handler) or latest
        check_writable(latest.manifest.reader_flags, latest.manifest.writer_flags)
        own = resolver.own_version(latest)
    if own is not None:
        return own
    if options.mark is not None and options.mark.is_reached(latest.manifest.config):
        return latest
    prepared = _prepare(resolver.rebased(latest), latest, latest.version + 1, options)
    published = _publish(location, prepared, options)
    if published is not None and time.monotonic() - began > _LATE_SECONDS:
        return None if _is_withdrawn(published, options) else published
    return published


def _prepare_first(transaction: Transaction, options: CommitOptions) -> PreparedCommit:
    context = CommitContext(
        version=DETACHED_BIT | secrets.randbits(63) if options.detached else 1,
        stable_row_ids=options.stable_row_ids,
        data_version=options.data_version,
    )
    state = apply_operation(transaction.operation, None, context)
    return PreparedCommit(replace(transaction, read_version=0), state, options.naming)


def _prepare(
    transaction: Transaction, base: Snapshot, version: int, options: CommitOptions
) -> PreparedCommit:
    """Apply a transaction to the version it follows."""
    operation = transaction.operation
    context = CommitContext(
        version=version,
        activates_row_ids=options.activates_row_ids,
        data_version=options.data_version,
        restored=_restored(base.location, operation),
    )
    before = State(base.manifest, current_coverage(base))
    state = apply_operation(with_creation_versions(operation, base, version), before, context)
    state = with_recorded_moves(state, operation, base)
    if has_merged_tables(state):
        state = with_index_catchup(state, before, _as_read(transaction, base))
    return PreparedCommit(transaction, with_counted_rows(state, base.location), base.entry.naming)


def _as_read(transaction: Transaction, base: Snapshot) -> State | None:
    """Return the version that a transaction was computed from, if it is still there."""
    read = base
    if transaction.read_version != base.version:
        try:
            read = open_snapshot(base.location, transaction.read_version)
        except VersionNotFoundError:
            return None
    return State(read.manifest, read.indices.indices)


def _restored(location: TableLocation, operation: Operation) -> State | None:
    if not isinstance(operation, Restore):
        return None
    old = open_snapshot(location, operation.version)
    return State(old.manifest, old.indices.indices)


def _publish(
    location: TableLocation, prepared: PreparedCommit, options: CommitOptions
) -> Snapshot | None:
    """Write the manifest under the name of its version; the one request that decides."""
    transaction, store = prepared.transaction, location.store
    manifest = _stamped(prepared.state.manifest, transaction, options.mark)
    path = manifest_path(manifest.version, prepared.naming)
    rendered = sealed(transaction.render())
    store.put_note(f"{TRANSACTIONS}/{transaction.file_name}", rendered)
    head = b""
    if manifest.data_version is FileVersion.V0_1:
        values = dictionary_values_of(unsaved_snapshot(location, manifest))
        manifest, head = with_dictionaries(manifest, values)
    indices = IndexSection(prepared.state.indices)
    data, stored = write_manifest_file(manifest, indices, rendered, dictionary_values=head)
    handler = options.handler or location.handler
    if options.settle is not None:
        options.settle()
    try:
        handler.publish(store, path, data, version=manifest.version)
    except AlreadyExistsError:
        return None
    except CommitOutcomeUnknownError as lost:
        if not _is_published(location, manifest.version, transaction):
            raise lost.with_facts(version=manifest.version, uuid=transaction.uuid) from None
    if not options.detached:
        _write_hint(store, manifest.version)
    entry = ManifestEntry(
        manifest.version,
        prepared.naming,
        path,
        len(data),
        manifest.timestamp,
        store.etag_at_hand(path),
        folder_changed_at=None if options.detached else handler.last_change(store),
    )
    keep_manifest(data, stored, location.kept.cache)
    return written_snapshot(location, entry, stored, indices, transaction)


def publish_first(
    location: TableLocation, transaction: Transaction, state: State, naming: ManifestNaming
) -> Snapshot:
    """Publish a version that nothing comes before, as a clone's is.

    Raises:
        AlreadyExistsError: Another writer published the same.
    """
    prepared = PreparedCommit(transaction, state, naming)
    published = _publish(location, prepared, CommitOptions())
    if published is None:
        raise AlreadyExistsError("Dataset already exists", uri=location.uri)
    return published


def _stamped(manifest: Manifest, transaction: Transaction, mark: Mark | None) -> Manifest:
    return replace(
        manifest,
        config=manifest.config if mark is None else mark.put(manifest.config),
        timestamp_ns=time.time_ns(),
        transaction_file=transaction.file_name,
        writer_version=WriterVersion.of(_LIBRARY, __version__),
        tag=transaction.tag,
    )


def _is_published(location: TableLocation, version: int, ours: Transaction) -> bool:
    """Say whether a version is there and ours, after the reply to its put was lost."""
    try:
        found = open_snapshot(location, version).transaction
    except NotFoundError:
        return False
    return found is not None and found.uuid == ours.uuid


def _write_hint(store: Store, version: int) -> None:
    """Leave a note of the latest version; a note that is missing or old does no harm."""
    try:
        store.put_note(LATEST_VERSION_HINT, render_version_hint(version))
    except StorageError:
        return


def _is_withdrawn(published: Snapshot, options: CommitOptions) -> bool:
    """Take a version back, and say so, if it has a number that was free because it was cleaned up.

    Others may have published that version and more, and cleaned all but the last of them up, while
    this writer was held up. Then nobody would ever see what it wrote.
    """
    location, entry = published.location, published.entry
    handler = options.handler or location.handler
    try:
        latest = handler.find_latest(location.store, exact=True)
        if latest is None or latest.version <= entry.version:
            return False
        after = handler.find_version(location.store, entry.version + 1, uri=location.uri)
        if after.modified >= location.store.info(entry.path).modified:
            return False
    except VersionNotFoundError:
        pass  # It was cleaned up, and would not have been without this one before it.
    except StorageError:
        return False  # What was published is there; only what came then is not known.
    location.store.delete(entry.path)
    return True


def _wait(attempt: int) -> None:
    """Wait a random time that grows with every attempt, so that writers spread out."""
    bound = min(_WAIT_MS_FIRST * 2**attempt, _WAIT_MS_MAX)
    time.sleep(random.uniform(0, bound) / 1000)  # noqa: S311 - not a secret
