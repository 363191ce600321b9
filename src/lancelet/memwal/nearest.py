"""Search the nearest vectors of a table and its shards.

    base, by index     3 at 0.1   7 at 0.2   5 at 0.4
    shards             7 at 9.0   8 at 0.3                 large flushed tables also by index
    nearest 3          3, 8, 5                             7 has a newer, distant vector

Results of the base with newer rows in shards are discarded, so that the search is repeated with a
larger limit until enough results remain. Merged rows are rows of the base, whether or not its index
covers them; unindexed rows of the base are scanned.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Final

import numpy as np
import pyarrow as pa

from lancelet.encodings.take import filter_table, take_from_table
from lancelet.index.kernels import Metric
from lancelet.memwal.catch_up import with_catch_up
from lancelet.memwal.merged import (
    FlushedRows,
    MemoryRows,
    MergedRead,
    Projection,
    live_in_memory,
    newest_rows,
    without_newer,
)
from lancelet.scan.execute import execute_to_table
from lancelet.scan.plan import plan_scan
from lancelet.scan.scan_options import ScanOptions
from lancelet.search.exact import distances_to
from lancelet.search.vector import VectorSearch

_DISTANCE: Final = "_distance"
_INDEXED_ROWS: Final = 10_000
"""The minimum rows of a flushed table to use its index; a scan is faster for smaller tables."""
_REFINED: Final = 4
"""The number of index candidates per result of a flushed table, which are compared exactly."""


def nearest_rows(
    read: MergedRead,
    search: VectorSearch,
    paths: Sequence[str] | None,
    *,
    overfetch: float = 1.0,
    is_exact: bool = False,
) -> pa.Table:
    """Return columns of the nearest rows, and their distances.

    `is_exact` recomputes the distances that an index of the base estimates from the vectors. They
    are always recomputed if the results contain rows of shards.
    """
    read = with_catch_up(read, [search.field.id])
    projection = Projection.of(read.base.schema, paths, ())
    names = projection.names
    columns = list(dict.fromkeys([*names, *read.keys]))
    newest = newest_rows(read, read.keys)
    if (is_exact or len(newest.keys)) and search.refine_factor is None:
        search = replace(search, refine_factor=1)
    rest = _nearest_of_base(read, search, columns, newest.keys, overfetch)
    own = [_nearest_of_shard(read, search, columns, rows) for rows in newest.live]
    found = pa.concat_tables([*(each.cast(rest.schema) for each in own), rest])
    order = pa.compute.sort_indices(found[_DISTANCE]).slice(0, search.count)
    return projection.prune(take_from_table(found.select([*names, _DISTANCE]), order))


def _nearest_of_shard(
    read: MergedRead, search: VectorSearch, columns: Sequence[str], rows: FlushedRows | MemoryRows
) -> pa.Table:
    """Return the nearest rows of a shard; large flushed tables use their index."""
    if isinstance(rows, FlushedRows):
        is_by_index = search.use_index and rows.table.num_rows >= _INDEXED_ROWS
        shard_search = replace(
            search, use_index=is_by_index, refine_factor=search.refine_factor or _REFINED
        )
        options = replace(rows.scan_options(columns, read.filter), search=shard_search)
        return execute_to_table(plan_scan(rows.table, options))
    live = live_in_memory(rows, read)
    vectors = live[read.base.schema.path_of(search.field.id)].combine_chunks()
    distances = distances_to(vectors, search.queries[0], search.metric or Metric.L2)
    own = live.select(columns).append_column(_DISTANCE, pa.array(distances, pa.float32()))
    return filter_table(own, np.isfinite(distances))


def _nearest_of_base(
    read: MergedRead,
    search: VectorSearch,
    column_names: Sequence[str],
    newer: pa.Table,
    overfetch: float,
) -> pa.Table:
    """Return the nearest rows of the base table without newer versions in shards."""
    most = search.count + len(newer)
    count = min(most, math.ceil(search.count * overfetch))
    while True:
        options = ScanOptions(
            columns=tuple(column_names),
            filter=read.filter,
            search=replace(search, count=count),
            prefilter=True,
            indexed_only=read.caught_up is not None,
        )
        rows = execute_to_table(plan_scan(read.base, options))
        left = without_newer(rows, newer)
        if len(left) >= search.count or len(rows) < count or count >= most:
            return left
        count = min(most, 2 * count)
