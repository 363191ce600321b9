"""The accepted types of rows. Mirrors the pylance module of this name."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, TypeAlias

import pyarrow as pa

from lancelet.change.rows import read_rows

ReaderLike: TypeAlias = Any
"""Rows: a table, batches, a reader, a scanner, a dataset, a data frame, or Python values."""

__all__ = ["ReaderLike"]


def _coerce_reader(data_obj: ReaderLike, schema: pa.Schema | None = None) -> pa.RecordBatchReader:
    """Return a record batch reader of the rows, cast to `schema` if given."""
    rows = read_rows(data_obj, schema)
    batches: Iterable[pa.RecordBatch] = rows.batches
    return pa.RecordBatchReader.from_batches(rows.schema, batches)


def _is_materialized(data_obj: ReaderLike) -> bool:
    """Return whether all rows are in memory, so they can be read repeatedly."""
    name = f"{type(data_obj).__module__.partition('.')[0]}.{type(data_obj).__name__}"
    if name in {"pandas.DataFrame", "polars.DataFrame"}:
        return True
    if isinstance(data_obj, list):
        return bool(data_obj) and isinstance(data_obj[0], dict)
    return isinstance(data_obj, pa.Table | pa.RecordBatch | dict)
