"""What rows may be given as, under pylance's name for the module."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, TypeAlias

import pyarrow as pa

from lancelet.ops.rows import read_rows

ReaderLike: TypeAlias = Any
"""Rows: a table, batches, a reader, a scanner, a dataset, a data frame, or Python's own values."""

__all__ = ["ReaderLike"]


def _coerce_reader(data_obj: ReaderLike, schema: pa.Schema | None = None) -> pa.RecordBatchReader:
    """Return a reader of rows, converted to a schema if one is given."""
    rows = read_rows(data_obj, schema)
    batches: Iterable[pa.RecordBatch] = rows.batches
    return pa.RecordBatchReader.from_batches(rows.schema, batches)


def _is_materialized(data_obj: ReaderLike) -> bool:
    """Whether all rows are in memory, so that they can be read again."""
    name = f"{type(data_obj).__module__.partition('.')[0]}.{type(data_obj).__name__}"
    if name in {"pandas.DataFrame", "polars.DataFrame"}:
        return True
    if isinstance(data_obj, list):
        return bool(data_obj) and isinstance(data_obj[0], dict)
    return isinstance(data_obj, pa.Table | pa.RecordBatch | dict)
