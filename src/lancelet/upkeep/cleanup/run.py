"""Run a cleanup plan, deleting files in an order that leaves every listed version readable.

    1  record the versions to remove        their numbers are not published again, and no new
                                            reference to them is created
    2  read tags and holds                  versions with earlier references are retained
    3  delete manifests, oldest first       the versions are no longer listed
    4  write a sweep marker                 concurrent commits detect that files may be deleted
    5  read new versions                    their files are retained, and so are those of versions
                                            whose manifest could not be deleted
    6  delete other files

An interrupted cleanup leaves unreferenced files, which the next cleanup deletes.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from itertools import chain
from typing import Final, TypeVar

from lancelet import surroundings
from lancelet.change.dry_run import ChangeReport
from lancelet.change.progress import counted
from lancelet.change.report import Report
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
from lancelet.table.removals import (
    UNVERIFIED_AGE,
    Removals,
    record_removals,
    record_sweep,
    retain_versions,
)
from lancelet.table.snapshot import Snapshot
from lancelet.upkeep.cleanup.plan import (
    CleanupCandidateFile,
    CleanupPlan,
    FileKind,
    mentioned_since,
    newest_version,
    plan_cleanup,
    referred_since,
)
from lancelet.upkeep.cleanup.policy import CleanupPolicy
from lancelet.values import dataclass

T = TypeVar("T")

_LOCAL_THREADS: Final = 8
_LOCAL_BATCH: Final = 32
"""Local files per task, since deleting them is cheaper than scheduling a task."""

_FEW_FILES: Final = 256
_FEW_BYTES: Final = 256 << 20
_FOLDERS: Final = (VERSIONS, DATA, DELETIONS, TRANSACTIONS, INDICES)


@dataclass(frozen=True, slots=True, repr=False)
class CleanupStats(Report):
    """The number of deleted files and bytes; `failed_deletes` counts failed deletions."""

    bytes_removed: int = 0
    old_versions: int = 0
    data_files_removed: int = 0
    transaction_files_removed: int = 0
    index_files_removed: int = 0
    deletion_files_removed: int = 0
    failed_deletes: int = 0

    @staticmethod
    def of(files: Iterable[CleanupCandidateFile], *, failed: int = 0) -> CleanupStats:
        """Return the statistics of deleted files."""
        deleted = list(files)
        count = [file.file_kind for file in deleted].count
        return CleanupStats(
            bytes_removed=sum(file.size_bytes for file in deleted),
            old_versions=count(FileKind.MANIFEST),
            data_files_removed=count(FileKind.DATA),
            transaction_files_removed=count(FileKind.TRANSACTION),
            index_files_removed=count(FileKind.INDEX),
            deletion_files_removed=count(FileKind.DELETION),
            failed_deletes=failed,
        )


def cleanup_old_versions(snapshot: Snapshot, policy: CleanupPolicy) -> CleanupStats:
    """Delete old versions of a table and unreferenced files."""
    plan = plan_cleanup(snapshot, policy)
    return run_cleanup(plan, policy)


def report_cleanup(snapshot: Snapshot, policy: CleanupPolicy) -> ChangeReport:
    """Return the number of files and bytes that a cleanup would delete; see also `plan_cleanup`."""
    plan = plan_cleanup(snapshot, policy)
    deleted, record = plan.candidates, Removals(plan.removed)
    return ChangeReport(
        "CleanupOldVersions",
        0,
        int(bool(plan.removed)),
        len(record.render()) if plan.removed else 0,
        deleted_files=len(deleted),
        deleted_bytes=sum(file.size_bytes for file in deleted),
    )


def run_cleanup(plan: CleanupPlan, policy: CleanupPolicy) -> CleanupStats:
    """Run a cleanup plan, retaining files that have become referenced since."""
    store = plan.location.store
    record = _retry_when_full(store, policy, lambda: record_removals(store, plan.removed))
    referred = referred_since(plan)
    if record is not None and referred:
        retain_versions(store, record, referred)
    delete = _Deleter(plan, policy)
    by_version = zip(plan.versions, plan.manifests, strict=True)
    deleted = delete.all(
        "delete versions", [file for version, file in by_version if version not in referred]
    )
    paths = {file.path for file in deleted}
    retained = {
        version
        for version, manifest in zip(plan.versions, plan.manifests, strict=True)
        if manifest.path not in paths
    }
    store_time = None
    if any(file.unverified for file in plan.files):
        store_time = _retry_when_full(
            store, policy, lambda: record_sweep(store, newest_version(plan))
        )
    references = mentioned_since(plan, retained)
    deleted += delete.all(
        "delete files",
        [
            file
            for file in plan.files
            if file.path not in references and (store_time is None or plan.may_go(file, store_time))
        ],
    )
    _sweep_temporaries(store, policy)
    return CleanupStats.of(deleted, failed=delete.failed)


def _sweep_temporaries(store: Store, policy: CleanupPolicy) -> None:
    """Delete the temporary files of interrupted writers."""
    age = 0.0 if policy.delete_unverified else UNVERIFIED_AGE.total_seconds()
    for folder in _FOLDERS:
        store.sweep_temporaries(folder, older_than_seconds=age)


def _retry_when_full(store: Store, policy: CleanupPolicy, write: Callable[[], T]) -> T:
    """Return the result of a small write, freeing disk space first if the disk is full.

    Before the record is written, no version may be deleted. Only temporary files of interrupted
    writers and the latest version hint are deleted, which the next commit writes again.
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
                "cleanup writes a record of a few KB before it deletes versions; free some disk "
                "space and retry"
            )
        raise


