"""Partial aggregation in the tasks that read a table.

    SELECT k, sum(price * n), count(*) FROM t WHERE day > DATE '2024-01-01' GROUP BY k

    each batch of a task    k, sum of price * n, count of rows      one row per k of the batch
    the query               SELECT k, sum(p0), coalesce(sum(p1), 0) FROM partial GROUP BY k

Only aggregates whose result equals Spark's are pushed down: counts, minimum and maximum, and sums
and averages of integers and decimals. Sums of floats depend on the order of addition and are left
to Spark. Intermediate values are 64-bit integers; a batch in which values or sums could overflow is
passed on with one partial result per row.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import field
from typing import Any, Final, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as kinds
from sqlglot import exp

from lancelet.encodings.arrow import to_arrow
from lancelet.spark.convert import convert_column
from lancelet.spark.sql.analysis import ROWWISE, TableColumns, Use
from lancelet.spark.sql.predicates import is_comparable, is_whole
from lancelet.values import dataclass

Int64s: TypeAlias = npt.NDArray[np.int64]

_DIGITS: Final = {8: 3, 16: 5, 32: 10, 64: 20}
_INT64: Final = 1 << 63
_DECIMAL_MAX: Final = 38
_LONG_DIGITS: Final = 18
_EXACT_DOUBLE: Final = 1 << 53
_MERGING: Final = re.compile(r"\b(?:sum|min|max)\((__lancelet_\d+)\)")


@dataclass(frozen=True, slots=True)
class Number:
    """An exact value of each row: a column, a constant, or a sum or product of numbers.

    `precision` and `scale` are those of Spark's decimal. `max_digits` is the largest absolute
    value of its unscaled digits.
    """

    kind: str
    precision: int
    scale: int
    max_digits: int
    column: str = ""
    value: int = 0
    parts: tuple[Number, ...] = ()
    is_decimal: bool = True

    @property
    def columns(self) -> frozenset[str]:
        """The input columns."""
        own = {self.column} if self.column else set()
        return frozenset(own.union(*(each.columns for each in self.parts)))


@dataclass(frozen=True, slots=True)
class Partial:
    """A column of partial results: `rows`, `valid`, `sum`, `min`, `max` or `value`."""

    kind: str
    column: str = ""
    number: Number | None = None


@dataclass(frozen=True, slots=True)
class Aggregation:
    """The partial aggregates of a SELECT over one table, and the expressions that merge them.

    Attributes:
        keys: The grouping columns.
        partials: The partial aggregates of each group.
        merged: For each aggregate, its range in the text and the expression that replaces it.
        select: The SELECT; absent in tasks.
    """

    keys: tuple[str, ...]
    partials: tuple[Partial, ...]
    merged: tuple[tuple[int, int, str], ...] = ()
    select: exp.Select | None = field(default=None, compare=False)

    @property
    def columns(self) -> tuple[str, ...]:
        """The input columns."""
        read = dict.fromkeys(self.keys)
        for each in self.partials:
            names = each.number.columns if each.number is not None else {each.column} - {""}
            read |= dict.fromkeys(sorted(names))
        return tuple(read)

    @property
    def is_count(self) -> bool:
        """Whether all partial aggregates are row counts."""
        return not self.keys and all(each.kind == "rows" for each in self.partials)

    @property
    def is_repeated(self) -> bool:
        """Whether there are results for each value of a column."""
        return any(each.kind == "value" for each in self.partials)

    @property
    def can_use_statistics(self) -> bool:
        """Whether file statistics can answer it: row counts, minimum and maximum without keys."""
        kinds = {each.kind for each in self.partials}
        return not self.keys and kinds <= {"rows", "valid", "min", "max"}

    @property
    def can_be_final(self) -> bool:
        """Whether the SELECT can use one row per group without GROUP BY."""
        given = {} if self.select is None else self.select.args
        return self.select is not None and not self.is_repeated and not given.get("having")

    @property
    def has_unnamed(self) -> bool:
        """Whether a result column gets its name from an aggregate."""
        shown = [] if self.select is None else self.select.expressions
        return any(
            not isinstance(each, exp.Alias) and each.find(exp.AggFunc) is not None for each in shown
        )

    def schema(self, table: TableColumns) -> pa.Schema:
        """Return the schema of partial results."""
        fields = {each.name: each for each in table.stored}
        found = [fields[name].with_nullable(True) for name in self.keys]
        for number, each in enumerate(self.partials):
            found.append(pa.field(f"__lancelet_{number}", _partial_type(each, fields)))
        return pa.schema(found)


def final_text(merged: str) -> str:
    """Return the expression that replaces an aggregate over groups of one row each.

    >>> final_text("coalesce(sum(__lancelet_0), 0L)")
    'coalesce(__lancelet_0, 0L)'
    """
    return _MERGING.sub(r"\1", merged)


def final_rows(aggregation: Aggregation, partials: pa.Table) -> pa.Table | None:
    """Merge partial results to one row per group; None if sums may overflow."""
    if not partials.num_rows:
        return None
    aggregates = []
    for position, each in enumerate(aggregation.partials, len(aggregation.keys)):
        name = partials.column_names[position]
        kind = "sum" if each.kind in {"rows", "valid"} else each.kind
        aggregates.append((name, kind))
        if kind != "sum":
            continue
        column = partials.column(position)
        limit = _INT64
        if kinds.is_decimal(column.type):
            column = column.cast(pa.decimal128(_DECIMAL_MAX, column.type.scale))
            partials = partials.set_column(position, name, column)
            limit = 10 ** (_DECIMAL_MAX - column.type.scale)
        bounds = pc.min_max(column).as_py()
        if max(abs(each or 0) for each in bounds.values()) * len(column) >= limit:
            return None
    done = partials.group_by(list(aggregation.keys), use_threads=False).aggregate(aggregates)
    labels = [*aggregation.keys, *(f"{name}_{kind}" for name, kind in aggregates)]
    return done.select(labels).rename_columns(partials.column_names)


def find_aggregation(
    node: exp.Table, table: TableColumns, use: Use, *, num_rows: int
) -> Aggregation | None:
    """Return the partial aggregation for the SELECT that reads a table, or None."""
    select = node.parent_select
    if not use.is_exact or not isinstance(select, exp.Select):
        return None
    given = {key for key, value in select.args.items() if value}
    if given - {"expressions", "from_", "where", "group", "having", "order", "limit", "with_"}:
        return None
    finder = _Finder(node, table, num_rows)
    keys = finder.keys(select)
    if keys is None:
        return None
    partials: dict[Partial, int] = {}
    merged = []
    aggregates = list(_aggregates(select))
    if not aggregates and not keys:
        return None
    for each in aggregates:
        made = finder.merge_expression(each, partials)
        start, stop = each.meta.get("start"), each.meta.get("end")
        if made is None or start is None or stop is None or not _is_top_level(each):
            return None
        merged.append((int(start), int(stop) + 1, made))
    is_repeated = any(each.kind == "value" for each in partials)
    if is_repeated and any(each.kind not in {"value", "min", "max"} for each in partials):
        return None  # other aggregates would count the rows of each distinct value more than once
    if sum(each.kind == "value" for each in partials) > 1:
        return None
    if not _has_simple_context(select, set(map(id, aggregates)), finder, keys):
        return None
    return Aggregation(keys, tuple(partials), tuple(merged), select)


def _aggregates(select: exp.Select) -> Iterator[exp.AggFunc]:
    for name in ("expressions", "having", "order"):
        value = select.args.get(name)
        for root in value if isinstance(value, list) else [value]:
            if root is not None:
                yield from (each for each in root.find_all(exp.AggFunc))


def _is_top_level(node: exp.Expression) -> bool:
    """Return whether an aggregate has no filter or window and is not nested in another."""
    parent = node.parent
    while parent is not None and not isinstance(parent, exp.Select):
        if isinstance(parent, (exp.Filter, exp.Window, exp.AggFunc, exp.WithinGroup)):
            return False
        parent = parent.parent
    return True


def _has_simple_context(
    select: exp.Select, aggregates: set[int], finder: _Finder, keys: Sequence[str]
) -> bool:
    """Return whether expressions contain only aggregates, keys, aliases and constants."""
    aliases = {each.alias.lower() for each in select.expressions if isinstance(each, exp.Alias)}
    names = {each.lower() for each in keys}
    roots = [*select.expressions]
    for name in ("having", "order"):
        if select.args.get(name) is not None:
            value = select.args[name]
            roots += value.expressions or [value.this]
    stack = [(each, number < len(select.expressions)) for number, each in enumerate(roots)]
    while stack:
        node, is_shown = stack.pop()
        if id(node) in aggregates:
            continue
        if not isinstance(node, ROWWISE) or isinstance(node, exp.Star):
            return False
        if isinstance(node, exp.Column):
            field = finder.find(node)
            is_key = field is not None and field.name.lower() in names
            is_alias = not is_shown and not node.table and node.name.lower() in aliases
            if not is_key and not (is_alias and field is None):
                return False
            continue
        stack += [(each, is_shown) for each in node.iter_expressions()]
    return True


@dataclass(frozen=True, slots=True)
class _Finder:
    node: exp.Table
    table: TableColumns
    num_rows: int

    def find(self, column: exp.Column) -> pa.Field | None:
        """Return the field of a column of the table, or None."""
        if column.args.get("db") or not isinstance(column.this, exp.Identifier):
            return None
        if column.table and column.table.lower() != self.node.alias_or_name.lower():
            return None
        return self.table.find(column.name)

    def keys(self, select: exp.Select) -> tuple[str, ...] | None:
        group = select.args.get("group")
        if group is None:
            return ()
        if {key for key, value in group.args.items() if value} - {"expressions"}:
            return None
        found = []
        for each in group.expressions:
            shown = each
            if isinstance(each, exp.Literal) and each.this.isdigit():
                number = int(each.this)
                if not 0 < number <= len(select.expressions):
                    return None
                shown = select.expressions[number - 1].unalias()
            field = self.find(shown) if isinstance(shown, exp.Column) else None
            if field is None or not _is_key(field.type):
                return None
            found.append(str(field.name))
        return tuple(dict.fromkeys(found))

    def merge_expression(self, node: exp.AggFunc, partials: dict[Partial, int]) -> str | None:
        """Return the expression that merges an aggregate, adding the partials that it needs."""

        def column(partial: Partial) -> str:
            return f"__lancelet_{partials.setdefault(partial, len(partials))}"

        def total(partial: Partial) -> str:
            return f"coalesce(sum({column(partial)}), 0L)"

        extra = {key for key, value in node.args.items() if value} - {"this", "big_int"}
        if extra:
            return None
        match node:
            case exp.Count(this=exp.Star() | exp.Literal()):
                return total(Partial("rows"))
            case exp.Count(this=exp.Column() as of):
                field = self.find(of)
                return None if field is None else total(Partial("valid", field.name))
            case exp.Count(this=exp.Distinct() as distinct):
                few = distinct.expressions
                of = few[0] if len(few) == 1 and not distinct.args.get("on") else None
                field = self.find(of) if isinstance(of, exp.Column) else None
                if field is None or not _is_key(field.type):
                    return None
                return f"count(DISTINCT {column(Partial('value', field.name))})"
            case exp.Min(this=exp.Column() as of) | exp.Max(this=exp.Column() as of):
                field = self.find(of)
                if field is None or not _is_key(field.type):
                    return None
                name = "min" if isinstance(node, exp.Min) else "max"
                return f"{name}({column(Partial(name, field.name))})"
            case exp.Sum() | exp.Avg():
                number = self.number(node.this)
                if number is None:
                    return None
                summed = Partial("sum", number=number)
                if isinstance(node, exp.Sum):
                    if not number.is_decimal:
                        return f"sum({column(summed)})" if number.kind == "column" else None
                    return f"CAST(sum({column(summed)}) AS {_sum_type(number)})"
                if number.kind != "column":
                    return None
                counted = f"nullif(sum({column(Partial('valid', number.column))}), 0L)"
                if not number.is_decimal:
                    is_exact = number.max_digits * self.num_rows < _EXACT_DOUBLE
                    return f"(sum({column(summed)}) / {counted})" if is_exact else None
                precision, scale = number.precision + 4, number.scale + 4
                spare = 24 - number.precision
                if precision > _DECIMAL_MAX or spare < 1 or 10**spare < 20 * self.num_rows:
                    return None
                whole = f"CAST(sum({column(summed)}) AS {_sum_type(number)})"
                return f"CAST({whole} / {counted} AS DECIMAL({precision}, {scale}))"
        return None

    def number(self, node: exp.Expression) -> Number | None:
        """Return an expression as an exact number with Spark's result type, or None."""
        match node:
            case exp.Paren():
                return self.number(node.this)
            case exp.Column():
                return self._column(node)
            case exp.Literal(is_string=False):
                return _constant(node.this)
            case exp.Mul() | exp.Add() | exp.Sub():
                left, right = self.number(node.left), self.number(node.right)
                return None if left is None or right is None else _combined(node, left, right)
        return None

    def _column(self, node: exp.Column) -> Number | None:
        field = self.find(node)
        if field is None:
            return None
        if is_whole(field.type):
            width = int(field.type.bit_width)
            most = 1 << (width - (0 if kinds.is_unsigned_integer(field.type) else 1))
            digits = _DIGITS[2 * width if kinds.is_unsigned_integer(field.type) else width]
            return Number("column", digits, 0, most, field.name, is_decimal=False)
        if kinds.is_decimal128(field.type) and field.type.precision <= _LONG_DIGITS:
            precision, scale = field.type.precision, field.type.scale
            if scale < 0:
                return None
            return Number("column", precision, scale, 10**precision - 1, field.name)
        return None


