"""Scans with a search: filter and limit the hits, and read the columns of the remaining rows.

The steps are:

    hits        addresses and distances, best first
    filtered    after the search, or before it with a prefilter
    limited     offset and limit
    read        the requested columns of these rows, and `_distance`
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

import numpy as np
import pyarrow as pa

from lancelet.buffers import Int64s
from lancelet.expr.traversal import columns_of
from lancelet.index.text.elements import no_element_indices
from lancelet.scan.found_columns import QUERY_INDEX, referable_columns
from lancelet.scan.node_meter import SEARCH, SORT, TAKE, filter_node
from lancelet.scan.nodes.batch_sizer import batch_sizer
from lancelet.scan.nodes.filter import matching_offsets
from lancelet.scan.nodes.sort import sort_order
from lancelet.scan.plan import FilterStep, ScanPlan, plan_scan
from lancelet.scan.projection import OutputColumn, project, without_columns
from lancelet.scan.scan_options import SearchRequest
from lancelet.scan.take import take_addresses
from lancelet.search.admitted import rows_passing
from lancelet.search.hits import Hits, search_of


class ScoredScan:
    """A scan that returns the hits of a search."""

    def __init__(self, plan: ScanPlan) -> None:
        """Create the scan of a plan with a search."""
        self._plan = plan
        self._search = search_of(plan)

    def batches(self) -> Iterator[pa.RecordBatch]:
        """Yield the rows, best first."""
        options, sizer = self._plan.options, batch_sizer(self._plan)
        if not sizer.is_bounded or options.order_by:
            yield from self.table().to_batches(max_chunksize=options.batch_size)
            return
        found, start = _window(self._found(), options.offset, options.limit), 0
        while start < len(found):
            indices = np.arange(start, min(start + sizer.rows, len(found)))
            table = self._read(found.take(indices))
            sizer.observe(len(indices), table)
            yield from table.to_batches(max_chunksize=options.batch_size)
            start += len(indices)

    def table(self) -> pa.Table:
        """Return the rows, best first unless the scan has another order."""
        options = self._plan.options
        found = self._found()
        if not options.order_by:
            return self._read(_window(found, options.offset, options.limit))
        table = self._read(found)
        keys = [each.column for each in options.order_by]
        unread = [each for each in keys if each not in table.schema.names]
        sorted_by = table.select([each for each in keys if each not in unread])
        for name, column in self._columns_of(found, unread).items():
            sorted_by = sorted_by.append_column(name, column)
        with self._plan.meter.within(SORT):
            order = sort_order(sorted_by, options.order_by)
        return table.take(pa.array(order)).slice(options.offset, options.limit)

    def _found(self) -> Hits:
        plan = self._plan
        if plan.is_empty:
            return Hits.join([])
        if not plan.is_filtered:
            return self._find(None)
        options = plan.options
        rows = searched_rows(plan)
        if rows is not None:
            return self._find(rows)
        if options.rows is not None:
            masked = plan_scan(plan.snapshot, replace(options, filter=None), plan.meter)
            return self._filtered(self._find(_rows_of(masked)))
        return self._filtered(self._find(None))

    def _find(self, rows: Mapping[int, Int64s] | None) -> Hits:
        meter = self._plan.meter
        with meter.within_index(SEARCH):
            found = self._search.find(self._plan, rows)
        meter.count_rows(SEARCH, [0], len(found))
        return found

    def _filtered(self, found: Hits) -> Hits:
        names = dict.fromkeys(path[0] for path in sorted(columns_of(self._plan.filter)))
        columns = self._columns_of(found, list(names))
        batch = (
            pa.RecordBatch.from_arrays(list(columns.values()), list(columns))
            if columns
            else without_columns(len(found))
        )
        plan = self._plan
        whole = FilterStep(plan.filter, (), ())
        node = filter_node(plan.steps[-1].expression if plan.steps else plan.filter)
        passed = whole.passed(batch, plan.meter, node)
        return found.take(np.flatnonzero(passed))

    def _columns_of(self, found: Hits, names: Sequence[str]) -> dict[str, pa.Array]:
        """Return columns of the hits, including the columns that the search adds."""
        snapshot = self._plan.snapshot
        added = {
            each.name: _added(found, self._search, each)
            for each in referable_columns(self._search)
            if each.name in names
        }
        stored = tuple(each for each in names if each not in added)
        with self._plan.meter.within(TAKE):
            rows = take_addresses(snapshot, found.addresses, project(snapshot.schema, stored))
        columns = dict(zip(stored, (each.combine_chunks() for each in rows.columns), strict=True))
        return columns | added

    def _read(self, found: Hits) -> pa.Table:
        plan = self._plan
        with plan.meter.within(TAKE):
            rows = take_addresses(plan.snapshot, found.addresses, plan.projection)
        computed = [each.column for each in plan.search_columns if each.source is None]
        values = iter(self._computed(found, computed)) if computed else iter(())
        for each in plan.search_columns:
            source = each.source
            own = next(values) if source is None else _added(found, self._search, source)
            rows = rows.add_column(each.index, each.column.field, own)
        if plan.numbers_queries:
            rows = rows.add_column(0, QUERY_INDEX, _added(found, self._search, QUERY_INDEX))
        return rows

    def _computed(self, found: Hits, columns: Sequence[OutputColumn]) -> list[pa.Array]:
        """Compute columns of the hits; expressions may refer to columns that are not output."""
        paths = {path for each in columns for path in columns_of(each.expression)}
        rows = pa.RecordBatch.from_pydict(self._columns_of(found, sorted({p[0] for p in paths})))
        return [each.compute(rows) for each in columns]


def searched_rows(plan: ScanPlan) -> Mapping[int, Int64s] | None:
    """Return the offsets of the rows a search is limited to, by fragment; None if unlimited."""
    options = plan.options
    if plan.is_filtered and (
        options.prefilter or (options.rows is not None and options.filter is None)
    ):
        return rows_passing(plan, lambda: _rows_of(plan))
    return None


def _added(found: Hits, search: SearchRequest, field: pa.Field) -> pa.Array:
    """Return a column that the search adds."""
    if field.name == QUERY_INDEX.name:
        return pa.array(found.queries, field.type)
    is_score = field.name == search.score_field.name
    return pa.array(found.scores, field.type) if is_score else _lists_of(found, field.type)


def _lists_of(found: Hits, data_type: pa.DataType) -> pa.Array:
    """Return the element indices as a list column."""
    element_indices = (
        no_element_indices(len(found)) if found.element_indices is None else found.element_indices
    )
    offsets = np.arange(len(element_indices) + 1, dtype=np.int32) * np.int32(
        element_indices.shape[1]
    )
    return pa.ListArray.from_arrays(pa.array(offsets), pa.array(element_indices.ravel()), data_type)


def _rows_of(plan: ScanPlan) -> dict[int, Int64s]:
    """Return the offsets of the rows that pass the filter, by fragment."""
    rows: dict[int, list[Int64s]] = {}
    for fragment_id, offsets in matching_offsets(plan):
        rows.setdefault(fragment_id, []).append(offsets)
    return {each: np.concatenate(own) for each, own in rows.items()}


def _window(found: Hits, offset: int, limit: int | None) -> Hits:
    stop = len(found) if limit is None else min(len(found), offset + limit)
    if offset == 0 and stop == len(found):
        return found
    return found.take(np.arange(min(offset, stop), stop))
