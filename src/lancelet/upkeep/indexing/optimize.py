"""Optimize indices: index new rows and merge segments.

    segments   {0 1 2} {3}       fragments 0 1 2 3 4
    append     {0 1 2} {3} {4}   with 0 segments to merge
    merge      {0 1 2} {3 4}     with the latest segment, the default
    retrain    {0 1 2 3 4}       from the rows

Deleted rows are dropped from rewritten segments. All changes take effect in one commit.

Segments with row addresses from before a compaction with deferred remapping are always rewritten.
The fragment reuse index is trimmed to the entries that segments still need.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import TypeAlias

import pyarrow as pa

from lancelet import surroundings
from lancelet.change.progress import counted
from lancelet.change.publish import Retries, publish, with_retries
from lancelet.errors import FieldNotFoundError, InvalidInputError, UnsupportedError
from lancelet.format.index_metadata import IndexMetadata
from lancelet.format.operation import CreateIndex
from lancelet.index.base import HasDataType, IndexedRows, Parameters, Segment
from lancelet.index.folder import SegmentFolder
from lancelet.index.vector.balance import Imbalance, write_balanced
from lancelet.index.vector.kind import IVF
from lancelet.rowids.address import NO_ADDRESS, UInt64s
from lancelet.scan.indexing.segments import (
    UNREADABLE,
    TableSegment,
    is_of_index,
    table_segment,
    warn_unusable,
)
from lancelet.scan.plan import projection_of
from lancelet.scan.take import take_addresses
from lancelet.table.commit import CommitOptions
from lancelet.table.fragment_reuse import current_coverage, fragment_reuse_of, trimmed_entry
from lancelet.table.lineage import row_id_index_of
from lancelet.table.overlays import overlaid_since
from lancelet.table.snapshot import Snapshot
from lancelet.upkeep.indexing.build import describe_segment, new_folder
from lancelet.upkeep.indexing.drop import find_segments
from lancelet.upkeep.indexing.rows import rows_to_index
from lancelet.values import dataclass

_Write: TypeAlias = Callable[[IndexedRows, SegmentFolder, Parameters], bytes]


@dataclass(frozen=True, slots=True)
class OptimizeIndices:
    """Selects the indices to optimize and the number of segments to merge.

    If `merges` is None, new rows are merged with the latest segment.
    """

    names: tuple[str, ...] | None = None
    merges: int | None = None
    retrains: bool = False

    def __post_init__(self) -> None:
        """Raise if `merges` is negative."""
        if self.merges is not None and self.merges < 0:
            raise InvalidInputError("num_indices_to_merge must not be negative", found=self.merges)


@dataclass(frozen=True, slots=True)
class IndexChange:
    """The added and removed segments of a change."""

    added: tuple[IndexMetadata, ...] = ()
    removed: tuple[IndexMetadata, ...] = ()


def optimize_indices(
    snapshot: Snapshot, request: OptimizeIndices, options: CommitOptions | None = None
) -> Snapshot:
    """Optimize indices; return the same version if nothing changes."""

    def attempt(current: Snapshot) -> Snapshot:
        names = index_names(current, request)
        optimized = counted("optimize indices", names, len(names))
        changes = [_optimize_or_warn(current, name, request) for name in optimized]
        return commit_changes(current, changes, options)

    return with_retries(snapshot, attempt, Retries())


def _optimize_or_warn(snapshot: Snapshot, name: str, request: OptimizeIndices) -> IndexChange:
    """Optimize one index; skip unreadable ones with a warning unless requested by name."""
    try:
        return optimize_one(snapshot, name, request)
    except UNREADABLE as error:
        is_unrelated = not isinstance(error, UnsupportedError) and not is_of_index(error)
        if request.names is not None or is_unrelated:
            raise
        warn_unusable(snapshot, error.with_facts(index=name))
        return IndexChange()


def commit_changes(
    snapshot: Snapshot, changes: Sequence[IndexChange], options: CommitOptions | None = None
) -> Snapshot:
    """Commit changes of indices; return the same version if there are none."""
    added = tuple(index for change in changes for index in change.added)
    removed = tuple(index for change in changes for index in change.removed)
    removed_ids = {index.uuid for index in removed}
    remaining = tuple(index for index in snapshot.indices.indices if index.uuid not in removed_ids)
    trimmed = trimmed_entry(snapshot, (*remaining, *added))
    if trimmed is not None:
        removed, added = (*removed, trimmed[0]), (*added, trimmed[1])
    if not added:
        return snapshot
    return publish(snapshot, CreateIndex(added, removed), options)


def merge_segments(snapshot: Snapshot, segments: Sequence[IndexMetadata]) -> IndexMetadata:
    """Write one uncommitted segment that merges several."""
    opened = [_open(snapshot, segment) for segment in segments]
    names = {segment.name for segment in segments}
    if not segments or len(names) > 1 or len({each.kind.name for each in opened}) > 1:
        raise InvalidInputError(
            "only segments of the same index can be merged", names=sorted(names)
        )
    return _merge(snapshot, opened, [])


def index_names(snapshot: Snapshot, request: OptimizeIndices) -> list[str]:
    """Return the names of the indices to optimize.

    Raises:
        IndexNotFoundError: A requested index does not exist.
        FieldNotFoundError: The column of a requested index was dropped.
    """
    fields = snapshot.schema.by_id
    if request.names is not None:
        for name in request.names:
            for segment in find_segments(snapshot, name):
                if segment.missing_fields(fields):
                    raise FieldNotFoundError(
                        "the column of the index was dropped or changed its type; drop the index",
                        index=name,
                        field_ids=list(segment.missing_fields(fields)),
                    )
        return list(dict.fromkeys(request.names))
    usable = (
        index.name
        for index in snapshot.indices.indices
        if not (index.is_system or index.missing_fields(fields))
        and table_segment(snapshot, index) is not None
    )
    return sorted(set(usable))


def missing_fragments(snapshot: Snapshot, name: str) -> list[int]:
    """Return the fragments that no segment of an index covers."""
    covered = frozenset().union(*(segment.covered for segment in _segments(snapshot, name)))
    fragments: list[int] = snapshot.fragments.ids.tolist()
    return [fragment_id for fragment_id in fragments if fragment_id not in covered]


def add_segment(snapshot: Snapshot, name: str, fragments: Sequence[int]) -> IndexMetadata:
    """Write an uncommitted segment for unindexed fragments."""
    return _append(snapshot, _segments(snapshot, name)[0], fragments)


def optimize_one(
    snapshot: Snapshot, name: str, request: OptimizeIndices, written: Sequence[IndexMetadata] = ()
) -> IndexChange:
    """Write the uncommitted segments that optimize an index.

    `written` are segments that already cover unindexed rows.
    """
    opened = _segments(snapshot, name)
    segments = tuple(segment.metadata for segment in opened)
    new = [_open(snapshot, segment) for segment in written]
    covered = frozenset().union(*(segment.covered for segment in (*opened, *new)))
    fragments: list[int] = snapshot.fragments.ids.tolist()
    missing = [each for each in fragments if each not in covered]
    stale = [segment for segment in opened if _has_moved(snapshot, segment)]
    must_retrain = any(not each.kind.can_remap or each.lacks_rows for each in stale)
    if request.retrains or must_retrain:
        return IndexChange((_train(snapshot, opened[0], fragments),), segments)
    count = 1 if request.merges is None else request.merges
    latest = sorted(opened, key=lambda segment: segment.metadata.created_at or 0)
    old = latest[len(latest) - min(count, len(latest)) :]
    added: list[IndexMetadata] = []
    if not (missing or new or (count > 1 and len(opened) > 1)):
        old = []
    elif old:
        added.append(_merge(snapshot, [*old, *new], missing))
    else:
        added += [*written, *([_append(snapshot, opened[0], missing)] if missing else [])]
    moved = [segment for segment in stale if segment not in old]
    added += [_merge(snapshot, [segment], ()) for segment in moved]
    stubs = [segment for segment in opened if added and segment not in old and _is_stub(segment)]
    removed = (*old, *moved, *stubs)
    return IndexChange(tuple(added), tuple(segment.metadata for segment in removed))


def _segments(snapshot: Snapshot, name: str) -> list[TableSegment]:
    listed = [index for index in current_coverage(snapshot) if index.name == name]
    return [_open(snapshot, index) for index in listed]


def _has_moved(snapshot: Snapshot, segment: TableSegment) -> bool:
    """Return whether a segment may have row addresses from before a compaction."""
    versions = fragment_reuse_of(snapshot).versions
    if not versions or segment.is_by_id or not _has_rows(segment):
        return False
    return segment.metadata.dataset_version < versions[-1].dataset_version


def _open(snapshot: Snapshot, index: IndexMetadata) -> TableSegment:
    segment = table_segment(snapshot, index)
    if segment is None:
        details = index.details
        raise UnsupportedError(
            "an index of this type or version cannot be changed by this release",
            name=index.name,
            kind=None if details is None else details.type_url,
            version=index.index_version,
        )
    return segment


def _train(snapshot: Snapshot, example: TableSegment, fragments: Sequence[int]) -> IndexMetadata:
    """Train a segment on the rows of fragments, with the parameters of another segment."""
    return _write_like(snapshot, example, fragments, example.kind.train)


def _append(snapshot: Snapshot, example: TableSegment, fragments: Sequence[int]) -> IndexMetadata:
    """Write a segment for unindexed rows that shares the model of another segment."""
    if not _has_rows(example):
        return _train(snapshot, example, fragments)
    return _write_like(snapshot, example, fragments, partial(example.kind.append, example.open()))


def _write_like(
    snapshot: Snapshot, example: TableSegment, fragments: Sequence[int], write: _Write
) -> IndexMetadata:
    new = _NewSegment.from_example(snapshot, example)
    details = write(new.rows(fragments), new.folder, new.parameters)
    return new.to_metadata(details, fragments)


def _merge(
    snapshot: Snapshot, old: Sequence[TableSegment], missing: Sequence[int]
) -> IndexMetadata:
    """Merge segments and unindexed rows into a new segment."""
    filled = [segment for segment in old if _has_rows(segment)]
    if not filled:
        return _train(snapshot, old[0], missing)
    new = _NewSegment.from_example(snapshot, filled[0])
    details = filled[0].kind.merge(
        [segment.open() for segment in filled],
        [partial(segment.renumber, by_address=new.by_address) for segment in filled],
        new.rows(missing),
        new.folder,
    )
    new = new.balanced(details)
    covered = frozenset(missing).union(*(segment.covered for segment in filled))
    oldest = min(segment.metadata.dataset_version for segment in filled)
    # Rewritten addresses and indexed overlays are current, so that the segment gets the current
    # dataset version.
    is_newer = any(
        _has_moved(snapshot, segment) or overlaid_since(snapshot, segment.metadata)
        for segment in filled
    )
    version = snapshot.version if is_newer else oldest
    return new.to_metadata(details, sorted(covered), dataset_version=version)


def _has_rows(segment: TableSegment) -> bool:
    """Return whether a segment was trained; untrained segments cover no fragments."""
    return bool(segment.metadata.fragment_bitmap)


def _is_stub(segment: TableSegment) -> bool:
    """Return whether a vector segment stores only parameters and has no files.

    The reference opens all segments of an index, so that such a segment must be the only one.
    """
    covered = segment.metadata.fragment_bitmap
    return segment.kind is IVF and covered is not None and not covered


def _open_if_readable(segment: TableSegment) -> Segment | None:
    """Return an open segment; None if it has no rows or cannot be read."""
    if not _has_rows(segment):
        return None
    try:
        return segment.open()
    except UNREADABLE:
        return None  # The details contain the parameters too.


@dataclass(frozen=True, slots=True, eq=False)
class _NewSegment:
    """A new segment with the parameters of an existing one."""

    snapshot: Snapshot
    example: TableSegment
    parameters: Parameters
    version: int
    value_type: pa.DataType | None
    id: uuid.UUID
    folder: SegmentFolder

    @staticmethod
    def from_example(snapshot: Snapshot, example: TableSegment) -> _NewSegment:
        """Return a new segment with the parameters of `example`."""
        details = example.metadata.details
        opened = _open_if_readable(example)
        parameters = example.kind.infer_parameters(
            b"" if details is None else details.value, opened
        )
        stable = snapshot.manifest.uses_stable_row_ids
        version = example.kind.version(parameters, stable_row_ids=stable)
        new_id = surroundings.new_uuid()
        folder = new_folder(snapshot, new_id)
        value_type = opened.data_type if isinstance(opened, HasDataType) else None
        return _NewSegment(snapshot, example, parameters, version, value_type, new_id, folder)

    @property
    def by_address(self) -> bool:
        """Whether the segment identifies rows by address."""
        stable = self.snapshot.manifest.uses_stable_row_ids
        return not stable or self.example.kind.uses_addresses(self.version)

    def rows(self, fragments: Sequence[int]) -> IndexedRows:
        """Return the rows of the column, with the row numbers of this segment."""
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
        """Return the segment, rebalanced if its partition sizes differ too much."""
        if self.example.kind is not IVF:
            return self
        new_id = surroundings.new_uuid()
        other = replace(self, id=new_id, folder=new_folder(self.snapshot, new_id))
        is_other = write_rebalanced(
            self.snapshot,
            self.example.metadata.fields[0],
            self.folder,
            details,
            other.folder,
            by_address=self.by_address,
        )
        return other if is_other else self

    def to_metadata(
        self, details: bytes, covered: Sequence[int], dataset_version: int | None = None
    ) -> IndexMetadata:
        """Return the metadata of the segment after its files were written."""
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
    """Rewrite a segment if its partitions are unbalanced, and return whether it was rewritten.

    The files of the old segment are deleted.

    Multivector columns are not rebalanced, since a subset of a row cannot be read.
    """
    field = snapshot.schema.field_by_id(field_id)
    if not pa.types.is_fixed_size_list(field.storage_type):
        return False
    segment = IVF.open(written, details)
    imbalance = Imbalance.measure(segment)
    if not imbalance:
        return False
    vectors = partial(_read_vectors, snapshot, field_id, by_address)
    write_balanced(segment, imbalance, vectors, target)
    for file in written.written:
        written.store.delete(f"{written.path}/{file.path}")
    return True


def _read_vectors(
    snapshot: Snapshot, field_id: int, by_address: bool, numbers: UInt64s
) -> tuple[pa.Array, UInt64s]:
    addresses = numbers if by_address else row_id_index_of(snapshot).addresses(numbers)
    exists = addresses != NO_ADDRESS
    projection = projection_of(snapshot, (snapshot.schema.path_of(field_id),))
    rows = take_addresses(snapshot, addresses[exists], projection)
    return rows.column(0).combine_chunks(), numbers[exists]
