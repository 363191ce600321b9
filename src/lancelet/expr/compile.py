"""Compile filters and projections to bound, simplified expressions.

    "age > 30 AND 1 = 1"       parsed, bound to the schema, simplified:  age > 30

Scans enter this package here. A filter is SQL text, an `Expression` or a pyarrow expression; a
projection maps names to SQL.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import lru_cache
from typing import Final, TypeAlias

import pyarrow as pa
import pyarrow.compute as pc

from lancelet.arguments import ArgumentTypeError
from lancelet.errors import ExpressionError, InternalError
from lancelet.expr.arrow_expression import ArrowExpressionError, from_arrow
from lancelet.expr.bind import bind_filter, bind_value
from lancelet.expr.coercion import plain
from lancelet.expr.evaluate import evaluate, is_per_row
from lancelet.expr.expression import And, Bound, Call, Expression, Literal
from lancelet.expr.functions.times import current
from lancelet.expr.operands import Source
from lancelet.expr.parse import parse_with_source
from lancelet.expr.simplify import simplify, simplify_filter
from lancelet.expr.traversal import columns_of, walk

ExpressionLike: TypeAlias = "str | Expression | pc.Expression"
"""The types accepted as an expression."""

SHORT_TEXT: Final = 4096
"""Longer texts are not cached, because their compiled form may be large."""


def compile_filter(filter_: ExpressionLike, schema: pa.Schema) -> Expression:
    """Compile a filter: bind it to a schema and simplify it.

    >>> schema = pa.schema([("age", pa.int32())])
    >>> str(compile_filter("age > 30.5 AND 1 = 1", schema))
    'age > 30'
    """
    with _translate_recursion_errors():
        expression, source = _parse(filter_)
        if isinstance(expression, Literal) and pa.types.is_null(expression.data_type):
            raise ExpressionError(
                "the filter NULL does not return a boolean; leave the filter out to read all rows, "
                "or use FALSE to read none"
            )
        try:
            bound = simplify_filter(bind_filter(expression, schema, source=source))
        except ExpressionError as error:
            if isinstance(filter_, pc.Expression):
                raise ArrowExpressionError(error.message, **error.facts) from error
            raise
        _infer_type(bound, schema)
    return bound


@contextmanager
def _translate_recursion_errors() -> Iterator[None]:
    """Convert `RecursionError` to `ExpressionError`."""
    try:
        yield
    except RecursionError:
        raise ExpressionError(
            "the expression is nested too deeply; compute parts of it as columns, or write a "
            "list as IN (...)"
        ) from None


@lru_cache(maxsize=256)
def is_deterministic(text: str) -> bool:
    """Return whether the result of compiling a text is constant; `now()` is not.

    >>> is_deterministic("age > 30 AND name IN ('a', 'b')"), is_deterministic("at < now()")
    (True, False)
    """
    expression, _ = _parse(text)
    return not any(isinstance(part, Call) for part in walk(expression))


@lru_cache(maxsize=256)
def is_repeatable(text: str) -> bool:
    """Return whether a text has the same results whenever it is evaluated.

    >>> is_repeatable("lower(name) = 'ann'"), is_repeatable("at < now()"), is_repeatable("random()")
    (True, False, False)
    """
    expression, _ = _parse(text)
    calls = (part for part in walk(expression) if isinstance(part, Call) and not part.arguments)
    return not any(is_per_row(call) or current(call.function) is not None for call in calls)


def compile_value(value: ExpressionLike, schema: pa.Schema) -> Bound:
    """Compile a computed column: bind it to a schema and simplify it.

    The type is that of the computed values; half floats may be computed as floats.
    """
    with _translate_recursion_errors():
        expression, source = _parse(value)
        bound = bind_value(expression, schema, source=source)
        simple = simplify(bound.expression)
        data_type = _infer_type(simple, schema)
    if plain(data_type) != plain(bound.data_type):
        raise InternalError(
            "the computed type differs from the bound type of an expression",
            expression=str(simple),
            bound=str(bound.data_type),
            computed=str(data_type),
        )
    return Bound(simple, data_type)


def conjunction(filter_: ExpressionLike, other: Expression) -> Expression:
    """Return the conjunction of two filters."""
    expression, _ = _parse(filter_)
    return And((expression, other))


def compile_columns(columns: Mapping[str, ExpressionLike], schema: pa.Schema) -> dict[str, Bound]:
    """Compile computed columns by name."""
    return {name: compile_value(text, schema) for name, text in columns.items()}


def _infer_type(expression: Expression, schema: pa.Schema) -> pa.DataType:
    """Evaluate an expression on an empty batch, which detects missing kernels before reading."""
    names = sorted({path[0] for path in columns_of(expression)})
    fields = [schema.field(index) for name in names for index in schema.get_all_field_indices(name)]
    empty_columns = [pa.nulls(0, field.type) for field in fields]
    return evaluate(
        expression, pa.RecordBatch.from_arrays(empty_columns, schema=pa.schema(fields))
    ).type


_parse_short = lru_cache(maxsize=32)(parse_with_source)
"""Cached because `is_deterministic` and the compilation parse the same text in succession."""


def _parse(value: ExpressionLike) -> tuple[Expression, Source]:
    if isinstance(value, str):
        return _parse_short(value) if len(value) <= SHORT_TEXT else parse_with_source(value)
    if isinstance(value, pc.Expression):
        return from_arrow(value), Source("")
    if not isinstance(value, Expression):
        raise ArgumentTypeError(
            "an expression must be SQL text or a pyarrow expression",
            found=type(value).__name__,
        )
    return value, Source("")
