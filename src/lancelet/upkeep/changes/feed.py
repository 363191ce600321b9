"""The change feed: rows that differ between two versions, with their old and new values.

    kind     _rowid   before               after
    insert   7        null                 {id: 4, name: "d"}
    update   1        {id: 2, name: "b"}   {id: 2, name: "B"}
    delete   3        {id: 3, name: "c"}   null

Inserted and updated rows have the order of the later version, followed by deleted rows in the order
of the earlier version. Intermediate states are not reported: a row that was inserted and deleted
between both versions does not appear. Values are read in blocks, so that memory is bounded by a
block and the row ids of a fragment.

Without stable row ids, rows can be matched by key columns:

    version 3            version 7
    key   other          key   other
    a     1              a     1          unchanged
    b     2              b     5          updated
    c     3              -                deleted
    -                    d     4          inserted

Only rows with a changed location are compared. The keys of the earlier version are held in memory:
a hash and an address per row, and the bytes of long keys.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial
from typing import Final

import numpy as np
import pyarrow as pa

from lancelet.change.merge.key_bytes import key_bytes
from lancelet.change.merge.key_index import KeyIndex, Keys
from lancelet.errors import FieldNotFoundError, InvalidInputError
from lancelet.file.pool import map_ordered
from lancelet.format.schema import Schema
from lancelet.rowids.address import UInt64s
from lancelet.scan.plan import projection_of
from lancelet.scan.projection import Projection
from lancelet.scan.row_columns import ROW_FIELDS, FragmentRows, RowColumn
from lancelet.scan.take import take_addresses
from lancelet.table.snapshot import Snapshot
from lancelet.upkeep.changes.between import check_order, check_trackable
from lancelet.upkeep.changes.rows import (
    ChangedRows,
    ChangeKind,
    candidates,
    deleted_rows,
    inserted_rows,
    rows_changed,
)
from lancelet.values import dataclass

CHANGE_KINDS: Final = tuple(ChangeKind)
_BLOCK_ROWS: Final = 8192


@dataclass(frozen=True, slots=True, eq=False)
class ChangeFeed:
    """The changes between two versions; can be read repeatedly."""

    begin: Snapshot
    end: Snapshot
    before: Projection
    after: Projection
    kinds: frozenset[ChangeKind]
    on: tuple[str, ...] | None

    @property
    def schema(self) -> pa.Schema:
        """The schema of the feed; see the example of this module."""
        return pa.schema(
            [
                pa.field("kind", pa.string(), nullable=False),
                ROW_FIELDS[RowColumn.ID.value].with_nullable(False),
                pa.field("before", pa.struct(list(self.before.schema))),
                pa.field("after", pa.struct(list(self.after.schema))),
            ]
        )

    def batches(self, *, first: int = 0, stop: int | None = None) -> Iterator[pa.RecordBatch]:
        """Yield the changes with numbers from `first` to `stop`, exclusive; by default all."""
        blocks = _slice_blocks(self._blocks(), first, stop)
        return map_ordered(partial(_batch, self), blocks, window=2)

    def count(self) -> int:
        """Return the number of changes; reads only key columns, if any."""
        return sum(map(len, self._blocks()))

    def reader(self) -> pa.RecordBatchReader:
        """Return the changes as a record batch reader."""
        return pa.RecordBatchReader.from_batches(self.schema, self.batches())

    def _blocks(self) -> Iterator[ChangedRows]:
        all_changes = (
            rows_changed(self.begin, self.end)
            if self.on is None
            else rows_changed_by_key(self.begin, self.end, self.on)
        )
        for rows in all_changes:
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
    """Return the changes from one version to a later one.

    Args:
        begin: The earlier version.
        end: The later version.
        columns: The columns to return; by default all columns of each version.
        kinds: The kinds of changes to return.
        on: Key columns that identify rows, if the table does not track rows. Rows with equal keys
            and different values are updates.

    Raises:
        RowsNotTrackedError: Row changes are not recorded.
        VersionNotFoundError: A version in between was cleaned up.
    """
    check_order(begin.version, end.version)
    if on is None:
        check_trackable(begin, end)
    elif not on:
        raise InvalidInputError("`on` needs at least one column")
    return ChangeFeed(
        begin,
        end,
        _image(begin, end, columns),
        _image(end, begin, columns),
        frozenset(kinds),
        None if on is None else tuple(on),
    )


def _image(of: Snapshot, other: Snapshot, columns: Sequence[str] | None) -> Projection:
    """Return the projection of a row image; columns may be missing in one of the versions."""
    if columns is None:
        return projection_of(of, None)
    existing = tuple(name for name in columns if _has(of.schema, name))
    for name in columns:
        if name not in existing and not _has(other.schema, name):
            raise FieldNotFoundError("neither version has the column", column=name)
    return projection_of(of, existing)


def _has(schema: Schema, path: str) -> bool:
    try:
        schema.fields_on_path(path)
    except FieldNotFoundError:
        return path in ROW_FIELDS or path in schema.names
    return True


def _slice_blocks(
    blocks: Iterator[ChangedRows], first: int, stop: int | None
) -> Iterator[ChangedRows]:
    """Yield the rows with numbers from `first` to `stop`, exclusive."""
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
    """Rows of a version with their keys."""

    keys: Keys
    addresses: UInt64s
    ids: UInt64s


def rows_changed_by_key(begin: Snapshot, end: Snapshot, on: Sequence[str]) -> Iterator[ChangedRows]:
    """Yield the changed rows in blocks; deleted rows come last."""
    before = _concatenate(_key_blocks(begin, end, on))
    index = KeyIndex.build(before.keys)
    _check_distinct(index, begin, on)
    seen = np.zeros(len(before.ids), np.bool_)
    compared = _compared_columns(begin, end, on)
    for block in _key_blocks(end, begin, on):
        positions, rows = index.find(block.keys)
        if seen[rows].any() or len(np.unique(rows)) < len(rows):
            raise _duplicate_key_error(end, on)
        seen[rows] = True
        is_new = np.ones(len(block.ids), np.bool_)
        is_new[positions] = False
        if is_new.any():
            yield inserted_rows(block.ids[is_new], block.addresses[is_new])
        origin, current = before.addresses[rows], block.addresses[positions]
        differ = _differ(begin, origin, end, current, compared)
        if differ.any():
            yield ChangedRows(
                ChangeKind.UPDATE, block.ids[positions][differ], origin[differ], current[differ]
            )
    if not seen.all():
        yield deleted_rows(before.ids[~seen], before.addresses[~seen])


def _key_blocks(snapshot: Snapshot, other: Snapshot, on: Sequence[str]) -> Iterator[_KeyBlock]:
    image = projection_of(snapshot, tuple(on))
    for candidate in candidates(snapshot, other):
        rows, addresses = FragmentRows(snapshot, candidate.fragment), candidate.addresses
        for start in range(0, len(addresses), _BLOCK_ROWS):
            block = slice(start, start + _BLOCK_ROWS)
            table = take_addresses(snapshot, addresses[block], image).combine_chunks()
            keys = Keys.of([column.chunk(0) for column in table.columns])
            yield _KeyBlock(keys, addresses[block], rows.ids(candidate.offsets[block]))


def _concatenate(blocks: Iterator[_KeyBlock]) -> _KeyBlock:
    parts = list(blocks)
    none = np.empty(0, np.uint64)
    return _KeyBlock(
        Keys.concat([part.keys for part in parts]),
        np.concatenate([none, *(part.addresses for part in parts)]),
        np.concatenate([none, *(part.ids for part in parts)]),
    )


def _check_distinct(index: KeyIndex, of: Snapshot, on: Sequence[str]) -> None:
    repeated, _ = index.repeats()
    if len(repeated):
        raise _duplicate_key_error(of, on)


def _duplicate_key_error(snapshot: Snapshot, on: Sequence[str]) -> InvalidInputError:
    return InvalidInputError(
        "several rows have the same key, so that rows cannot be matched; choose unique key columns",
        uri=snapshot.location.uri,
        version=snapshot.version,
        on=list(on),
    )


def _compared_columns(begin: Snapshot, end: Snapshot, on: Sequence[str]) -> tuple[str, ...]:
    """Return the non-key columns that both versions have."""
    before = set(begin.schema.names)
    return tuple(name for name in end.schema.names if name in before and name not in on)


def _differ(
    begin: Snapshot, origin: UInt64s, end: Snapshot, current: UInt64s, columns: tuple[str, ...]
) -> np.ndarray[tuple[int], np.dtype[np.bool_]]:
    """Return a mask of the row pairs that differ in some column."""
    differ = np.zeros(len(origin), np.bool_)
    if not columns or not len(origin):
        return differ
    before = take_addresses(begin, origin, projection_of(begin, columns)).combine_chunks()
    after = take_addresses(end, current, projection_of(end, columns)).combine_chunks()
    for name in columns:
        old, new = (table.column(name).chunk(0) for table in (before, after))
        if old.type != new.type:
            old = old.cast(new.type)
        if not old.equals(new):
            differ |= _encode(old) != _encode(new)
    return differ


def _encode(values: pa.Array) -> np.ndarray[tuple[int], np.dtype[np.object_]]:
    """Return an equality-preserving binary encoding of values; nulls are equal."""
    wrapped = pa.StructArray.from_arrays([values], ["value"])
    encoded: np.ndarray[tuple[int], np.dtype[np.object_]] = key_bytes([wrapped]).to_numpy(
        zero_copy_only=False
    )
    return encoded