class _Deleter:
    """Deletes files concurrently, within the rate limit."""

    def __init__(self, plan: CleanupPlan, policy: CleanupPolicy) -> None:
        self._store = plan.location.store
        # Local deletions are serialized by the operating system, but concurrent requests are
        # faster.
        scheme = parse_uri(self._store.uri).scheme
        is_local = scheme in {"file", "memory"}
        self._threads = policy.delete_concurrency or (_LOCAL_THREADS if is_local else IO_THREADS)
        self._batch = _LOCAL_BATCH if is_local else 1
        self._can_delete_inline = is_local and policy.delete_concurrency is None
        self._rate_limiter = _RateLimiter(policy.delete_rate_limit)
        self._deletes_many = scheme == "file" and policy.delete_rate_limit is None
        self._owned_folders: dict[str, bool] = {}
        self.failed = 0

    def all(self, stage: str, files: Sequence[CleanupCandidateFile]) -> list[CleanupCandidateFile]:
        """Delete files, and return the deleted ones."""
        if not files:
            return []
        is_inline = self._can_delete_inline and _is_fast_to_delete(files)
        threads = 1 if is_inline else min(self._threads, len(files))
        step = min(self._batch, -(-len(files) // threads))
        batches = [files[start : start + step] for start in range(0, len(files), step)]
        if is_inline:
            deleted = chain.from_iterable(map(self._delete_each, batches))
            outcomes = list(counted(stage, deleted, len(files)))
        else:
            with surroundings.executor(threads, "lancelet-delete") as pool:
                deleted = chain.from_iterable(pool.map(self._delete_each, batches))
                outcomes = list(counted(stage, deleted, len(files)))
        self.failed += outcomes.count(False)
        return [file for file, is_deleted in zip(files, outcomes, strict=True) if is_deleted]

    def _delete_each(self, files: Sequence[CleanupCandidateFile]) -> list[bool]:
        if self._deletes_many and all(self._is_owned(file.path) for file in files):
            # If one cannot be deleted, each is tried, to count those that remain.
            with suppress(StorageError):
                self._store.delete_many([file.path for file in files])
                return [True] * len(files)
        return [self._delete(file) for file in files]

    def _is_owned(self, path: str) -> bool:
        """Return whether a file belongs to the table, and is not reached by a symbolic link."""
        folder = path.rpartition("/")[0]
        if folder not in self._owned_folders:
            self._owned_folders[folder] = self._store.is_own(path)
        return self._owned_folders[folder]

    def _delete(self, file: CleanupCandidateFile) -> bool:
        if not self._is_owned(file.path):
            return False
        self._rate_limiter.wait()
        try:
            self._store.delete(file.path)
        except StorageError:
            # The next cleanup retries the file.
            return False
        return True


def _is_fast_to_delete(files: Sequence[CleanupCandidateFile]) -> bool:
    """Return whether deleting local files is cheaper than starting threads."""
    return len(files) <= _FEW_FILES and sum(file.size_bytes for file in files) <= _FEW_BYTES


class _RateLimiter:
    """Limits the number of operations per second."""

    def __init__(
        self, per_second: int | None, now: Callable[[], float] = surroundings.monotonic
    ) -> None:
        self._between = 0.0 if per_second is None else 1 / per_second
        self._now = now
        self._next = now()
        self._lock = threading.Lock()

    def wait(self) -> None:
        """Wait until the next operation is allowed."""
        if not self._between:
            return
        with self._lock:
            due = max(self._next, self._now())
            self._next = due + self._between
        surroundings.sleep(max(0.0, due - self._now()))
