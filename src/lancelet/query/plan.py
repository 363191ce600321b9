"""Planning a scan: names become field ids, the filter becomes steps, columns become fields.

    columns ["id", "name"], filter "age > 30 AND _rowid < 7 AND 1 = 1"

    steps       _rowid < 7      reads nothing
                age > 30        reads age for the rows that are left
    then        id, name        for the rows that are left

A plan is a value; making one reads nothing but the manifest, which is there already.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property

import pyarrow as pa

from lancelet.format.field import Field
from lancelet.query import expression as ex
from lancelet.query.compile import compile_filter
from lancelet.query.expression import Expression
from lancelet.query.projection import Projection, needed, project, scan_schema
from lancelet.query.row_columns import RowColumn
from lancelet.query.scan_options import Columns, ScanOptions
from lancelet.query.simplify import Conjunct, split_conjuncts
from lancelet.table.snapshot import Snapshot


@dataclass(frozen=True, slots=True, eq=False)
class FilterStep:
    """A part of a filter, and what is read to decide it."""

    expression: Expression
    fields: tuple[Field, ...]
    row_columns: tuple[str, ...]


@dataclass(frozen=True, eq=False)
class ScanPlan:
    """What a scan does, in terms of fields."""

    snapshot: Snapshot
    options: ScanOptions
    projection: Projection
    filter: Expression
    steps: tuple[FilterStep, ...]

    @property
    def is_filtered(self) -> bool:
        """Whether any row may be left out by the filter."""
        return self.filter != ex.TRUE

    @property
    def is_empty(self) -> bool:
        """Whether no row can be returned, whatever is stored."""
        return self.filter == ex.FALSE or self.options.limit == 0

    @cached_property
    def schema(self) -> pa.Schema:
        """The schema of what is returned."""
        return self.projection.schema


def plan_scan(snapshot: Snapshot, options: ScanOptions) -> ScanPlan:
    """Return the plan of a scan of a version."""
    behind = []
    if options.with_row_id:
        behind.append(RowColumn.ID.value)
    if options.with_row_address:
        behind.append(RowColumn.ADDRESS.value)
    projection = projection_of(snapshot, options.columns, behind=tuple(behind))
    bound: Expression = ex.TRUE
    if options.filter is not None:
        bound = compile_filter(options.filter, scan_schema(snapshot.schema))
    steps = () if bound == ex.TRUE else tuple(filter_steps(snapshot, split_conjuncts(bound)))
    return ScanPlan(snapshot, options, projection, bound, steps)


def projection_of(
    snapshot: Snapshot,
    columns: Columns,
    *,
    behind: tuple[str, ...] = (),
    may_repeat: bool = False,
) -> Projection:
    """Return how to compute columns of a version; worked out once for names of columns."""
    if isinstance(columns, Mapping):
        return project(snapshot.schema, columns, behind=behind)
    return snapshot.kept.get_or_make(
        ("projection", columns, behind, may_repeat),
        lambda: project(snapshot.schema, columns, behind=behind, may_repeat=may_repeat),
    )


def filter_steps(snapshot: Snapshot, conjuncts: Iterable[Conjunct]) -> Iterable[FilterStep]:
    """Return the steps of a filter: parts that read the same columns are decided together."""
    groups: dict[frozenset[tuple[str, ...]], list[Expression]] = {}
    for conjunct in conjuncts:
        groups.setdefault(conjunct.columns, []).append(conjunct.expression)
    for parts in groups.values():
        whole = parts[0] if len(parts) == 1 else ex.And(tuple(parts))
        fields, row_columns = needed(snapshot.schema, [whole])
        yield FilterStep(whole, fields, row_columns)
