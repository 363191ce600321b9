"""Committing a transaction: the next version of a table, or why there is none.

    latest is 7, ours was computed from 5
    6, 7      judged one by one: compatible, rebase, retry, incompatible
    rebased   on version 7
    manifest  of version 8, put if absent
              taken?      version 8 is somebody's; judge it, build version 9
              no reply?   look for our transaction, then try again: our id tells our own version
    landed?   if version 8 was another's and was cleaned up, ours came too late; try again

Nothing that readers see changes before that put, and nothing needs undoing after a failure: files
that were written for a lost commit have names nobody else uses, and cleaning up finds them.

Of what a commit writes, data and deletion files and the manifest must survive a loss of power,
and those are flushed. The transaction's file repeats what the manifest's file holds, and the note
of the latest version is only advice; the disk may write both when it likes.
"""

from __future__ import annotations

from collections.abc import Callable
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
from lancelet.format.manifest import Manifest, WriterVersion, id_of
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
from lancelet.format.seal import sealed
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
from lancelet.table.landed import landed_in
from lancelet.table.location import TableLocation
from lancelet.table.manifests import ManifestEntry, VersionFolder, keep_manifest
from lancelet.table.mark import Mark
from lancelet.table.moved_rows import with_counted_rows, with_creation_versions
from lancelet.table.new_files import check_new_files
from lancelet.table.removals import Removals, held, last_sweep
from lancelet.table.snapshot import (
    Snapshot,
    latest_snapshot,
    open_entry,
    open_snapshot,
    transaction_file_of,
    unsaved_snapshot,
    written_snapshot,
)
from lancelet.values import dataclass, replace

ATTEMPTS: Final = 20
_WAIT_MS_FIRST: Final = 2.0
_WAIT_MS_MAX: Final = 128.0
_ROUNDS_MAX: Final = 16
"""How often one attempt looks for what was committed while it judged what was there."""
_LIBRARY: Final = "lancelet"
_DAY: Final = 24 * 60 * 60.0
"""A commit whose files may be older than this checks that they exist."""


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
    """A version that was read already: not read again if it is the latest, and of the same table,
    or nothing is committed."""
    read_identity: str | None = None
    """The `Snapshot.identity` of the version that was read, where another process read it: nothing
    is committed to another table."""
    mark: Mark | None = None
    """Which batch of a sequence this is; a table that has it already stays as it is."""
    checks_files: bool = False
    """Whether to check that all new files exist, as those of a distributed write, which may be
    older than the version that was read."""

    def may_lack_files(self) -> bool:
        """Return whether a cleanup may take the files of the commit for files of no version."""
        is_old = self.known is not None and not self.known.opened.is_within(_DAY)
        return self.checks_files or is_old


def commit(
    location: TableLocation, transaction: Transaction, options: CommitOptions | None = None
) -> Snapshot:
    """Publish `transaction` as the next version, adjusting it when other writers were first.

    Raises:
        CommitConflictError: Another transaction changed the same things; `retryable` in its facts
            says whether doing the work again from the latest version can succeed.
        CommitContentionError: Every attempt lost the race for a version.
        CommittedFilesMissingError: Data, deletion or index files of the transaction were removed,
            as by a cleanup whose clock is wrong or after a pause of days.
        CommitOutcomeUnknownError: The store lost its reply and could not be asked, or versions
            were removed by others in a way that leaves no evidence.
        DatasetNotFoundError: There is no table, or it was moved or dropped since it was read.
    """
    options = options or CommitOptions()
    referred = _referred_version(transaction, options)
    if referred is None:
        return _commit(location, transaction, options)
    with held(location, referred):
        return _commit(location, transaction, options)


def _referred_version(transaction: Transaction, options: CommitOptions) -> int | None:
    """Return the old version whose files the new one will need, if there is one."""
    if isinstance(transaction.operation, Restore):
        return transaction.operation.version
    return transaction.read_version or None if options.detached else None


def _commit(location: TableLocation, transaction: Transaction, options: CommitOptions) -> Snapshot:
    resolver = Resolver(
        transaction,
        options.affected,
        attempts=options.attempts,
        keeps_order=options.keeps_order,
        keys_are_new=options.keys_are_new,
    )
    deadline = None if options.seconds is None else surroundings.monotonic() + options.seconds
    for attempt in range(max(1, options.attempts)):
        if attempt and deadline is not None and surroundings.monotonic() > deadline:
            break
        try:
            published = _attempt(location, resolver, options)
        except (StorageError, CommitConflictError, AlreadyExistsError) as error:
            # What was put without a reply may be a version, whatever failed since.
            if resolver.lost is None:
                raise
            raise resolver.lost from error
        if published is not None:
            return published
        _wait(attempt)
    if resolver.lost is not None:
        raise resolver.lost
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
    base: Snapshot | None = None
    """The version that it follows."""


