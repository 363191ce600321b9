"""Use a sorted index to bound the rows of an ordered scan with a limit.

    order_by age, limit 3     BTREE  7 8(deleted) 9 12 20 ..     rows with age <= 12

At least three rows do not exceed the third live value, so other rows cannot be among the first
three. This holds for rows that the index does not cover, too. The rows within the bound are then
sorted, so ties have the same order with and without an index.

If an index covers all rows, its first and last live values are the bounds of the column.
"""

from __future__ import annotations

from typing import Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from lancelet.errors import CorruptDataError, ObjectNotFoundError
from lancelet.expr import expression as ex
from lancelet.expr.expression import Expression, Operator
from lancelet.index.base import SupportsSortedEntries
from lancelet.index.parts.ordering import order_of
from lancelet.rowids.address import NO_ADDRESS, UInt64s, group_by_fragment, offsets_of
from lancelet.scan.indexing.choose import Usable
from lancelet.scan.indexing.column_indices import ColumnIndex, column_indices
from lancelet.scan.indexing.segments import TableSegment, physical_rows_of, warn_unusable
from lancelet.scan.plan import ScanPlan
from lancelet.table.snapshot import Snapshot

_ROWS_MAX: Final = 1 << 13
"""For larger limits all keys are read, because locating each row costs more than sorting."""
_SHARE: Final = 1 / 32


def bound_of_first_rows(plan: ScanPlan) -> Expression | None:
    """Return a condition implied for the first rows of a sorted scan, or None without an index."""
    options = plan.options
    if plan.is_filtered or options.limit is None or options.with_deleted or not options.order_by:
        return None
    if not options.use_indices or options.fragments is not None:
        return None
    ordering = options.order_by[0]
    count = options.offset + options.limit
    if count > min(_ROWS_MAX, plan.snapshot.num_rows * _SHARE) or ordering.nulls_first:
        return None
    path = tuple(field.name for field in plan.snapshot.schema.fields_on_path(ordering.column))
    try:
        for index in Usable.of(plan).on(path):
            bound = _bound(plan, index, count, ascending=ordering.ascending)
            if bound is not None:
                operator = Operator.LESS_EQUAL if ordering.ascending else Operator.GREATER_EQUAL
                return ex.Comparison(operator, ex.Column(path), ex.Literal(bound))
    except (ObjectNotFoundError, CorruptDataError) as error:
        warn_unusable(plan.snapshot, error)
    return None


def bounds_by_index(snapshot: Snapshot, path: tuple[str, ...]) -> tuple[int, pa.Array] | None:
    """Return the null count and the minimum and maximum of live rows, or None without an index.

    The bounds are empty if all values are null.
    """
    for index in column_indices(snapshot).get(path, ()):
        try:
            found = None if index.num_unindexed_rows else _bounds(snapshot, index)
        except (ObjectNotFoundError, CorruptDataError) as error:
            warn_unusable(snapshot, error)
            continue
        if found is not None:
            return found
    return None


def _bounds(snapshot: Snapshot, index: ColumnIndex) -> tuple[int, pa.Array] | None:
    found: list[pa.Array] = []
    for segment in index.segments:
        opened = segment.open()
        if not isinstance(opened, SupportsSortedEntries) or pa.types.is_floating(opened.data_type):
            return None  # bounds must not be NaN
        for ascending in (True, False):
            values = _first_values(snapshot, segment, opened, 1, ascending=ascending)
            found.append(values.slice(0 if ascending else len(values) - 1, 1))
    nulls = index.nulls()
    if nulls is None:
        return None
    num_nulls = int(_are_live(snapshot, nulls.addresses(physical_rows_of(snapshot))).sum())
    return num_nulls, pa.concat_arrays([each for each in found if len(each)] or found[:1])


def _bound(plan: ScanPlan, index: ColumnIndex, count: int, *, ascending: bool) -> pa.Scalar | None:
    """Return the value of the live row at rank `count`, or None if there are fewer rows.

    It is cached with the version of the index, so planning and execution read it once.
    """
    key = ("first rows", index.name, index.path, count, ascending)
    return index.segments[0].snapshot.version_cache.get_or_make(
        key, lambda: _find_bound(plan, index, count, ascending=ascending)
    )


def _find_bound(
    plan: ScanPlan, index: ColumnIndex, count: int, *, ascending: bool
) -> pa.Scalar | None:
    found: list[pa.Array] = []
    for segment in index.segments:
        opened = segment.open()
        if not isinstance(opened, SupportsSortedEntries) or pa.types.is_floating(opened.data_type):
            return None  # NaN sorts last in both directions
        values = _first_values(plan.snapshot, segment, opened, count, ascending=ascending)
        found.append(values)
    values = pa.concat_arrays(found)
    if len(values) < count or not count:
        return None
    ordered = order_of(values.type).sort(values)
    return values[int(ordered[count - 1] if ascending else ordered[-count])]


def _first_values(
    snapshot: Snapshot,
    segment: TableSegment,
    opened: SupportsSortedEntries,
    count: int,
    *,
    ascending: bool,
) -> pa.Array:
    """Return the first values of live rows, at least `count` if there are that many."""
    num_entries = count
    while True:
        values, numbers = opened.sorted_entries(num_entries, ascending=ascending)
        addresses = segment.locate(numbers)
        is_live = addresses != NO_ADDRESS
        is_live[is_live] = _are_live(snapshot, addresses[is_live])
        if is_live.sum() >= count or len(values) < num_entries:
            return values.filter(pa.array(is_live))
        num_entries *= 4


def _are_live(snapshot: Snapshot, addresses: UInt64s) -> npt.NDArray[np.bool_]:
    """Return a mask of the addresses of rows that are not deleted."""
    live = np.ones(len(addresses), np.bool_)
    offsets = offsets_of(addresses)
    for fragment_id, indices in group_by_fragment(addresses).items():
        deleted = snapshot.deletions(snapshot.fragments.by_id(fragment_id))
        if deleted:
            live[indices] = ~np.isin(offsets[indices], deleted.to_array())
    return live
