"""What index segments cover, after fragments and fields have changed.

A segment's bitmap names the fragments that it has rows of, also of fragments that are gone. It
shrinks where an indexed field of a fragment was rewritten in place, and grows where rows moved to
a new fragment with their ids and their indexed values unchanged.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from itertools import groupby
from typing import Final

from pyroaring import FrozenBitMap

from lancelet.errors import InvalidInputError
from lancelet.format.index_metadata import FRAGMENT_REUSE_INDEX, IndexMetadata
from lancelet.format.operation import RewriteGroup
from lancelet.table.apply.state import State
from lancelet.values import replace

_ADDRESSES_FROM_VERSION: Final = {
    "BTreeIndexDetails": 1,
    "BitmapIndexDetails": 1,
    "LabelListIndexDetails": 2,
    "NGramIndexDetails": 1,
    "RTreeIndexDetails": 1,
    "MinHashLshIndexDetails": 1,
    "InvertedIndexDetails": 4,
    "VectorIndexDetails": 3,
}
"""The version of each kind of index that holds row addresses where earlier ones hold row ids."""


def without_overlaps(indices: tuple[IndexMetadata, ...]) -> tuple[IndexMetadata, ...]:
    """Return segments of which no two of an index cover the same fragment: the first does.

    An old release of the reference noted of new segments what others covered as well. Their rows
    would be found twice, or, if what was noted first did not count, not at all.
    """
    names = [index.name for index in indices if index.fragment_bitmap]
    if len(names) == len(set(names)):
        return indices
    covered: dict[str, FrozenBitMap] = {}
    found = []
    for index in indices:
        own, before = index.fragment_bitmap, covered.get(index.name)
        if own and before:
            own = own - before
        if own:
            covered[index.name] = own if before is None else before | own
        is_whole = own == index.fragment_bitmap
        found.append(index if is_whole else replace(index, fragment_bitmap=own))
    return tuple(found)


def retain_covering(state: State) -> State:
    """Return the state without segments on missing fields and segments that cover no fragment.

    If no segment of an index covers a fragment, the oldest one stays. The index keeps its
    parameters, so optimizing the indices can fill it with new rows.
    """
    if not state.indices:
        return state
    field_ids = state.manifest.schema.by_id.keys()
    alive = FrozenBitMap(int(fragment_id) for fragment_id in state.manifest.fragments.ids)
    known = [index for index in state.indices if not index.missing_fields(field_ids)]
    kept: set[object] = set()
    ordered = sorted(known, key=lambda index: index.name)
    for name, group in groupby(ordered, key=lambda index: index.name):
        segments = list(group)
        covering = [segment for segment in segments if _covers_any(segment, alive)]
        if name == FRAGMENT_REUSE_INDEX:
            covering = segments
        elif not covering:
            covering = [min(segments, key=lambda segment: segment.dataset_version)]
        kept.update(segment.uuid for segment in covering)
    return replace(state, indices=tuple(index for index in known if index.uuid in kept))


def knows_rows_by_id(index: IndexMetadata) -> bool:
    """Return whether a segment of a table with stable row ids finds rows that moved.

    Some kinds hold addresses even there, others do so from some version on, and of what is not
    known nothing is claimed.
    """
    if index.details is None or index.is_system:
        return False
    first_with_addresses = _ADDRESSES_FROM_VERSION.get(index.details.type_name, 0)
    return (index.index_version or 0) < first_with_addresses


def uncover(
    state: State, fragment_ids: Iterable[int], field_ids: Collection[int]
) -> tuple[IndexMetadata, ...]:
    """Return segments that no longer cover fragments whose indexed fields were rewritten.

    A file names the fields that own its columns; an index on a list names the list around them.
    """
    gone, rewritten = FrozenBitMap(fragment_ids), set(field_ids)
    touched = rewritten | {
        field.id
        for field in state.manifest.schema.walk()
        if field.children and not rewritten.isdisjoint(part.id for part in field.walk())
    }
    return tuple(
        replace(index, fragment_bitmap=FrozenBitMap(index.fragment_bitmap - gone))
        if index.fragment_bitmap is not None and not touched.isdisjoint(index.fields)
        else index
        for index in state.indices
    )


def cover_moved(
    indices: Iterable[IndexMetadata],
    *,
    moved_to: Sequence[int],
    moved_from: Sequence[int],
    field_ids: Collection[int],
) -> tuple[IndexMetadata, ...]:
    """Return segments that also cover the fragments that their rows moved to.

    That holds where rows are known by ids that they keep, all fragments that rows came from are
    covered, and no indexed field is among those that changed.
    """
    sources, targets = FrozenBitMap(moved_from), FrozenBitMap(moved_to)
    return tuple(
        replace(index, fragment_bitmap=FrozenBitMap(index.fragment_bitmap | targets))
        if index.fragment_bitmap is not None
        and targets
        and field_ids
        and knows_rows_by_id(index)
        and sources.issubset(index.fragment_bitmap)
        and set(field_ids).isdisjoint(index.fields)
        else index
        for index in indices
    )


def cover_rewritten(bitmap: FrozenBitMap, groups: Iterable[RewriteGroup]) -> FrozenBitMap:
    """Return what a segment covers after groups of fragments were rewritten.

    >>> cover_rewritten(FrozenBitMap([1, 2]), [])
    FrozenBitMap([1, 2])
    """
    for group in groups:
        old = FrozenBitMap(fragment.id for fragment in group.old_fragments)
        if not bitmap.intersect(old):
            continue
        if not old.issubset(bitmap):
            raise InvalidInputError(
                "fragments inside and outside of an index must not be rewritten into one",
                indexed=sorted(old & bitmap),
                not_indexed=sorted(old - bitmap),
            )
        new = FrozenBitMap(fragment.id for fragment in group.new_fragments)
        bitmap = FrozenBitMap((bitmap - old) | new)
    return bitmap


def _covers_any(index: IndexMetadata, alive: FrozenBitMap) -> bool:
    return index.fragment_bitmap is not None and bool(index.fragment_bitmap.intersect(alive))
