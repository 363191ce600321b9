"""Bringing an index up to date: rows that no segment has, and segments that are too many.

    segments   {0 1 2} {3}       fragments 0 1 2 3 4
    append     {0 1 2} {3} {4}   with 0 segments to merge
    merge      {0 1 2} {3 4}     with the latest, as by default
    retrain    {0 1 2 3 4}       from the rows, whatever the segments say

Rows that are gone since are left out of what is written. Everything is one commit.
"""

from __future__ import annotations

import uuid
from collections.abc import Sequence
from dataclasses import dataclass

from lancelet.errors import InvalidInputError, UnsupportedError
from lancelet.format.index_metadata import IndexMetadata
from lancelet.format.operation import CreateIndex
from lancelet.index.base import IndexedRows, Parameters, ScalarKind
from lancelet.index.vector.kind import IVF
from lancelet.ops.indexing.build import describe_segment, new_folder
from lancelet.ops.indexing.drop import segments_of
from lancelet.ops.indexing.rows import rows_to_index
from lancelet.ops.indexing.vectors import add_rows, merge_rows, retrain
from lancelet.ops.publish import Retries, publish, with_retries
from lancelet.query.indexing.segments import TableSegment, table_segment
from lancelet.table.commit import CommitOptions
from lancelet.table.fragment_reuse import current_coverage, fragment_reuse_of
from lancelet.table.snapshot import Snapshot


@dataclass(frozen=True, slots=True)
class OptimizeIndices:
    """How to bring indices up to date: which, and how many segments to merge with new rows.

    With `merges` None rows are merged with the latest segment.
    """

    names: tuple[str, ...] | None = None
    merges: int | None = None
    retrains: bool = False

    def __post_init__(self) -> None:
        """Refuse numbers that mean nothing."""
        if self.merges is not None and self.merges < 0:
            raise InvalidInputError("num_indices_to_merge must not be negative", found=self.merges)


@dataclass(frozen=True, slots=True)
class IndexChange:
    """Segments that replace others."""

    added: tuple[IndexMetadata, ...] = ()
    removed: tuple[IndexMetadata, ...] = ()


def optimize_indices(
    snapshot: Snapshot, wanted: OptimizeIndices, options: CommitOptions | None = None
) -> Snapshot:
    """Bring indices up to date; return the same version if there is nothing to do."""

    def attempt(current: Snapshot) -> Snapshot:
        changes = [_optimize(current, name, wanted) for name in _names(current, wanted)]
        added = tuple(index for change in changes for index in change.added)
        removed = tuple(index for change in changes for index in change.removed)
        if not added:
            return current
        return publish(current, CreateIndex(added, removed), options)

    return with_retries(snapshot, attempt, Retries())


def merge_segments(snapshot: Snapshot, segments: Sequence[IndexMetadata]) -> IndexMetadata:
    """Write one segment of several, which no version needs to list."""
    opened = [_opened(snapshot, segment) for segment in segments]
    names = {segment.name for segment in segments}
    if not segments or len(names) > 1 or len({each.kind.name for each in opened}) > 1:
        raise InvalidInputError("only segments of one index can be merged", names=sorted(names))
    return _merged(snapshot, opened, [])


def _names(snapshot: Snapshot, wanted: OptimizeIndices) -> list[str]:
    if wanted.names is not None:
        for name in wanted.names:
            segments_of(snapshot, name)
        return list(dict.fromkeys(wanted.names))
    usable = (
        index.name
        for index in snapshot.indices.indices
        if not index.is_system and table_segment(snapshot, index) is not None
    )
    return sorted(set(usable))