def _attempt(
    location: TableLocation, resolver: Resolver, options: CommitOptions
) -> Snapshot | None:
    """Publish on top of what is the latest version now; None if another writer was faster."""
    ours, known = resolver.ours, options.known
    resolver.num_tried += 1
    latest = latest_snapshot(location, options.handler, known=known)
    if latest is None:
        was_read = known is not None or options.read_identity is not None
        if was_read or not isinstance(ours.operation, Overwrite):
            raise DatasetNotFoundError(
                "the dataset is gone" if was_read else "there is no dataset to commit to",
                uri=location.uri,
            )
        return _publish(location, _prepare_first(ours, options), options, resolver=resolver)
    if options.must_create:
        own = resolver.own_first(latest)
        if own is None:
            raise AlreadyExistsError("Dataset already exists", uri=location.uri)
        return own
    if known is not None:
        check_same_table(known, latest)
    elif options.read_identity is not None:
        _check_same_table(ours.read_version, options.read_identity, latest)
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
        if latest.is_there():
            raise
        return None  # It was cleaned up while it was read, so a newer one is there.


def _follow(
    location: TableLocation, resolver: Resolver, options: CommitOptions, latest: Snapshot
) -> Snapshot | None:
    """Publish what follows the latest version, unless others were faster or ours is there."""
    own = resolver.own_version(latest)
    for _ in range(_ROUNDS_MAX):
        # Judging many versions takes a while; a commit on top of the last would come too late.
        if own is not None or resolver.num_judged < 2:
            break
        latest = latest_snapshot(location, options.handler) or latest
        check_writable(latest.manifest.reader_flags, latest.manifest.writer_flags)
        own = resolver.own_version(latest)
    if own is not None:
        check_new_files(own, None, is_published=True)
        return own
    if options.mark is not None and options.mark.is_reached(latest.manifest.config):
        return latest
    version = latest.version + 1
    if is_detached(version):
        raise VersionRangeError(
            "the table has the highest version there can be; copy it to go on",
            uri=location.uri,
            version=latest.version,
        )
    prepared = _prepare(resolver.rebased(latest), latest, version, options)
    return _publish(location, prepared, options, resolver=resolver)


def latest_of(known: Snapshot) -> Snapshot:
    """Return the latest version of the table that a version is of.

    Raises:
        DatasetNotFoundError: The table was moved or dropped.
        VersionNotFoundError: It was deleted and made again.
    """
    latest = latest_snapshot(known.location, known=known)
    if latest is None:
        raise DatasetNotFoundError(
            "the dataset is gone since it was opened; was it moved or dropped?",
            uri=known.location.uri,
        )
    check_same_table(known, latest)
    return latest


def check_there(known: Snapshot) -> None:
    """Refuse to write files for a table that was dropped, or deleted and made again, by now.

    A commit finds out in any case; its files would lie where nobody looks for them.

    Raises:
        DatasetNotFoundError: The table was moved or dropped.
        VersionNotFoundError: It was deleted and made again.
    """
    entry = known.entry
    try:
        info = known.location.store.info(entry.path) if entry.path else None
    except ObjectNotFoundError:
        info = None
    if info is None or entry.etag is None or info.etag != entry.etag:
        latest_of(known)


def check_same_table(known: Snapshot, latest: Snapshot) -> None:
    """Refuse to go on if the latest version at a place is not of the table that was read there.

    Where another library cleaned the known version up, nothing says that it is another table.

    Raises:
        VersionNotFoundError: The table was deleted and made again.
    """
    _check_same_table(known.version, known.identity, latest, known.entry)


