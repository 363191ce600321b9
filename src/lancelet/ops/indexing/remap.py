"""Writing scalar indices anew after rows moved, in the commit that moved them.

    by_id   5f..   rows 0:7 1:3        a3..   rows 9:5 9:8

Zones are not rewritten: what is known of them is of other fragments than there are, and the next
time that indices are optimised they are looked at again. Neither is a segment whose files are
missing or damaged: it is warned about, and covers nothing of what moved.
"""

from __future__ import annotations

from lancelet import surroundings
from lancelet.errors import InternalError
from lancelet.format.index_metadata import AnyDetails
from lancelet.format.operation import RewrittenIndex
from lancelet.index.base import AnyKind
from lancelet.ops.indexing.build import new_folder
from lancelet.query.indexing.segments import UNREADABLE, TableSegment, warn_unusable
from lancelet.rowids.address import UInt64s
from lancelet.table.fragment_reuse import FragmentReuse
from lancelet.table.snapshot import Snapshot


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
        warn_unusable(error.with_facts(index=index.name))
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
