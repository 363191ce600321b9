"""What callers pass as new columns, turned into what operations take."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from lancelet import ops
from lancelet.dataset.udf import BatchUDF, as_batch
from lancelet.errors import InvalidInputError
from lancelet.query.execute import execute
from lancelet.query.plan import plan_scan
from lancelet.query.scan_options import ScanOptions
from lancelet.table.snapshot import Snapshot

if TYPE_CHECKING:
    from lancelet.ops.columns.sources import Function, NewColumns
    from lancelet.ops.rows import RowStream


class TransformTypeError(InvalidInputError, TypeError):
    """What was passed as new columns is of no type that can be that."""


def new_columns_of(
    transforms: Any,
    snapshot: Snapshot,
    read_columns: Sequence[str] | None = None,
    reader_schema: pa.Schema | None = None,
    batch_size: int | None = None,
) -> NewColumns:
    """Return where the values of new columns come from."""
    match transforms:
        case pa.Schema():
            return ops.columns.sources.Nulls(transforms)
        case pa.Field():
            return ops.columns.sources.Nulls(pa.schema([transforms]))
        case [pa.Field(), *_]:
            return ops.columns.sources.Nulls(pa.schema(transforms))
        case BatchUDF():
            return _function(transforms, snapshot, read_columns, batch_size)
        case dict():
            return ops.columns.sources.Expressions(_checked(transforms), batch_size)
    if callable(transforms):
        return _plain_function(transforms, snapshot, read_columns, batch_size)
    return ops.columns.sources.Rows(_rows(transforms, reader_schema))


def _function(
    udf: BatchUDF, snapshot: Snapshot, reads: Sequence[str] | None, batch_size: int | None
) -> Function:
    if udf.output_schema is None:
        udf.output_schema = as_batch(udf(_first_row(snapshot, reads))).schema
    return ops.columns.sources.Function(
        udf.call_checked,
        udf.output_schema,
        None if reads is None else tuple(reads),
        batch_size or ops.columns.sources.BATCH_ROWS,
        udf.cache,
    )


def _plain_function(
    function: Callable[[pa.RecordBatch], Any],
    snapshot: Snapshot,
    reads: Sequence[str] | None,
    batch_size: int | None,
) -> Function:
    """Return a function as a source; what it returns for the first row says its columns."""
    sample = _first_row(snapshot, reads)
    try:
        schema = as_batch(function(sample)).schema
    except Exception as error:
        # Whatever a caller's function raises on a batch means that it is none to make columns.
        raise TransformTypeError(
            "transforms must be a BatchUDF, dict, map function, or ReaderLike value, but this "
            f"one is callable and gave an error when called with a batch: {error}",
            type=str(type(function)),
        ) from error
    return _function(BatchUDF(function, schema), snapshot, reads, batch_size)


def _first_row(snapshot: Snapshot, reads: Sequence[str] | None) -> pa.RecordBatch:
    columns = None if reads is None else tuple(reads)
    plan = plan_scan(snapshot, ScanOptions(columns=columns, limit=1))
    nothing = pa.RecordBatch.from_pylist([], schema=plan.schema)
    return next(execute(plan), nothing)


def _rows(data: Any, schema: pa.Schema | None) -> RowStream:
    is_plain = isinstance(data, Iterator | list | tuple) and not isinstance(
        data, pa.RecordBatchReader
    )
    if schema is None and is_plain:
        raise InvalidInputError("Must provide schema to write dataset from RecordBatch iterable")
    try:
        return ops.rows.read_rows_of(data, schema)
    except InvalidInputError as error:
        raise TransformTypeError(
            "transforms must be a BatchUDF, dict, map function, or ReaderLike value",
            type=str(type(data)),
        ) from error


def _checked(expressions: Mapping[Any, Any]) -> Mapping[str, str]:
    for name, written in expressions.items():
        if not isinstance(name, str):
            raise TransformTypeError(f"Column names must be a string. Got {type(name)}")
        if not isinstance(written, str):
            raise TransformTypeError(f"Column expressions must be a string. Got {type(written)}")
    return expressions