def _constant(text: str) -> Number | None:
    whole, _, rest = text.partition(".")
    if not (whole + rest).isdigit():
        return None
    value = int(whole + rest)
    digits = max(len(str(value)), len(rest))
    is_decimal = "." in text
    return Number("constant", digits, len(rest), value, value=value, is_decimal=is_decimal)


def _combined(node: exp.Binary, left: Number, right: Number) -> Number | None:
    if not (left.is_decimal or right.is_decimal):
        return None  # Spark computes these as integers, which may overflow
    if isinstance(node, exp.Mul):
        kind, scale = "product", left.scale + right.scale
        precision, most = left.precision + right.precision + 1, left.max_digits * right.max_digits
    else:
        kind = "sum" if isinstance(node, exp.Add) else "difference"
        scale = max(left.scale, right.scale)
        whole = max(left.precision - left.scale, right.precision - right.scale)
        precision = whole + scale + 1
        most = sum(each.max_digits * 10 ** (scale - each.scale) for each in (left, right))
    if precision > _DECIMAL_MAX:
        # If the precision is too large, Spark reduces the scale to at least six digits.
        scale_left = max(_DECIMAL_MAX - (precision - scale), min(scale, 6))
        if scale_left < scale:
            return None
        precision = _DECIMAL_MAX
    if most >= 10**_DECIMAL_MAX:
        return None
    return Number(kind, precision, scale, most, parts=(left, right))


