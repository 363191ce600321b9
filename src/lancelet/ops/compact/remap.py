"""What a compaction does with the indices that cover the rewritten rows.

ids of rows           nothing: rows keep them
addresses             the files are written anew, with the new addresses
zones                 nothing: they are looked at again when indices are optimised
unknown kinds         stay, and cover nothing of what was rewritten
damaged files         the same

Where rows went is recorded only if remapping is deferred. For unknown kinds it is not: there are
readers that then take them to cover the new fragments, and still look for rows where they were.

Writing scalar indices anew after rows moved, in the commit that moved them.

    by_id   5f..   rows 0:7 1:3        a3..   rows 9:5 9:8

Zones are not rewritten: what is known of them is of other fragments than there are, and the next
time that indices are optimised they are looked at again. Neither is a segment whose files are
missing or damaged: it is warned about, and covers nothing of what moved.
"""

from __future__ import annotations

from collections.abc import Sequence

from pyroaring import BitMap, FrozenBitMap

from lancelet import surroundings
from lancelet.errors import InternalError, UnsupportedError
from lancelet.format.fragment import Fragment
from lancelet.format.fragment_reuse import FragmentDigest, ReuseGroup, ReuseVersion
from lancelet.format.index_metadata import AnyDetails
from lancelet.format.operation import RewriteGroup, RewrittenIndex
from lancelet.format.roaring import render_treemap
from lancelet.index.base import AnyKind
from lancelet.ops.compact.options import CompactionOptions
from lancelet.ops.indexing.build import new_folder
from lancelet.query.indexing.segments import UNREADABLE, TableSegment, table_segment, warn_unusable
from lancelet.rowids.address import UInt64s
from lancelet.table.fragment_reuse import FragmentReuse
from lancelet.table.snapshot import Snapshot
from lancelet.values import dataclass


@dataclass(frozen=True, slots=True)
class IndexChanges:
    """What the commit of a rewrite says of indices."""

    rewritten: tuple[RewrittenIndex, ...] = ()
    moves: tuple[ReuseGroup, ...] = ()


def change_indices(
    snapshot: Snapshot, groups: Sequence[RewriteGroup], options: CompactionOptions
) -> IndexChanges:
    """Return what to do with the indices of a version, after writing what has to be written."""
    if options.defer_index_remap:
        return IndexChanges(moves=_recorded(snapshot, groups))
    rewritten_ids = FrozenBitMap(f.id for group in groups for f in group.old_fragments)
    covering = [
        table_segment(snapshot, index)
        for index in snapshot.indices.indices
        if not index.is_system
        and (index.fragment_bitmap is None or index.fragment_bitmap.intersect(rewritten_ids))
    ]
    # Those of other kinds cover nothing of what was rewritten until they are optimised.
    known = [found for found in covering if found is not None and found.kind.can_remap]
    with_addresses = [found for found in known if not (found.is_by_id or found.lacks_rows)]
    if not with_addresses:
        return IndexChanges()
    reuse = FragmentReuse((ReuseVersion(snapshot.version, _recorded(snapshot, groups)),))
    written = [remap_segment(snapshot, segment, reuse) for segment in with_addresses]
    return IndexChanges(tuple(each for each in written if each is not None))


def check_deferrable(snapshot: Snapshot, options: CompactionOptions) -> None:
    """Refuse to record moves for rows with stable ids, and for kinds that nobody would move."""
    if not options.defer_index_remap:
        return
    listed = [index for index in snapshot.indices.indices if not index.is_system]
    segments = [(index.name, table_segment(snapshot, index)) for index in listed]
    stuck = sorted(
        name for name, found in segments if found is None or not found.kind.supports_deferred_remap
    )
    if stuck:
        raise UnsupportedError(
            "the rows of an index of an unknown kind, or of FM, cannot be remapped later; compact "
            "without defer_index_remap, or drop it",
            indices=stuck,
        )
    if snapshot.manifest.uses_stable_row_ids:
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


def remap_segment(
    snapshot: Snapshot, segment: TableSegment, reuse: FragmentReuse
) -> RewrittenIndex | None:
    """Write a segment with the rows where they are now; None if it cannot be read."""
    index = segment.metadata
    kind: AnyKind = segment.kind
    new_id = surroundings.new_uuid()
    folder = new_folder(snapshot, new_id)

    def move(addresses: UInt64s) -> UInt64s:
        return reuse.translate(segment.moved(addresses))

    try:
        details = kind.remap(segment.open(), move, folder)
    except UNREADABLE as error:
        warn_unusable(snapshot, error.with_facts(index=index.name))
        return None
    if details is None:
        raise InternalError("a kind that can be remapped was not", kind=kind.name)
    return RewrittenIndex(
        index.uuid,
        new_id,
        AnyDetails(kind.type_url, details),
        index.index_version or 0,
        tuple(folder.written),
    )
