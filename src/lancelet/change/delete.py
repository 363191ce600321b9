"""Delete rows by writing deletion files; data files are not changed.

    id = 2      fragment 0   deleted {7}   ->  {2, 7}
    id >= 10    fragment 1   all 5 rows    ->  the fragment is removed

The commit records the affected rows, so concurrent deletions of other rows of the same fragments do
not conflict.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from lancelet.arguments import ArgumentTypeError
from lancelet.buffers import Int64s
from lancelet.change.dry_run import ChangeReport, DryRun
from lancelet.change.progress import counted, report
from lancelet.change.publish import Retries, publish, with_retries
from lancelet.expr import expression as ex
from lancelet.expr.compile import ExpressionLike
from lancelet.file.pool import map_ordered
from lancelet.format.fragment import Fragment
from lancelet.format.operation import Delete
from lancelet.rowids.deletion import DeletionVector
from lancelet.scan.nodes.filter import matching_offsets
from lancelet.scan.plan import ScanPlan, plan_scan
from lancelet.scan.scan_options import ScanOptions
from lancelet.table.commit import CommitOptions
from lancelet.table.conflict.rebase import AffectedRows, with_deletions
from lancelet.table.snapshot import Snapshot
from lancelet.values import dataclass, replace


@dataclass(frozen=True, slots=True, eq=False)
class Deleted:
    """The version after a deletion, and the number of deleted rows."""

    snapshot: Snapshot
    num_rows: int


@dataclass(frozen=True, slots=True, eq=False)
class PreparedDelete:
    """Written deletion files, and the operation that commits them.

    `affected` is None if all fragments are removed without a scan; then any concurrent change to
    them is a conflict.
    """

    operation: Delete
    affected: AffectedRows | None
    num_rows: int


@dataclass(frozen=True, slots=True, eq=False)
class Removal:
    """The fragments updated by a deletion, and the ids of the fragments it removed."""

    updated: tuple[Fragment, ...]
    removed: tuple[int, ...]


def delete_rows(
    snapshot: Snapshot,
    predicate: ExpressionLike,
    *,
    retries: Retries | None = None,
    options: CommitOptions | None = None,
) -> Deleted:
    """Delete the rows that match a predicate from the latest version."""

    def attempt(current: Snapshot) -> Deleted:
        deferred = current.with_deferred_sync()
        prepared = prepare_delete(deferred, predicate)
        committing = replace(
            options or CommitOptions(),
            affected=prepared.affected,
            sync=deferred.location.store.flush,
        )
        return Deleted(publish(current, prepared.operation, committing), prepared.num_rows)

    return with_retries(snapshot, attempt, retries or Retries())


def report_delete(snapshot: Snapshot, predicate: ExpressionLike) -> ChangeReport:
    """Return the effect of a deletion without committing it."""
    dry_run = DryRun.of(snapshot)
    prepared = prepare_delete(dry_run.snapshot, predicate)
    return dry_run.report(prepared.operation, prepared.num_rows)


def prepare_delete(snapshot: Snapshot, predicate: ExpressionLike) -> PreparedDelete:
    """Write deletion files and return the uncommitted deletion."""
    check_predicate(predicate)
    plan = plan_scan(snapshot, ScanOptions(columns=(), filter=predicate))
    if not plan.is_filtered:
        everything = tuple(snapshot.fragments.ids.tolist())
        return PreparedDelete(Delete((), everything, str(predicate)), None, snapshot.num_rows)
    rows = {} if plan.filter == ex.FALSE else find_rows(plan)
    removal = write_deletions(snapshot, rows)
    operation = Delete(removal.updated, removal.removed, str(predicate))
    return PreparedDelete(operation, rows, sum(map(len, rows.values())))


def check_predicate(predicate: ExpressionLike) -> None:
    """Raise if the predicate is None, which would delete all rows by mistake."""
    if predicate is None:
        raise ArgumentTypeError(
            'a deletion requires a predicate; to delete all rows, pass "true"', found="None"
        )


def find_rows(plan: ScanPlan) -> dict[int, Int64s]:
    """Return the ascending offsets of the matching rows by fragment."""
    parts: dict[int, list[Int64s]] = {}
    rows = 0
    for fragment_id, offsets in matching_offsets(plan):
        parts.setdefault(fragment_id, []).append(offsets)
        rows += len(offsets)
        report("find rows", rows)
    report("find rows", rows, rows)
    return {fragment_id: np.concatenate(arrays) for fragment_id, arrays in parts.items()}


def write_deletions(snapshot: Snapshot, rows: Mapping[int, Int64s]) -> Removal:
    """Write the deletion files of fragments in parallel."""

    def write(fragment_id: int) -> Fragment | None:
        fragment = snapshot.fragments.by_id(fragment_id)
        before = snapshot.deletions(fragment)
        if not before and len(rows[fragment_id]) == snapshot.physical_rows(fragment):
            return None
        deleted = before.union(DeletionVector.of(rows[fragment_id]).offsets)
        if len(deleted) == snapshot.physical_rows(fragment):
            return None
        changed = with_deletions(fragment, deleted, read_version=snapshot.version)
        assert changed.deletion_file is not None
        path = changed.deletion_file.path(fragment_id)
        snapshot.location.store.put(path, deleted.render(path))
        snapshot.cache_deletions(changed, deleted)
        return changed

    written = counted("write deletions", map_ordered(write, rows, waits=True), len(rows))
    fragments = dict(zip(rows, written, strict=True))
    return Removal(
        updated=tuple(fragment for fragment in fragments.values() if fragment is not None),
        removed=tuple(number for number, fragment in fragments.items() if fragment is None),
    )
