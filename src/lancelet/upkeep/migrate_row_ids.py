"""Migrate a table to stable row ids.

    fragment 0, 3 rows     ids 0, 1, 2
    fragment 7, 2 rows     ids 7 << 32, (7 << 32) + 1
    later rows             from (7 << 32) + 2 on

Without stable row ids, the id of a row is its address. The migration assigns each row its current
address as stable id. Ids stored by applications remain valid, and so do indices, whether they
contain ids or addresses. Row ids only need to be unique, so gaps between fragments are allowed.

The migration is a single commit: if it is interrupted, nothing has changed and it can be repeated.
It conflicts with concurrent commits that do not assign stable row ids.
"""

from __future__ import annotations

from dataclasses import replace

from lancelet.change.dry_run import ChangeReport, DryRun
from lancelet.change.publish import Retries, publish, with_retries
from lancelet.errors import UnsupportedError
from lancelet.format.fragment import Fragment, Inline
from lancelet.format.index_metadata import FRAGMENT_REUSE_INDEX
from lancelet.format.operation import Merge
from lancelet.rowids.address import row_address
from lancelet.rowids.sequence import RowIdSequence
from lancelet.table.commit import CommitOptions
from lancelet.table.snapshot import Snapshot


def migrate_to_stable_row_ids(snapshot: Snapshot, retries: Retries | None = None) -> Snapshot:
    """Assign stable row ids to all rows of the latest version.

    Raises:
        UnsupportedError: An index has a pending remapping after a compaction.
    """

    def attempt(current: Snapshot) -> Snapshot:
        if current.manifest.uses_stable_row_ids:
            return current
        return publish(current, _operation(current), CommitOptions(activates_row_ids=True))

    return with_retries(snapshot, attempt, retries or Retries())


def report_migration(snapshot: Snapshot) -> ChangeReport:
    """Return the effect of a migration without committing it."""
    dry_run = DryRun.of(snapshot)
    rows = 0 if snapshot.manifest.uses_stable_row_ids else snapshot.num_rows
    return dry_run.report(_operation(snapshot), rows)


def _operation(snapshot: Snapshot) -> Merge:
    """Return the operation that assigns row ids to every fragment.

    It sets `preserves_nullability=False` so that it conflicts with concurrent appends, whose rows
    would have no ids.
    """
    _check_indices(snapshot)
    fragments = tuple(_with_addresses(snapshot, fragment) for fragment in snapshot.fragments)
    return Merge(fragments, snapshot.schema, preserves_nullability=False)


def _with_addresses(snapshot: Snapshot, fragment: Fragment) -> Fragment:
    rows, first = snapshot.physical_rows(fragment), int(row_address(fragment.id, 0))
    ids = RowIdSequence.of_range(first, first + rows)
    return replace(fragment, physical_rows=rows, row_ids=Inline(ids.render()))


def _check_indices(snapshot: Snapshot) -> None:
    """Raise if indices contain outdated row addresses."""
    indices = snapshot.indices.indices
    pending = [index.name for index in indices if not index.is_system]
    if pending and any(index.name == FRAGMENT_REUSE_INDEX for index in indices):
        raise UnsupportedError(
            "indices contain row addresses from before a compaction with deferred remapping; "
            "optimize or drop them first",
            indices=sorted(set(pending)),
        )