def _sum_type(number: Number) -> str:
    return f"DECIMAL({min(_DECIMAL_MAX, number.precision + 10)}, {number.scale})"


def _is_key(data_type: pa.DataType) -> bool:
    """Return whether Spark and Arrow agree on equality and order of a type."""
    value = data_type.value_type if kinds.is_dictionary(data_type) else data_type
    return is_comparable(value) and not kinds.is_floating(value)


def _partial_type(partial: Partial, fields: Mapping[str, pa.Field]) -> pa.DataType:
    if partial.kind in {"rows", "valid"}:
        return pa.int64()
    if partial.number is None:
        return fields[partial.column].type
    if partial.number.is_decimal:
        # Spark sums decimals with few digits much faster.
        digits = _LONG_DIGITS if _is_long(partial.number) else _DECIMAL_MAX
        return pa.decimal128(digits, partial.number.scale)
    return pa.int64()


def _is_long(number: Number) -> bool:
    """Return whether all values fit into a 64-bit decimal."""
    return number.max_digits < 10**_LONG_DIGITS and number.scale <= _LONG_DIGITS


def aggregate_batch(
    aggregation: Aggregation, batch: pa.RecordBatch, schema: pa.Schema
) -> pa.RecordBatch:
    """Return the partial results of a batch; `schema` has the column types of Spark."""
    count = batch.num_rows
    columns = {
        name: convert_column(batch.column(name), field)
        for name, field in zip(aggregation.keys, schema, strict=False)
    }
    aggregates: list[tuple[str, str]] = []
    is_small = True
    for number, each in enumerate(aggregation.partials):
        name = f"p{number}"
        if each.kind == "rows":
            columns[name] = to_arrow(np.ones(count, np.int64))
            aggregates.append((name, "sum"))
        elif each.kind == "valid":
            columns[name] = batch.column(each.column).is_valid().cast(pa.int64())
            aggregates.append((name, "sum"))
        elif each.number is not None:
            values = _evaluate(each.number, batch)
            is_long = each.number.is_decimal and _is_long(each.number)
            limit = 10**_LONG_DIGITS if is_long else _INT64
            is_small = (
                is_small
                and isinstance(values[0], np.ndarray)
                and (values[1] * max(count, 1) < limit)
            )
            columns[name] = _numbers(each, *values)
            aggregates.append((name, "sum"))
        else:
            field = schema.field(len(aggregation.keys) + number)
            columns[name] = convert_column(batch.column(each.column), field)
            if each.kind == "value":
                continue
            aggregates.append((name, each.kind))
    keys = [name for name in columns if name not in {label for label, _ in aggregates}]
    table = pa.table(columns)
    if is_small:
        table = table.group_by(keys, use_threads=False).aggregate(aggregates)
        suffixes = dict(aggregates)
        labels = [f"{name}_{suffixes[name]}" if name in suffixes else name for name in columns]
        table = table.select(labels)
    table = table.combine_chunks()
    arrays = [_shown(table.column(index), field) for index, field in enumerate(schema)]
    return pa.RecordBatch.from_arrays(arrays, schema=schema)