def _check_same_table(
    version: int, identity: str, latest: Snapshot, entry: ManifestEntry | None = None
) -> None:
    location, file = latest.location, transaction_file_of(identity)
    if latest.identity == identity or latest.manifest.ancestor(version) == id_of(file):
        return
    if version < latest.version and not is_detached(version):
        try:
            found = location.handler.find_version(location.store, version, uri=location.uri)
            is_known = entry is not None and found.is_that_of(entry)
            if is_known or open_entry(location, found).identity == identity:
                return
            is_there = True
        except (VersionNotFoundError, ObjectNotFoundError):
            is_there = False
        recorded = Removals.of(location.store).transactions.get(version)
        if recorded == file or (recorded is None and not is_there):
            return
    elif is_detached(version):
        return
    raise VersionNotFoundError(
        "the table was deleted and made again after it was read; open it again",
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
    state = with_counted_rows(state, base.location)
    return PreparedCommit(transaction, state, base.entry.naming, base)


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
    location: TableLocation,
    prepared: PreparedCommit,
    options: CommitOptions,
    *,
    resolver: Resolver | None = None,
) -> Snapshot | None:
    """Write the manifest under the name of its version; the one request that decides.

    None if the name is another's, or was: whoever publishes looks again what the latest is. The
    same is true if the reply was lost and the version is not there; `resolver` remembers it.
    """
    transaction, store = prepared.transaction, location.store
    manifest = _stamped(prepared, options.mark)
    path = manifest_path(manifest.version, prepared.naming)
    rendered = sealed(transaction.render())
    store.put_note(f"{TRANSACTIONS}/{transaction.file_name}", rendered)
    head = b""
    if manifest.data_version is FileVersion.V0_1:
        values = dictionary_values_of(unsaved_snapshot(location, manifest))
        manifest, head = with_dictionaries(manifest, values)
    # Fields of newer releases stay, as those of the manifest do.
    unknown = b"" if prepared.base is None else prepared.base.indices.unknown
    indices = IndexSection(prepared.state.indices, unknown)
    data, stored = write_manifest_file(manifest, indices, rendered, dictionary_values=head)
    # What starts a table or a branch, as a clone does, refers to files of versions that exist.
    adds_files = resolver is not None or options.detached
    may_lack_files = adds_files and options.may_lack_files()
    handler = options.handler or location.handler
    if options.settle is not None:
        options.settle()
    entry = ManifestEntry(manifest.version, prepared.naming, path, len(data), manifest.timestamp)
    published = written_snapshot(location, entry, stored, indices, transaction)
    if may_lack_files:
        check_new_files(published, prepared.base, is_published=False)
    found = None
    try:
        handler.publish(store, path, data, version=manifest.version)
    except AlreadyExistsError:
        return None
    except CommitOutcomeUnknownError as error:
        found = _found_ours(published)
        if found is None:
            lost = error.with_facts(version=manifest.version, uuid=transaction.uuid)
            if resolver is None:
                raise lost from None
            resolver.lose(published, lost)
            return None
    if options.detached:
        folder = VersionFolder.of(store)
    else:
        landed = landed_in(found or published, prepared.base, handler)
        if landed is None:
            return None
        folder = landed
        _write_hint(store, manifest.version)
    read_version = transaction.read_version if resolver is None else resolver.ours.read_version
    if may_lack_files or (adds_files and read_version <= last_sweep(folder)):
        check_new_files(published, prepared.base, is_published=True)
    if found is not None:
        return found  # which an earlier attempt may have put, at another time
    keep_manifest(data, stored, location.kept.cache)
    entry = replace(entry, etag=store.etag_at_hand(path))
    return written_snapshot(location, entry, stored, indices, transaction)


def publish_first(
    location: TableLocation,
    transaction: Transaction,
    state: State,
    naming: ManifestNaming,
    *,
    base: Snapshot | None = None,
) -> Snapshot:
    """Publish a version that nothing comes before, as a clone's is, or just `base`.

    Raises:
        AlreadyExistsError: Another writer published the same.
    """
    prepared = PreparedCommit(transaction, state, naming, base)
    published = _publish(location, prepared, CommitOptions())
    if published is None:
        raise AlreadyExistsError("Dataset already exists", uri=location.uri)
    return published


def _stamped(prepared: PreparedCommit, mark: Mark | None) -> Manifest:
    manifest, transaction, base = prepared.state.manifest, prepared.transaction, prepared.base
    return replace(
        manifest,
        config=manifest.config if mark is None else mark.put(manifest.config),
        timestamp_ns=surroundings.time_ns(),
        transaction_file=transaction.file_name,
        ancestors=b"" if base is None else base.manifest.descent(),
        writer_version=WriterVersion.of(_LIBRARY, __version__),
        tag=transaction.tag,
    )


def _found_ours(ours: Snapshot) -> Snapshot | None:
    """Return a version as it is stored if it is ours, after the reply to its put was lost."""
    try:
        found = open_snapshot(ours.location, ours.version)
    except NotFoundError:
        return None
    return found if found.manifest.transaction_file == ours.manifest.transaction_file else None


def _write_hint(store: Store, version: int) -> None:
    """Leave a note of the latest version; a note that is missing or old does no harm."""
    try:
        store.put_note(LATEST_VERSION_HINT, render_version_hint(version))
    except StorageError:
        return


def _wait(attempt: int) -> None:
    """Wait a random time that grows with every attempt, so that writers spread out."""
    bound = min(_WAIT_MS_FIRST * 2**attempt, _WAIT_MS_MAX)
    surroundings.sleep(surroundings.uniform(0, bound) / 1000)
