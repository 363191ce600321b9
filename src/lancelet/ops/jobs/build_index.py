"""Building indices in tasks: a segment for each group of fragments, all of them in one commit.

    train    one task     centroids and words, from runs of rows by chance     vectors only
    build    a task each  fragments {0 1} -> segment 5f..   {2 3} -> segment a3..
    merge    one task     segments 5f.. and a3.. -> segment 0c..               if it is asked for
    commit   on the driver: the index has these segments, in place of one of the same name

Segments of vectors share one model, so that they can be merged later without their rows. Bringing
indices up to date is a task for each index, after tasks for rows that are too many for one.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import field, replace
from functools import partial
from typing import Final, TypeAlias

import numpy as np
import pyarrow as pa

from lancelet.buffers import Int64s
from lancelet.format.index_metadata import IndexMetadata
from lancelet.format.operation import CreateIndex
from lancelet.index.base import IndexedRows
from lancelet.index.registry import kind_by_name
from lancelet.index.vector.kind import IVF
from lancelet.index.vector.train import IvfRequest, train_models
from lancelet.index.vector.vectors import vector_type_of
from lancelet.ops.indexing.build import (
    IndexRequest,
    build_segment,
    default_name,
    fields_to,
    name_of,
    path_to,
    replaced_by,
)
from lancelet.ops.indexing.drop import segments_of
from lancelet.ops.indexing.optimize import (
    IndexChange,
    OptimizeIndices,
    add_segment,
    commit_changes,
    merge_segments,
    missing_fragments,
    names_of,
    optimize_one,
)
from lancelet.ops.indexing.vectors import VectorIndexRequest, build_vector_segment
from lancelet.ops.jobs.engine import Done, Job
from lancelet.ops.jobs.part import Part
from lancelet.ops.jobs.split import plan_splits
from lancelet.ops.jobs.table_ref import TableRef
from lancelet.ops.publish import Retries, publish, with_retries
from lancelet.query.projection import project
from lancelet.query.take import addresses_at, take_addresses
from lancelet.table.snapshot import Snapshot
from lancelet.values import dataclass

AnyRequest: TypeAlias = IndexRequest | VectorIndexRequest
Fragments: TypeAlias = "tuple[int, ...] | None"

_READ_BYTES: Final = 64 * 1024
_RUNS_MIN: Final = 256


@dataclass(frozen=True, slots=True)
class BuildOptions:
    """How an index is cut into tasks, and whether their segments become one."""

    bytes_per_task: int | None = None
    merges: bool = False
    retries: Retries = field(default_factory=Retries)


def create_index(
    job: Job, table: TableRef, request: AnyRequest, options: BuildOptions | None = None
) -> Snapshot:
    """Build an index in tasks and commit it; where others rewrote its fragments first, again."""
    options = options or BuildOptions()

    def attempt(snapshot: Snapshot) -> Snapshot:
        name = _name_of(snapshot, request)
        replaced = replaced_by(snapshot, name, request.column, replaces=request.replaces)
        at = table.pinned(snapshot)
        groups = plan_groups(snapshot, request, options.bytes_per_task)
        shared = _with_models(job, at, request, groups)
        requests = [replace(shared, fragments=group) for group in groups]
        built = job.run("build", partial(build_part, at), requests)
        if options.merges and len(built) > 1:
            built = job.run("merge", partial(merge_parts, at), [tuple(built)])
        return publish(snapshot, CreateIndex(tuple(built), replaced))

    return with_retries(table.at(None).open(), attempt, options.retries)


def _name_of(snapshot: Snapshot, request: AnyRequest) -> str:
    if isinstance(request, IndexRequest):
        return name_of(snapshot, request)
    return request.name or default_name(path_to(snapshot, request.column))


def optimize_indices(
    job: Job, table: TableRef, wanted: OptimizeIndices, bytes_per_task: int | None = None
) -> Snapshot:
    """Bring indices up to date and commit all of them at once.

    Rows that an index lacks are indexed by several tasks where they are too many for one.
    """

    def attempt(snapshot: Snapshot) -> Snapshot:
        names, at = names_of(snapshot, wanted), table.pinned(snapshot)
        parts = [] if wanted.retrains else _plan_additions(snapshot, names, bytes_per_task)
        added = job.run("build", partial(add_part, at), parts) if parts else []
        shares = [
            Share(name, wanted, tuple(each for each in added if each.name == name))
            for name in names
        ]
        return commit_changes(snapshot, job.run("optimize", partial(optimize_part, at), shares))

    return with_retries(table.at(None).open(), attempt, Retries())


@dataclass(frozen=True, slots=True)
class Addition:
    """Fragments that an index lacks, and that a task adds to it."""

    name: str
    fragments: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Share:
    """An index that a task brings up to date, and segments that others added to it."""

    name: str
    wanted: OptimizeIndices
    added: tuple[IndexMetadata, ...] = ()


def _plan_additions(
    snapshot: Snapshot, names: Sequence[str], bytes_per_task: int | None
) -> list[Addition]:
    """Return what several tasks add to an index, for those whose missing rows one cannot take."""
    found: list[Addition] = []
    for name in names:
        leaf = snapshot.schema.field_by_id(segments_of(snapshot, name)[0].fields[0])
        splits = plan_splits(
            snapshot,
            fields=[leaf],
            fragments=missing_fragments(snapshot, name),
            split_bytes=bytes_per_task,
            can_cut=False,
        )
        if len(splits) > 1:
            found += [Addition(name, split.fragments) for split in splits]
    return found


def plan_groups(
    snapshot: Snapshot, request: AnyRequest, bytes_per_task: int | None = None
) -> list[Fragments]:
    """Return the fragments of each segment; a request for no rows stays as it is."""
    leaf = fields_to(snapshot, request.column)[-1]
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
    """Write a segment of some fragments."""
    snapshot = table.open()
    if isinstance(request, VectorIndexRequest):
        built = build_vector_segment(snapshot, request)
    else:
        built = build_segment(snapshot, request)
    fragments = map(snapshot.fragments.by_id, built.fragment_bitmap or ())
    return Done(built, sum(map(snapshot.live_rows, fragments)))


def merge_parts(table: TableRef, segments: Sequence[IndexMetadata]) -> Done[IndexMetadata]:
    """Write one segment of several."""
    return Done(merge_segments(table.open(), segments))


def add_part(table: TableRef, part: Addition) -> Done[IndexMetadata]:
    """Write a segment of fragments that an index lacks."""
    snapshot = table.open()
    fragments = map(snapshot.fragments.by_id, part.fragments)
    rows = sum(map(snapshot.live_rows, fragments))
    return Done(add_segment(snapshot, part.name, part.fragments), rows)


def optimize_part(table: TableRef, share: Share) -> Done[IndexChange]:
    """Write what brings an index up to date."""
    return Done(optimize_one(table.open(), share.name, share.wanted, share.added))


def train_part(request: VectorIndexRequest, part: Part) -> Done[IvfRequest]:
    """Find the models that all segments share, from a sample of the rows of a part."""
    snapshot, ivf = part.open(), request.ivf
    total = snapshot.num_rows
    known = replace(ivf, partitions=ivf.count_for(total))
    rows = _sample(snapshot, request.column, known.sample_size(total), ivf.seed)
    return Done(replace(ivf, models=train_models(rows, known)), rows.num_rows)


def _with_models(
    job: Job, table: TableRef, request: AnyRequest, groups: Sequence[Fragments]
) -> AnyRequest:
    """Return a request whose segments share their models, if it is one for vectors."""
    fragments = tuple(each for group in groups for each in group or ())
    if not isinstance(request, VectorIndexRequest) or not fragments:
        return request
    part = Part(table, fragments)
    return replace(request, ivf=job.run("train", partial(train_part, request), [part])[0])


def _sample(snapshot: Snapshot, column: str, count: int, seed: int) -> IndexedRows:
    """Return the values of so many rows, chosen by chance, or of all if there are not more."""
    leaf = fields_to(snapshot, column)[-1]
    places = sampled_places(snapshot.num_rows, count, run=_run_of(leaf.arrow_type), seed=seed)
    addresses = addresses_at(snapshot, places)
    found = take_addresses(snapshot, addresses, project(snapshot.schema, (column,)))
    batches = found.combine_chunks().to_batches()
    values = [(batch.column(0), own) for batch, own in zip(batches, [addresses], strict=False)]
    return IndexedRows(found.schema.field(0).type, values, len(addresses))


def sampled_places(total: int, count: int, *, run: int, seed: int) -> Int64s:
    """Return the places of so many rows of all, in order: neighbours, so that few reads find them.

    Runs begin at multiples of their length. They are shorter than asked for where there would
    be few of them, since neighbours may be alike.

    >>> sampled_places(2000, 600, run=4, seed=1)[:6].tolist()
    [8, 9, 18, 19, 20, 21]
    """
    if total <= count:
        return np.arange(total)
    length = max(1, min(run, count // _RUNS_MIN))
    starts = np.random.default_rng(seed).permutation(-(-total // length))
    # The last run of all may be short, so one more is chosen.
    chosen = np.sort(starts[: -(-count // length) + 1]) * length
    places = (chosen[:, None] + np.arange(length)).reshape(-1)
    return places[places < total][:count]


def _run_of(data_type: pa.DataType) -> int:
    """Return how many neighbours a read of a usual size has."""
    found = vector_type_of(data_type)
    assert found is not None, "the column was checked to hold vectors"
    row_bytes: int = found.value_type.bit_width // 8 * found.list_size
    return max(1, _READ_BYTES // row_bytes)
