"""Giving the rows of a table ids that they keep when they move, after the table was made without.

    fragment 0, 3 rows     ids 0, 1, 2
    fragment 7, 2 rows     ids 7 << 32, (7 << 32) + 1
    later rows             from (7 << 32) + 2 on

Until now the id of a row was its address, and these ids are the addresses that rows have at this
moment. So ids that programs have noted stay valid, and so do indices, whether they hold ids or
addresses. Ids must differ and nothing else, so the gaps between fragments do no harm.

One commit does all of it: whoever is stopped before it has changed nothing, and to start again is
to go on. Other commits that know no such ids conflict with it, in whichever order they come.
"""

from __future__ import annotations

from dataclasses import replace

from lancelet.errors import UnsupportedError
from lancelet.format.fragment import Fragment, Inline
from lancelet.format.index_metadata import FRAGMENT_REUSE_INDEX
from lancelet.format.operation import Merge
from lancelet.ops.dry_run import ChangeReport, Rehearsal
from lancelet.ops.publish import Retries, publish, with_retries
from lancelet.rowids.address import row_address
from lancelet.rowids.sequence import RowIdSequence
from lancelet.table.commit import CommitOptions
from lancelet.table.snapshot import Snapshot


def migrate_to_stable_row_ids(snapshot: Snapshot, retries: Retries | None = None) -> Snapshot:
    """Give all rows ids that they keep, in the latest version there is then.

    Raises:
        UnsupportedError: An index was not brought up to date after a compaction.
    """

    def attempt(current: Snapshot) -> Snapshot:
        if current.manifest.uses_stable_row_ids:
            return current
        return publish(current, _operation(current), CommitOptions(activates_row_ids=True))

    return with_retries(snapshot, attempt, retries or Retries())


def report_migration(snapshot: Snapshot) -> ChangeReport:
    """Return what a migration would do; nothing, where rows have such ids already."""
    rehearsal = Rehearsal.of(snapshot)
    rows = 0 if snapshot.manifest.uses_stable_row_ids else snapshot.num_rows
    return rehearsal.report(_operation(snapshot), rows)


def _operation(snapshot: Snapshot) -> Merge:
    """Return the operation that gives every fragment its row ids.

    It does not say that it keeps nullability, since rows that others append at the same time
    would come without ids: that makes the two conflict.
    """
    _check_indices(snapshot)
    fragments = tuple(_with_addresses(snapshot, fragment) for fragment in snapshot.fragments)
    return Merge(fragments, snapshot.schema, preserves_nullability=False)


def _with_addresses(snapshot: Snapshot, fragment: Fragment) -> Fragment:
    rows, first = snapshot.physical_rows(fragment), int(row_address(fragment.id, 0))
    ids = RowIdSequence.of_range(first, first + rows)
    return replace(fragment, physical_rows=rows, row_ids=Inline(ids.render()))


def _check_indices(snapshot: Snapshot) -> None:
    """Refuse indices that name rows by addresses which they no longer have."""
    indices = snapshot.indices.indices
    waiting = [index.name for index in indices if not index.is_system]
    if waiting and any(index.name == FRAGMENT_REUSE_INDEX for index in indices):
        raise UnsupportedError(
            "indices hold addresses from before a compaction, which deferred their remapping; "
            "bring them up to date or drop them first",
            indices=sorted(set(waiting)),
        )
