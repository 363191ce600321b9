"""What a compaction does with the indices that cover the rewritten rows.

    stable row ids        nothing: indices name rows by their ids
    a kind with remapper  its files are written anew, with the new addresses
    all other kinds       stay; where rows went is recorded in the fragment reuse index

A kind of index joins by a class with the two methods of `Remapper` and a line in `REMAPPERS`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, Protocol

from pyroaring import BitMap, FrozenBitMap

from lancelet.errors import UnsupportedError
from lancelet.format.fragment import Fragment
from lancelet.format.fragment_reuse import FragmentDigest, ReuseGroup, ReuseVersion
from lancelet.format.index_metadata import IndexMetadata
from lancelet.format.operation import RewriteGroup, RewrittenIndex
from lancelet.format.roaring import render_treemap
from lancelet.ops.compact.options import CompactionOptions
from lancelet.table.fragment_reuse import FragmentReuse
from lancelet.table.snapshot import Snapshot


class Remapper(Protocol):
    """Writes the files of one kind of index anew after rows moved."""

    def can_remap(self, index: IndexMetadata) -> bool:
        """Say whether a segment is of the kind, in a version that is understood."""

    def remap(
        self, snapshot: Snapshot, index: IndexMetadata, reuse: FragmentReuse
    ) -> RewrittenIndex:
        """Write the segment with the addresses that `reuse` translates its own to."""


REMAPPERS: Final[tuple[Remapper, ...]] = ()


@dataclass(frozen=True, slots=True)
class IndexChanges:
    """What the commit of a rewrite says of indices."""

    rewritten: tuple[RewrittenIndex, ...] = ()
    moves: tuple[ReuseGroup, ...] = ()


def change_indices(
    snapshot: Snapshot,
    groups: Sequence[RewriteGroup],
    options: CompactionOptions,
    remappers: Sequence[Remapper] = REMAPPERS,
) -> IndexChanges:
    """Return what to do with the indices of a version, after writing what has to be written."""
    if snapshot.manifest.uses_stable_row_ids:
        return IndexChanges()
    rewritten_ids = FrozenBitMap(f.id for group in groups for f in group.old_fragments)
    covering = [
        index
        for index in snapshot.indices.indices
        if not index.is_system
        and (index.fragment_bitmap is None or index.fragment_bitmap.intersect(rewritten_ids))
    ]
    if not covering and not options.defer_index_remap:
        return IndexChanges()
    moves = _recorded(snapshot, groups)
    if options.defer_index_remap:
        return IndexChanges(moves=moves)
    reuse = FragmentReuse((ReuseVersion(snapshot.version, moves),))
    changed = tuple(
        own.remap(snapshot, index, reuse)
        for index in covering
        for own in remappers
        if own.can_remap(index)
    )
    return IndexChanges(changed, () if len(changed) == len(covering) else moves)


def check_deferrable(snapshot: Snapshot, options: CompactionOptions) -> None:
    """Refuse to record moves in a table whose rows are known by stable ids."""
    if options.defer_index_remap and snapshot.manifest.uses_stable_row_ids:
        raise UnsupportedError(
            "indices need no remapping in a table with stable row ids, so it cannot be deferred; "
            "compact without defer_index_remap",
            uri=snapshot.location.uri,
        )


def _recorded(snapshot: Snapshot, groups: Sequence[RewriteGroup]) -> tuple[ReuseGroup, ...]:
    return tuple(
        ReuseGroup(
            render_treemap(
                {
                    int(fragment.id): _survivors(snapshot, fragment)
                    for fragment in group.old_fragments
                    if fragment.num_rows
                }
            ),
            tuple(map(FragmentDigest.of, group.old_fragments)),
            tuple(map(FragmentDigest.of, group.new_fragments)),
        )
        for group in groups
    )


def _survivors(snapshot: Snapshot, fragment: Fragment) -> BitMap:
    survivors = BitMap(range(fragment.physical_rows))
    survivors -= snapshot.deletions(fragment).offsets
    return survivors
