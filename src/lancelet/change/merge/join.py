"""Match the rows of a table with source rows by key.

    source  0: 7   1: 3   2: 7        table   0: 3   1: 7   2: 8   3: 7
    matches (1, 0) (0, 1) (2, 1) (0, 3) (2, 3)

The source is the build side of a hash join. The key columns of the table are the probe side, which
is scanned in parallel, one split of a fragment at a time. Other columns of the table are not read.
Zones that cannot contain a source key are skipped. An index on the key further reduces the rows if
it is expected to be cheaper than a scan.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from lancelet.buffers import Int64s
from lancelet.change.merge.key_bytes import Bools
from lancelet.change.merge.key_columns import KeyColumns
from lancelet.change.merge.key_passes import KeyPass, KeyPasses
from lancelet.expr import expression as ex
from lancelet.file.pool import map_ordered
from lancelet.rowids.address import UInt64s
from lancelet.scan.nodes.source import waits_for_storage
from lancelet.scan.nodes.splits import Split, splits
from lancelet.scan.plan import FilterStep, ScanPlan, plan_scan
from lancelet.scan.projection import Projection
from lancelet.scan.scan_options import ScanOptions
from lancelet.table.snapshot import Snapshot
from lancelet.values import dataclass, replace

_ROWS_PER_KEY: Final = 1 << 15
"""The number of rows with the scan cost of one index lookup, which reads about one page."""


@dataclass(frozen=True, slots=True, eq=False)
class Matches:
    """Pairs of a source row and a row address, sorted by source row."""

    rows: Int64s
    addresses: UInt64s

    def __len__(self) -> int:
        """Return the number of pairs."""
        return len(self.rows)

    @staticmethod
    def of(rows: Int64s, addresses: UInt64s) -> Matches:
        """Sort pairs by source row; the sort is stable."""
        if bool((rows[1:] >= rows[:-1]).all()):
            return Matches(rows, addresses)
        # Source rows usually have one match, so that pairs can be scattered without sorting.
        data_type = np.dtype(np.int32 if len(rows) < 1 << 31 else np.int64)
        pair_indices: npt.NDArray[np.int32 | np.int64] = np.full(int(rows.max()) + 1, -1, data_type)
        pair_indices[rows] = np.arange(len(rows), dtype=data_type)
        order = pair_indices[pair_indices >= 0]
        if len(order) < len(rows):
            order = np.argsort(rows, kind="stable")
        return Matches(rows[order], addresses[order])

    def where(self, chosen: Bools) -> Matches:
        """Return a selection of the pairs."""
        return self if chosen.all() else Matches(self.rows[chosen], self.addresses[chosen])

    def between(self, first: int, stop: int) -> Matches:
        """Return the pairs of source rows from `first` to `stop`, exclusive."""
        low, high = np.searchsorted(self.rows, [first, stop])
        return Matches(self.rows[low:high], self.addresses[low:high])


@dataclass(frozen=True, slots=True, eq=False)
class Joined:
    """The matches of all source rows, and the source rows with the key of an earlier one."""

    matches: Matches
    repeated: Int64s


def join(
    snapshot: Snapshot,
    key: KeyColumns,
    keys: KeyPasses,
    steps: Sequence[FilterStep] = (),
    fragments: tuple[int, ...] | None = None,
    *,
    uses_index: bool = True,
) -> Joined:
    """Match the rows of a version, or of some of its fragments, with source rows.

    `steps` are conditions that all rows with a source key satisfy. If there are few keys, indices
    select the rows that satisfy these conditions, and only these rows are read.
    """
    plan = plan_keys(snapshot, key, steps, uses_index=uses_index)
    plan = replace(plan, options=replace(plan.options, fragments=fragments))
    repeated, first = [np.empty(0, np.int64)], [np.empty(0, np.int64)]
    parts: list[Matches] = []
    for key_pass in keys.passes():
        for rows, found in zip((repeated, first), key_pass.index.repeats(), strict=True):
            rows.append(key_pass.source_rows(found))
        parts += _matches(plan, key, key_pass)
    later = np.concatenate(repeated)
    return Joined(_with_repeats(_sorted(parts), later, np.concatenate(first)), later)


def _matches(plan: ScanPlan, key: KeyColumns, key_pass: KeyPass) -> list[Matches]:
    """Return the matches of the first source row of each key, by split."""

    def find(columns: Sequence[pa.Array]) -> tuple[Int64s, Int64s]:
        indices, found = key_pass.index.find_rows(columns)
        return indices, key_pass.source_rows(found)

    return probe(plan, key, find)


def probe(
    plan: ScanPlan,
    key: KeyColumns,
    find: Callable[[Sequence[pa.Array]], tuple[Int64s, Int64s]],
) -> list[Matches]:
    """Return the matches of table keys, by split.

    `find` returns the indices of the keys that are found, and the source row of each.
    """

    def matches_of(split: Split) -> Matches:
        offsets = split.offsets
        if offsets is None:
            offsets = split.source.visible(split.rows)
        arrays = split.source.read(plan.projection.fields, split.rows, offsets)
        rows = pa.RecordBatch.from_arrays(arrays, [f.name for f in plan.projection.fields])
        indices, found = find(key.of_rows(rows))
        row_offsets = indices + split.rows.start if offsets is None else offsets[indices]
        return Matches(found, split.source.addresses(row_offsets))

    tasks = (each for split in splits(plan) for each in split.by_range())
    return list(map_ordered(matches_of, tasks, waits=waits_for_storage(plan.snapshot)))


def _sorted(parts: list[Matches]) -> Matches:
    """Return all pairs, and release the parts."""
    rows = np.concatenate([np.empty(0, np.int64), *(part.rows for part in parts)])
    addresses = np.concatenate([np.empty(0, np.uint64), *(part.addresses for part in parts)])
    parts.clear()
    return Matches.of(rows, addresses)


def _with_repeats(matches: Matches, later: Int64s, first: Int64s) -> Matches:
    """Add the matches of later source rows with the same key to those of the first rows."""
    if not len(later) or not len(matches):
        return matches
    low = np.searchsorted(matches.rows, first, side="left")
    counts = np.searchsorted(matches.rows, first, side="right") - low
    within = np.arange(counts.sum()) - np.repeat(np.cumsum(counts) - counts, counts)
    repeated = np.repeat(low, counts) + within
    return Matches.of(
        np.concatenate([matches.rows, np.repeat(later, counts)]),
        np.concatenate([matches.addresses, matches.addresses[repeated]]),
    )


def _is_sooner_found(step: FilterStep, num_rows: int) -> bool:
    """Return whether index lookups are expected to be cheaper than a scan."""
    if not isinstance(step.expression, ex.In):
        return False
    return len(step.expression.values) * _ROWS_PER_KEY <= num_rows


def plan_keys(
    snapshot: Snapshot, key: KeyColumns, steps: Sequence[FilterStep], *, uses_index: bool = True
) -> ScanPlan:
    """Return a scan of the key columns; `steps` are only used to skip rows."""
    fields = snapshot.schema.project(list(key.names)).fields
    use_indices = uses_index and any(_is_sooner_found(step, snapshot.num_rows) for step in steps)
    plan = plan_scan(snapshot, ScanOptions(columns=(), use_indices=use_indices))
    filter_ = ex.And(tuple(step.expression for step in steps)) if steps else ex.TRUE
    return replace(plan, projection=Projection((), fields, ()), filter=filter_, steps=tuple(steps))
