"""Rows of a stream, handed out in the amounts that are asked for.

stream   [1 2] [3 4 5]
take 3   [1 2] [3]
take 1   [4]
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import pyarrow as pa

from lancelet.errors import LanceletError
from lancelet.ops.columns.fields import ColumnError, ColumnSourceError


class RowSupply:
    """Hands out the rows of a stream in order."""

    def __init__(
        self, batches: Iterator[pa.RecordBatch], names: Sequence[str] | None = None
    ) -> None:
        """Hand out the rows of `batches`, which have columns of these names if any are given."""
        self._names = None if names is None else tuple(names)
        self._batches = batches
        self._rest: pa.RecordBatch | None = None
        self._last: pa.RecordBatch | None = None

    def take(self, num_rows: int) -> Iterator[pa.RecordBatch]:
        """Yield the next rows, as batches of any size."""
        while num_rows:
            batch = self._next() if self._rest is None else self._rest
            if batch is None:
                raise ColumnError(
                    "Stream ended before producing values for all rows in dataset",
                    missing=num_rows,
                )
            count = min(num_rows, batch.num_rows)
            self._rest = batch.slice(count) if count < batch.num_rows else None
            num_rows -= count
            self._last = batch
            yield batch.slice(0, count)

    def take_batch(self, num_rows: int) -> pa.RecordBatch:
        """Return the next rows as one batch."""
        if not num_rows:
            return self._peek().slice(0, 0)
        batches = list(self.take(num_rows))
        return batches[0] if len(batches) == 1 else pa.concat_batches(batches)

    def check_ended(self) -> None:
        """Raise if there are more rows than were asked for."""
        if self._rest is not None or self._next() is not None:
            raise ColumnError("Stream produced more values than expected for dataset")

    def _peek(self) -> pa.RecordBatch:
        """Return some batch of the stream, without taking rows from it."""
        if self._rest is None:
            self._rest = self._next()
        batch = self._last if self._rest is None else self._rest
        if batch is None:
            raise ColumnError("Stream ended before producing values for all rows in dataset")
        return batch

    def _next(self) -> pa.RecordBatch | None:
        try:
            batch = next((batch for batch in self._batches if batch.num_rows), None)
        except LanceletError:
            raise
        except Exception as error:
            raise ColumnSourceError(f"the stream of new columns failed: {error}") from error
        if batch is not None and self._names not in {None, tuple(batch.schema.names)}:
            raise ColumnError(
                "the field names of a batch are not those of the stream",
                expected=self._names,
                found=batch.schema.names,
            )
        return batch
