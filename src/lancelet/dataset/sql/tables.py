"""SQL over several tables, given by name or as variables of the caller."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Callable, Mapping
from functools import partial
from types import FrameType
from typing import Any, Final, TypeAlias

import pyarrow as pa
import pyarrow.dataset

from lancelet import change
from lancelet.dataset.sql import duckdb_engine
from lancelet.dataset.sql.query import SqlQuery
from lancelet.dataset.write.write import dataset

SqlTable: TypeAlias = (
    "pyarrow.dataset.Dataset | pa.Table | pa.RecordBatchReader | str | os.PathLike[str]"
)
"""A table of a query: a dataset, its URI, or a pyarrow table or stream."""

_WORD: Final = re.compile(r"[^\W\d]\w*")


def sql(query: str, tables: Mapping[str, SqlTable] | None = None) -> SqlQuery:
    """Query several tables with SQL. Requires the extra `sql`.

    The query runs when the result is read.

    Args:
        query: One statement in DuckDB's SQL.
        tables: The tables by name. By default, table names refer to variables of the caller or of
            its module that are datasets, Arrow tables, or data frames of pandas or Polars.

    Returns:
        The query.

    Raises:
        ExpressionError: If the statement is invalid or refers to an unknown table.
        UnsupportedError: If DuckDB is not installed.

    Example:
        ```python
        stock = pa.table({"id": [1, 2], "stock": [5, 0]})
        lance.sql("select name, stock from dataset join stock using (id)").to_table()
        ```
    """
    if tables is None:
        tables = tables_of_caller(query, sys._getframe(1))  # noqa: SLF001 - as DuckDB does
    readable = {name: _table(given) for name, given in tables.items()}
    return SqlQuery(query, partial(duckdb_engine.run, query, readable))


def tables_of_caller(
    query: str, frame: FrameType, unwrap: Callable[[Any], Any] = lambda value: value
) -> dict[str, Any]:
    """Return the tables among the variables in the query, the innermost scope first.

    `unwrap` returns the table of a variable with another type.
    """
    found: dict[str, Any] = {}
    for scope in (frame.f_locals, frame.f_globals):
        by_lower_case = {name.lower(): name for name in scope}
        for word in dict.fromkeys(_WORD.findall(query)):
            name = word if word in scope else by_lower_case.get(word.lower())
            if name is None or word in found:
                continue
            value = unwrap(scope[name])
            if _has_rows(value):
                found[word] = value
    return found


def _has_rows(value: object) -> bool:
    is_frame = type(value).__module__.split(".")[0] in {"pandas", "polars"} and hasattr(
        value, "columns"
    )
    return is_frame or isinstance(value, pa.dataset.Dataset | pa.Table | pa.RecordBatchReader)


def _table(given: SqlTable) -> Any:
    if isinstance(given, str | os.PathLike):
        return dataset(given)
    if type(given).__module__.split(".")[0] in {"pandas", "polars"}:
        rows = change.rows.read_rows(given)
        return pa.Table.from_batches(rows.batches, rows.schema)
    return given
