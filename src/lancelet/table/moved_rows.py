"""Complete the metadata of the rows and fragments of a commit: created versions, row counts."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from lancelet.errors import CorruptDataError
from lancelet.format.fragment import Fragment, Inline
from lancelet.format.operation import Operation, Update
from lancelet.rowids.address import NO_ADDRESS, UInt64s, group_by_fragment, offsets_of
from lancelet.rowids.index import RowIdIndex
from lancelet.rowids.sequence import RowIdSequence
from lancelet.rowids.versions import VersionSequence
from lancelet.table.apply.state import State
from lancelet.table.lineage import created_versions_of, row_ids_of
from lancelet.table.location import TableLocation
from lancelet.table.snapshot import Snapshot, unsaved_snapshot
from lancelet.values import replace


def with_creation_versions(operation: Operation, before: Snapshot, version: int) -> Operation:
    """Return an operation whose moved rows have created versions.

    Tables with stable row ids record for each row the version that created it. An update moves
    rows with their ids; if the writer omits their created versions, these are copied from the
    previous fragments:

        fragment 0   ids 0 1 2 3   created 1 1 1 1
        fragment 4   ids 4 5       created 2 2
        moved        ids 5 1 and a row without id, which the update inserts
                                   created 2 1 and the new version

    `before` is the preceding version and `version` the new one. Rows whose ids are not found, and
    rows without ids, are created in `version`.
    """
    if not isinstance(operation, Update) or not before.manifest.uses_stable_row_ids:
        return operation
    if not any(map(_needs_history, operation.new_fragments)):
        return operation
    updated_ids = {fragment.id for fragment in operation.updated_fragments}
    sources = _Sources(before, [*updated_ids, *operation.removed_fragment_ids])
    fragments = tuple(
        _with_history(fragment, sources, version) if _needs_history(fragment) else fragment
        for fragment in operation.new_fragments
    )
    return replace(operation, new_fragments=fragments)


class _Sources:
    """The previous fragments of moved rows, with their created versions."""

    def __init__(self, before: Snapshot, fragment_ids: Iterable[int]) -> None:
        self._before = before
        self._index = RowIdIndex.build(
            (fragment.id, row_ids_of(before, fragment), before.deletions(fragment) or None)
            for fragment in map(before.fragments.by_id, sorted(fragment_ids))
        )

    def get_created_versions(self, ids: UInt64s, version: int) -> UInt64s:
        """Return the created version of each row, or `version` for unknown row ids."""
        addresses = self._index.addresses(ids)
        created = np.full(len(ids), version, np.uint64)
        found_rows = np.flatnonzero(addresses != NO_ADDRESS)
        for fragment_id, indices in group_by_fragment(addresses[found_rows]).items():
            versions = created_versions_of(self._before, self._before.fragments.by_id(fragment_id))
            row_indices = found_rows[indices]
            created[row_indices] = versions.take(offsets_of(addresses[row_indices]))
        return created


def _needs_history(fragment: Fragment) -> bool:
    return fragment.created_at_versions is None and isinstance(fragment.row_ids, Inline)


def _with_history(fragment: Fragment, sources: _Sources, version: int) -> Fragment:
    assert isinstance(fragment.row_ids, Inline)
    row_ids = RowIdSequence.parse(fragment.row_ids.data)
    inserted = fragment.physical_rows - len(row_ids)
    if inserted < 0:
        raise CorruptDataError(
            "a fragment has more row ids than rows",
            row_ids=len(row_ids),
            physical_rows=fragment.physical_rows,
        )
    created = sources.get_created_versions(row_ids.to_array(), version)
    created = np.append(created, np.full(inserted, version, np.uint64))
    return replace(fragment, created_at_versions=Inline(VersionSequence.of(created).render()))


def with_counted_rows(state: State, location: TableLocation) -> State:
    """Return the state to commit, with missing row counts read from the files.

        read        fragment 0, physical rows 0, deletion file of 0 rows
        committed   fragment 0, physical rows 10, deletion file of 2 rows

    The first releases of the reference omitted both counts.
    """
    fragments = state.manifest.fragments
    if fragments.is_counted.all():
        return state
    snapshot = unsaved_snapshot(location, state.manifest)
    counted = {
        int(fragment.id): _with_counts(snapshot, fragment)
        for fragment in fragments
        if not _has_counts(fragment)
    }
    return state.with_fragments(fragments.changed(replaced=counted))


def _has_counts(fragment: Fragment) -> bool:
    deletion = fragment.deletion_file
    return bool(fragment.physical_rows) and (deletion is None or deletion.num_deleted_rows > 0)


def _with_counts(snapshot: Snapshot, fragment: Fragment) -> Fragment:
    deletion = fragment.deletion_file
    if deletion is not None:
        deletion = replace(deletion, num_deleted_rows=len(snapshot.deletions(fragment)))
    return replace(fragment, physical_rows=snapshot.physical_rows(fragment), deletion_file=deletion)
