"""Text indices built in distributed parts, and dry runs of index operations.

    worker 0    _indices/5f../staging/3e..    a segment of fragments 0 and 1
    worker 1    _indices/5f../staging/a1..    a segment of fragment 2
    merge       _indices/5f../                one segment of all; staged parts are deleted

All parts are staged under one index id, and are not visible until the caller commits that id.

Dry runs count the files of an index and discard them. `report_optimize` stores the files
temporarily, since optimizing may read files that it has written; its rows are those of fragments
that an index does not cover.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterable
from dataclasses import replace
from typing import Final

import pyarrow as pa

from lancelet import surroundings
from lancelet.change.dry_run import (
    ChangeReport,
    dry_run,
    dry_run_with_reads,
    dry_run_without_commit,
)
from lancelet.errors import InvalidInputError, ObjectNotFoundError, UnsupportedError
from lancelet.format.paths import index_directory
from lancelet.index.base import IndexedRows, Progress, silent
from lancelet.index.folder import SegmentFolder
from lancelet.index.inverted.kind import Inverted
from lancelet.index.registry import kind_by_name
from lancelet.index.scalar.btree.kind import BTree
from lancelet.rowids.address import UInt64s
from lancelet.table.commit import check_table_exists
from lancelet.table.snapshot import Snapshot
from lancelet.upkeep.indexing.build import (
    IndexRequest,
    build_segment,
    create_scalar_index,
    fragments_to_index,
    new_folder,
)
from lancelet.upkeep.indexing.optimize import (
    OptimizeIndices,
    index_names,
    missing_fragments,
    optimize_indices,
)
from lancelet.upkeep.indexing.vectors import VectorIndexRequest, create_vector_index

_STAGING: Final = "staging"

_OPERATION_IF_UNCHANGED: Final = "CreateIndex"


def check_parts(request: IndexRequest) -> None:
    """Raise if fragments are given for an index type that does not support staged parts."""
    if request.fragments is not None and not isinstance(kind_by_name(request.kind), Inverted):
        raise InvalidInputError(
            "to index some fragments, use create_index_uncommitted(..., "
            f'index_type="{request.kind.upper()}", fragment_ids=...)'
        )


def is_staged(request: IndexRequest) -> bool:
    """Return whether a request is for a staged part."""
    has_parts = request.fragments is not None and request.uuid is not None
    return has_parts and isinstance(kind_by_name(request.kind), Inverted)


def stage_segment(snapshot: Snapshot, request: IndexRequest) -> None:
    """Write a staged part of an index."""
    assert request.uuid is not None, "staged parts need the id of the index"
    check_table_exists(snapshot)
    build_segment(snapshot, request, _folder(snapshot, request.uuid, surroundings.new_uuid().hex))


def merge_staged(
    snapshot: Snapshot, kind_name: str, segment_id: uuid.UUID, progress: Progress = silent
) -> None:
    """Merge all parts staged under an id to one segment, and delete them."""
    kind = kind_by_name(kind_name)
    if isinstance(kind, BTree):
        raise InvalidInputError(
            f"{kind.title} no longer supports merge_index_metadata: build segments "
            "with create_index_uncommitted and commit them with commit_existing_index_segments"
        )
    if not isinstance(kind, Inverted):
        raise UnsupportedError(
            "Only INVERTED is supported: other indices are built with create_index_uncommitted and "
            "merged with merge_existing_index_segments",
            found=kind_name,
        )
    store = snapshot.location.store
    staging = f"{index_directory(segment_id)}/{_STAGING}"
    files = sorted(info.path for info in store.list(staging))
    names = sorted({path.split("/")[-2] for path in files})
    if not names:
        raise ObjectNotFoundError("no part of an index is staged under this id", path=staging)
    parts = []
    for done, name in enumerate(names):
        progress("read_partition_metadata", done, len(names))
        parts.append(kind.open(_folder(snapshot, segment_id, name), b""))
    progress("read_partition_metadata", len(names), len(names))
    progress("remap_partition_files", 0, len(parts))
    rows = IndexedRows(pa.string(), ())
    kind.merge(parts, [_identity] * len(parts), rows, new_folder(snapshot, segment_id))
    progress("remap_partition_files", len(parts), len(parts))
    progress("write_merged_metadata", 0, 1)
    for path in files:
        store.delete(path)
    progress("write_merged_metadata", 1, 1)


def _folder(snapshot: Snapshot, segment_id: uuid.UUID, name: str) -> SegmentFolder:
    path = f"{index_directory(segment_id)}/{_STAGING}/{name}"
    return SegmentFolder(snapshot.location.store, path, snapshot.manifest.data_version)


def _identity(numbers: UInt64s) -> UInt64s:
    return numbers


def report_scalar_index(snapshot: Snapshot, request: IndexRequest) -> ChangeReport:
    """Return the effect of building a scalar or text index, or a staged part."""
    rows = _live_rows(snapshot, fragments_to_index(snapshot, request))
    if not is_staged(request):
        return dry_run(snapshot, lambda current: create_scalar_index(current, request), rows)
    report = dry_run_without_commit(
        snapshot.location,
        "StageIndex",
        lambda location: stage_segment(replace(snapshot, location=location), request),
    )
    return replace(report, rows=rows)


def report_vector_index(snapshot: Snapshot, request: VectorIndexRequest) -> ChangeReport:
    """Return the effect of building a vector index."""
    fragment_ids: list[int] = snapshot.fragments.ids.tolist()
    covered = (
        fragment_ids
        if request.fragments is None
        else sorted({*request.fragments} & {*fragment_ids})
    )
    rows = _live_rows(snapshot, covered if request.is_trained else ())
    return dry_run(snapshot, lambda current: create_vector_index(current, request), rows)


def report_optimize(snapshot: Snapshot, request: OptimizeIndices) -> ChangeReport:
    """Return the effect of optimizing indices."""
    unindexed: set[int] = set()
    for name in index_names(snapshot, request):
        all_fragments = snapshot.fragments.ids.tolist() if request.retrains else None
        unindexed.update(all_fragments or missing_fragments(snapshot, name))
    return dry_run_with_reads(
        snapshot,
        lambda current: optimize_indices(current, request),
        _live_rows(snapshot, unindexed),
        if_unchanged=_OPERATION_IF_UNCHANGED,
    )


def _live_rows(snapshot: Snapshot, fragments: Iterable[int]) -> int:
    return sum(
        snapshot.live_rows(snapshot.fragments.by_id(fragment_id)) for fragment_id in fragments
    )
