"""Deleting what a plan says, in an order in which every version that is listed can be read.

    1  a record of the versions that go     from here on none of these numbers is published again,
                                            and nobody begins to refer to these versions
    2  a look at tags and holds             what somebody began to refer to before stays
    3  manifests, oldest first              from here on nobody finds these versions
    4  a marker in the folder of versions   a commit in flight whose files may be deleted finds it
    5  a look at versions that are new      what they mention stays, and so does what a version
                                            mentions whose manifest could not be deleted
    6  other files

A cleanup that ends at any point leaves files too many, which a later one deletes.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Sequence
from itertools import chain
from typing import Final, TypeVar

from lancelet import surroundings
from lancelet.config import IO_THREADS
from lancelet.errors import StorageError
from lancelet.format.paths import (
    DATA,
    DELETIONS,
    INDICES,
    LATEST_VERSION_HINT,
    TRANSACTIONS,
    VERSIONS,
)
from lancelet.io import Store
from lancelet.io.durable import is_out_of_space
from lancelet.io.uri import parse_uri
from lancelet.ops.cleanup.plan import (
    CleanupCandidateFile,
    CleanupPlan,
    FileKind,
    mentioned_since,
    newest_version,
    plan_cleanup,
    referred_since,
)
from lancelet.ops.cleanup.policy import UNVERIFIED_AGE, CleanupPolicy
from lancelet.ops.dry_run import ChangeReport
from lancelet.ops.progress import counted
from lancelet.table.removals import Removals, record_removals, record_sweep, spare
from lancelet.table.snapshot import Snapshot
from lancelet.values import dataclass

T = TypeVar("T")

_NEAR_THREADS: Final = 8
_NEAR_BATCH: Final = 32
"""So many files of this machine are handed to a thread at once: they are gone sooner than that."""

_FEW_FILES: Final = 256
_FEW_BYTES: Final = 256 << 20
_FOLDERS: Final = (VERSIONS, DATA, DELETIONS, TRANSACTIONS, INDICES)


@dataclass(frozen=True, slots=True)
class CleanupStats:
    """What a cleanup deleted; `failed_deletes` are files that the store would not delete."""

    bytes_removed: int = 0
    old_versions: int = 0
    data_files_removed: int = 0
    transaction_files_removed: int = 0
    index_files_removed: int = 0
    deletion_files_removed: int = 0
    failed_deletes: int = 0

    @staticmethod
    def of(files: Iterable[CleanupCandidateFile], *, failed: int = 0) -> CleanupStats:
        """Return what deleting some files counts as."""
        gone = list(files)
        count = [file.file_kind for file in gone].count
        return CleanupStats(
            bytes_removed=sum(file.size_bytes for file in gone),
            old_versions=count(FileKind.MANIFEST),
            data_files_removed=count(FileKind.DATA),
            transaction_files_removed=count(FileKind.TRANSACTION),
            index_files_removed=count(FileKind.INDEX),
            deletion_files_removed=count(FileKind.DELETION),
            failed_deletes=failed,
        )


def cleanup_old_versions(snapshot: Snapshot, policy: CleanupPolicy) -> CleanupStats:
    """Delete old versions of a table and the files that no version needs."""
    plan = plan_cleanup(snapshot, policy)
    return run_cleanup(plan, policy)


def report_cleanup(snapshot: Snapshot, policy: CleanupPolicy) -> ChangeReport:
    """Return how much a cleanup would delete; `plan_cleanup` says which files, and why."""
    plan = plan_cleanup(snapshot, policy)
    gone, record = plan.candidates, Removals(plan.removed)
    return ChangeReport(
        "CleanupOldVersions",
        0,
        int(bool(plan.removed)),
        len(record.render()) if plan.removed else 0,
        deleted_files=len(gone),
        deleted_bytes=sum(file.size_bytes for file in gone),
    )


def run_cleanup(plan: CleanupPlan, policy: CleanupPolicy) -> CleanupStats:
    """Delete what a plan says, but for what came to be needed since."""
    store = plan.location.store
    record = _with_space(store, policy, lambda: record_removals(store, plan.removed))
    referred = referred_since(plan)
    if record is not None and referred:
        spare(store, record, referred)
    delete = _Deleter(plan, policy)
    by_version = zip(plan.versions, plan.manifests, strict=True)
    gone = delete.all(
        "delete versions", [file for version, file in by_version if version not in referred]
    )
    paths = {file.path for file in gone}
    stayed = {
        version
        for version, manifest in zip(plan.versions, plan.manifests, strict=True)
        if manifest.path not in paths
    }
    store_time = None
    if any(file.unverified for file in plan.files):
        store_time = _with_space(store, policy, lambda: record_sweep(store, newest_version(plan)))
    since = mentioned_since(plan, stayed)
    gone += delete.all(
        "delete files",
        [
            file
            for file in plan.files
            if file.path not in since and (store_time is None or plan.may_go(file, store_time))
        ],
    )
    _sweep_temporaries(store, policy)
    return CleanupStats.of(gone, failed=delete.failed)


def _sweep_temporaries(store: Store, policy: CleanupPolicy) -> None:
    """Delete what crashed writers left."""
    age = 0.0 if policy.delete_unverified else UNVERIFIED_AGE.total_seconds()
    for folder in _FOLDERS:
        store.sweep_temporaries(folder, older_than_seconds=age)


def _with_space(store: Store, policy: CleanupPolicy, write: Callable[[], T]) -> T:
    """Return the result of a small write; on a full disk free a little space for it first.

    No version may be deleted before the record is written, so only files are deleted that no
    version and no reader needs: what crashed writers left, and the hint of the latest version,
    which the next commit writes again.
    """
    try:
        return write()
    except StorageError as error:
        if not is_out_of_space(error):
            raise
        _sweep_temporaries(store, policy)
        store.delete(LATEST_VERSION_HINT)
    try:
        return write()
    except StorageError as error:
        if is_out_of_space(error):
            error.add_note(
                "a cleanup writes a record of a few KB before it deletes versions; free as much "
                "space on the disk and clean up again"
            )
        raise


class _Deleter:
    """Deletes files side by side, as fast as was allowed."""

    def __init__(self, plan: CleanupPlan, policy: CleanupPolicy) -> None:
        self._store = plan.location.store
        # The system deletes files of this machine one after the other, yet sooner if asked at once.
        is_near = parse_uri(self._store.uri).scheme in {"file", "memory"}
        self._threads = policy.delete_concurrency or (_NEAR_THREADS if is_near else IO_THREADS)
        self._batch = _NEAR_BATCH if is_near else 1
        self._may_go_alone = is_near and policy.delete_concurrency is None
        self._pace = _Pace(policy.delete_rate_limit)
        self._own: dict[str, bool] = {}
        self.failed = 0

    def all(self, stage: str, files: Sequence[CleanupCandidateFile]) -> list[CleanupCandidateFile]:
        """Delete files and return those that are gone."""
        if not files:
            return []
        if self._may_go_alone and _are_gone_at_once(files):
            outcomes = list(counted(stage, map(self._delete, files), len(files)))
        else:
            threads = min(self._threads, len(files))
            step = min(self._batch, -(-len(files) // threads))
            batches = [files[start : start + step] for start in range(0, len(files), step)]
            with surroundings.executor(threads, "lancelet-delete") as pool:
                deleted = chain.from_iterable(pool.map(self._delete_each, batches))
                outcomes = list(counted(stage, deleted, len(files)))
        self.failed += outcomes.count(False)
        return [file for file, is_gone in zip(files, outcomes, strict=True) if is_gone]

    def _delete_each(self, files: Sequence[CleanupCandidateFile]) -> list[bool]:
        return [self._delete(file) for file in files]

    def _is_own(self, path: str) -> bool:
        """Return whether a file is in the table and not behind a link that leads elsewhere."""
        folder = path.rpartition("/")[0]
        if folder not in self._own:
            self._own[folder] = self._store.is_own(path)
        return self._own[folder]

    def _delete(self, file: CleanupCandidateFile) -> bool:
        if not self._is_own(file.path):
            return False
        self._pace.wait()
        try:
            self._store.delete(file.path)
        except StorageError:
            # Counted as failed; the next cleanup finds the file again.
            return False
        return True


def _are_gone_at_once(files: Sequence[CleanupCandidateFile]) -> bool:
    """Return whether to delete files of this machine takes no longer than to start threads."""
    return len(files) <= _FEW_FILES and sum(file.size_bytes for file in files) <= _FEW_BYTES


class _Pace:
    """Lets so many go in a second."""

    def __init__(
        self, per_second: int | None, now: Callable[[], float] = surroundings.monotonic
    ) -> None:
        self._between = 0.0 if per_second is None else 1 / per_second
        self._now = now
        self._next = now()
        self._lock = threading.Lock()

    def wait(self) -> None:
        """Return when the next may go."""
        if not self._between:
            return
        with self._lock:
            due = max(self._next, self._now())
            self._next = due + self._between
        surroundings.sleep(max(0.0, due - self._now()))
