"""Counting rows of old fragments, whose manifests did not say how many there are.

    read        fragment 0, physical rows 0, deletion file of 0 rows
    committed   fragment 0, physical rows 10, deletion file of 2 rows

The first releases of the reference left both counts out. The next commit fills them in, so that
the files are asked once.
"""

from __future__ import annotations

from lancelet.format.fragment import Fragment
from lancelet.table.apply.state import State
from lancelet.table.location import TableLocation
from lancelet.table.snapshot import Snapshot, unsaved_snapshot
from lancelet.values import replace


def with_counted_rows(state: State, location: TableLocation) -> State:
    """Return a state that is about to be committed in which all rows are counted."""
    fragments = state.manifest.fragments
    if fragments.is_counted.all():
        return state
    snapshot = unsaved_snapshot(location, state.manifest)
    counted = {
        int(fragment.id): _counted(snapshot, fragment)
        for fragment in fragments
        if not _counts(fragment)
    }
    return state.with_fragments(fragments.changed(replaced=counted))


def _counts(fragment: Fragment) -> bool:
    deletion = fragment.deletion_file
    return bool(fragment.physical_rows) and (deletion is None or deletion.num_deleted_rows > 0)


def _counted(snapshot: Snapshot, fragment: Fragment) -> Fragment:
    deletion = fragment.deletion_file
    if deletion is not None:
        deletion = replace(deletion, num_deleted_rows=len(snapshot.deletions(fragment)))
    return replace(fragment, physical_rows=snapshot.physical_rows(fragment), deletion_file=deletion)
