"""Pairing the rows of two versions by the values of key columns, where ids do not tell.

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

import numpy as np
import pyarrow as pa

from lancelet.buffers import Int64s
from lancelet.errors import InvalidInputError
from lancelet.ops.changes.rows import ChangedRows, ChangeKind, candidates, deleted, inserted
from lancelet.ops.merge_insert.key_bytes import key_bytes
from lancelet.ops.merge_insert.key_index import KeyIndex, Keys
from lancelet.query.plan import projection_of
from lancelet.query.row_columns import FragmentRows
from lancelet.query.take import take_addresses
from lancelet.rowids.address import UInt64s
from lancelet.table.snapshot import Snapshot
from lancelet.values import dataclass

_BLOCK_ROWS = 8192


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
