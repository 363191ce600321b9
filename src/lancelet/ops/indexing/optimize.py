"""Bringing an index up to date: rows that no segment has, and segments that are too many.

    segments   {0 1 2} {3}       fragments 0 1 2 3 4
    append     {0 1 2} {3} {4}   with 0 segments to merge
    merge      {0 1 2} {3 4}     with the latest, as by default
    retrain    {0 1 2 3 4}       from the rows, whatever the segments say

Rows that are gone since are left out of what is written. Everything is one commit.

Segments that still have rows where they were before a compaction that deferred its remapping are
written anew, whether they are merged or not. What was kept of that compaction for translating
them is given up once no segment needs it.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import TypeAlias

import pyarrow as pa

from lancelet import surroundings
from lancelet.errors import FieldNotFoundError, InvalidInputError, UnsupportedError
from lancelet.format.index_metadata import IndexMetadata
from lancelet.format.operation import CreateIndex
from lancelet.index.base import HasDataType, IndexedRows, Parameters, Segment
from lancelet.index.folder import SegmentFolder
from lancelet.index.vector.balance import Imbalance, write_balanced
from lancelet.index.vector.kind import IVF
from lancelet.ops.indexing.build import describe_segment, new_folder
from lancelet.ops.indexing.drop import segments_of
from lancelet.ops.indexing.rows import rows_to_index
from lancelet.ops.progress import counted
from lancelet.ops.publish import Retries, publish, with_retries
from lancelet.query.indexing.segments import (
    UNREADABLE,
    TableSegment,
    is_of_index,
    table_segment,
    warn_unusable,
)
from lancelet.query.plan import projection_of
from lancelet.query.take import take_addresses
from lancelet.rowids.address import NO_ADDRESS, UInt64s
from lancelet.table.commit import CommitOptions
from lancelet.table.fragment_reuse import current_coverage, fragment_reuse_of, trimmed_entry
from lancelet.table.lineage import row_id_index_of
from lancelet.table.overlays import overlaid_since
from lancelet.table.snapshot import Snapshot
from lancelet.values import dataclass

_Write: TypeAlias = Callable[[IndexedRows, SegmentFolder, Parameters], bytes]


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
        names = names_of(current, wanted)
        optimized = counted("optimize indices", names, len(names))
        changes = [_change_of(current, name, wanted) for name in optimized]
        return commit_changes(current, changes, options)

    return with_retries(snapshot, attempt, Retries())


def _change_of(snapshot: Snapshot, name: str, wanted: OptimizeIndices) -> IndexChange:
    """Bring one index up to date; one that cannot be read is left as it is, if nobody named it."""
    try:
        return optimize_one(snapshot, name, wanted)
    except UNREADABLE as error:
        is_legible = not isinstance(error, UnsupportedError) and not is_of_index(error)
        if wanted.names is not None or is_legible:
            raise
        warn_unusable(snapshot, error.with_facts(index=name))
        return IndexChange()


def commit_changes(
    snapshot: Snapshot, changes: Sequence[IndexChange], options: CommitOptions | None = None
) -> Snapshot:
    """Commit what became of indices; return the same version if that is nothing."""
    added = tuple(index for change in changes for index in change.added)
    removed = tuple(index for change in changes for index in change.removed)
    gone = {index.uuid for index in removed}
    kept = tuple(index for index in snapshot.indices.indices if index.uuid not in gone)
    trimmed = trimmed_entry(snapshot, (*kept, *added))
    if trimmed is not None:
        removed, added = (*removed, trimmed[0]), (*added, trimmed[1])
    if not added:
        return snapshot
    return publish(snapshot, CreateIndex(added, removed), options)


def merge_segments(snapshot: Snapshot, segments: Sequence[IndexMetadata]) -> IndexMetadata:
    """Write one segment of several, which no version needs to list."""
    opened = [_opened(snapshot, segment) for segment in segments]
    names = {segment.name for segment in segments}
    if not segments or len(names) > 1 or len({each.kind.name for each in opened}) > 1:
        raise InvalidInputError("only segments of one index can be merged", names=sorted(names))
    return _merged(snapshot, opened, [])


def names_of(snapshot: Snapshot, wanted: OptimizeIndices) -> list[str]:
    """Return the names of the indices to bring up to date.

    Raises:
        IndexNotFoundError: An index was named that does not exist.
        FieldNotFoundError: An index was named whose column was dropped.
    """
    fields = snapshot.schema.by_id
    if wanted.names is not None:
        for name in wanted.names:
            for segment in segments_of(snapshot, name):
                if segment.missing_fields(fields):
                    raise FieldNotFoundError(
                        "the column of the index was dropped or given another type; drop the index",
                        index=name,
                        field_ids=list(segment.missing_fields(fields)),
                    )
        return list(dict.fromkeys(wanted.names))
    usable = (
        index.name
        for index in snapshot.indices.indices
        if not (index.is_system or index.missing_fields(fields))
        and table_segment(snapshot, index) is not None
    )
    return sorted(set(usable))


def missing_fragments(snapshot: Snapshot, name: str) -> list[int]:
    """Return the fragments whose rows no segment of an index has."""
    covered = frozenset().union(*(segment.covered for segment in _segments(snapshot, name)))
    fragments: list[int] = snapshot.fragments.ids.tolist()
    return [each for each in fragments if each not in covered]


def add_segment(snapshot: Snapshot, name: str, fragments: Sequence[int]) -> IndexMetadata:
    """Write a segment of rows that an index lacks, which no version lists yet."""
    return _added(snapshot, _segments(snapshot, name)[0], fragments)


def optimize_one(
    snapshot: Snapshot, name: str, wanted: OptimizeIndices, written: Sequence[IndexMetadata] = ()
) -> IndexChange:
    """Write the segments that bring an index up to date, which no version lists yet.

    Segments of `written` were added before for rows that the index lacks.
    """
    opened = _segments(snapshot, name)
    segments = tuple(segment.metadata for segment in opened)
    new = [_opened(snapshot, segment) for segment in written]
    covered = frozenset().union(*(segment.covered for segment in (*opened, *new)))
    fragments: list[int] = snapshot.fragments.ids.tolist()
    missing = [each for each in fragments if each not in covered]
    stale = [segment for segment in opened if _has_moved(snapshot, segment)]
    is_lost = any(not each.kind.can_remap or each.lacks_rows for each in stale)
    if wanted.retrains or is_lost:
        return IndexChange((_trained(snapshot, opened[0], fragments),), segments)
    count = 1 if wanted.merges is None else wanted.merges
    latest = sorted(opened, key=lambda segment: segment.metadata.created_at or 0)
    old = latest[len(latest) - min(count, len(latest)) :]
    added: list[IndexMetadata] = []
    if not (missing or new or (count > 1 and len(opened) > 1)):
        old = []
    elif old:
        added.append(_merged(snapshot, [*old, *new], missing))
    else:
        added += [*written, *([_added(snapshot, opened[0], missing)] if missing else [])]
    moved = [segment for segment in stale if segment not in old]
    added += [_merged(snapshot, [segment], ()) for segment in moved]
    served = [segment for segment in opened if added and segment not in old and _is_stub(segment)]
    gone = (*old, *moved, *served)
    return IndexChange(tuple(added), tuple(segment.metadata for segment in gone))


def _segments(snapshot: Snapshot, name: str) -> list[TableSegment]:
    listed = [index for index in current_coverage(snapshot) if index.name == name]
    return [_opened(snapshot, index) for index in listed]


def _has_moved(snapshot: Snapshot, segment: TableSegment) -> bool:
    """Return whether a segment may have rows where they were before a compaction."""
    versions = fragment_reuse_of(snapshot).versions
    if not versions or segment.is_by_id or not _has_rows(segment):
        return False
    return segment.metadata.dataset_version < versions[-1].dataset_version


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


def _trained(snapshot: Snapshot, like: TableSegment, fragments: Sequence[int]) -> IndexMetadata:
    """Write a segment of the rows of fragments, from nothing but what the index was asked for."""
    return _written(snapshot, like, fragments, like.kind.train)


def _added(snapshot: Snapshot, like: TableSegment, fragments: Sequence[int]) -> IndexMetadata:
    """Write a segment of rows that were not indexed, to stand beside another."""
    if not _has_rows(like):
        return _trained(snapshot, like, fragments)
    return _written(snapshot, like, fragments, partial(like.kind.append, like.open()))


def _written(
    snapshot: Snapshot, like: TableSegment, fragments: Sequence[int], write: _Write
) -> IndexMetadata:
    new = _NewSegment.like(snapshot, like)
    details = write(new.rows(fragments), new.folder, new.parameters)
    return new.described(details, fragments)


def _merged(
    snapshot: Snapshot, old: Sequence[TableSegment], missing: Sequence[int]
) -> IndexMetadata:
    """Write one segment of the rows of several and of those that were not indexed."""
    filled = [segment for segment in old if _has_rows(segment)]
    if not filled:
        return _trained(snapshot, old[0], missing)
    new = _NewSegment.like(snapshot, filled[0])
    details = filled[0].kind.merge(
        [segment.open() for segment in filled],
        [partial(segment.renumber, by_address=new.by_address) for segment in filled],
        new.rows(missing),
        new.folder,
    )
    new = new.balanced(details)
    covered = frozenset(missing).union(*(segment.covered for segment in filled))
    oldest = min(segment.metadata.dataset_version for segment in filled)
    # Rows of a moved segment are where they are now, and the version says that it knows it; so it
    # does of values that were laid over rows, as fragments with such are indexed anew or left out.
    is_newer = any(
        _has_moved(snapshot, segment) or overlaid_since(snapshot, segment.metadata)
        for segment in filled
    )
    version = snapshot.version if is_newer else oldest
    return new.described(details, sorted(covered), dataset_version=version)


def _has_rows(segment: TableSegment) -> bool:
    """Return whether a segment was trained; before that it covers nothing."""
    return bool(segment.metadata.fragment_bitmap)


def _is_stub(segment: TableSegment) -> bool:
    """Return whether a segment of vectors only says what was asked for, and has no files.

    The reference opens all segments of an index, so it cannot be beside others.
    """
    covered = segment.metadata.fragment_bitmap
    return segment.kind is IVF and covered is not None and not covered


def _opened_if_sound(segment: TableSegment) -> Segment | None:
    """Return an open segment; None if it has no rows, or if what it has cannot be read."""
    if not _has_rows(segment):
        return None
    try:
        return segment.open()
    except UNREADABLE:
        return None  # what it was asked for is in its details too


@dataclass(frozen=True, slots=True, eq=False)
class _NewSegment:
    """A segment that is to be written, and is like another."""

    snapshot: Snapshot
    example: TableSegment
    parameters: Parameters
    version: int
    value_type: pa.DataType | None
    id: uuid.UUID
    folder: SegmentFolder

    @staticmethod
    def like(snapshot: Snapshot, example: TableSegment) -> _NewSegment:
        """Return one that is asked for as another was."""
        details = example.metadata.details
        opened = _opened_if_sound(example)
        parameters = example.kind.infer_parameters(
            b"" if details is None else details.value, opened
        )
        stable = snapshot.manifest.uses_stable_row_ids
        version = example.kind.version(parameters, stable_row_ids=stable)
        own_id = surroundings.new_uuid()
        folder = new_folder(snapshot, own_id)
        value_type = opened.data_type if isinstance(opened, HasDataType) else None
        return _NewSegment(snapshot, example, parameters, version, value_type, own_id, folder)

    @property
    def by_address(self) -> bool:
        """Whether its rows are numbered by address."""
        stable = self.snapshot.manifest.uses_stable_row_ids
        return not stable or self.example.kind.uses_addresses(self.version)

    def rows(self, fragments: Sequence[int]) -> IndexedRows:
        """Return rows of the column, numbered as the segment's are."""
        schema = self.snapshot.schema
        fields = schema.fields_on_path(schema.path_of(self.example.metadata.fields[0]))
        path = tuple(field.name for field in fields)
        return rows_to_index(
            self.snapshot,
            path,
            fragments,
            by_address=self.by_address,
            as_text=self.example.kind.reads_json_text,
            within=self.example.kind.json_path,
            value_type=self.value_type,
        )

    def balanced(self, details: bytes) -> _NewSegment:
        """Return the segment, or the same rows in another one where partitions differ too much."""
        if self.example.kind is not IVF:
            return self
        own_id = surroundings.new_uuid()
        other = replace(self, id=own_id, folder=new_folder(self.snapshot, own_id))
        is_other = write_rebalanced(
            self.snapshot,
            self.example.metadata.fields[0],
            self.folder,
            details,
            other.folder,
            by_address=self.by_address,
        )
        return other if is_other else self

    def described(
        self, details: bytes, covered: Sequence[int], dataset_version: int | None = None
    ) -> IndexMetadata:
        """Return the metadata of the segment, now that its files are there."""
        metadata = self.example.metadata
        return describe_segment(
            self.snapshot,
            self.example.kind,
            self.folder,
            self.id,
            name=metadata.name,
            leaf=self.snapshot.schema.field_by_id(metadata.fields[0]),
            details=details,
            covered=covered,
            version=self.version,
            dataset_version=dataset_version,
        )


