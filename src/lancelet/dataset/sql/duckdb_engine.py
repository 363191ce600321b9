"""Runs statements over several tables with DuckDB.

DuckDB reads a `LanceDataset` as a pyarrow dataset: it requests the columns of the statement and
pushes down the supported conditions. Rows are streamed.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any, Final

import pyarrow as pa

from lancelet.dataset.sql.database import duckdb_module
from lancelet.dataset.sql.errors import SqlError
from lancelet.dataset.sql.prepared import Prepared, prepare, release
from lancelet.errors import similar_names

TABLES_HINT: Final = (
    "Tables are datasets and data frames in variables of the caller, or entries of `tables`"
)
_WIDE: Final = frozenset({"HUGEINT", "UHUGEINT"})


def run(
    query: str, tables: Mapping[str, Any], batch_size: int
) -> tuple[pa.Schema, Iterator[pa.RecordBatch]]:
    """Return the schema and the rows of a statement over tables.

    Raises:
        SqlError: If the statement cannot be parsed, planned or executed.
        UnsupportedError: If DuckDB is not installed.
    """
    duckdb = duckdb_module()
    if not query.strip():
        raise SqlError("the query is empty; pass a statement such as SELECT ... FROM table")
    try:
        prepared = prepare(query, tables)
    except duckdb.Error as error:
        raise _sql_error(error, query, tables) from error
    relation = prepared.relation
    if relation is None:  # a statement without a result
        prepared.close()
        return pa.schema([]), iter(())
    # Its name changed with DuckDB 2.
    read = getattr(relation, "to_arrow_reader", None) or relation.fetch_arrow_reader
    try:
        reader: pa.RecordBatchReader = read(batch_size)
    except duckdb.Error as error:
        prepared.close()
        raise _sql_error(error, query, tables) from error
    schema = _narrowed_schema(reader.schema, prepared)
    return schema, _rows(reader, schema, prepared)


def _narrowed_schema(schema: pa.Schema, prepared: Prepared) -> pa.Schema:
    """Return a schema with int64 for DuckDB's 128-bit integers, the type of its sums."""
    for index, each in enumerate(prepared.relation.types):
        if str(each) in _WIDE:
            schema = schema.set(index, schema.field(index).with_type(pa.int64()))
    return schema


def _rows(
    reader: pa.RecordBatchReader, schema: pa.Schema, prepared: Prepared
) -> Iterator[pa.RecordBatch]:
    is_done = False
    try:
        for batch in reader:
            yield batch if schema is reader.schema else _narrowed(batch, schema)
        is_done = True
    finally:
        (release if is_done else Prepared.close)(prepared)


def _narrowed(batch: pa.RecordBatch, schema: pa.Schema) -> pa.RecordBatch:
    try:
        columns = [
            column.cast(field.type) if column.type != field.type else column
            for field, column in zip(schema, batch.columns, strict=True)
        ]
    except pa.ArrowInvalid as error:
        raise SqlError(
            "an integer does not fit 64 bits; cast it to DOUBLE or DECIMAL in the query"
        ) from error
    return pa.RecordBatch.from_arrays(columns, schema=schema)


def _sql_error(error: Exception, query: str, tables: Mapping[str, Any]) -> SqlError:
    message = str(error)
    missing = re.search(r"Table with name (\S+) does not exist", message)
    if missing is not None:
        # DuckDB would suggest internal tables.
        message = (
            f"{message.splitlines()[0]} {TABLES_HINT}{similar_names(missing[1], sorted(tables))}"
        )
    elif "file system operations are disabled" in message:
        message = (
            f"{message}. Queries read tables and data frames only; open files first, for example "
            "with pyarrow.dataset.dataset(path), or convert them with `lancelet convert`"
        )
    return SqlError(message, query=query, tables=sorted(tables))
