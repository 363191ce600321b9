"""From what a caller passes to expressions that are ready to run.

    "age > 30 AND 1 = 1"       parsed, bound to the schema, simplified:  age > 30

The one door into this package for scans: a filter is SQL text, an expression of ours or one of
pyarrow; a projection maps names to SQL.
"""

from __future__ import annotations

from collections.abc import Mapping

import pyarrow as pa

from lancelet.query.bind import bind_filter, bind_value
from lancelet.query.bound import Bound
from lancelet.query.expression import Expression
from lancelet.query.operands import Source
from lancelet.query.parse import parse_with_source
from lancelet.query.simplify import simplify, simplify_filter


def compile_filter(text: str | Expression, schema: pa.Schema) -> Expression:
    """Return a filter bound to a schema."""
    expression, source = parse_with_source(text) if isinstance(text, str) else (text, Source(""))
    return simplify_filter(bind_filter(expression, schema, source=source))


def compile_value(text: str | Expression, schema: pa.Schema) -> Bound:
    """Return a computed column bound to a schema."""
    expression, source = parse_with_source(text) if isinstance(text, str) else (text, Source(""))
    bound = bind_value(expression, schema, source=source)
    return Bound(simplify(bound.expression), bound.data_type)


def compile_columns(columns: Mapping[str, str | Expression], schema: pa.Schema) -> dict[str, Bound]:
    """Return computed columns bound to a schema, by the name each shall have."""
    return {name: compile_value(text, schema) for name, text in columns.items()}
