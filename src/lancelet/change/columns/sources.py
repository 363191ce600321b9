"""Sources of the values of new columns.

The sources are:

    Expressions   {"b": "a + 1"}              computed from existing columns
    Function      a function over batches     called with the live rows, batch by batch
    Rows          a stream of batches         one row for each live row, in the order of the table
    Nulls         a schema                    null in every row; no files are written
    ComputedColumn                            an expression or function, stored with the table
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, TypeAlias

import pyarrow as pa

from lancelet.change.columns.checkpoint import BatchUDFCheckpoint
from lancelet.change.rows import RowStream
from lancelet.expr.compile import ExpressionLike
from lancelet.values import dataclass

BATCH_ROWS = 8192
"""The default number of rows per function call."""


@dataclass(frozen=True, slots=True)
class Expressions:
    """Columns computed from others; names with dots are fields of existing structs."""

    columns: Mapping[str, ExpressionLike]
    batch_size: int | None = None


@dataclass(frozen=True, slots=True, eq=False)
class Function:
    """Columns computed by a function from batches of the columns `reads` (None means all)."""

    call: Callable[[pa.RecordBatch], pa.RecordBatch]
    schema: pa.Schema
    reads: tuple[str, ...] | None = None
    batch_size: int = BATCH_ROWS
    checkpoint: BatchUDFCheckpoint | None = None


@dataclass(frozen=True, slots=True, eq=False)
class Rows:
    """Columns given as rows, in the order of the live rows of the table."""

    stream: RowStream


@dataclass(frozen=True, slots=True)
class Nulls:
    """Columns that are null in all rows."""

    schema: pa.Schema


@dataclass(frozen=True, slots=True)
class ComputedColumn:
    """A column whose definition is stored with the table.

    `value` is an expression, or a Python function that gets an Arrow array for each of `inputs` and
    returns an array of `data_type`. The table stores the name of a function, not its code.

    Attributes:
        name: The name of the column.
        value: An expression, or a function.
        inputs: The arguments of a function: columns or expressions.
        data_type: The type of the results of a function.
        is_deferred: Whether to add the column with nulls, all of which are out of date. Then
            `refresh_columns` computes the values, in slices or with a checkpoint.
    """

    name: str
    value: str | Callable[..., Any]
    inputs: tuple[str, ...] = ()
    data_type: pa.DataType | None = None
    is_deferred: bool = False


NewColumns: TypeAlias = Expressions | Function | Rows | Nulls | ComputedColumn
