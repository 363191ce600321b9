"""Dry runs: compute the effect of a change without committing it.

    dataset.delete("id < 100", dry_run=True)
    operation      Delete
    rows           100
    files          1
    bytes          512
    conflicts
    deleted files  0
    deleted bytes  0

The change runs against a store that counts and discards writes, so the number of files and bytes is
exact. Conflicts are those with versions committed after the one that the change is based on.

`dry_run` stops a change when it publishes its version. `dry_run_without_commit` runs changes that
create no version, such as deleting a tag.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import fields, replace
from html import escape
from typing import Protocol

import numpy as np

from lancelet.buffers import ByteRanges, ByteSlices, run
from lancelet.change.report import Report
from lancelet.errors import CommitConflictError, InternalError
from lancelet.format.manifest_file import parse_manifest_file, read_transaction
from lancelet.format.operation import Operation
from lancelet.format.trailer import with_trailer
from lancelet.format.transaction import Transaction
from lancelet.io.dry_run import DiscardingStore, OverlayStore
from lancelet.io.local import LocalStore
from lancelet.io.spill_folder import SpillFolder
from lancelet.io.store import Store
from lancelet.table.conflict.rules import judge
from lancelet.table.conflict.verdict import Outcome
from lancelet.table.handlers.base import CommitHandler
from lancelet.table.location import TableLocation
from lancelet.table.manifests import ManifestEntry
from lancelet.table.snapshot import Snapshot, latest_snapshot, open_snapshot
from lancelet.values import dataclass


@dataclass(frozen=True, slots=True, repr=False)
class ChangeReport(Report):
    """The effect of a change.

    Attributes:
        operation: The operation that would be committed.
        rows: The number of rows that would be added, changed or removed.
        files: The number of files that would be written, without those of the commit.
        bytes: The size of these files in bytes.
        conflicts: A message for each conflicting version that was committed since.
        deleted_files: The number of files that would be deleted immediately; files that only old
            versions refer to are deleted by cleanup.
        deleted_bytes: The size of the deleted files in bytes.
    """

    operation: str
    rows: int
    files: int
    bytes: int
    conflicts: tuple[str, ...] = ()
    deleted_files: int = 0
    deleted_bytes: int = 0

    def _repr_html_(self) -> str:
        """Return the report as an HTML table."""
        facts = ((each.name, escape(str(getattr(self, each.name)))) for each in fields(self))
        rows = (f"<tr><th>{name}</th><td>{fact}</td></tr>" for name, fact in facts)
        return f"<div><strong>Dry run</strong><table>{''.join(rows)}</table></div>"


@dataclass(frozen=True, slots=True, eq=False)
class DryRun:
    """A snapshot that reads its files as usual and discards writes."""

    snapshot: Snapshot
    written: DiscardingStore

    @staticmethod
    def of(snapshot: Snapshot) -> DryRun:
        """Return a dry run on a version."""
        discarding = DiscardingStore(snapshot.location.store)
        return DryRun(replace(snapshot, location=_discarding(snapshot, discarding)), discarding)

    def report(self, operation: Operation, rows: int) -> ChangeReport:
        """Return the effect of an operation that was computed from `snapshot`."""
        return ChangeReport(
            operation=type(operation).__name__,
            rows=rows,
            files=self.written.num_objects,
            bytes=self.written.num_bytes,
            conflicts=tuple(conflicts_since(self.snapshot, operation)),
        )


def conflicts_since(snapshot: Snapshot, operation: Operation) -> Iterator[str]:
    """Yield a message for each version since `snapshot` that conflicts with an operation."""
    latest = latest_snapshot(snapshot.location)
    last = snapshot.version if latest is None else latest.version
    for version in range(snapshot.version + 1, last + 1):
        transaction = open_snapshot(snapshot.location, version).transaction
        if transaction is None:
            yield f"version {version} has no transaction"
            continue
        verdict = judge(operation, transaction.operation)
        if verdict.outcome is not Outcome.COMPATIBLE:
            kind = type(transaction.operation).__name__
            yield f"version {version} ({kind}): {verdict.reason}"


def dry_run(
    snapshot: Snapshot,
    change: Callable[[Snapshot], object],
    num_rows: int,
    *,
    if_unchanged: str | None = None,
) -> ChangeReport:
    """Return the effect of a change that ends in one commit.

    `num_rows` is the number of rows it changes. `if_unchanged` names the operation to report if the
    change commits nothing.
    """
    store = DiscardingStore(snapshot.location.store)
    location = _unpublished(_discarding(snapshot, store))
    discarding = replace(snapshot, location=location)
    return _report(store, lambda: change(discarding), num_rows, if_unchanged)


def dry_run_with_reads(
    snapshot: Snapshot, change: Callable[[Snapshot], object], num_rows: int, if_unchanged: str
) -> ChangeReport:
    """Return the effect of a change that reads its own files, stored in a temporary folder."""
    with SpillFolder("dry-run") as folder:
        temporary = LocalStore(str(folder.path / "table"), sync=False)
        store = OverlayStore(snapshot.location.store, temporary)
        location = _unpublished(snapshot.location.with_stores(store, {}))
        overlaid = replace(snapshot, location=location)
        return _report(_StoreCounts(temporary), lambda: change(overlaid), num_rows, if_unchanged)


def dry_run_write(
    location: TableLocation,
    write: Callable[[TableLocation], object],
    num_rows: int | None = None,
    *,
    if_unchanged: str | None = None,
) -> ChangeReport:
    """Return the effect of a write to a table, which may not exist.

    `num_rows` defaults to the number of rows of the new fragments.
    """
    latest = latest_snapshot(location)
    store = DiscardingStore(location.store)
    discarding = location.with_stores(store, {}) if latest is None else _discarding(latest, store)
    return _report(store, lambda: write(_unpublished(discarding)), num_rows, if_unchanged)


def dry_run_without_commit(
    location: TableLocation, operation: str, work: Callable[[TableLocation], object]
) -> ChangeReport:
    """Return the effect of work that writes and deletes files but creates no version."""
    store = DiscardingStore(location.store)
    work(location.with_stores(store, {}))
    return ChangeReport(
        operation,
        0,
        store.num_objects,
        store.num_bytes,
        deleted_files=store.num_deleted,
        deleted_bytes=store.deleted_bytes,
    )


class _WriteCounts(Protocol):
    """Reports the number of written objects and bytes."""

    @property
    def num_objects(self) -> int: ...

    @property
    def num_bytes(self) -> int: ...


@dataclass(frozen=True, slots=True)
class _StoreCounts:
    """Reports the objects in a temporary store."""

    store: Store

    @property
    def num_objects(self) -> int:
        return sum(1 for _ in self.store.list())

    @property
    def num_bytes(self) -> int:
        return sum(info.size for info in self.store.list())


def _report(
    written: _WriteCounts,
    change: Callable[[], object],
    num_rows: int | None,
    if_unchanged: str | None,
) -> ChangeReport:
    try:
        change()
    except _ReachedCommitError as reached:
        transaction = reached.transaction
    except CommitConflictError as error:
        return ChangeReport(
            str(error.facts.get("ours")),
            num_rows or 0,
            written.num_objects,
            written.num_bytes,
            (str(error),),
        )
    else:
        if if_unchanged is None:
            raise InternalError("a dry run did not reach its commit")
        return ChangeReport(if_unchanged, 0, written.num_objects, written.num_bytes)
    if num_rows is None:
        fragments = getattr(transaction.operation, "fragments", ())
        num_rows = sum(fragment.physical_rows for fragment in fragments)
    # The file of the transaction belongs to the commit itself.
    return ChangeReport(
        type(transaction.operation).__name__,
        num_rows,
        written.num_objects - 1,
        written.num_bytes - len(with_trailer(transaction.render())),
    )


class _ReachedCommitError(Exception):
    """Ends a dry run when its version would be published."""

    def __init__(self, transaction: Transaction) -> None:
        super().__init__()
        self.transaction = transaction


@dataclass(frozen=True, slots=True)
class _Unpublishing(CommitHandler):
    """Finds versions with another commit handler, and publishes none."""

    inner: CommitHandler

    def publish(self, store: Store, path: str, data: bytes, *, version: int) -> None:
        """Raise `_ReachedCommitError` with the transaction."""
        del store, path, version
        whole = np.frombuffer(data, np.uint8)

        def fetch(ranges: ByteRanges) -> ByteSlices:
            return ByteSlices(whole, ranges.position, ranges.size)

        transaction = run(read_transaction(parse_manifest_file(whole)), fetch)
        assert transaction is not None, "manifests written by lancelet contain their transaction"
        raise _ReachedCommitError(transaction)

    def find_latest(self, store: Store) -> ManifestEntry | None:
        """Return the latest version according to the inner handler."""
        return self.inner.find_latest(store)

    def find_version(self, store: Store, version: int, *, uri: str) -> ManifestEntry:
        """Return a version according to the inner handler."""
        return self.inner.find_version(store, version, uri=uri)

    def below(self, folder: str) -> _Unpublishing:
        """Return the handler of a branch, which publishes no versions either."""
        return _Unpublishing(self.inner.below(folder))


def _discarding(snapshot: Snapshot, store: DiscardingStore) -> TableLocation:
    """Return the location of a snapshot with stores that discard writes."""
    bases = {
        base.path: store.with_inner(snapshot.location.base_store(base))
        for base in snapshot.manifest.bases.values()
    }
    return snapshot.location.with_stores(store, bases)


def _unpublished(location: TableLocation) -> TableLocation:
    return replace(location, handler=_Unpublishing(location.handler))
