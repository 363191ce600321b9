"""A text index that is built in parts under one id: parts are staged, and then merged.

worker 0    _indices/5f../staging/3e..    a segment of fragments 0 and 1
worker 1    _indices/5f../staging/a1..    a segment of fragment 2
merge       _indices/5f../                one segment of all; nothing is staged any more

No version lists any of it until the caller commits an index with that id.

What building indices and bringing them up to date would do.

    report_scalar_index    the index is built, and its files are counted and thrown away
    report_optimize        the same; rows are those of fragments that some index lacks

Bringing indices up to date may read what it has just written, so that is kept until it ends.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterable
from dataclasses import replace
from typing import Final

import pyarrow as pa

from lancelet import surroundings
from lancelet.errors import InvalidInputError, ObjectNotFoundError, UnsupportedError
from lancelet.format.paths import index_directory
from lancelet.index.base import IndexedRows, Progress, silent
from lancelet.index.folder import SegmentFolder
from lancelet.index.inverted.kind import Inverted
from lancelet.index.registry import kind_by_name
from lancelet.index.scalar.btree.kind import BTree
from lancelet.ops.dry_run import ChangeReport, rehearse, rehearse_apart, rehearse_reading_back
from lancelet.ops.indexing.build import (
    IndexRequest,
    build_segment,
    create_scalar_index,
    fragments_to_index,
    new_folder,
)
from lancelet.ops.indexing.optimize import (
    OptimizeIndices,
    missing_fragments,
    names_of,
    optimize_indices,
)
from lancelet.ops.indexing.vectors import VectorIndexRequest, create_vector_index
from lancelet.rowids.address import UInt64s
from lancelet.table.commit import check_table_exists
from lancelet.table.snapshot import Snapshot

_STAGING: Final = "staging"

_NOTHING: Final = "CreateIndex"


def check_parts(request: IndexRequest) -> None:
    """Raise if a part is asked for that no merging makes whole: only texts have such parts."""
    if request.fragments is not None and not isinstance(kind_by_name(request.kind), Inverted):
        raise InvalidInputError(
            "an index of some fragments is built with create_index_uncommitted(..., "
            f'index_type="{request.kind.upper()}", fragment_ids=...)'
        )


def is_staged(request: IndexRequest) -> bool:
    """Return whether an index is a part of one that is merged later."""
    has_parts = request.fragments is not None and request.uuid is not None
    return has_parts and isinstance(kind_by_name(request.kind), Inverted)


def stage_segment(snapshot: Snapshot, request: IndexRequest) -> None:
    """Write a part of an index."""
    assert request.uuid is not None, "parts are staged under the id of the whole"
    check_table_exists(snapshot)
    build_segment(snapshot, request, _folder(snapshot, request.uuid, surroundings.new_uuid().hex))


def merge_staged(
    snapshot: Snapshot, kind_name: str, segment_id: uuid.UUID, progress: Progress = silent
) -> None:
    """Write one segment of all parts that are staged under an id, and remove these."""
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
        raise ObjectNotFoundError("no part of an index is staged under that id", path=staging)
    parts = []
    for done, name in enumerate(names):
        progress("read_partition_metadata", done, len(names))
        parts.append(kind.open(_folder(snapshot, segment_id, name), b""))
    progress("read_partition_metadata", len(names), len(names))
    progress("remap_partition_files", 0, len(parts))
    rows = IndexedRows(pa.string(), ())
    kind.merge(parts, [_as_it_is] * len(parts), rows, new_folder(snapshot, segment_id))
    progress("remap_partition_files", len(parts), len(parts))
    progress("write_merged_metadata", 0, 1)
    for path in files:
        store.delete(path)
    progress("write_merged_metadata", 1, 1)


def _folder(snapshot: Snapshot, segment_id: uuid.UUID, name: str) -> SegmentFolder:
    path = f"{index_directory(segment_id)}/{_STAGING}/{name}"
    return SegmentFolder(snapshot.location.store, path, snapshot.manifest.data_version)


def _as_it_is(numbers: UInt64s) -> UInt64s:
    return numbers


def report_scalar_index(snapshot: Snapshot, request: IndexRequest) -> ChangeReport:
    """Return what building an index of scalars or texts would do, or of a part of one."""
    rows = _live_rows(snapshot, fragments_to_index(snapshot, request))
    if not is_staged(request):
        return rehearse(snapshot, lambda current: create_scalar_index(current, request), rows)
    report = rehearse_apart(
        snapshot.location,
        "StageIndex",
        lambda location: stage_segment(replace(snapshot, location=location), request),
    )
    return replace(report, rows=rows)


def report_vector_index(snapshot: Snapshot, request: VectorIndexRequest) -> ChangeReport:
    """Return what building a vector index would do."""
    known: list[int] = snapshot.fragments.ids.tolist()
    covered = known if request.fragments is None else sorted({*request.fragments} & {*known})
    rows = _live_rows(snapshot, covered if request.is_trained else ())
    return rehearse(snapshot, lambda current: create_vector_index(current, request), rows)


def report_optimize(snapshot: Snapshot, wanted: OptimizeIndices) -> ChangeReport:
    """Return what bringing indices up to date would do."""
    lacking: set[int] = set()
    for name in names_of(snapshot, wanted):
        every = snapshot.fragments.ids.tolist() if wanted.retrains else None
        lacking.update(every or missing_fragments(snapshot, name))
    return rehearse_reading_back(
        snapshot,
        lambda current: optimize_indices(current, wanted),
        _live_rows(snapshot, lacking),
        if_nothing=_NOTHING,
    )


def _live_rows(snapshot: Snapshot, fragments: Iterable[int]) -> int:
    return sum(snapshot.live_rows(snapshot.fragments.by_id(each)) for each in fragments)