def _shown(column: pa.ChunkedArray, field: pa.Field) -> pa.Array:
    chunks = column.chunks
    array = (
        chunks[0] if len(chunks) == 1 else pa.concat_arrays(chunks or [pa.nulls(0, column.type)])
    )
    if kinds.is_decimal128(field.type) and kinds.is_int64(array.type):
        return _decimals(array, field.type)
    return convert_column(array, field)


def _decimals(array: pa.Array, data_type: pa.DataType) -> pa.Array:
    """Return integers as unscaled values of decimals."""
    digits = np.zeros(len(array), np.int64)
    digits[:] = array.fill_null(0).to_numpy()
    wide = np.empty((len(array), 2), np.int64)
    wide[:, 0] = digits
    wide[:, 1] = digits >> 63
    validity = array.is_valid()
    mask = None if not array.null_count else validity.buffers()[1]
    return pa.Array.from_buffers(data_type, len(array), [mask, pa.py_buffer(wide)])


def _numbers(partial: Partial, values: Any, max_digits: int, valid: Any) -> pa.Array:
    """Return the values of rows; those beyond 64 bits as decimals."""
    del max_digits
    assert partial.number is not None
    if not isinstance(values, np.ndarray):
        scale = partial.number.scale
        texts = [None if value is None else f"{value}E-{scale}" for value in values]
        return pa.array(texts, pa.string()).cast(pa.decimal128(_DECIMAL_MAX, scale))
    if valid is None:
        return to_arrow(values)
    return pa.array(values, pa.int64(), mask=~valid)


