"""The change feed: which rows differ between two versions, with their values before and after.

    kind     _rowid   before               after
    insert   7        null                 {id: 4, name: "d"}
    update   1        {id: 2, name: "b"}   {id: 2, name: "B"}
    delete   3        {id: 3, name: "c"}   null

Inserted and updated rows come in the order of the later version, deleted ones behind them in the
order of the earlier. What happened to a row in between is not told: a row that was inserted and
deleted again is in no feed that spans both. Values are read block by block, so a feed needs no
more memory than a block and what is recorded of the rows of a fragment.

Pairing the rows of two versions by the values of key columns, where ids do not tell.

    version 3            version 7
    key   other          key   other
    a     1              a     1          the same
    b     2              b     5          updated
    c     3              -                deleted
    -                    d     4          inserted

Only rows that are not where they were are looked at. Of the earlier version their keys are kept in
memory, a hash and an address of each row, and the bytes of keys that do not fit into a hash.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial
from typing import Final

import numpy as np
import pyarrow as pa

from lancelet.buffers import Int64s
from lancelet.errors import FieldNotFoundError, InvalidInputError
from lancelet.file.pool import map_ordered
from lancelet.format.schema import Schema
from lancelet.ops.changes.between import check_followed, check_order
from lancelet.ops.changes.rows import (
    ChangedRows,
    ChangeKind,
    candidates,
    deleted,
    inserted,
    rows_changed,
)
from lancelet.ops.merge_insert.key_bytes import key_bytes
from lancelet.ops.merge_insert.key_index import KeyIndex, Keys
from lancelet.query.plan import projection_of
from lancelet.query.projection import Projection
from lancelet.query.row_columns import ROW_FIELDS, FragmentRows, RowColumn
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


@dataclass(frozen=True, slots=True, eq=False)
class _KeyBlock:
    """Some rows of a version with their keys."""

    keys: Keys
    addresses: UInt64s
    ids: UInt64s


def rows_changed_by_key(begin: Snapshot, end: Snapshot, on: Sequence[str]) -> Iterator[ChangedRows]:
    """Yield the rows that changed, some at a time; deleted ones come last."""
    before = _all_of(_key_blocks(begin, end, on))
    index = KeyIndex.build(before.keys)
    _check_distinct(before, index, begin, on)
    seen = np.zeros(len(before.ids), np.bool_)
    others = _compared(begin, end, on)
    for block in _key_blocks(end, begin, on):
        which, rows = index.find(block.keys)
        if seen[rows].any() or len(np.unique(rows)) < len(rows):
            raise _repeated(end, on)
        seen[rows] = True
        is_new = np.ones(len(block.ids), np.bool_)
        is_new[which] = False
        if is_new.any():
            yield inserted(block.ids[is_new], block.addresses[is_new])
        origin, now = before.addresses[rows], block.addresses[which]
        differ = _differ(begin, origin, end, now, others)
        if differ.any():
            yield ChangedRows(
                ChangeKind.UPDATE, block.ids[which][differ], origin[differ], now[differ]
            )
    if not seen.all():
        yield deleted(before.ids[~seen], before.addresses[~seen])


def _key_blocks(here: Snapshot, there: Snapshot, on: Sequence[str]) -> Iterator[_KeyBlock]:
    image = projection_of(here, tuple(on))
    for found in candidates(here, there):
        rows, addresses = FragmentRows(here, found.fragment), found.addresses
        for start in range(0, len(addresses), _BLOCK_ROWS):
            chosen = slice(start, start + _BLOCK_ROWS)
            table = take_addresses(here, addresses[chosen], image).combine_chunks()
            keys = Keys.of([column.chunk(0) for column in table.columns])
            yield _KeyBlock(keys, addresses[chosen], rows.ids(found.offsets[chosen]))


def _all_of(blocks: Iterator[_KeyBlock]) -> _KeyBlock:
    parts = list(blocks)
    none = np.empty(0, np.uint64)
    return _KeyBlock(
        Keys.concat([part.keys for part in parts]),
        np.concatenate([none, *(part.addresses for part in parts)]),
        np.concatenate([none, *(part.ids for part in parts)]),
    )


def _check_distinct(rows: _KeyBlock, index: KeyIndex, of: Snapshot, on: Sequence[str]) -> None:
    first: Int64s = index.first_rows()
    if bool((first != np.arange(len(rows.ids))).any()):
        raise _repeated(of, on)


def _repeated(snapshot: Snapshot, on: Sequence[str]) -> InvalidInputError:
    return InvalidInputError(
        "several rows have the same key, so rows cannot be matched",
        uri=snapshot.location.uri,
        version=snapshot.version,
        on=list(on),
    )


def _compared(begin: Snapshot, end: Snapshot, on: Sequence[str]) -> tuple[str, ...]:
    """Return the columns that tell whether a row changed."""
    known = set(begin.schema.names)
    return tuple(name for name in end.schema.names if name in known and name not in on)


def _differ(
    begin: Snapshot, origin: UInt64s, end: Snapshot, now: UInt64s, columns: tuple[str, ...]
) -> np.ndarray[tuple[int], np.dtype[np.bool_]]:
    """Return which pairs of rows have different values in some column."""
    differ = np.zeros(len(origin), np.bool_)
    if not columns or not len(origin):
        return differ
    before = take_addresses(begin, origin, projection_of(begin, columns)).combine_chunks()
    after = take_addresses(end, now, projection_of(end, columns)).combine_chunks()
    for name in columns:
        one, other = (table.column(name).chunk(0) for table in (before, after))
        if one.type != other.type:
            one = one.cast(other.type)
        if not one.equals(other):
            differ |= _bytes(one) != _bytes(other)
    return differ


def _bytes(values: pa.Array) -> np.ndarray[tuple[int], np.dtype[np.object_]]:
    """Return values as bytes that are equal if the values are, nulls being equal to nulls."""
    wrapped = pa.StructArray.from_arrays([values], ["value"])
    found: np.ndarray[tuple[int], np.dtype[np.object_]] = key_bytes([wrapped]).to_numpy(
        zero_copy_only=False
    )
    return found
