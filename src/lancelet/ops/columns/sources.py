"""Where the values of new columns come from.

Expressions   {"b": "a + 1"}              computed from the columns there are
Function      a function over batches     called with the live rows, batch by batch
Rows          a stream of batches         one row for each live row, in the order of the table
Nulls         a schema                    null in every row, so that nothing is written
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TypeAlias

import pyarrow as pa

from lancelet.ops.columns.checkpoint import BatchUDFCheckpoint
from lancelet.ops.rows import RowStream
from lancelet.query.compile import ExpressionLike
from lancelet.values import dataclass

BATCH_ROWS = 8192
"""The rows that a function is given at a time, unless the caller says."""


@dataclass(frozen=True, slots=True)
class Expressions:
    """Columns that are computed from others; names with dots go into structs that are there."""

    columns: Mapping[str, ExpressionLike]
    batch_size: int | None = None


@dataclass(frozen=True, slots=True, eq=False)
class Function:
    """Columns that a function returns, given batches of the columns it reads (None is all)."""

    call: Callable[[pa.RecordBatch], pa.RecordBatch]
    schema: pa.Schema
    reads: tuple[str, ...] | None = None
    batch_size: int = BATCH_ROWS
    checkpoint: BatchUDFCheckpoint | None = None


@dataclass(frozen=True, slots=True, eq=False)
class Rows:
    """Columns that are there already, row by row as the table has its live rows."""

    stream: RowStream


@dataclass(frozen=True, slots=True)
class Nulls:
    """Columns without any value."""

    schema: pa.Schema


NewColumns: TypeAlias = Expressions | Function | Rows | Nulls
