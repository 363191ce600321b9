"""What a change would do, without doing it.

    dataset.delete("id < 100", dry_run=True)
    ChangeReport(operation="Delete", rows=100, files=1, bytes=512, conflicts=())

The work is done against a store that counts what is written and keeps none of it, so files and
bytes are what the real run would write, not a guess. Conflicts are with what others committed
since the version that the change was computed from.

`rehearse` does a change up to the moment at which its version would be published, so it serves
whatever ends in one commit; `rehearse_apart` does what makes no version, such as deleting a tag.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import fields, replace
from html import escape
from typing import Protocol

import numpy as np

from lancelet.buffers import Ranges, Slices, run
from lancelet.errors import CommitConflictError, InternalError
from lancelet.format.manifest_file import parse_manifest_file, read_transaction
from lancelet.format.operation import Operation
from lancelet.format.trailer import with_trailer
from lancelet.format.transaction import Transaction
from lancelet.io.local import LocalStore
from lancelet.io.scratch import DiscardingStore, ScratchStore
from lancelet.io.spill_folder import SpillFolder
from lancelet.io.store import Store
from lancelet.table.conflict.rules import judge
from lancelet.table.conflict.verdict import Outcome
from lancelet.table.handlers.base import CommitHandler
from lancelet.table.location import TableLocation
from lancelet.table.manifests import ManifestEntry
from lancelet.table.snapshot import Snapshot, latest_snapshot, open_snapshot
from lancelet.values import dataclass


@dataclass(frozen=True, slots=True)
class ChangeReport:
    """What a change would do.

    Attributes:
        operation: The operation that would be committed.
        rows: The rows that would be added, changed or removed.
        files: The files that would be written, without those of the commit itself.
        bytes: The bytes of these files.
        conflicts: What was committed since and stands in the way, a sentence each.
        deleted_files: The files that would be deleted at once; those that only old versions need
            are left to cleaning up.
        deleted_bytes: The bytes of these.
    """

    operation: str
    rows: int
    files: int
    bytes: int
    conflicts: tuple[str, ...] = ()
    deleted_files: int = 0
    deleted_bytes: int = 0

    def _repr_html_(self) -> str:
        """Show the same in a notebook."""
        facts = ((each.name, escape(str(getattr(self, each.name)))) for each in fields(self))
        rows = (f"<tr><th>{name}</th><td>{fact}</td></tr>" for name, fact in facts)
        return f"<div><strong>What would change</strong><table>{''.join(rows)}</table></div>"


@dataclass(frozen=True, slots=True, eq=False)
class Rehearsal:
    """A version whose files are read as usual, and where files that are written vanish."""

    snapshot: Snapshot
    written: DiscardingStore

    @staticmethod
    def of(snapshot: Snapshot) -> Rehearsal:
        """Return a rehearsal on a version."""
        store = DiscardingStore(snapshot.location.store)
        return Rehearsal(replace(snapshot, location=_discarding(snapshot, store)), store)

    def report(self, operation: Operation, rows: int) -> ChangeReport:
        """Return what the operation would do, which was computed from `snapshot`."""
        return ChangeReport(
            operation=type(operation).__name__,
            rows=rows,
            files=self.written.num_objects,
            bytes=self.written.num_bytes,
            conflicts=tuple(conflicts_since(self.snapshot, operation)),
        )


def conflicts_since(snapshot: Snapshot, operation: Operation) -> Iterator[str]:
    """Yield what was committed after a version and may stand in the way of an operation."""
    latest = latest_snapshot(snapshot.location)
    last = snapshot.version if latest is None else latest.version
    for version in range(snapshot.version + 1, last + 1):
        theirs = open_snapshot(snapshot.location, version).transaction
        if theirs is None:
            yield f"version {version} does not say what it changed"
            continue
        verdict = judge(operation, theirs.operation)
        if verdict.outcome is not Outcome.COMPATIBLE:
            kind = type(theirs.operation).__name__
            yield f"version {version} ({kind}): {verdict.reason}"


def rehearse(
    snapshot: Snapshot,
    change: Callable[[Snapshot], object],
    num_rows: int,
    *,
    if_nothing: str | None = None,
) -> ChangeReport:
    """Return what a change of a version would do that ends in a commit and touches so many rows.

    A change that may come to nothing has `if_nothing` as its operation then.
    """
    store = DiscardingStore(snapshot.location.store)
    location = _unpublished(_discarding(snapshot, store))
    other = replace(snapshot, location=location)
    return _reported(store, lambda: change(other), num_rows, if_nothing)


def rehearse_reading_back(
    snapshot: Snapshot, change: Callable[[Snapshot], object], num_rows: int, if_nothing: str
) -> ChangeReport:
    """Return the same of a change that reads what it wrote, which is kept until it ends."""
    with SpillFolder("dry-run") as folder:
        scratch = LocalStore(str(folder.path / "table"), sync=False)
        store = ScratchStore(snapshot.location.store, scratch)
        location = _unpublished(snapshot.location.with_stores(store, {}))
        other = replace(snapshot, location=location)
        return _reported(_Scratch(scratch), lambda: change(other), num_rows, if_nothing)


def rehearse_write(
    location: TableLocation,
    write: Callable[[TableLocation], object],
    num_rows: int | None = None,
    *,
    if_nothing: str | None = None,
) -> ChangeReport:
    """Return what a write would do to a table that may not be there.

    The rows are those of new fragments unless they are given.
    """
    latest = latest_snapshot(location)
    store = DiscardingStore(location.store)
    other = location.with_stores(store, {}) if latest is None else _discarding(latest, store)
    return _reported(store, lambda: write(_unpublished(other)), num_rows, if_nothing)


def rehearse_apart(
    location: TableLocation, operation: str, work: Callable[[TableLocation], object]
) -> ChangeReport:
    """Return what work at a location would write and delete that makes no version."""
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


class _Counting(Protocol):
    """What knows how much was written."""

    @property
    def num_objects(self) -> int: ...

    @property
    def num_bytes(self) -> int: ...


@dataclass(frozen=True, slots=True)
class _Scratch:
    """Counts what is left in a scratch."""

    store: Store

    @property
    def num_objects(self) -> int:
        return sum(1 for _ in self.store.list())

    @property
    def num_bytes(self) -> int:
        return sum(info.size for info in self.store.list())


def _reported(
    written: _Counting,
    change: Callable[[], object],
    num_rows: int | None,
    if_nothing: str | None,
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
        if if_nothing is None:
            raise InternalError("a dry run did not reach its commit")
        return ChangeReport(if_nothing, 0, written.num_objects, written.num_bytes)
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
    """Ends a rehearsal where a version would be published; nobody else sees it."""

    def __init__(self, transaction: Transaction) -> None:
        super().__init__()
        self.transaction = transaction


@dataclass(frozen=True, slots=True)
class _Unpublishing(CommitHandler):
    """Finds versions as another handler does, and publishes none."""

    inner: CommitHandler

    def publish(self, store: Store, path: str, data: bytes, *, version: int) -> None:
        """End the rehearsal with the transaction that was to be published."""
        del store, path, version
        whole = np.frombuffer(data, np.uint8)

        def fetch(wanted: Ranges) -> Slices:
            return Slices(whole, wanted.position, wanted.size)

        transaction = run(read_transaction(parse_manifest_file(whole)), fetch)
        assert transaction is not None, "manifests of ours hold their transaction"
        raise _ReachedCommitError(transaction)

    def find_latest(self, store: Store) -> ManifestEntry | None:
        """Return what the other handler finds."""
        return self.inner.find_latest(store)

    def find_version(self, store: Store, version: int, *, uri: str) -> ManifestEntry:
        """Return what the other handler finds."""
        return self.inner.find_version(store, version, uri=uri)

    def below(self, folder: str) -> _Unpublishing:
        """Return the same around the handler of a branch."""
        return _Unpublishing(self.inner.below(folder))


def _discarding(snapshot: Snapshot, store: DiscardingStore) -> TableLocation:
    """Return the location of a version with stores that keep nothing."""
    bases = {
        base.path: store.beside(snapshot.location.base_store(base))
        for base in snapshot.manifest.bases.values()
    }
    return snapshot.location.with_stores(store, bases)


def _unpublished(location: TableLocation) -> TableLocation:
    return replace(location, handler=_Unpublishing(location.handler))