def _evaluate(number: Number, batch: pa.RecordBatch) -> tuple[Any, int, Any]:
    """Return the unscaled digits of a number per row, their maximum, and the validity mask.

    Digits are an int64 array, or a list of integers if they may be larger.
    """
    valid = None
    for name in number.columns:
        column = batch.column(name)
        if column.null_count:
            column_valid = column.is_valid().to_numpy(zero_copy_only=False)
            valid = column_valid if valid is None else valid & column_valid
    loaded = {name: _digits(batch.column(name)) for name in number.columns}
    bounded = _bounded(number, loaded)
    if bounded is not None:
        values, most = bounded
        return np.broadcast_to(values, batch.num_rows), most, valid
    wide = {name: digits.tolist() for name, digits in loaded.items()}
    rows = [
        None if valid is not None and not valid[row] else _exact(number, wide, row)
        for row in range(batch.num_rows)
    ]
    return rows, number.max_digits, None


def _digits(array: pa.Array) -> Int64s:
    """Return the unscaled digits of an integer or decimal column, with zero for nulls."""
    if kinds.is_decimal128(array.type):
        buffer = array.buffers()[1]
        wide = np.frombuffer(buffer, np.int64).reshape(-1, 2)
        digits = wide[array.offset : array.offset + len(array), 0]
        if array.null_count:
            digits = np.where(array.is_valid().to_numpy(zero_copy_only=False), digits, 0)
        return digits
    filled = array.fill_null(0) if array.null_count else array
    values: Int64s = filled.cast(pa.int64()).to_numpy(zero_copy_only=False)
    return values


def _bounded(number: Number, loaded: Mapping[str, Int64s]) -> tuple[Any, int] | None:
    """Return digits and their largest absolute value; None if 64 bits may overflow."""
    if number.kind == "column":
        digits = loaded[number.column]
        if not len(digits):
            return digits, 0
        return digits, max(abs(int(digits.min())), abs(int(digits.max())))
    if number.kind == "constant":
        return (np.int64(number.value), number.value) if number.value < _INT64 else None
    parts = [_bounded(each, loaded) for each in number.parts]
    if parts[0] is None or parts[1] is None:
        return None
    (left, left_most), (right, right_most) = parts[0], parts[1]
    if number.kind == "product":
        most = left_most * right_most
        return (left * right, most) if most < _INT64 else None
    shifts = [10 ** (number.scale - each.scale) for each in number.parts]
    most = left_most * shifts[0] + right_most * shifts[1]
    if most >= _INT64:
        return None
    left, right = left * shifts[0], right * shifts[1]
    return (left + right if number.kind == "sum" else left - right), most


def _exact(number: Number, columns: Mapping[str, list[int]], row: int) -> int:
    if number.kind == "column":
        return columns[number.column][row]
    if number.kind == "constant":
        return number.value
    left, right = (_exact(each, columns, row) for each in number.parts)
    if number.kind == "product":
        return int(left * right)
    shifts = [10 ** (number.scale - each.scale) for each in number.parts]
    left, right = left * shifts[0], right * shifts[1]
    return int(left + right) if number.kind == "sum" else int(left - right)
