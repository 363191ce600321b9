"""Update the indices that cover compacted rows.

    indices by row id     unchanged, since rows retain their ids
    indices by address    rewritten with the new addresses, in the commit that moves the rows
    zone-based indices    unchanged; updated when indices are optimized
    unknown index types   unchanged; they do not cover the new fragments
    damaged files         unchanged with a warning; they do not cover the new fragments

    by_id   5f..   rows 0:7 1:3        a3..   rows 9:5 9:8

Row moves are recorded only if remapping is deferred, which is rejected for unknown index types:
some readers would assume that they cover the new fragments, and look up outdated addresses.
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
from lancelet.rowids.address import UInt64s
from lancelet.scan.indexing.segments import UNREADABLE, TableSegment, table_segment, warn_unusable
from lancelet.table.fragment_reuse import FragmentReuse
from lancelet.table.snapshot import Snapshot
from lancelet.upkeep.compact.options import CompactionOptions
from lancelet.upkeep.indexing.build import new_folder
from lancelet.values import dataclass


@dataclass(frozen=True, slots=True)
class IndexChanges:
    """The index changes in the commit of a rewrite."""

    rewritten: tuple[RewrittenIndex, ...] = ()
    moves: tuple[ReuseGroup, ...] = ()


def change_indices(
    snapshot: Snapshot, groups: Sequence[RewriteGroup], options: CompactionOptions
) -> IndexChanges:
    """Return the index changes for rewritten fragments, after writing new segments."""
    if options.defer_index_remap:
        return IndexChanges(moves=_record_moves(snapshot, groups))
    rewritten_ids = FrozenBitMap(f.id for group in groups for f in group.old_fragments)
    covering = [
        table_segment(snapshot, index)
        for index in snapshot.indices.indices
        if not index.is_system
        and (index.fragment_bitmap is None or index.fragment_bitmap.intersect(rewritten_ids))
    ]
    # Indices of other types do not cover the new fragments until they are optimized.
    remappable = [
        candidate for candidate in covering if candidate is not None and candidate.kind.can_remap
    ]
    with_addresses = [
        candidate for candidate in remappable if not (candidate.is_by_id or candidate.lacks_rows)
    ]
    if not with_addresses:
        return IndexChanges()
    reuse = FragmentReuse((ReuseVersion(snapshot.version, _record_moves(snapshot, groups)),))
    written = [remap_segment(snapshot, segment, reuse) for segment in with_addresses]
    return IndexChanges(tuple(each for each in written if each is not None))


def check_deferrable(snapshot: Snapshot, options: CompactionOptions) -> None:
    """Raise if remapping cannot be deferred, as with stable row ids or unsupported index types."""
    if not options.defer_index_remap:
        return
    listed = [index for index in snapshot.indices.indices if not index.is_system]
    segments = [(index.name, table_segment(snapshot, index)) for index in listed]
    unsupported = sorted(
        name
        for name, segment in segments
        if segment is None or not segment.kind.supports_deferred_remap
    )
    if unsupported:
        raise UnsupportedError(
            "an index of an unknown type or of type FM does not support deferred remapping; "
            "compact without defer_index_remap, or drop the index",
            indices=unsupported,
        )
    if snapshot.manifest.uses_stable_row_ids:
        raise UnsupportedError(
            "in a table with stable row ids, index remapping is not needed and cannot be "
            "deferred; compact without defer_index_remap",
            uri=snapshot.location.uri,
        )


def _record_moves(snapshot: Snapshot, groups: Sequence[RewriteGroup]) -> tuple[ReuseGroup, ...]:
    return tuple(
        ReuseGroup(
            render_treemap(
                {
                    int(fragment.id): _live_offsets(snapshot, fragment)
                    for fragment in group.old_fragments
                    if fragment.num_rows
                }
            ),
            tuple(map(FragmentDigest.of, group.old_fragments)),
            tuple(map(FragmentDigest.of, group.new_fragments)),
        )
        for group in groups
    )


def _live_offsets(snapshot: Snapshot, fragment: Fragment) -> BitMap:
    survivors = BitMap(range(fragment.physical_rows))
    survivors -= snapshot.deletions(fragment).offsets
    return survivors


def remap_segment(
    snapshot: Snapshot, segment: TableSegment, reuse: FragmentReuse
) -> RewrittenIndex | None:
    """Rewrite a segment with the new row addresses; None if it cannot be read."""
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
        raise InternalError("an index type with remap support returned no details", kind=kind.name)
    return RewrittenIndex(
        index.uuid,
        new_id,
        AnyDetails(kind.type_url, details),
        index.index_version or 0,
        tuple(folder.written),
    )
