"""Building indices on Spark, and bringing them up to date.

    create_index(uri, "id", "BTREE", spark=spark)
    create_index(uri, "v", "IVF_PQ", metric="cosine",
                 parameters={"num_partitions": 256, "num_sub_vectors": 16}, spark=spark)
    optimize_indices(uri, spark=spark)

Each task writes a segment of some fragments, and the driver lists all of them in one commit.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import Any, Unpack

from lancelet.dataset.index.vector_request import VectorIndexArguments
from lancelet.index.vector.quantizers.registry import KINDS
from lancelet.ops.indexing.build import IndexRequest
from lancelet.ops.indexing.optimize import OptimizeIndices
from lancelet.ops.jobs import build_index
from lancelet.ops.jobs.build_index import AnyRequest, BuildOptions
from lancelet.spark.running import Finished, Running, begin


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
    """Build an index in tasks: a segment for each group of fragments, and one commit.

    Args:
        uri: The table.
        column: The path of the column.
        index_type: A kind of `dataset.create_scalar_index`, such as `BTREE` or `INVERTED`, or of
            `dataset.create_index`, such as `IVF_PQ`. Models of vectors are found in one task,
            from a sample of rows, and shared by all segments.
        name: By default the path with `_idx` behind it.
        metric: How vectors are compared: `L2`, `cosine`, `dot`, or `hamming` for bytes.
        replace: Whether an index of that name is replaced; else it is an error.
        merge: Whether the segments become one, in a task of its own, before they are committed.
            A question is put to each segment, so few are faster.
        parameters: Further ones of that kind, such as `with_position` or `num_partitions`.
        bytes_per_task: How much of the column a task reads, about.
        running: See `Running`.
    """
    job, table = begin(uri, running)
    values = dict(parameters or {})
    request: AnyRequest
    if index_type.upper() in KINDS:
        asked = VectorIndexArguments(
            column, index_type, name, metric=metric, replace=replace, values=values
        )
        request = asked.request(table.at(None).open().schema)
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
    """Bring indices up to date, each in a task or several, in one commit.

    Args:
        uri: The table.
        names: Which indices, by default all.
        num_indices_to_merge: How many of the latest segments become one with new rows, by default
            one; with 0 new rows get a segment of their own.
        retrain: Whether to build them anew from all rows.
        bytes_per_task: How much of the rows that an index lacks a task reads, about.
        running: See `Running`.
    """
    job, table = begin(uri, running)
    wanted = OptimizeIndices(
        None if names is None else tuple(names), num_indices_to_merge, retrains=retrain
    )
    built = build_index.optimize_indices(job, table, wanted, bytes_per_task)
    return Finished(built.version, _rows(job.report.phases, "optimize"), job.report)


def _rows(phases: Sequence[Any], name: str) -> int:
    return sum(phase.work.rows for phase in phases if phase.name == name)
