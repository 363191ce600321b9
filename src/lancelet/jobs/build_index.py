"""Build indices in distributed tasks: one segment per group of fragments, and one commit.

    train    one task     centroids and codebooks, from sampled runs of rows   vectors only
    build    a task each  fragments {0 1} -> segment 5f..   {2 3} -> segment a3..
    merge    one task     segments 5f.. and a3.. -> segment 0c..               if requested
    commit   on the driver: the segments replace an index with the same name

Vector segments share one model, so that they can be merged without reading rows. Optimizing runs
one task per index, after tasks for unindexed rows that are too many for one task.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import field, replace
from functools import partial
from typing import Final, TypeAlias

import numpy as np
import pyarrow as pa

from lancelet.buffers import Int64s
from lancelet.change.publish import Retries, publish, with_retries
from lancelet.format.index_metadata import IndexMetadata
from lancelet.format.operation import CreateIndex
from lancelet.index.base import IndexedRows
from lancelet.index.registry import kind_by_name
from lancelet.index.vector.kind import IVF
from lancelet.index.vector.train import IvfRequest, train_models
from lancelet.index.vector.vectors import vector_type_of
from lancelet.jobs.engine import Done, Job
from lancelet.jobs.part import Part
from lancelet.jobs.split import plan_splits
from lancelet.jobs.table_ref import TableRef
from lancelet.scan.projection import project
from lancelet.scan.take import addresses_at, take_addresses
from lancelet.table.snapshot import Snapshot
from lancelet.upkeep.indexing.build import (
    IndexRequest,
    build_segment,
    default_name,
    index_name,
    normalize_path,
    replaced_segments,
    resolve_column,
)
from lancelet.upkeep.indexing.drop import find_segments
from lancelet.upkeep.indexing.optimize import (
    IndexChange,
    OptimizeIndices,
    add_segment,
    commit_changes,
    index_names,
    merge_segments,
    missing_fragments,
    optimize_one,
)
from lancelet.upkeep.indexing.vectors import VectorIndexRequest, build_vector_segment
from lancelet.values import dataclass

AnyRequest: TypeAlias = IndexRequest | VectorIndexRequest
Fragments: TypeAlias = "tuple[int, ...] | None"

_READ_BYTES: Final = 64 * 1024
_RUNS_MIN: Final = 256


@dataclass(frozen=True, slots=True)
class BuildOptions:
    """The options for splitting an index into tasks and merging its segments."""

    bytes_per_task: int | None = None
    merges: bool = False
    retries: Retries = field(default_factory=Retries)


def create_index(
    job: Job, table: TableRef, request: AnyRequest, options: BuildOptions | None = None
) -> Snapshot:
    """Build an index in tasks and commit it; retry if fragments are rewritten concurrently."""
    options = options or BuildOptions()

    def attempt(snapshot: Snapshot) -> Snapshot:
        name = _index_name(snapshot, request)
        replaced = replaced_segments(snapshot, name, request.column, replaces=request.replaces)
        pinned = table.pinned(snapshot)
        groups = plan_groups(snapshot, request, options.bytes_per_task)
        shared = _with_models(job, pinned, request, groups)
        requests = [replace(shared, fragments=group) for group in groups]
        built = job.run("build", partial(build_part, pinned), requests)
        if options.merges and len(built) > 1:
            built = job.run("merge", partial(merge_parts, pinned), [tuple(built)])
        return publish(snapshot, CreateIndex(tuple(built), replaced))

    return with_retries(table.at(None).open(), attempt, options.retries)


def _index_name(snapshot: Snapshot, request: AnyRequest) -> str:
    if isinstance(request, IndexRequest):
        return index_name(snapshot, request)
    return request.name or default_name(normalize_path(snapshot, request.column))


def optimize_indices(
    job: Job, table: TableRef, request: OptimizeIndices, bytes_per_task: int | None = None
) -> Snapshot:
    """Optimize indices in one commit.

    Unindexed rows are indexed by several tasks if they are too many for one.
    """

    def attempt(snapshot: Snapshot) -> Snapshot:
        names, pinned = index_names(snapshot, request), table.pinned(snapshot)
        parts = [] if request.retrains else _plan_additions(snapshot, names, bytes_per_task)
        added = job.run("build", partial(add_part, pinned), parts) if parts else []
        tasks = [
            OptimizeTask(name, request, tuple(segment for segment in added if segment.name == name))
            for name in names
        ]
        return commit_changes(snapshot, job.run("optimize", partial(optimize_part, pinned), tasks))

    return with_retries(table.at(None).open(), attempt, Retries())


@dataclass(frozen=True, slots=True)
class Addition:
    """Unindexed fragments that a task adds to an index."""

    name: str
    fragments: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class OptimizeTask:
    """An index that a task optimizes, and the segments added to it before."""

    name: str
    request: OptimizeIndices
    added: tuple[IndexMetadata, ...] = ()


def _plan_additions(
    snapshot: Snapshot, names: Sequence[str], bytes_per_task: int | None
) -> list[Addition]:
    """Return the additions for indices whose unindexed rows need several tasks."""
    additions: list[Addition] = []
    for name in names:
        leaf = snapshot.schema.field_by_id(find_segments(snapshot, name)[0].fields[0])
        splits = plan_splits(
            snapshot,
            fields=[leaf],
            fragments=missing_fragments(snapshot, name),
            split_bytes=bytes_per_task,
            can_cut=False,
        )
        if len(splits) > 1:
            additions += [Addition(name, split.fragments) for split in splits]
    return additions


def plan_groups(
    snapshot: Snapshot, request: AnyRequest, bytes_per_task: int | None = None
) -> list[Fragments]:
    """Return the fragments of each segment; untrained requests remain unchanged."""
    leaf = resolve_column(snapshot, request.column)[-1]
    if isinstance(request, VectorIndexRequest):
        IVF.check_type(leaf.arrow_type, request.column)
    else:
        kind = kind_by_name(request.kind)
        kind.check_type(kind.indexed_type(leaf.arrow_type), request.column)
    if not request.is_trained:
        return [request.fragments]
    splits = plan_splits(
        snapshot,
        fields=[leaf],
        fragments=request.fragments,
        split_bytes=bytes_per_task,
        can_cut=False,
    )
    return [split.fragments for split in splits] or [request.fragments]


def build_part(table: TableRef, request: AnyRequest) -> Done[IndexMetadata]:
    """Write a segment for a group of fragments."""
    snapshot = table.open()
    if isinstance(request, VectorIndexRequest):
        built = build_vector_segment(snapshot, request)
    else:
        built = build_segment(snapshot, request)
    fragments = map(snapshot.fragments.by_id, built.fragment_bitmap or ())
    return Done(built, sum(map(snapshot.live_rows, fragments)))


def merge_parts(table: TableRef, segments: Sequence[IndexMetadata]) -> Done[IndexMetadata]:
    """Merge segments."""
    return Done(merge_segments(table.open(), segments))


def add_part(table: TableRef, part: Addition) -> Done[IndexMetadata]:
    """Write a segment for unindexed fragments."""
    snapshot = table.open()
    fragments = map(snapshot.fragments.by_id, part.fragments)
    rows = sum(map(snapshot.live_rows, fragments))
    return Done(add_segment(snapshot, part.name, part.fragments), rows)


def optimize_part(table: TableRef, task: OptimizeTask) -> Done[IndexChange]:
    """Write the segments that optimize an index."""
    return Done(optimize_one(table.open(), task.name, task.request, task.added))


def train_part(request: VectorIndexRequest, part: Part) -> Done[IvfRequest]:
    """Train the models that all segments share, on a sample of the rows of a part."""
    snapshot, ivf = part.open(), request.ivf
    total = snapshot.num_rows
    resolved = replace(ivf, partitions=ivf.count_for(total))
    rows = _sample(snapshot, request.column, resolved.sample_size(total), ivf.seed)
    return Done(replace(ivf, models=train_models(rows, resolved)), rows.num_rows)


def _with_models(
    job: Job, table: TableRef, request: AnyRequest, groups: Sequence[Fragments]
) -> AnyRequest:
    """Return a request with shared models, if it is for a vector index."""
    fragments = tuple(fragment_id for group in groups for fragment_id in group or ())
    if not isinstance(request, VectorIndexRequest) or not fragments:
        return request
    part = Part(table, fragments)
    return replace(request, ivf=job.run("train", partial(train_part, request), [part])[0])


def _sample(snapshot: Snapshot, column: str, count: int, seed: int) -> IndexedRows:
    """Return the vectors of `count` sampled rows, or of all rows if there are fewer."""
    leaf = resolve_column(snapshot, column)[-1]
    row_indices = sample_row_indices(
        snapshot.num_rows, count, run=_rows_per_read(leaf.arrow_type), seed=seed
    )
    addresses = addresses_at(snapshot, row_indices)
    table = take_addresses(snapshot, addresses, project(snapshot.schema, (column,)))
    batches = table.combine_chunks().to_batches()
    values = [
        (batch.column(0), batch_addresses)
        for batch, batch_addresses in zip(batches, [addresses], strict=False)
    ]
    return IndexedRows(table.schema.field(0).type, values, len(addresses))


def sample_row_indices(total: int, count: int, *, run: int, seed: int) -> Int64s:
    """Return `count` sorted sampled row indices, in runs of neighbours to reduce reads.

    Runs begin at multiples of their length. They are shortened if there would be few of them, since
    neighbours may be similar.

    >>> sample_row_indices(2000, 600, run=4, seed=1)[:6].tolist()
    [8, 9, 18, 19, 20, 21]
    """
    if total <= count:
        return np.arange(total)
    length = max(1, min(run, count // _RUNS_MIN))
    starts = np.random.default_rng(seed).permutation(-(-total // length))
    # The last run may be short, so that an extra run is sampled.
    run_starts = np.sort(starts[: -(-count // length) + 1]) * length
    row_indices = (run_starts[:, None] + np.arange(length)).reshape(-1)
    return row_indices[row_indices < total][:count]


def _rows_per_read(data_type: pa.DataType) -> int:
    """Return the number of rows per read of the usual size."""
    vector_type = vector_type_of(data_type)
    assert vector_type is not None, "the column type was checked"
    row_bytes: int = vector_type.value_type.bit_width // 8 * vector_type.list_size
    return max(1, _READ_BYTES // row_bytes)
