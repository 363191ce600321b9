"""Rebase deletions on concurrent deletions in the same fragments.

Two commits that delete different rows of a fragment do not conflict, but the deletion file of each
lacks the rows of the other. The later commit writes a file with both:

    read version   deleted {1}
    theirs         deleted {1, 5}     committed first
    ours           deleted {1, 8}     rebased to {1, 5, 8}
    ours           deleted {1, 5}     both delete row 5: retry

The caller must pass the changed rows (`affected`). An update deletes rows and rewrites them, so a
row that was already deleted must not appear twice.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TypeAlias

import numpy as np

from lancelet import surroundings
from lancelet.buffers import Int64s
from lancelet.format.fragment import DeletionFile, Fragment
from lancelet.format.operation import Delete, Operation, Update
from lancelet.rowids.deletion import DeletionVector
from lancelet.table.conflict.verdict import Verdict, removed_fragments, retry, updated_fragments
from lancelet.table.snapshot import Snapshot
from lancelet.values import dataclass, replace

AffectedRows: TypeAlias = Mapping[int, Int64s]
"""Offsets of the rows that an operation deletes or moves, by fragment id."""


@dataclass(frozen=True, slots=True)
class Rebased:
    """An operation rebased on a later version, and the deletion files to write."""

    operation: Operation
    deletion_files: Mapping[str, bytes]


def rebase_rows(
    ours: Operation, disputed: frozenset[int], affected: AffectedRows | None, latest: Snapshot
) -> Rebased | Verdict:
    """Return our operation rebased on the latest version, or a verdict.

    Only deletions and updates with known affected rows can be rebased.
    """
    if not isinstance(ours, Delete | Update) or affected is None:
        return retry("both change rows of the same fragments", fragments=disputed)
    updated_by_ours = updated_fragments(ours)
    alive = set(latest.fragments.ids.tolist())
    updated: dict[int, Fragment] = dict(updated_by_ours)
    files: dict[str, bytes] = {}
    emptied: list[int] = []
    for fragment_id in sorted(disputed):
        offsets = affected.get(fragment_id)
        if fragment_id not in alive:
            return retry("they removed fragments that ours changes", fragments=disputed)
        if offsets is None:
            return retry("both change rows of the same fragments", fragments=disputed)
        current = latest.fragments.by_id(fragment_id)
        if fragment_id in updated_by_ours and file_layout(
            updated_by_ours[fragment_id]
        ) != file_layout(current):
            return retry("they rewrote files of the same fragments", fragments=disputed)
        theirs = latest.deletions(current)
        shared = np.isin(offsets, theirs.to_array())
        if shared.any():
            return retry("both changed the same rows", fragments=frozenset({fragment_id}))
        merged = theirs.union(DeletionVector.of(offsets).offsets).as_bitmap()
        if len(merged) == latest.physical_rows(current):
            updated.pop(fragment_id, None)
            emptied.append(fragment_id)
            continue
        fragment = with_deletions(current, merged, read_version=latest.version)
        assert fragment.deletion_file is not None
        path = fragment.deletion_file.path(fragment_id)
        files[path] = merged.render(path)
        updated[fragment_id] = fragment
    return Rebased(_with_fragments(ours, tuple(updated.values()), emptied), files)


def with_deletions(fragment: Fragment, deleted: DeletionVector, *, read_version: int) -> Fragment:
    """Return a fragment with a new, uniquely named deletion file."""
    entry = DeletionFile(
        file_type=deleted.file_type,
        read_version=read_version,
        id=surroundings.random_bits(64),
        num_deleted_rows=len(deleted),
    )
    return replace(fragment, deletion_file=entry)


def file_layout(fragment: Fragment) -> tuple[tuple[str, tuple[int, ...]], ...]:
    """Return the paths and field ids of a fragment's files for comparison."""
    return tuple((file.path, file.fields) for file in fragment.files)


def _with_fragments(
    operation: Delete | Update, updated: tuple[Fragment, ...], emptied: list[int]
) -> Operation:
    removed = tuple(sorted({*removed_fragments(operation), *emptied}))
    match operation:
        case Delete():
            return replace(operation, updated_fragments=updated, deleted_fragment_ids=removed)
        case Update():
            return replace(operation, updated_fragments=updated, removed_fragment_ids=removed)
