"""Plan a scan: resolve columns to fields, and split the filter into steps.

    columns ["id", "name"], filter "age > 30 AND _rowid < 7 AND 1 = 1"

    steps       _rowid < 7      reads nothing
                age > 30        reads age for the remaining rows
    then        id, name        for the remaining rows

Plans are immutable. Planning performs no reads, except through indices.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final, TypeAlias, TypeVar

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from lancelet.encodings.arrow import to_numpy
from lancelet.encodings.codecs.base import ValueFilter
from lancelet.expr import expression as ex
from lancelet.expr.compile import SHORT_TEXT, ExpressionLike, compile_filter, is_deterministic
from lancelet.expr.data_types import is_text
from lancelet.expr.evaluate import can_fail, depends_on_values_only, evaluate_filter
from lancelet.expr.expression import Comparison, Expression, Operator
from lancelet.expr.scan_types import scan_type
from lancelet.expr.simplify import Conjunct, simplify_filter, split_conjuncts
from lancelet.expr.traversal import columns_of
from lancelet.format.field import Field
from lancelet.format.schema import Schema
from lancelet.scan.found_columns import (
    QUERY_INDEX,
    SearchColumn,
    added_columns,
    split_columns,
    trailing_columns,
    with_added,
)
from lancelet.scan.node_meter import UNMETERED, PlanMeter, filter_node
from lancelet.scan.projection import Projection, needed, project, scan_schema
from lancelet.scan.row_columns import RowColumn
from lancelet.scan.row_mask import mask_expression
from lancelet.scan.scan_options import Columns, ScanOptions, SearchRequest
from lancelet.scan.value_ranges import value_ranges
from lancelet.table.snapshot import Snapshot, cached_by_schema
from lancelet.values import cached_property, dataclass

T = TypeVar("T")
Flags: TypeAlias = npt.NDArray[np.bool_]

_PART: Final = re.compile(
    r"\s*([A-Za-z_][A-Za-z0-9_]*)\s*(=|<=|>=|<|>)\s*(?:(-?[0-9]{1,18})|'([^'\\]{0,256})')"
    r"(?:\s*\Z|(\s+(?i:and)\s))"
)
_OPERATORS: Final = {
    "=": Operator.EQUAL,
    "<": Operator.LESS,
    "<=": Operator.LESS_EQUAL,
    ">": Operator.GREATER,
    ">=": Operator.GREATER_EQUAL,
}


@dataclass(frozen=True, eq=False)
class FilterStep:
    """A part of a filter, and the fields it reads."""

    expression: Expression
    fields: tuple[Field, ...]
    row_columns: tuple[str, ...]

    def passed(
        self,
        rows: pa.RecordBatch,
        meter: PlanMeter,
        node: str | None = None,
        mask: Flags | None = None,
    ) -> Flags:
        """Return whether each row passes, measured for a node, by default the node of the step.

        Rows that `mask` excludes do not pass.
        """
        if not meter.is_counting:
            return _both(mask, to_numpy(evaluate_filter(self.expression, rows)))
        node = node or filter_node(self.expression)
        with meter.within(node):
            found = _both(mask, to_numpy(evaluate_filter(self.expression, rows)))
        meter.count_rows(node, [0], int(np.count_nonzero(found)))
        return found

    @cached_property
    def can_fail(self) -> bool:
        """Whether the evaluation may raise for some values."""
        return can_fail(self.expression)

    def leaves_in(self, schema: Schema) -> Mapping[tuple[str, ...], Field]:
        """Return the leaf fields of a schema that the expression refers to, by path."""
        found: Mapping[tuple[str, ...], Field] | None = vars(self).get("_leaves")
        if found is None:
            # Steps that are only used to skip rows have no fields to read.
            fields = self.fields or schema.fields
            leaves = ((path, leaf_at(fields, path)) for path in columns_of(self.expression))
            found = {path: leaf for path, leaf in leaves if leaf is not None}
            vars(self)["_leaves"] = found
        return found

    @cached_property
    def values(self) -> ValueFilter | None:
        """The step as a filter of stored values, or None if it cannot be evaluated without rows."""
        if len(self.fields) != 1 or self.row_columns or self.fields[0].children:
            return None
        numbers = value_ranges(self.expression, scan_type(self.fields[0]))
        test = self.passed_items if depends_on_values_only(self.expression) else None
        return ValueFilter(numbers, test) if numbers or test else None

    @cached_property
    def takes_dictionary(self) -> bool:
        """Whether the step can evaluate the items of a dictionary instead of the rows."""
        return self.values is not None and self.values.test is not None

    def passed_range(self, found: Flags, meter: PlanMeter, mask: Flags | None = None) -> Flags:
        """Return whether rows that were compared while they were decoded pass."""
        passed = _both(mask, found)
        if meter.is_counting:
            self.count_passed(int(np.count_nonzero(passed)), meter)
        return passed

    def count_passed(self, count: int, meter: PlanMeter) -> None:
        """Count rows that passed while they were decoded."""
        if meter.is_counting:
            meter.count_rows(filter_node(self.expression), [0], count)

    def passed_items(self, items: pa.Array) -> Flags:
        """Return whether each dictionary item passes, followed by whether null passes."""
        column = pa.concat_arrays([items, pa.nulls(1, items.type)])
        rows = pa.RecordBatch.from_arrays([column], [self.fields[0].name])
        return to_numpy(evaluate_filter(self.expression, rows))

    def passed_dictionary(
        self, column: pa.DictionaryArray, meter: PlanMeter, mask: Flags | None = None
    ) -> Flags:
        """Return whether each row of the only column passes; each item is evaluated once.

        Rows that `mask` excludes do not pass.
        """
        node = filter_node(self.expression)
        with meter.within(node):
            passes = self.passed_items(column.dictionary)
            keys = column.indices
            if keys.null_count:
                keys = keys.fill_null(len(passes) - 1)
            found = _both(mask, _lookup(passes, keys))
        meter.count_rows(node, [0], int(np.count_nonzero(found)))
        return found


def leaf_at(fields: Sequence[Field], path: tuple[str, ...]) -> Field | None:
    """Return the leaf on a path, or None, for example for row columns and map keys."""
    found = next((each for each in fields if each.name == path[0]), None)
    if found is None or len(path) == 1:
        return found if found is not None and found.is_leaf else None
    return leaf_at(found.children, path[1:])


def _both(mask: Flags | None, found: Flags) -> Flags:
    return found if mask is None else mask & found


def _lookup(passes: Flags, keys: pa.Array) -> Flags:
    """Return the flag of each key."""
    flagged = np.flatnonzero(passes)
    numbers = to_numpy(keys)
    if len(flagged) == 1:
        found: Flags = numbers == numbers.dtype.type(flagged[0])
        return found
    looked_up: Flags = passes[numbers]
    return looked_up


@dataclass(frozen=True, eq=False)
class ScanPlan:
    """A planned scan."""

    snapshot: Snapshot
    options: ScanOptions
    projection: Projection
    filter: Expression
    steps: tuple[FilterStep, ...]
    trailing: tuple[str, ...] = ()
    """Row columns appended to the output."""
    search_columns: tuple[SearchColumn, ...] = ()
    """Output columns of the search, in order of insertion."""
    numbers_queries: bool = False
    """Whether the first output column is the query index."""
    meter: PlanMeter = UNMETERED
    """Receives the measurements of plan nodes."""

    @property
    def is_filtered(self) -> bool:
        """Whether there is a filter."""
        return self.filter is not ex.TRUE and self.filter != ex.TRUE

    @cached_property
    def shares(self) -> dict[FilterStep, float]:
        """The share of rows that passed a step in the last range that was filtered."""
        return {}

    @cached_property
    def conjuncts(self) -> tuple[Conjunct, ...]:
        """The conjuncts of the filter."""
        return split_conjuncts(self.filter)

    @property
    def is_empty(self) -> bool:
        """Whether the result is empty regardless of the data."""
        return self.options.limit == 0 or (self.is_filtered and self.filter == ex.FALSE)

    @cached_property
    def schema(self) -> pa.Schema:
        """The output schema."""
        search = self.options.search
        if search is None:
            return self.projection.schema
        fields = list(self.projection.schema)
        for each in self.search_columns:
            fields.insert(each.index, each.column.field)
        found = [QUERY_INDEX, *fields] if self.numbers_queries else fields
        return pa.schema(found, metadata=self.projection.schema.metadata)


def plan_scan(snapshot: Snapshot, options: ScanOptions, meter: PlanMeter = UNMETERED) -> ScanPlan:
    """Plan a scan of a version; `meter` receives the measurements of its nodes."""
    trailing = []
    if options.with_row_id:
        trailing.append(RowColumn.ID.value)
    if options.with_row_address:
        trailing.append(RowColumn.ADDRESS.value)
    columns = _columns_of(snapshot, options, tuple(trailing))
    added = _added_to(options)
    if added:  # the filter refers to columns of the search
        assert options.filter is not None
        bound = compile_filter(options.filter, with_added(snapshot.schema, added))
        steps = _steps_of(snapshot, bound, added)
    else:
        bound, steps = _filter_of(snapshot, options.filter)
    if options.rows is not None:
        masked = compile_filter(mask_expression(options.rows), scan_schema(snapshot.schema))
        bound = masked if bound == ex.TRUE else simplify_filter(ex.And((masked, bound)))
        steps = _steps_of(snapshot, bound, added)
    return ScanPlan(
        snapshot,
        options,
        columns.projection,
        bound,
        steps,
        tuple(trailing),
        columns.found,
        columns.numbers_queries,
        meter,
    )


@dataclass(frozen=True, slots=True, eq=False)
class _Columns:
    """The output columns of a scan: stored columns and columns of the search."""

    projection: Projection
    found: tuple[SearchColumn, ...] = ()
    numbers_queries: bool = False


def _columns_of(snapshot: Snapshot, options: ScanOptions, trailing: tuple[str, ...]) -> _Columns:
    """Return the output columns of a scan, cached if columns are given by name."""
    columns, search = options.columns, options.search
    if search is None:
        return _Columns(projection_of(snapshot, columns, trailing=trailing))
    if isinstance(columns, Mapping):
        return _columns_of_search(snapshot, options, search, trailing)
    kind = search.score_field.name, search.element_field is None, search.is_batch
    return snapshot.version_cache.get_or_make(
        ("columns of a search", columns, trailing, options.adds_scores, kind),
        lambda: _columns_of_search(snapshot, options, search, trailing),
    )


def _columns_of_search(
    snapshot: Snapshot, options: ScanOptions, search: SearchRequest, trailing: tuple[str, ...]
) -> _Columns:
    split = split_columns(snapshot.schema, options.columns, search, trailing=trailing)
    projection = projection_of(snapshot, split.stored, trailing=trailing)
    index = len(projection.schema) - len(trailing) + len(split.computed)
    added = trailing_columns(split, search, index=index, adds_scores=options.adds_scores)
    numbers_queries = search.is_batch and QUERY_INDEX.name not in split.names
    return _Columns(projection, (*split.computed, *added), numbers_queries)


def _added_to(options: ScanOptions) -> tuple[pa.Field, ...]:
    """Return the search columns that the filter refers to, if it is applied to the hits."""
    if options.search is None or options.filter is None or options.prefilter:
        return ()
    written = str(options.filter)
    return tuple(each for each in added_columns(options.search) if each.name in written)


def _steps_of(
    snapshot: Snapshot, bound: Expression, added: Sequence[pa.Field]
) -> tuple[FilterStep, ...]:
    """Return the steps of a filter; a single step if it refers to search columns."""
    if not added:
        return tuple(filter_steps(snapshot, split_conjuncts(bound)))
    names = {each.name for each in added}
    stored = [ex.Column(path) for path in columns_of(bound) if path[0] not in names]
    return (FilterStep(bound, *needed(snapshot.schema, stored)),)


def _filter_of(
    snapshot: Snapshot, written: ExpressionLike | None
) -> tuple[Expression, tuple[FilterStep, ...]]:
    """Return a filter and its steps.

    Short texts are compiled once per schema, unless they call nondeterministic functions.
    """
    if not isinstance(written, str) or len(written) > SHORT_TEXT:
        return _compiled(snapshot, written)
    plain = read_plain(written)
    if plain:
        return _plain(snapshot, plain, written)
    if is_deterministic(written):
        return cached_by_schema(snapshot, ("filter", written), lambda: _compiled(snapshot, written))
    return _compiled(snapshot, written)


def _plain(
    snapshot: Snapshot, plain: tuple[Plain, ...], written: str
) -> tuple[Expression, tuple[FilterStep, ...]]:
    """Return a filter of simple comparisons.

    The first filter of each form is compiled both ways. The fast path is used for other constants
    only if both results were equal.
    """
    key = ("plain filter", *(part.form for part in plain))
    template = cached_by_schema(snapshot, key, lambda: _template_of(snapshot, plain, written))
    return (template and template.of(plain)) or _compiled(snapshot, written)


@dataclass(frozen=True, slots=True, eq=False)
class _FilterTemplate:
    """The column types and steps shared by all filters of one form."""

    data_types: tuple[pa.DataType, ...]
    steps: tuple[tuple[tuple[int, ...], FilterStep], ...]
    """The indices of the comparisons in each step."""

    def of(self, plain: tuple[Plain, ...]) -> tuple[Expression, tuple[FilterStep, ...]] | None:
        """Return the filter for constants, or None if a constant requires full compilation."""
        bound = [part.bound(each) for part, each in zip(plain, self.data_types, strict=True)]
        parts = [part for part in bound if part is not None]
        if len(parts) < len(bound):
            return None
        steps = tuple(
            FilterStep(_joined([parts[index] for index in indices]), step.fields, step.row_columns)
            for indices, step in self.steps
        )
        return (steps[0].expression if len(steps) == 1 else _joined(parts)), steps


def _joined(parts: Sequence[Expression]) -> Expression:
    return parts[0] if len(parts) == 1 else ex.And(tuple(parts))


def _template_of(
    snapshot: Snapshot, plain: tuple[Plain, ...], written: str
) -> _FilterTemplate | None:
    """Return the template of a form, or None if its filters require full compilation."""
    expression, steps = _compiled(snapshot, written)
    parts = _parts_of(expression)
    types = [
        part.right.data_type
        for part in parts
        if isinstance(part, ex.Comparison) and isinstance(part.right, ex.Literal)
    ]
    # Equal comparisons would be simplified to one.
    if not len({part.form for part in plain}) == len(plain) == len(types):
        return None
    deciding = [(tuple(map(parts.index, _parts_of(step.expression))), step) for step in steps]
    template = _FilterTemplate(tuple(types), tuple(deciding))
    found = template.of(plain)
    return template if found is not None and found[0] == expression else None


def _parts_of(expression: Expression) -> tuple[Expression, ...]:
    return expression.operands if isinstance(expression, ex.And) else (expression,)


def _compiled(
    snapshot: Snapshot, written: ExpressionLike | None
) -> tuple[Expression, tuple[FilterStep, ...]]:
    if written is None:
        return ex.TRUE, ()
    bound = compile_filter(written, scan_schema(snapshot.schema))
    if bound == ex.TRUE:
        return bound, ()
    return bound, tuple(filter_steps(snapshot, split_conjuncts(bound)))


def projection_of(
    snapshot: Snapshot,
    columns: Columns,
    *,
    trailing: tuple[str, ...] = (),
) -> Projection:
    """Return the projection of columns of a version, cached if they are given by name."""
    if isinstance(columns, Mapping):
        return project(snapshot.schema, columns, trailing=trailing)
    return cached_by_schema(
        snapshot,
        ("projection", columns, trailing),
        lambda: project(snapshot.schema, columns, trailing=trailing),
    )


def filter_steps(snapshot: Snapshot, conjuncts: Iterable[Conjunct]) -> Iterable[FilterStep]:
    """Return the steps of a filter; conjuncts that read the same columns share a step."""
    groups: dict[frozenset[tuple[str, ...]], list[Expression]] = {}
    for conjunct in conjuncts:
        groups.setdefault(conjunct.columns, []).append(conjunct.expression)
    for parts in groups.values():
        whole = parts[0] if len(parts) == 1 else ex.And(tuple(parts))
        fields, row_columns = needed(snapshot.schema, [whole])
        yield FilterStep(whole, fields, row_columns)


@dataclass(frozen=True, slots=True)
class Plain:
    """A comparison of a column with an integer or string constant.

    Filters of such comparisons are frequent and have a fast path:

        id = 5                  Plain("id", =, 5)       of int32: Comparison(=, id, 5)
        n >= 3 AND s < 'ab'     Plain("n", >=, 3), Plain("s", <, "ab")
        id = 5 + 1              not supported: compiled in full
    """

    column: str
    operator: Operator
    constant: int | str

    @property
    def form(self) -> tuple[str, Operator, type]:
        """The comparison without the value of its constant."""
        return self.column, self.operator, type(self.constant)

    def bound(self, data_type: pa.DataType) -> Comparison | None:
        """Bind the comparison to a column type; None if it requires full compilation."""
        value: Any = self.constant
        if isinstance(value, int):
            if not pa.types.is_integer(data_type) or not _is_inside(value, data_type):
                return None
        elif not is_text(data_type):
            return None
        column = ex.Column((self.column,))
        return Comparison(self.operator, column, ex.literal(value, data_type))


def read_plain(text: str) -> tuple[Plain, ...]:
    """Parse a conjunction of simple comparisons; empty for other filters.

    >>> read_plain("id >= -5"), read_plain("id = 5 + 1")
    ((Plain(column='id', operator=<Operator.GREATER_EQUAL: '>='>, constant=-5),), ())
    """
    parts = []
    found = _PART.match(text)
    while found is not None:
        column, sign, number, letters, joined = found.groups()
        constant = letters if number is None else int(number)
        parts.append(Plain(column, _OPERATORS[sign], constant))
        if joined is None:
            return tuple(parts)
        found = _PART.match(text, found.end())
    return ()


def _is_inside(value: int, data_type: pa.DataType) -> bool:
    """Return whether a number lies strictly between the limits of an integer type."""
    bits: int = data_type.bit_width
    if pa.types.is_unsigned_integer(data_type):
        return 0 < value < (1 << bits) - 1
    return -(1 << bits - 1) < value < (1 << bits - 1) - 1
