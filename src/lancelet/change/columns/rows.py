"""Compute columns from the live rows of a fragment, and extend the results to all rows.

    offsets   0 1 2 3 4       1 and 4 are deleted
    read      0 . 2 3 .       the three input rows of a function
    values    a   b c         the result of the function
    written   a a b c c       the values in the file

Deleted rows are not passed to functions, since their values may be invalid.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

import numpy as np
import pyarrow as pa

from lancelet.change.columns.expand import expand_field, expand_rows
from lancelet.change.columns.fields import ColumnError, ColumnSourceError
from lancelet.encodings.base import RowRange
from lancelet.errors import LanceletError
from lancelet.expr import expression as ex
from lancelet.format import logical_type
from lancelet.format.field import Field
from lancelet.format.fragment import Fragment
from lancelet.format.schema import Schema
from lancelet.rowids.deletion import DeletionVector
from lancelet.scan.execute import execute
from lancelet.scan.nodes.source import FragmentSource
from lancelet.scan.plan import ScanPlan
from lancelet.scan.projection import Projection
from lancelet.scan.scan_options import ScanOptions
from lancelet.table.snapshot import Snapshot

_LISTS = {*logical_type.LISTS, *logical_type.LARGE_LISTS}


def read_live(
    snapshot: Snapshot, fragment: Fragment, projection: Projection, batch_size: int | None = None
) -> Iterator[pa.RecordBatch]:
    """Yield the live rows of a fragment; all batches but the last have `batch_size` rows if set."""
    options = ScanOptions(
        columns=(),
        fragments=(int(fragment.id),),
        batch_size=batch_size,
        is_strict=batch_size is not None,
    )
    return execute(ScanPlan(snapshot, options, projection, ex.TRUE, ()))


def expand(
    snapshot: Snapshot,
    fragment: Fragment,
    stored: Schema,
    guides: Sequence[Field],
    batches: Iterable[pa.RecordBatch],
) -> Iterator[pa.RecordBatch]:
    """Extend the values of live rows to all rows of a fragment.

    `guides` are the existing columns that contain fields of `stored`.
    """
    deleted = snapshot.deletions(fragment)
    if not deleted:
        return iter(batches)
    rows = RowRange(0, snapshot.physical_rows(fragment))
    if any(node.logical_type in _LISTS for field in guides for node in field.walk()):
        source = FragmentSource(snapshot, fragment, with_deleted=True)
        present = source.reader.iter_batches(guides, rows)
        return _in_shape(stored, present, RowSupply(iter(batches)), deleted)
    return _repeating(batches, deleted, len(rows))


def _repeating(
    batches: Iterable[pa.RecordBatch], deleted: DeletionVector, num_rows: int
) -> Iterator[pa.RecordBatch]:
    """Add to each batch the deleted rows after its rows, and to the first also leading ones."""
    deleted_offsets = deleted.to_array().astype(np.int64)
    live_before = deleted_offsets - np.arange(len(deleted_offsets))
    done, start = 0, 0
    for batch in batches:
        done += batch.num_rows
        # Rows up to the next live row are complete.
        stop = min(done + int(np.searchsorted(live_before, done, side="right")), num_rows)
        yield expand_rows(batch, deleted.live_within(start, stop))
        start = stop


def _in_shape(
    stored: Schema,
    existing_batches: Iterable[pa.RecordBatch],
    supply: RowSupply,
    deleted: DeletionVector,
) -> Iterator[pa.RecordBatch]:
    start = 0
    for existing_batch in existing_batches:
        mask = deleted.live_within(start, start + existing_batch.num_rows)
        start += existing_batch.num_rows
        values = supply.take_batch(int(mask.sum()))
        arrays = [
            expand_field(
                field, values.column(field.name), _column(existing_batch, field.name), mask
            )
            for field in stored.fields
        ]
        yield pa.RecordBatch.from_arrays(arrays, names=list(stored.names))


def _column(batch: pa.RecordBatch, name: str) -> pa.Array | None:
    index = batch.schema.get_field_index(name)
    return None if index < 0 else batch.column(index)


class RowSupply:
    """A stream of rows from which callers take any number of rows in order.

    For example:

        stream   [1 2] [3 4 5]
        take 3   [1 2] [3]
        take 1   [4]
    """

    def __init__(
        self, batches: Iterator[pa.RecordBatch], names: Sequence[str] | None = None
    ) -> None:
        """Create a supply; `names` are the expected column names, if given."""
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
        """Raise if the stream has remaining rows."""
        if self._rest is not None or self._next() is not None:
            raise ColumnError("Stream produced more values than expected for dataset")

    def _peek(self) -> pa.RecordBatch:
        """Return the current batch without consuming its rows."""
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
