"""Views with groups: a row for each group, refreshed from the sums of changed rows.

    source        city "Rome", age 30 -> 31, and a new row city "Rome", age 5
    difference    rows +1, count(age) +1, sum(age) +6
    view          city "Rome", people 10 -> 11, ages 300 -> 306

The view stores the number of rows of each group, and the number of values and the sum of each
argument. If a row with the minimum or maximum of a group was removed, the group
is computed from the rows of the source.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc

from lancelet.change.merge.key_bytes import key_bytes
from lancelet.errors import InvalidInputError
from lancelet.expr.compile import ExpressionLike, conjunction
from lancelet.expr.expression import Column, In
from lancelet.expr.parse import parse
from lancelet.rowids.address import UInt64s
from lancelet.values import cached_property, dataclass
from lancelet.views.definition import GROUP_KEY, Aggregation, Query
from lancelet.views.relation import Relation

_ALL: Final = "_all"
"""The key column of a query without keys."""

_ROWS: Final = "_group_rows"
_BLOCK_ROWS: Final = 1 << 18
_MERGED_ROWS: Final = 1 << 18
_DIGITS: Final = 75
_CANCELLED: Final = 1e-6
"""If a sum is smaller than this share of a difference, it is computed from all rows."""


@dataclass(frozen=True, slots=True, eq=False)
class UpdatedGroups:
    """The aggregates of groups after a difference.

    Those of the groups in `undetermined` must be computed from all rows.
    """

    determined: pa.Table
    undetermined: pa.Table


@dataclass(frozen=True, eq=False)
class GroupView:
    """The groups of a query.

    Aggregates of groups are tables with the columns `_key_0`, ..., `_group_rows`, and for argument
    n `_count_n`, `_sum_n`, `_min_n` and `_max_n`, as far as the query needs them.
    """

    query: Query

    @cached_property
    def arguments(self) -> tuple[str, ...]:
        """The distinct arguments of the aggregates."""
        found = (each.argument for each in self._aggregations if each.argument is not None)
        return tuple(dict.fromkeys(found))

    @property
    def _aggregations(self) -> list[Aggregation]:
        return [each.value for each in self.query.columns if isinstance(each.value, Aggregation)]

    @property
    def _groups(self) -> tuple[str, ...]:
        assert self.query.groups is not None, "the query has groups"
        return self.query.groups

    @cached_property
    def _keys(self) -> list[str]:
        return [f"_key_{number}" for number in range(len(self._groups))] or [_ALL]

    @cached_property
    def _inputs(self) -> dict[str, str]:
        """The expressions to read, by name."""
        keys = dict(zip(self._keys, self._groups or ("0",), strict=True))
        return keys | {f"_argument_{n}": text for n, text in enumerate(self.arguments)}

    def _functions(self, argument: str) -> list[str]:
        """Return the functions to compute of an argument."""
        used = {each.function for each in self._aggregations if each.argument == argument}
        found = ["count"]
        if used & {"sum", "avg"}:
            found.append("sum")
        return found + sorted(used & {"min", "max"})

    @property
    def stored_names(self) -> tuple[str, ...]:
        """The names of the columns that the view adds to those of the query."""
        found = [
            f"_group_{function}_{number}"
            for number, argument in enumerate(self.arguments)
            for function in self._functions(argument)
            if function in {"count", "sum"}
        ]
        return GROUP_KEY, _ROWS, *found

    # --- from all rows -----------------------------------------------------------------------

    def schema(self, relation: Relation) -> pa.Schema:
        """Return the schema of the table of the view."""
        return self.to_rows(self._merged(relation, ()).slice(0, 0)).schema

    def all_aggregates(
        self, relation: Relation, fragments: tuple[int, ...] | None = None
    ) -> pa.Table:
        """Return the aggregates of all rows, or of those in some fragments of the source."""
        return self._merged(relation, self._read(relation, self.query.filter, fragments))

    def aggregates_of(
        self, relation: Relation, groups: pa.Table, fragments: tuple[int, ...] | None = None
    ) -> pa.Table:
        """Return the aggregates of all rows of groups, which are given by their aggregates."""
        keys = self.keys_of(groups)
        parts = (
            part.filter(pc.is_in(self.keys_of(part), keys))
            for part in self._read(relation, self._is_any(groups), fragments)
        )
        return self._merged(relation, parts)

    def _is_any(self, groups: pa.Table) -> ExpressionLike | None:
        """Return a condition that the rows of groups satisfy, and the filter of the query."""
        group = parse(self._groups[0]) if self._groups else None
        values = groups.column(self._keys[0])
        has_equals = not pa.types.is_floating(values.type) and not values.null_count
        if not isinstance(group, Column) or not has_equals:
            return self.query.filter
        condition = In(group, values.combine_chunks().unique())
        return condition if self.query.filter is None else conjunction(self.query.filter, condition)

    def _read(
        self,
        relation: Relation,
        condition: ExpressionLike | None,
        fragments: tuple[int, ...] | None,
    ) -> Iterator[pa.Table]:
        for batch in relation.rows(self._inputs, condition, fragments=fragments):
            yield self._partial(pa.Table.from_batches([batch]))

    def _merged(self, relation: Relation, parts: Iterable[pa.Table]) -> pa.Table:
        """Merge partial aggregates; at most a few hundred thousand groups are pending."""
        empty = self._partial(relation.schema_of(self._inputs).empty_table())
        pending = [empty if self._groups else _without_rows(empty.schema)]
        num_pending = 0
        for part in parts:
            pending.append(part)
            num_pending += part.num_rows
            if num_pending > max(_MERGED_ROWS, 2 * pending[0].num_rows):
                pending, num_pending = [self.merge(pending)], 0
        return self.merge(pending)

    def _partial(self, rows: pa.Table) -> pa.Table:
        """Aggregate rows by group."""
        rows = _with_equal_floats(_decoded(rows), self._keys)
        measures: list[tuple[Any, str]] = [([], "count_all")]
        names = [*self._keys, _ROWS]
        for number, argument in enumerate(self.arguments):
            for function in self._functions(argument):
                measures.append((f"_argument_{number}", function))
                names.append(f"_{function}_{number}")
        try:
            found = rows.group_by(self._keys, use_threads=False).aggregate(measures)
        except (pa.ArrowNotImplementedError, pa.ArrowInvalid) as error:
            types = [
                f"{text}: {rows.schema.field(name).type}"
                for name, text in self._inputs.items()
                if name != _ALL
            ]
            raise InvalidInputError(
                "the view groups or aggregates values of an unsupported type; convert them with "
                "CAST, or leave them out",
                types=", ".join(types),
                query=self.query.text,
            ) from error
        return pa.table(found.columns, names=names)

    def merge(self, parts: Sequence[pa.Table]) -> pa.Table:
        """Merge aggregates of the same groups."""
        together = pa.concat_tables(parts)
        names = together.schema.names[len(self._keys) :]
        grouped = together.group_by(self._keys, use_threads=False)
        found = grouped.aggregate([(name, _merging(name)) for name in names])
        return pa.table(found.columns, names=together.schema.names).cast(together.schema)

    # --- from changed rows -------------------------------------------------------------------

    def aggregates_at(self, relation: Relation, addresses: UInt64s) -> pa.Table:
        """Return the aggregates of rows of the source, given by address."""
        parts = (
            self._partial(pa.Table.from_batches([rows]))
            for start in range(0, len(addresses), _BLOCK_ROWS)
            for rows, _ in [
                relation.rows_at(
                    addresses[start : start + _BLOCK_ROWS], self._inputs, self.query.filter
                )
            ]
        )
        return self._merged(relation, parts)

    def difference(self, added: Sequence[pa.Table], removed: Sequence[pa.Table]) -> pa.Table:
        """Return what added and removed rows change in the aggregates of each group.

        The columns `_gone_min_n` and `_gone_max_n` are the extremes of values that were removed.
        """
        after, before = self.merge(added), self.merge(removed)
        before = before.cast(after.schema)
        return self.merge([_signed(after), _signed(before, is_removed=True)])

    def updated(self, difference: pa.Table, stored: pa.Table) -> UpdatedGroups:
        """Add a difference to the stored rows of the same groups."""
        keys = self.keys_of(difference)
        order = pc.index_in(keys, stored.column(GROUP_KEY))
        before = self._of_rows(stored).take(order)
        columns = {name: difference.column(name) for name in self._keys}
        columns[_ROWS] = _plus(before.column(_ROWS), difference.column(_ROWS))
        # Groups of an inconsistent view, and sums that are infinite or have lost their digits, are
        # computed from all rows.
        undetermined = pc.less(columns[_ROWS], 0)
        for number, argument in enumerate(self.arguments):
            for function in self._functions(argument):
                name = f"_{function}_{number}"
                old, new = before.column(name), difference.column(name)
                if function in {"count", "sum"}:
                    columns[name] = _plus(old, new)
                    if pa.types.is_floating(old.type):
                        undetermined = pc.or_(undetermined, _is_inexact(columns[name], new))
                    continue
                if pa.types.is_null(old.type):
                    columns[name] = old
                    continue
                beyond = _BEYOND[function]
                is_beyond = pc.fill_null(beyond(new, old), False)
                columns[name] = pc.if_else(pc.or_(old.is_null(), is_beyond), new, old)
                if pa.types.is_floating(old.type):
                    has_nan = pc.or_kleene(pc.is_nan(old), pc.is_nan(new))
                    undetermined = pc.or_(undetermined, pc.fill_null(has_nan, False))
                gone = difference.column(f"_gone_{function}_{number}")
                # The removed value was the extreme, and no new value replaces it.
                was_extreme = pc.fill_null(pc.invert(beyond(old, gone)), False)
                is_replaced = pc.or_(is_beyond, pc.fill_null(pc.equal(new, old), False))
                undetermined = pc.or_(undetermined, pc.and_(was_extreme, pc.invert(is_replaced)))
        found = pa.table(columns)
        return UpdatedGroups(found.filter(pc.invert(undetermined)), found.filter(undetermined))

    def _of_rows(self, rows: pa.Table) -> pa.Table:
        """Return the aggregates in stored rows of the view."""
        columns = {_ROWS: rows.column(_ROWS)}
        for number, argument in enumerate(self.arguments):
            for function in self._functions(argument):
                name = f"_{function}_{number}"
                if function in {"count", "sum"}:
                    columns[name] = rows.column(f"_group{name}")
                else:
                    expected = Aggregation(function, argument)
                    column = next(each for each in self.query.columns if each.value == expected)
                    columns[name] = rows.column(column.name)
        return pa.table(columns)

    # --- rows of the view --------------------------------------------------------------------

    def keys_of(self, aggregates: pa.Table) -> pa.Array:
        """Return the key of each group: bytes that are equal if the values are, nulls included."""
        columns = [aggregates.column(name).combine_chunks() for name in self._keys]
        together = pa.StructArray.from_arrays(columns, names=self._keys)
        return key_bytes([together]).cast(pa.binary())

    def to_rows(self, aggregates: pa.Table) -> pa.Table:
        """Return the rows of the view for groups that have rows."""
        if self._groups:
            aggregates = aggregates.filter(pc.greater(aggregates.column(_ROWS), 0))
        columns: dict[str, pa.ChunkedArray | pa.Array] = {}
        for column in self.query.columns:
            match column.value:
                case Aggregation(function, argument):
                    columns[column.name] = self._value(aggregates, function, argument)
                case group:
                    columns[column.name] = aggregates.column(self._key_of(str(group)))
        columns[GROUP_KEY] = self.keys_of(aggregates)
        columns[_ROWS] = aggregates.column(_ROWS)
        for name in aggregates.schema.names:
            if name.startswith(("_count_", "_sum_")):
                columns[f"_group{name}"] = aggregates.column(name)
        table = pa.table(columns)
        required = {GROUP_KEY, _ROWS}
        fields = [each.with_nullable(each.name not in required) for each in table.schema]
        return table.cast(pa.schema(fields))

    def _key_of(self, group: str) -> str:
        expected = parse(group)
        parsed = [parse(each) for each in self._groups]
        return self._keys[parsed.index(expected)]

    def _value(self, aggregates: pa.Table, function: str, argument: str | None) -> Any:
        if argument is None:
            return aggregates.column(_ROWS)
        number = self.arguments.index(argument)
        if function in {"count", "min", "max"}:
            return aggregates.column(f"_{function}_{number}")
        count, total = aggregates.column(f"_count_{number}"), aggregates.column(f"_sum_{number}")
        if function == "avg":
            # Large integers are rounded.
            total = pc.divide(total.cast(pa.float64(), safe=False), count.cast(pa.float64()))
        return pc.if_else(pc.equal(count, 0), pa.scalar(None, total.type), total)


_BEYOND: Final = {"min": pc.less, "max": pc.greater}
"""Whether a value replaces another one as the extreme, by function."""


def _without_rows(schema: pa.Schema) -> pa.Table:
    """Return the aggregates of no rows, which a query without keys has."""
    columns = [
        pa.array([0], pa.int64()).cast(each.type)
        if each.name in {_ALL, _ROWS} or each.name.startswith("_count_")
        else pa.nulls(1, each.type)
        for each in schema
    ]
    return pa.table(columns, schema=schema)


def _merging(name: str) -> str:
    """Return the function that merges a column of aggregates."""
    function = name.rsplit("_", 2)[-2]
    return function if function in _BEYOND else "sum"


def _plus(left: pa.ChunkedArray, right: pa.ChunkedArray) -> pa.ChunkedArray:
    """Add numbers; null is zero."""
    zero = pa.scalar(0, pa.int8()).cast(right.type)
    return _computed(pc.add, pc.fill_null(left, zero), pc.fill_null(right, zero))


def _is_inexact(total: pa.ChunkedArray, difference: pa.ChunkedArray) -> pa.ChunkedArray:
    """Return whether sums are not finite, or too small to trust.

    The sum of 1e20 and 1 is 1e20. Without 1e20, it is 1, but the difference of the sums is 0.
    """
    is_small = pc.less(pc.abs(total), pc.multiply(pc.abs(difference), _CANCELLED))
    return pc.or_(pc.invert(pc.is_finite(total)), pc.fill_null(is_small, False))


def _negated(column: pa.ChunkedArray) -> pa.ChunkedArray:
    """Negate numbers; unsigned ones wrap, as their sums do."""
    zeros = pa.repeat(pa.scalar(0, pa.int8()).cast(column.type), len(column))
    return _computed(pc.subtract, pa.chunked_array([zeros]), column)


def _computed(function: Any, left: pa.ChunkedArray, right: pa.ChunkedArray) -> pa.ChunkedArray:
    """Apply a function of two numbers of a type; the result has this type."""
    data_type = right.type
    if pa.types.is_decimal(data_type):  # results have one more digit, which may not fit
        wide = pa.decimal256(_DIGITS, data_type.scale)
        left, right = left.cast(wide), right.cast(wide)
    return function(left, right).cast(data_type)


def _signed(own: pa.Table, *, is_removed: bool = False) -> pa.Table:
    """Return aggregates as part of a difference."""
    columns: dict[str, Any] = {}
    for name in own.schema.names:
        column = own.column(name)
        function = name.rsplit("_", 2)[-2]
        if function in _BEYOND:
            nulls = pa.nulls(len(own), column.type)
            columns[name] = nulls if is_removed else column
            columns[f"_gone{name}"] = column if is_removed else nulls
        elif is_removed and name != _ALL and not name.startswith("_key_"):
            columns[name] = _negated(column)
        else:
            columns[name] = column
    return pa.table(columns)


def _decoded(rows: pa.Table) -> pa.Table:
    """Return rows without dictionaries, which differ between batches."""
    for index, column in enumerate(rows.columns):
        if pa.types.is_dictionary(column.type):
            values = column.cast(column.type.value_type)
            rows = rows.set_column(index, rows.schema.names[index], values)
    return rows


def _with_equal_floats(rows: pa.Table, keys: Sequence[str]) -> pa.Table:
    """Return rows with one zero and one NaN in key columns, as keys are compared."""
    for index, name in enumerate(keys):
        column = rows.column(name)
        if pa.types.is_float16(column.type):  # Arrow has no functions of these
            wide = _with_equal_floats(pa.table({name: column.cast(pa.float32())}), [name])
            rows = rows.set_column(index, name, wide.column(name).cast(column.type))
        elif pa.types.is_floating(column.type):
            nan = pa.scalar(float("nan"), column.type)
            equal = pc.if_else(pc.is_nan(column), nan, pc.add(column, pa.scalar(0.0, column.type)))
            rows = rows.set_column(index, name, equal)
    return rows
