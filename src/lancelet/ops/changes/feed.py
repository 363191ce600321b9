"""The change feed: which rows differ between two versions, with their values before and after.

    kind     _rowid   before               after
    insert   7        null                 {id: 4, name: "d"}
    update   1        {id: 2, name: "b"}   {id: 2, name: "B"}
    delete   3        {id: 3, name: "c"}   null

Inserted and updated rows come in the order of the later version, deleted ones behind them in the
order of the earlier. What happened to a row in between is not told: a row that was inserted and
deleted again is in no feed that spans both. Values are read block by block, so a feed needs no
more memory than a block and what is recorded of the rows of a fragment.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial
from typing import Final

import pyarrow as pa

from lancelet.errors import FieldNotFoundError, InvalidInputError
from lancelet.file.pool import map_ordered
from lancelet.format.schema import Schema
from lancelet.ops.changes.between import check_followed, check_order
from lancelet.ops.changes.keys import rows_changed_by_key
from lancelet.ops.changes.rows import ChangedRows, ChangeKind, rows_changed
from lancelet.query.plan import projection_of
from lancelet.query.projection import Projection
from lancelet.query.row_columns import ROW_FIELDS, RowColumn
from lancelet.query.take import take_addresses
from lancelet.rowids.address import UInt64s
from lancelet.table.snapshot import Snapshot
from lancelet.values import dataclass

CHANGE_KINDS: Final = tuple(ChangeKind)
_BLOCK_ROWS: Final = 8192


@dataclass(frozen=True, slots=True, eq=False)
class ChangeFeed:
    """The changes between two versions; they can be read as often as wanted."""

    begin: Snapshot
    end: Snapshot
    before: Projection
    after: Projection
    kinds: frozenset[ChangeKind]
    on: tuple[str, ...] | None

    @property
    def schema(self) -> pa.Schema:
        """The columns of the feed; see the top of the module."""
        return pa.schema(
            [
                pa.field("kind", pa.string(), nullable=False),
                ROW_FIELDS[RowColumn.ID.value].with_nullable(False),
                pa.field("before", pa.struct(list(self.before.schema))),
                pa.field("after", pa.struct(list(self.after.schema))),
            ]
        )

    def batches(self, *, first: int = 0, stop: int | None = None) -> Iterator[pa.RecordBatch]:
        """Yield the changes, or those from the one numbered `first` to the one before `stop`."""
        blocks = _between(self._blocks(), first, stop)
        return map_ordered(partial(_batch, self), blocks, window=2)

    def count(self) -> int:
        """Return how many changes there are; of values only keys are read, if there are any."""
        return sum(map(len, self._blocks()))

    def reader(self) -> pa.RecordBatchReader:
        """Return the changes as a stream of Arrow."""
        return pa.RecordBatchReader.from_batches(self.schema, self.batches())

    def _blocks(self) -> Iterator[ChangedRows]:
        found = (
            rows_changed(self.begin, self.end)
            if self.on is None
            else rows_changed_by_key(self.begin, self.end, self.on)
        )
        for rows in found:
            if rows.kind in self.kinds:
                for start in range(0, len(rows), _BLOCK_ROWS):
                    yield rows.slice(start, start + _BLOCK_ROWS)


def changes(
    begin: Snapshot,
    end: Snapshot,
    *,
    columns: Sequence[str] | None = None,
    kinds: Sequence[ChangeKind] = CHANGE_KINDS,
    on: Sequence[str] | None = None,
) -> ChangeFeed:
    """Return the feed of the changes from one version to a later one.

    Args:
        begin: The version to compare with.
        end: The version in which changes are looked for.
        columns: The columns of the images; by default all that each version has.
        kinds: What to return.
        on: Columns by whose values rows are the same row, where the table does not record it. A
            row whose other columns differ then is an update.

    Raises:
        RowsNotTrackedError: Which rows changed is not recorded.
        VersionNotFoundError: A version between was cleaned up, so that it is not known.
    """
    check_order(begin.version, end.version)
    if on is None:
        check_followed(begin, end)
    elif not on:
        raise InvalidInputError("rows cannot be the same row by the values of no column")
    return ChangeFeed(
        begin,
        end,
        _image(begin, end, columns),
        _image(end, begin, columns),
        frozenset(kinds),
        None if on is None else tuple(on),
    )


def _image(of: Snapshot, other: Snapshot, columns: Sequence[str] | None) -> Projection:
    """Return how to read the image of rows; a column may be missing in one of the versions."""
    if columns is None:
        return projection_of(of, None)
    found = tuple(name for name in columns if _has(of.schema, name))
    for name in columns:
        if name not in found and not _has(other.schema, name):
            raise FieldNotFoundError("neither version has the column", column=name)
    return projection_of(of, found)


def _has(schema: Schema, path: str) -> bool:
    try:
        schema.fields_on_path(path)
    except FieldNotFoundError:
        return path in ROW_FIELDS or path in schema.names
    return True


def _between(blocks: Iterator[ChangedRows], first: int, stop: int | None) -> Iterator[ChangedRows]:
    """Yield the rows of blocks from a number on and before another one."""
    start = 0
    for block in blocks:
        if stop is not None and start >= stop:
            return
        end = start + len(block)
        if end > first:
            last = len(block) if stop is None else min(len(block), stop - start)
            yield block.slice(max(0, first - start), last)
        start = end


def _batch(feed: ChangeFeed, rows: ChangedRows) -> pa.RecordBatch:
    return pa.RecordBatch.from_arrays(
        [
            pa.repeat(pa.scalar(rows.kind.value), len(rows)),
            pa.array(rows.ids),
            _values(feed.begin, rows.before, feed.before, len(rows)),
            _values(feed.end, rows.after, feed.after, len(rows)),
        ],
        schema=feed.schema,
    )


def _values(
    snapshot: Snapshot, addresses: UInt64s | None, image: Projection, count: int
) -> pa.StructArray:
    fields = list(image.schema)
    if addresses is None:
        return pa.nulls(count, pa.struct(fields))
    if not fields:
        return pa.Array.from_buffers(pa.struct([]), count, [None])
    table = take_addresses(snapshot, addresses, image).combine_chunks()
    arrays = [column.chunk(0) for column in table.columns]
    return pa.StructArray.from_arrays(arrays, fields=fields)