def _optimize(snapshot: Snapshot, name: str, wanted: OptimizeIndices) -> IndexChange:
    segments = tuple(index for index in current_coverage(snapshot) if index.name == name)
    opened = [_opened(snapshot, segment) for segment in segments]
    covered = frozenset().union(*(segment.covered for segment in opened))
    missing = [each for each in snapshot.fragments.ids.tolist() if each not in covered]
    if wanted.retrains or _has_moved_zones(snapshot, opened):
        return IndexChange((_trained(snapshot, opened[0]),), segments)
    count = 1 if wanted.merges is None else wanted.merges
    if not missing and (count < 2 or len(opened) < 2):
        return IndexChange()
    latest = sorted(opened, key=lambda segment: segment.metadata.created_at or 0)
    old = latest[len(latest) - min(count, len(latest)) :]
    if not old:
        return IndexChange((_added(snapshot, opened[0], missing),))
    merged = _merged(snapshot, old, missing)
    return IndexChange((merged,), tuple(segment.metadata for segment in old))


def _has_moved_zones(snapshot: Snapshot, segments: Sequence[TableSegment]) -> bool:
    """Return whether zones may be of rows that moved, which no longer make up zones."""
    kinds_move = all(segment.kind.can_remap for segment in segments)
    return not kinds_move and bool(fragment_reuse_of(snapshot).versions)


def _opened(snapshot: Snapshot, index: IndexMetadata) -> TableSegment:
    segment = table_segment(snapshot, index)
    if segment is None:
        details = index.details
        raise UnsupportedError(
            "an index of this kind or version cannot be changed by this release",
            name=index.name,
            kind=None if details is None else details.type_url,
            version=index.index_version,
        )
    return segment


def _trained(snapshot: Snapshot, like: TableSegment) -> IndexMetadata:
    if like.kind is IVF:
        return retrain(snapshot, like)
    return _added(snapshot, like, snapshot.fragments.ids.tolist())


def _added(snapshot: Snapshot, like: TableSegment, fragments: Sequence[int]) -> IndexMetadata:
    """Write a segment of rows that were not indexed, as the index was asked for."""
    if like.kind is IVF:
        return add_rows(snapshot, like, fragments)
    segment_id = uuid.uuid4()
    folder = new_folder(snapshot, segment_id)
    rows = _rows(snapshot, like, fragments)
    details = like.kind.train(rows, folder, _parameters(like))
    return describe_segment(
        snapshot,
        like.kind,
        folder,
        segment_id,
        name=like.metadata.name,
        leaf=snapshot.schema.field_by_id(like.metadata.fields[0]),
        details=details,
        covered=fragments,
    )


def _merged(
    snapshot: Snapshot, old: Sequence[TableSegment], missing: Sequence[int]
) -> IndexMetadata:
    like = old[0]
    if like.kind is IVF:
        return merge_rows(snapshot, old, missing)
    segment_id = uuid.uuid4()
    folder = new_folder(snapshot, segment_id)
    details = like.kind.merge(
        [segment.open() for segment in old],
        [segment.renumber for segment in old],
        _rows(snapshot, like, missing),
        folder,
    )
    covered = frozenset(missing).union(*(segment.covered for segment in old))
    return describe_segment(
        snapshot,
        like.kind,
        folder,
        segment_id,
        name=like.metadata.name,
        leaf=snapshot.schema.field_by_id(like.metadata.fields[0]),
        details=details,
        covered=sorted(covered),
        dataset_version=min(segment.metadata.dataset_version for segment in old),
    )


def _rows(snapshot: Snapshot, like: TableSegment, fragments: Sequence[int]) -> IndexedRows:
    fields = snapshot.schema.fields_on_path(snapshot.schema.path_of(like.metadata.fields[0]))
    path = tuple(field.name for field in fields)
    return rows_to_index(snapshot, path, fragments, by_address=not _by_id(snapshot, like.kind))


def _by_id(snapshot: Snapshot, kind: ScalarKind) -> bool:
    stable = snapshot.manifest.uses_stable_row_ids
    return stable and not kind.uses_addresses(kind.version(stable_row_ids=stable))


def _parameters(like: TableSegment) -> Parameters:
    """Return what the index was asked for, as far as its details say."""
    details = like.metadata.details
    return Parameters({} if details is None else like.kind.describe(details.value))
