"""From what a caller passes to expressions that are ready to run.

    "age > 30 AND 1 = 1"       parsed, bound to the schema, simplified:  age > 30

The one door into this package for scans: a filter is SQL text, an expression of ours or one of
pyarrow; a projection maps names to SQL.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import lru_cache
from typing import Final, TypeAlias

import pyarrow as pa
import pyarrow.compute as pc

from lancelet.errors import ExpressionError, InternalError
from lancelet.file.arguments import ArgumentTypeError
from lancelet.query.arrow_expression import ArrowExpressionError, from_arrow
from lancelet.query.bind import bind_filter, bind_value
from lancelet.query.coercion import plain
from lancelet.query.evaluate import evaluate
from lancelet.query.expression import And, Bound, Call, Expression, Literal
from lancelet.query.operands import Source
from lancelet.query.parse import parse_with_source
from lancelet.query.simplify import simplify, simplify_filter
from lancelet.query.traversal import columns_of, walk

Writable: TypeAlias = "str | Expression | pc.Expression"
"""What a caller may pass as an expression."""

SHORT_TEXT: Final = 4096
"""A longer text is parsed and compiled again each time: what it compiles to may be large."""


def compile_filter(filter_: Writable, schema: pa.Schema) -> Expression:
    """Return a filter bound to a schema and simplified.

    >>> schema = pa.schema([("age", pa.int32())])
    >>> str(compile_filter("age > 30.5 AND 1 = 1", schema))
    'age > 30'
    """
    with _of_some_depth():
        expression, source = _read(filter_)
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
        _rehearse(bound, schema)
    return bound


@contextmanager
def _of_some_depth() -> Iterator[None]:
    """Say of an expression that is too deep to be walked that it is."""
    try:
        yield
    except RecursionError:
        raise ExpressionError(
            "the expression chains too many operators; compute parts of it as columns, or write "
            "a list as IN (...)"
        ) from None


@lru_cache(maxsize=256)
def is_lasting(text: str) -> bool:
    """Say whether text means the same whenever it is compiled, which `now()` does not.

    >>> is_lasting("age > 30 AND name IN ('a', 'b')"), is_lasting("at < now()")
    (True, False)
    """
    expression, _ = _read(text)
    return not any(isinstance(part, Call) for part in walk(expression))


def compile_value(value: Writable, schema: pa.Schema) -> Bound:
    """Return a computed column bound to a schema and simplified.

    The type is that of the values, which for half floats may be the one they are computed in.
    """
    with _of_some_depth():
        expression, source = _read(value)
        bound = bind_value(expression, schema, source=source)
        simple = simplify(bound.expression)
        found = _rehearse(simple, schema)
    if plain(found) != plain(bound.data_type):
        raise InternalError(
            "an expression computes another type than it was bound to",
            expression=str(simple),
            bound=str(bound.data_type),
            computed=str(found),
        )
    return Bound(simple, found)


def both(filter_: Writable, other: Expression) -> Expression:
    """Return the filter that keeps rows which two others keep, the first as a caller wrote it."""
    expression, _ = _read(filter_)
    return And((expression, other))


def compile_columns(columns: Mapping[str, Writable], schema: pa.Schema) -> dict[str, Bound]:
    """Return computed columns bound to a schema, by the name each shall have."""
    return {name: compile_value(text, schema) for name, text in columns.items()}


def _rehearse(expression: Expression, schema: pa.Schema) -> pa.DataType:
    """Compute an expression over no rows, so that a missing kernel shows before any is read."""
    names = {path[0] for path in columns_of(expression)}
    fields = [field for field in schema if field.name in names]
    nothing = [pa.nulls(0, field.type) for field in fields]
    return evaluate(expression, pa.RecordBatch.from_arrays(nothing, schema=pa.schema(fields))).type


_parse_short = lru_cache(maxsize=32)(parse_with_source)
"""Whether a text is lasting and what it compiles to are asked one after the other."""


def _read(written: Writable) -> tuple[Expression, Source]:
    if isinstance(written, str):
        return _parse_short(written) if len(written) <= SHORT_TEXT else parse_with_source(written)
    if isinstance(written, pc.Expression):
        return from_arrow(written), Source("")
    if not isinstance(written, Expression):
        raise ArgumentTypeError(
            "an expression is text in SQL, or an expression of pyarrow",
            found=type(written).__name__,
        )
    return written, Source("")