def write_rebalanced(
    snapshot: Snapshot,
    field_id: int,
    written: SegmentFolder,
    details: bytes,
    target: SegmentFolder,
    *,
    by_address: bool,
) -> bool:
    """Write a segment again in better partitions, if there are any; its files are then removed.

    Rows that are lists of vectors stay where they are, since a part of them cannot be read.
    """
    field = snapshot.schema.field_by_id(field_id)
    if not pa.types.is_fixed_size_list(field.storage_type):
        return False
    segment = IVF.open(written, details)
    imbalance = Imbalance.of(segment)
    if not imbalance:
        return False
    vectors = partial(_vectors_of, snapshot, field_id, by_address)
    write_balanced(segment, imbalance, vectors, target)
    for file in written.written:
        written.store.delete(f"{written.path}/{file.path}")
    return True


def _vectors_of(
    snapshot: Snapshot, field_id: int, by_address: bool, numbers: UInt64s
) -> tuple[pa.Array, UInt64s]:
    addresses = numbers if by_address else row_id_index_of(snapshot).addresses(numbers)
    kept = addresses != NO_ADDRESS
    projection = projection_of(snapshot, (snapshot.schema.path_of(field_id),))
    rows = take_addresses(snapshot, addresses[kept], projection)
    return rows.column(0).combine_chunks(), numbers[kept]
