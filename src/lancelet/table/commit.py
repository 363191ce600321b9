"""Commit a transaction as the next version of a table, or report a conflict.

    latest is 7, the transaction read version 5
    6, 7      checked one by one: compatible, rebase, retry, incompatible
    rebased   on version 7
    manifest  of version 8, put if absent
              exists?     another writer has version 8; check it, build version 9
              no response? search for our transaction id, then try again
    verify    if another writer had version 8 and it was cleaned up, ours is too late; try again

Readers see no change before that put, and a failed commit needs no rollback: the files of a failed
commit have unique names, and cleanup deletes them.

Data files, deletion files and the manifest are flushed to survive a power loss. The transaction
file repeats the content of the manifest file, and the latest version hint is optional, so neither
is flushed.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final

from lancelet import surroundings
from lancelet.about import __version__
from lancelet.errors import (
    AlreadyExistsError,
    CommitConflictError,
    CommitContentionError,
    CommitOutcomeUnknownError,
    DatasetNotFoundError,
    NotFoundError,
    ObjectNotFoundError,
    StorageError,
    VersionNotFoundError,
)
from lancelet.format.flags import check_writable
from lancelet.format.index_metadata import IndexSection
from lancelet.format.manifest import Manifest, WriterVersion, version_identifier
from lancelet.format.manifest_file import write_manifest_file
from lancelet.format.operation import Operation, Overwrite, Restore
from lancelet.format.paths import (
    DETACHED_BIT,
    LATEST_VERSION_HINT,
    TRANSACTIONS,
    ManifestNaming,
    VersionRangeError,
    is_detached,
    manifest_path,
    render_version_hint,
)
from lancelet.format.trailer import with_trailer
from lancelet.format.transaction import Transaction
from lancelet.format.version import FileVersion
from lancelet.io import Store
from lancelet.table.apply.dispatch import apply_operation
from lancelet.table.apply.index_catchup import has_merged_tables, with_index_catchup
from lancelet.table.apply.state import CommitContext, State
from lancelet.table.conflict.rebase import AffectedRows
from lancelet.table.conflict.resolve import KeysAreNew, Resolver
from lancelet.table.dictionaries import dictionary_values_of, with_dictionaries
from lancelet.table.fragment_reuse import current_coverage, with_recorded_moves
from lancelet.table.handlers import CommitHandler
from lancelet.table.landed import confirm_version
from lancelet.table.location import TableLocation
from lancelet.table.manifests import ManifestEntry, VersionFolder, cache_manifest
from lancelet.table.moved_rows import with_counted_rows, with_creation_versions
from lancelet.table.new_files import check_new_files
from lancelet.table.removals import Removals, hold_version, sweep_version
from lancelet.table.snapshot import (
    Snapshot,
    latest_snapshot,
    open_entry,
    open_snapshot,
    parse_transaction_file,
    unsaved_snapshot,
    written_snapshot,
)
from lancelet.table.watermark import BatchWatermark
from lancelet.values import dataclass, replace

ATTEMPTS: Final = 20
_WAIT_MS_FIRST: Final = 2.0
_WAIT_MS_MAX: Final = 128.0
_RECHECKS_MAX: Final = 16
"""Maximum number of times one attempt rechecks for newer versions after checking the known ones."""
_LIBRARY: Final = "lancelet"
_DAY: Final = 24 * 60 * 60.0
"""Age in seconds from which a commit checks that its files exist."""


@dataclass(frozen=True, slots=True)
class CommitOptions:
    """Options of a commit.

    `handler` defaults to that of the location. `stable_row_ids`, `data_version` and `naming`
    configure a table that the commit creates; an overwrite may also change `data_version`. With 0
    attempts, an overwrite fails unless it directly follows the version it read. With
    `preserves_order`, the new fragments of a rewrite contain the live rows of the old ones in the
    same order and have reserved ids, so concurrent deletions can be mapped to them.
    """

    attempts: int = ATTEMPTS
    handler: CommitHandler | None = None
    affected: AffectedRows | None = None
    preserves_order: bool = False
    detached: bool = False
    stable_row_ids: bool = False
    activates_row_ids: bool = False
    """Whether a merge that adds row ids for all rows enables stable row ids."""
    data_version: FileVersion | None = None
    naming: ManifestNaming = ManifestNaming.V2
    must_create: bool = False
    """Whether an existing table is an error."""
    seconds: float | None = None
    """Time limit for retries after lost races; None to limit them by `attempts` alone."""
    skips_cleanup: bool = False
    """Whether to skip the automatic cleanup that the table config requests."""
    keys_are_new: KeysAreNew | None = None
    """Checks whether concurrently added rows may have keys that a merge inserted."""
    sync: Callable[[], None] | None = None
    """Flushes the new files to disk before the manifest is published."""
    snapshot: Snapshot | None = None
    """A version that was already read. It is not read again if it is the latest, and the commit
    fails if the table was replaced since.
    """
    read_identity: str | None = None
    """The `Snapshot.identity` of the version read by another process; the commit fails if the table
    was replaced since.
    """
    watermark: BatchWatermark | None = None
    """The batch of a sequence; the commit is skipped if the table already contains it."""
    config_entries: Callable[[Snapshot, int], Mapping[str, str]] | None = None
    """Returns entries to put into the table config, from the preceding version and the number of
    the new one.
    """
    checks_files: bool = False
    """Whether to check that all new files exist. Needed for distributed writes, whose files may be
    older than the version that was read.
    """

    def may_lack_files(self) -> bool:
        """Return whether a cleanup may have removed the files of the commit as unreferenced."""
        is_old = self.snapshot is not None and not self.snapshot.opened.is_within(_DAY)
        return self.checks_files or is_old


def commit(
    location: TableLocation, transaction: Transaction, options: CommitOptions | None = None
) -> Snapshot:
    """Publish `transaction` as the next version, rebased on concurrent commits.

    Raises:
        CommitConflictError: Another transaction made conflicting changes; `retryable` in its facts
            states whether redoing the work from the latest version can succeed.
        CommitContentionError: Other writers published a version first in every attempt.
        CommittedFilesMissingError: Data, deletion or index files of the transaction were removed,
            for example by a cleanup with a wrong clock or after a pause of days.
        CommitOutcomeUnknownError: The response was lost and the version cannot be checked, or
            versions were removed without a record.
        DatasetNotFoundError: There is no table, or it was moved or dropped since it was read.
    """
    options = options or CommitOptions()
    referenced = _referenced_version(transaction, options)
    if referenced is None:
        return _commit(location, transaction, options)
    with hold_version(location, referenced):
        return _commit(location, transaction, options)


def _referenced_version(transaction: Transaction, options: CommitOptions) -> int | None:
    """Return the old version that the new version refers to, or None."""
    if isinstance(transaction.operation, Restore):
        return transaction.operation.version
    return transaction.read_version or None if options.detached else None


def _commit(location: TableLocation, transaction: Transaction, options: CommitOptions) -> Snapshot:
    resolver = Resolver(
        transaction,
        options.affected,
        attempts=options.attempts,
        preserves_order=options.preserves_order,
        keys_are_new=options.keys_are_new,
    )
    deadline = None if options.seconds is None else surroundings.monotonic() + options.seconds
    for attempt in range(max(1, options.attempts)):
        if attempt and deadline is not None and surroundings.monotonic() > deadline:
            break
        try:
            published = _attempt(location, resolver, options)
        except (StorageError, CommitConflictError, AlreadyExistsError) as error:
            # A put without a response may have published the version despite the error.
            if resolver.unknown_outcome is None:
                raise
            raise resolver.unknown_outcome from error
        if published is not None:
            return published
        _wait(attempt)
    if resolver.unknown_outcome is not None:
        raise resolver.unknown_outcome
    raise CommitContentionError(
        "lost the race for every version without a conflict; try again later",
        uri=location.uri,
        attempts=options.attempts,
    )


@dataclass(frozen=True, slots=True)
class PreparedCommit:
    """A transaction applied to the latest version, not yet published."""

    transaction: Transaction
    state: State
    naming: ManifestNaming
    base: Snapshot | None = None
    """The preceding version."""


def _attempt(
    location: TableLocation, resolver: Resolver, options: CommitOptions
) -> Snapshot | None:
    """Publish on top of the latest version; return None if another writer was faster."""
    ours, snapshot = resolver.ours, options.snapshot
    resolver.num_tried += 1
    latest = latest_snapshot(location, options.handler, cached=snapshot)
    if latest is None:
        was_read = snapshot is not None or options.read_identity is not None
        if was_read or not isinstance(ours.operation, Overwrite):
            raise DatasetNotFoundError(
                "the dataset was removed" if was_read else "the dataset does not exist",
                uri=location.uri,
            )
        return _publish(location, _prepare_first(ours, options), options, resolver=resolver)
    if options.must_create:
        existing = resolver.find_own_first(latest)
        if existing is None:
            raise AlreadyExistsError("Dataset already exists", uri=location.uri)
        return existing
    if snapshot is not None:
        check_same_table(snapshot, latest)
    elif options.read_identity is not None:
        check_same_identity(ours.read_version, options.read_identity, latest)
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
        version = surroundings.random_bits(63) | DETACHED_BIT
        return _publish(location, _prepare(ours, base, version, options), options)
    try:
        return _follow(location, resolver, options, latest)
    except ObjectNotFoundError:
        if latest.exists():
            raise
        return None  # The version was cleaned up while it was read, so a newer one exists.


def _follow(
    location: TableLocation, resolver: Resolver, options: CommitOptions, latest: Snapshot
) -> Snapshot | None:
    """Publish after the latest version; return None if another writer was faster.

    Returns the existing version if the transaction was already published.
    """
    existing = resolver.find_own_version(latest)
    for _ in range(_RECHECKS_MAX):
        # Newer versions may have been committed while many versions were checked.
        if existing is not None or resolver.num_judged < 2:
            break
        latest = latest_snapshot(location, options.handler) or latest
        check_writable(latest.manifest.reader_flags, latest.manifest.writer_flags)
        existing = resolver.find_own_version(latest)
    if existing is not None:
        check_new_files(existing, None, folder=VersionFolder.of(location.store))
        return existing
    if options.watermark is not None:
        if options.watermark.is_reached(latest.manifest.config):
            return latest
        options.watermark.check(latest.manifest.config, uri=location.uri)
    version = latest.version + 1
    if is_detached(version):
        raise VersionRangeError(
            "the table has reached the highest version number; copy it to a new table",
            uri=location.uri,
            version=latest.version,
        )
    prepared = _prepare(resolver.rebased(latest), latest, version, options)
    return _publish(location, prepared, options, resolver=resolver)


def refresh_snapshot(snapshot: Snapshot) -> Snapshot:
    """Return the latest version of the table that a snapshot belongs to.

    Raises:
        DatasetNotFoundError: The table was moved or dropped.
        VersionNotFoundError: The table was deleted and created again.
    """
    latest = latest_snapshot(snapshot.location, cached=snapshot)
    if latest is None:
        raise DatasetNotFoundError(
            "the dataset was moved or dropped after it was opened",
            uri=snapshot.location.uri,
        )
    check_same_table(snapshot, latest)
    return latest


def check_table_exists(snapshot: Snapshot) -> None:
    """Raise if the table of a snapshot was dropped, or deleted and created again.

    Commits check this as well; the early check avoids writing files that nothing refers to.

    Raises:
        DatasetNotFoundError: The table was moved or dropped.
        VersionNotFoundError: The table was deleted and created again.
    """
    entry = snapshot.entry
    try:
        info = snapshot.location.store.info(entry.path) if entry.path else None
    except ObjectNotFoundError:
        info = None
    if info is None or entry.etag is None or info.etag != entry.etag:
        refresh_snapshot(snapshot)


def check_same_table(snapshot: Snapshot, latest: Snapshot) -> None:
    """Raise if the latest version at a location belongs to another table than a snapshot.

    The check cannot detect a new table if another library cleaned up the version of the snapshot.

    Raises:
        VersionNotFoundError: The table was deleted and created again.
    """
    check_same_identity(snapshot.version, snapshot.identity, latest, snapshot.entry)


def check_same_identity(
    version: int, identity: str, latest: Snapshot, entry: ManifestEntry | None = None
) -> None:
    """Raise like `check_same_table` for a version that another process read."""
    location, file = latest.location, parse_transaction_file(identity)
    if latest.identity == identity or latest.manifest.ancestor(version) == version_identifier(file):
        return
    if version < latest.version and not is_detached(version):
        try:
            current = location.handler.find_version(location.store, version, uri=location.uri)
            is_unchanged = entry is not None and current.is_same_object(entry)
            if is_unchanged or open_entry(location, current).identity == identity:
                return
            exists = True
        except (VersionNotFoundError, ObjectNotFoundError):
            exists = False
        recorded = Removals.load(location.store).transactions.get(version)
        if recorded == file or (recorded is None and not exists):
            return
    elif is_detached(version):
        return
    raise VersionNotFoundError(
        "the table was deleted and created again after it was read; open it again",
        uri=location.uri,
        version=version,
        latest=latest.version,
    )


def _prepare_first(transaction: Transaction, options: CommitOptions) -> PreparedCommit:
    context = CommitContext(
        version=DETACHED_BIT | surroundings.random_bits(63) if options.detached else 1,
        stable_row_ids=options.stable_row_ids,
        data_version=options.data_version,
    )
    state = apply_operation(transaction.operation, None, context)
    return PreparedCommit(replace(transaction, read_version=0), state, options.naming)


def _prepare(
    transaction: Transaction, base: Snapshot, version: int, options: CommitOptions
) -> PreparedCommit:
    """Apply a transaction to its base version."""
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
        state = with_index_catchup(state, before, _read_state(transaction, base))
    state = with_counted_rows(state, base.location)
    return PreparedCommit(transaction, state, base.entry.naming, base)


def _read_state(transaction: Transaction, base: Snapshot) -> State | None:
    """Return the state that a transaction was computed from, or None if it was removed."""
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
    location: TableLocation,
    prepared: PreparedCommit,
    options: CommitOptions,
    *,
    resolver: Resolver | None = None,
) -> Snapshot | None:
    """Write the manifest under the name of its version, in the request that decides the commit.

    Returns None if the name is or was used by another version, and the caller reloads the latest
    version. The same applies if the response was lost and the version is absent; `resolver` then
    records the version as pending.
    """
    transaction, store = prepared.transaction, location.store
    manifest = _stamped(prepared, options)
    path = manifest_path(manifest.version, prepared.naming)
    rendered = with_trailer(transaction.render())
    store.put_best_effort(f"{TRANSACTIONS}/{transaction.file_name}", rendered)
    dictionary_bytes = b""
    if manifest.data_version is FileVersion.V0_1:
        values = dictionary_values_of(unsaved_snapshot(location, manifest))
        manifest, dictionary_bytes = with_dictionaries(manifest, values)
    # Retain fields of newer releases, as for the manifest.
    unknown = b"" if prepared.base is None else prepared.base.indices.unknown
    indices = IndexSection(prepared.state.indices, unknown)
    data, stored = write_manifest_file(
        manifest, indices, rendered, dictionary_values=dictionary_bytes
    )
    # The first version of a clone or branch refers to files of existing versions.
    adds_files = resolver is not None or options.detached
    may_lack_files = adds_files and options.may_lack_files()
    handler = options.handler or location.handler
    if options.sync is not None:
        options.sync()
    entry = ManifestEntry(manifest.version, prepared.naming, path, len(data), manifest.timestamp)
    published = written_snapshot(location, entry, stored, indices, transaction)
    if may_lack_files:
        check_new_files(published, prepared.base)
    existing = None
    try:
        handler.publish(store, path, data, version=manifest.version)
    except AlreadyExistsError:
        return None
    except CommitOutcomeUnknownError as error:
        existing = _load_if_ours(published)
        if existing is None:
            lost = error.with_facts(version=manifest.version, uuid=transaction.uuid)
            if resolver is None:
                raise lost from None
            resolver.add_pending(published, lost)
            return None
    if options.detached:
        folder = VersionFolder.of(store)
    else:
        try:
            listing = confirm_version(existing or published, prepared.base, handler)
        except StorageError as error:
            raise CommitOutcomeUnknownError(
                "the version was put, but reading the table failed before it was confirmed; look "
                "for its transaction before repeating the changes",
                uri=location.uri,
                version=manifest.version,
                uuid=transaction.uuid,
            ) from error
        if listing is None:
            return None
        folder = listing
        _write_hint(store, manifest.version)
    read_version = transaction.read_version if resolver is None else resolver.ours.read_version
    if may_lack_files or (adds_files and read_version <= sweep_version(folder)):
        check_new_files(published, prepared.base, folder=folder)
    if existing is not None:
        return existing  # An earlier attempt may have put it with another timestamp.
    cache_manifest(data, stored, location.metadata_cache.cache)
    entry = replace(entry, etag=store.etag_if_cheap(path))
    return written_snapshot(location, entry, stored, indices, transaction)


def publish_first(
    location: TableLocation,
    transaction: Transaction,
    state: State,
    naming: ManifestNaming,
    *,
    base: Snapshot | None = None,
) -> Snapshot:
    """Publish the first version of a table, or one that must directly follow `base`.

    Raises:
        AlreadyExistsError: Another writer published the same version.
    """
    prepared = PreparedCommit(transaction, state, naming, base)
    published = _publish(location, prepared, CommitOptions())
    if published is None:
        raise AlreadyExistsError("Dataset already exists", uri=location.uri)
    return published


def _stamped(prepared: PreparedCommit, options: CommitOptions) -> Manifest:
    manifest, transaction, base = prepared.state.manifest, prepared.transaction, prepared.base
    config = manifest.config
    if options.watermark is not None:
        config = options.watermark.put(config)
    if options.config_entries is not None and base is not None:
        config = {**config, **options.config_entries(base, manifest.version)}
    return replace(
        manifest,
        config=config,
        timestamp_ns=surroundings.time_ns(),
        transaction_file=transaction.file_name,
        ancestors=b"" if base is None else base.manifest.child_ancestors(),
        writer_version=WriterVersion.of(_LIBRARY, __version__),
        tag=transaction.tag,
    )


def _load_if_ours(ours: Snapshot) -> Snapshot | None:
    """Return the stored version if it contains our transaction, after a lost response."""
    try:
        stored = open_snapshot(ours.location, ours.version)
    except NotFoundError:
        return None
    return stored if stored.manifest.transaction_file == ours.manifest.transaction_file else None


def _write_hint(store: Store, version: int) -> None:
    """Write the latest version hint; a missing or outdated hint does no harm."""
    try:
        store.put_best_effort(LATEST_VERSION_HINT, render_version_hint(version))
    except StorageError:
        return


def _wait(attempt: int) -> None:
    """Wait a random time with exponential backoff."""
    bound = min(_WAIT_MS_FIRST * 2**attempt, _WAIT_MS_MAX)
    surroundings.sleep(surroundings.uniform(0, bound) / 1000)
