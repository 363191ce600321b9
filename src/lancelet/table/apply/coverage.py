"""Update the fragment bitmaps of index segments after fragments or fields changed.

A segment's bitmap contains the fragments that the segment has rows of, including removed ones. It
shrinks when an indexed field of a fragment is rewritten in place, and grows when rows move to a new
fragment with unchanged row ids and indexed values.
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
"""First version of each index type that stores row addresses instead of row ids."""


def without_overlaps(indices: tuple[IndexMetadata, ...]) -> tuple[IndexMetadata, ...]:
    """Remove fragments from segments if an earlier segment of the same index covers them.

    An old release of the reference added fragments to the bitmap of a new segment that other
    segments already covered. Searches would return their rows twice; ignoring the earlier segments
    instead would lose rows.
    """
    names = [index.name for index in indices if index.fragment_bitmap]
    if len(names) == len(set(names)):
        return indices
    covered: dict[str, FrozenBitMap] = {}
    disjoint = []
    for index in indices:
        bitmap, covered_before = index.fragment_bitmap, covered.get(index.name)
        if bitmap and covered_before:
            bitmap = bitmap - covered_before
        if bitmap:
            covered[index.name] = bitmap if covered_before is None else covered_before | bitmap
        is_unchanged = bitmap == index.fragment_bitmap
        disjoint.append(index if is_unchanged else replace(index, fragment_bitmap=bitmap))
    return tuple(disjoint)


def retain_covering(state: State) -> State:
    """Drop segments on missing fields and segments that cover no existing fragment.

    If no segment of an index covers a fragment, the oldest one stays. The index keeps its
    parameters, so optimizing the indices can fill it with new rows.
    """
    if not state.indices:
        return state
    field_ids = state.manifest.schema.by_id.keys()
    alive = FrozenBitMap(int(fragment_id) for fragment_id in state.manifest.fragments.ids)
    valid = [index for index in state.indices if not index.missing_fields(field_ids)]
    retained: set[object] = set()
    ordered = sorted(valid, key=lambda index: index.name)
    for name, group in groupby(ordered, key=lambda index: index.name):
        segments = list(group)
        covering = [segment for segment in segments if _covers_any(segment, alive)]
        if name == FRAGMENT_REUSE_INDEX:
            covering = segments
        elif not covering:
            covering = [min(segments, key=lambda segment: segment.dataset_version)]
        retained.update(segment.uuid for segment in covering)
    return replace(state, indices=tuple(index for index in valid if index.uuid in retained))


def stores_row_ids(index: IndexMetadata) -> bool:
    """Return whether a segment stores stable row ids, which stay valid when rows move.

    Some index types store addresses even in tables with stable row ids, others do from a certain
    version on. The result is False for unknown types.
    """
    if index.details is None or index.is_system:
        return False
    first_with_addresses = _ADDRESSES_FROM_VERSION.get(index.details.type_name, 0)
    return (index.index_version or 0) < first_with_addresses


def uncover(
    state: State, fragment_ids: Iterable[int], field_ids: Collection[int]
) -> tuple[IndexMetadata, ...]:
    """Remove fragments from the segments on fields that were rewritten in place.

    A data file lists leaf fields; an index on a list refers to the list field.
    """
    removed, rewritten = FrozenBitMap(fragment_ids), set(field_ids)
    touched = rewritten | {
        field.id
        for field in state.manifest.schema.walk()
        if field.children and not rewritten.isdisjoint(part.id for part in field.walk())
    }
    return tuple(
        replace(index, fragment_bitmap=FrozenBitMap(index.fragment_bitmap - removed))
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
    """Extend segments to the fragments that their rows moved to.

    Applies to segments that store stable row ids, cover all source fragments, and index none of the
    changed fields.
    """
    sources, targets = FrozenBitMap(moved_from), FrozenBitMap(moved_to)
    return tuple(
        replace(index, fragment_bitmap=FrozenBitMap(index.fragment_bitmap | targets))
        if index.fragment_bitmap is not None
        and targets
        and field_ids
        and stores_row_ids(index)
        and sources.issubset(index.fragment_bitmap)
        and set(field_ids).isdisjoint(index.fields)
        else index
        for index in indices
    )


def cover_rewritten(bitmap: FrozenBitMap, groups: Iterable[RewriteGroup]) -> FrozenBitMap:
    """Return the fragment bitmap of a segment after a rewrite.

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
