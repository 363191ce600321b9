"""Rewriting fragments in which others deleted or moved rows meanwhile.

A rewrite that keeps the order of its rows knows where each went, so rows that are gone since then
are deleted where they are now:

    read        fragment 1 live 0 1 2       ours: fragment 9, rows 0 1 2
    theirs      fragment 1 deleted {1}      committed first
    ours        fragment 9 deleted {1}      in place of fragment 1

An update of rows is the same: it deletes them here and writes them elsewhere, with their ids.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from lancelet.format.fragment import Fragment
from lancelet.format.operation import Rewrite, RewriteGroup
from lancelet.rowids.address import UInt64s, addresses_of, group_by_fragment, offsets_of
from lancelet.rowids.deletion import DeletionVector
from lancelet.rowids.moves import RowMoves, Source, Target
from lancelet.table.conflict.rebase import Rebased, files_of, with_deletions
from lancelet.table.conflict.verdict import Verdict, retry
from lancelet.table.snapshot import Snapshot
from lancelet.values import dataclass, replace


def rebase_rewrite(ours: Rewrite, disputed: frozenset[int], latest: Snapshot) -> Rebased | Verdict:
    """Return our rewrite with the rows deleted that are gone from its fragments since then.

    Its new fragments must have the live rows of the old ones in their order, and reserved ids.
    """
    alive = set(latest.fragments.ids.tolist())
    changed = {
        fragment.id
        for group in ours.groups
        for fragment in group.old_fragments
        if fragment.id in disputed & alive
        and files_of(fragment) != files_of(latest.fragments.by_id(fragment.id))
    }
    if changed:
        return retry("they rewrote files of the same fragments", fragments=frozenset(changed))
    groups: list[RewriteGroup] = []
    files: dict[str, bytes] = {}
    for group in ours.groups:
        if disputed.isdisjoint(fragment.id for fragment in group.old_fragments):
            groups.append(group)
            continue
        rebased = _rebased_group(group, disputed, latest, alive)
        files.update(rebased.files)
        old = tuple(fragment for fragment in group.old_fragments if fragment.id in alive)
        if old or rebased.fragments:
            groups.append(RewriteGroup(old, rebased.fragments))
    return Rebased(replace(ours, groups=tuple(groups)), files)


@dataclass(frozen=True, slots=True)
class _RebasedGroup:
    fragments: tuple[Fragment, ...]
    files: Mapping[str, bytes]


def _rebased_group(
    group: RewriteGroup, disputed: frozenset[int], latest: Snapshot, alive: set[int]
) -> _RebasedGroup:
    moves = RowMoves.of(
        (Source(f.id, f.physical_rows, latest.deletions(f)) for f in group.old_fragments),
        (Target(f.id, f.physical_rows) for f in group.new_fragments),
    )
    gone = [
        _gone_since(fragment, latest, alive)
        for fragment in group.old_fragments
        if fragment.id in disputed
    ]
    landed = moves.translate(np.concatenate(gone))
    by_fragment = {
        fragment_id: DeletionVector.of(offsets_of(landed[places]))
        for fragment_id, places in group_by_fragment(landed).items()
    }
    fragments: list[Fragment] = []
    files: dict[str, bytes] = {}
    for fragment in group.new_fragments:
        deleted = by_fragment.get(fragment.id)
        if deleted is None:
            fragments.append(fragment)
        elif len(deleted) < fragment.physical_rows:
            rebased = with_deletions(fragment, deleted, read_version=latest.version)
            assert rebased.deletion_file is not None
            path = rebased.deletion_file.path(fragment.id)
            files[path] = deleted.render(path)
            fragments.append(rebased)
    return _RebasedGroup(tuple(fragments), files)


def _gone_since(fragment: Fragment, latest: Snapshot, alive: set[int]) -> UInt64s:
    """Return the addresses of the rows that were live when we read, and are not any more."""
    before = latest.deletions(fragment)
    if fragment.id not in alive:
        return addresses_of(fragment.id, before.live_offsets(fragment.physical_rows))
    now = latest.deletions(latest.fragments.by_id(fragment.id))
    return addresses_of(fragment.id, np.setdiff1d(now.to_array(), before.to_array()))
