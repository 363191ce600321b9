"""What a change would do, without doing it.

    dataset.delete("id < 100", dry_run=True)
    ChangeReport(operation="Delete", rows=100, files=1, bytes=512, conflicts=())

The work is done against a store that counts what is written and keeps none of it, so files and
bytes are what the real run would write, not a guess. Conflicts are with what others committed
since the version that the change was computed from.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

from lancelet.format.operation import Operation
from lancelet.io.discarding import DiscardingStore
from lancelet.table.conflict.rules import judge
from lancelet.table.conflict.verdict import Outcome
from lancelet.table.snapshot import Snapshot, latest_snapshot, open_snapshot


@dataclass(frozen=True, slots=True)
class ChangeReport:
    """What a change would do.

    Attributes:
        operation: The operation that would be committed.
        rows: The rows that would be added, changed or removed.
        files: The files that would be written, without those of the commit itself.
        bytes: The bytes of these files.
        conflicts: What was committed since and stands in the way, a sentence each.
    """

    operation: str
    rows: int
    files: int
    bytes: int
    conflicts: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, eq=False)
class Rehearsal:
    """A version whose files are read as usual, and where files that are written vanish."""

    snapshot: Snapshot
    written: DiscardingStore

    @staticmethod
    def of(snapshot: Snapshot) -> Rehearsal:
        """Return a rehearsal on a version."""
        store = DiscardingStore(snapshot.location.store)
        location = snapshot.location.with_stores(
            store,
            {
                base.path: store.beside(snapshot.location.base_store(base))
                for base in snapshot.manifest.bases.values()
            },
        )
        return Rehearsal(replace(snapshot, location=location), store)

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
