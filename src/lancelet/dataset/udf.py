"""Functions of the caller that make columns, called with batches of the rows there are."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any

import pyarrow as pa

from lancelet import ops
from lancelet.errors import InvalidInputError


class BatchUDF:
    """A function that makes columns."""

    def __init__(
        self,
        func: Callable[[pa.RecordBatch], Any],
        output_schema: pa.Schema | None = None,
        checkpoint_file: str | os.PathLike[str] | None = None,
    ) -> None:
        """Wrap a function.

        Args:
            func: Takes a batch, and returns a batch or a data frame with as many rows.
            output_schema: What it returns; by default, what it returns for the first row.
            checkpoint_file: Keeps results, so that a job that was killed goes on where it was.
        """
        self.func = func
        self.output_schema = output_schema
        self.cache = (
            None
            if checkpoint_file is None
            else ops.columns.checkpoint.BatchUDFCheckpoint(checkpoint_file)
        )

    def __call__(self, batch: pa.RecordBatch) -> Any:
        """Call the function itself, as tests of it would."""
        return self.func(batch)

    def call_checked(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """Return what the function makes of a batch, which must be what it is said to make."""
        result = as_batch(self.func(batch))
        if result.schema != self.output_schema:
            raise ops.columns.fields.ColumnError(
                "Output schema of function does not match the expected schema",
                expected=str(self.output_schema),
                found=str(result.schema),
            )
        return result


def batch_udf(
    output_schema: pa.Schema | None = None,
    checkpoint_file: str | os.PathLike[str] | None = None,
) -> Callable[[Callable[[pa.RecordBatch], Any]], BatchUDF]:
    """Make a function one that `LanceDataset.add_columns` takes; see `BatchUDF`."""

    def wrap(func: Callable[[pa.RecordBatch], Any]) -> BatchUDF:
        return BatchUDF(func, output_schema, checkpoint_file)

    return wrap


def as_batch(result: Any) -> pa.RecordBatch:
    """Return what a function returned as a batch: it may be a table or a data frame too."""
    if isinstance(result, pa.RecordBatch):
        return result
    if isinstance(result, pa.Table):
        batches = result.combine_chunks().to_batches()
        return batches[0] if batches else pa.RecordBatch.from_pylist([], schema=result.schema)
    if type(result).__module__.split(".")[0] == "pandas":
        return pa.RecordBatch.from_pandas(result)
    raise InvalidInputError(
        "a function must return a batch, a table or a data frame", found=str(type(result))
    )
