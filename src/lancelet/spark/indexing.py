"""Building and updating indices on Spark.

    create_index(uri, "id", "BTREE", spark=spark)
    create_index(uri, "v", "IVF_PQ", metric="cosine",
                 parameters={"num_partitions": 256, "num_sub_vectors": 16}, spark=spark)
    optimize_indices(uri, spark=spark)

Each task writes a segment for some fragments, and the driver commits all segments in one version.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import Any, Unpack

from lancelet.dataset.index.vector_request import VectorIndexArguments
from lancelet.index.vector.quantizers.registry import KINDS
from lancelet.jobs import build_index
from lancelet.jobs.build_index import AnyRequest, BuildOptions
from lancelet.spark.running import Finished, Running, begin
from lancelet.upkeep.indexing.build import IndexRequest
from lancelet.upkeep.indexing.optimize import OptimizeIndices


def create_index(
    uri: str | os.PathLike[str],
    column: str,
    index_type: str,
    *,
    name: str | None = None,
    metric: str = "L2",
    replace: bool = True,
    merge: bool = False,
    parameters: Mapping[str, Any] | None = None,
    bytes_per_task: int | None = None,
    **running: Unpack[Running],
) -> Finished:
    """Build an index in parallel: one segment per group of fragments, in one commit.

    Args:
        uri: The table.
        column: The path of the column.
        index_type: A type of `dataset.create_scalar_index`, such as `BTREE` or `INVERTED`, or of
            `dataset.create_index`, such as `IVF_PQ`. Vector quantizers are trained in one task on
            a sample of rows and shared by all segments.
        name: The index name, by default the column path with the suffix `_idx`.
        metric: The distance of vectors: `L2`, `cosine`, `dot`, or `hamming` for bytes.
        replace: Whether to replace an index of this name; otherwise it is an error.
        merge: Whether to merge the segments into one before the commit. Queries search every
            segment, so fewer segments are faster.
        parameters: Further parameters of the index type, such as `with_position` or
            `num_partitions`.
        bytes_per_task: The approximate number of bytes of the column that a task reads.
        running: See `Running`.
    """
    job, table = begin(uri, running)
    values = dict(parameters or {})
    request: AnyRequest
    if index_type.upper() in KINDS:
        arguments = VectorIndexArguments(
            column, index_type, name, metric=metric, replace=replace, values=values
        )
        request = arguments.request(table.at(None).open().schema)
    else:
        request = IndexRequest(column, index_type, name, replaces=replace, parameters=values)
    options = BuildOptions(bytes_per_task, merges=merge)
    built = build_index.create_index(job, table, request, options)
    return Finished(built.version, _rows(job.report.phases, "build"), job.report)


def optimize_indices(
    uri: str | os.PathLike[str],
    *,
    names: Sequence[str] | None = None,
    num_indices_to_merge: int | None = None,
    retrain: bool = False,
    bytes_per_task: int | None = None,
    **running: Unpack[Running],
) -> Finished:
    """Update indices in one commit, each in one or more tasks.

    Args:
        uri: The table.
        names: The indices to update, by default all.
        num_indices_to_merge: The number of the latest segments to merge with new rows, by default
            one; with 0 new rows get a new segment.
        retrain: Whether to rebuild the indices from all rows.
        bytes_per_task: The approximate number of bytes of unindexed rows that a task reads.
        running: See `Running`.
    """
    job, table = begin(uri, running)
    request = OptimizeIndices(
        None if names is None else tuple(names), num_indices_to_merge, retrains=retrain
    )
    built = build_index.optimize_indices(job, table, request, bytes_per_task)
    return Finished(built.version, _rows(job.report.phases, "optimize"), job.report)


def _rows(phases: Sequence[Any], name: str) -> int:
    return sum(phase.work.rows for phase in phases if phase.name == name)
