"""Reading a table together with what its shards hold: the newest row of each key counts.

    base          1 a   2 b   3 c
    generation 1  2 B
    in memory     3 deleted
    read          2 B   1 a

Rows of shards are few, so they are read whole; those of the table are only asked for what the
query needs, without the keys that shards have newer rows of.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final

import numpy as np
import pyarrow as pa

from lancelet.encodings.take import keep_of_table, take_from_table
from lancelet.errors import InvalidInputError
from lancelet.ops.mem_wal.keys import last_rows
from lancelet.ops.mem_wal.shard import Shard
from lancelet.ops.mem_wal.sstable import TOMBSTONE, open_sstable
from lancelet.ops.mem_wal.state import mem_wal_state
from lancelet.query.compile import compile_filter
from lancelet.query.evaluate import evaluate_filter
from lancelet.query.execute import execute_to_table
from lancelet.query.plan import plan_scan
from lancelet.query.scan_options import ScanOptions
from lancelet.table.snapshot import Snapshot

GENERATION: Final = "_memtable_gen"
_ADDRESS: Final = "_rowaddr"


class NoKeyToMergeError(InvalidInputError):
    """Rows are told apart by a primary key, and there is none."""


@dataclass(frozen=True, slots=True)
class ShardTables:
    """The flushed tables of a shard that are to be read, by generation.

    Attributes:
        shard_id: Which shard.
        sstables: The folder of each generation.
        current_generation: The generation of what is in memory.
        spec_id: Which rule says what belongs to the shard.
    """

    shard_id: uuid.UUID
    sstables: Mapping[int, str] = field(default_factory=dict)
    current_generation: int = 0
    spec_id: int = 0


@dataclass(frozen=True, slots=True)
class MemoryRows:
    """The rows that a writer has in memory, with marks of those that are deleted."""

    generation: int
    rows: pa.Table


@dataclass(frozen=True, slots=True)
class MergedRead:
    """What to read of a table and its shards.

    Attributes:
        base: The version of the table.
        shards: The flushed tables.
        memory: What writers have in memory.
        columns: What to return, None for all columns.
        filter: SQL that is true for the rows to return.
        limit: The most rows to return.
        offset: How many of the first rows to leave out.
        with_address: Whether to return `_rowaddr`, null for rows that are not in the table.
        with_generation: Whether to return `_memtable_gen`, 0 for rows of the table.
    """

    base: Snapshot
    shards: tuple[ShardTables, ...] = ()
    memory: tuple[MemoryRows, ...] = ()
    columns: tuple[str, ...] | None = None
    filter: str | None = None
    limit: int | None = None
    offset: int = 0
    with_address: bool = False
    with_generation: bool = False

    @property
    def keys(self) -> list[str]:
        """The columns of the primary key."""
        keys = [key.name for key in self.base.schema.primary_key]
        if not keys:
            raise NoKeyToMergeError(
                "Dataset has no primary key. Set 'lance-schema:unenforced-primary-key' metadata "
                "on the primary key field(s)."
            )
        return keys

    def table(self) -> pa.Table:
        """Return the rows, those of shards first."""
        keys = self.keys
        names = [*(self.columns or self.base.schema.names)]
        names += [key for key in keys if key not in names]
        newest = newest_rows(self, keys)
        live = live_rows(newest, self)
        live = live.append_column(_ADDRESS, pa.nulls(len(live), pa.uint64()))
        rest = _base_rows(self, names, newest.select(keys))
        wanted = [*names, *self._extras()]
        found = pa.concat_tables([live.select(wanted), rest.select(wanted)])
        return found.slice(self.offset, self.limit)

    def count(self) -> int:
        """Return how many rows there are."""
        keys = self.keys
        return len(replace(self, columns=tuple(keys)).table())

    def _extras(self) -> list[str]:
        extras = [_ADDRESS] if self.with_address else []
        return [*extras, GENERATION] if self.with_generation else extras


def newest_rows(read: MergedRead, keys: Sequence[str]) -> pa.Table:
    """Return the newest row of each key that shards have, deleted ones too, with its generation.

    A key is in one shard only, so generations of different shards need no order.
    """
    schema = read.base.schema.to_arrow()
    plain = pa.schema([each.remove_metadata() for each in schema])
    full = plain.append(pa.field(TOMBSTONE, pa.bool_())).append(pa.field(GENERATION, pa.uint64()))
    parts = [full.empty_table()]
    for shard, generations in tables_to_read(read):
        for generation, path in generations:
            rows = execute_to_table(plan_scan(open_sstable(shard, path), ScanOptions()))
            parts.append(_numbered(rows, generation, full))
    parts += [_numbered(each.rows, each.generation, full) for each in read.memory]
    together = pa.concat_tables(parts).combine_chunks()
    return take_from_table(together, pa.array(last_rows(together.select(keys))))


def tables_to_read(read: MergedRead) -> Iterator[tuple[Shard, list[tuple[int, str]]]]:
    """Yield each shard with its flushed tables that are not in the base, the oldest first."""
    state = mem_wal_state(read.base)
    compacted = {} if state is None else state.compacted
    for shard in read.shards:
        merged = compacted.get(shard.shard_id, 0)
        own = sorted((each, path) for each, path in shard.sstables.items() if each > merged)
        yield Shard(read.base.location, shard.shard_id), own


def live_rows(newest: pa.Table, read: MergedRead) -> pa.Table:
    """Return those of the newest rows of shards that are not deleted and pass the filter."""
    deleted = newest[TOMBSTONE].to_numpy()
    live = keep_of_table(newest, ~deleted).drop_columns([TOMBSTONE])
    return _filtered(live, read.filter, read.base)


def without_newer(rows: pa.Table, newer: pa.Table) -> pa.Table:
    """Return rows of the table, in their order, but for those whose keys shards have."""
    rows = pa.Table.from_arrays(
        rows.columns, schema=pa.schema([each.remove_metadata() for each in rows.schema])
    )
    if not len(newer) or not len(rows):
        return rows
    keys = newer.column_names
    numbered = rows.append_column("__place", pa.array(np.arange(len(rows))))
    left = numbered.select([*keys, "__place"]).join(newer, keys, join_type="left anti")
    return take_from_table(rows, left["__place"].combine_chunks().sort())


def _numbered(rows: pa.Table, generation: int, schema: pa.Schema) -> pa.Table:
    numbers = pa.array(np.full(len(rows), generation, np.uint64))
    if TOMBSTONE not in rows.column_names:  # a table that was put there by hand
        rows = rows.append_column(TOMBSTONE, pa.array(np.zeros(len(rows), np.bool_)))
    numbered = rows.append_column(GENERATION, numbers).select(schema.names)
    return pa.Table.from_arrays(
        [column.cast(kind.type) for column, kind in zip(numbered.columns, schema, strict=True)],
        schema=schema,
    )


def _filtered(rows: pa.Table, condition: str | None, base: Snapshot) -> pa.Table:
    if condition is None or not len(rows):
        return rows
    bound = compile_filter(condition, base.schema.to_arrow())
    (batch,) = rows.combine_chunks().to_batches()
    kept = evaluate_filter(bound, batch).to_numpy(zero_copy_only=False)
    return keep_of_table(rows, kept)


def _base_rows(read: MergedRead, names: Sequence[str], newer: pa.Table) -> pa.Table:
    """Return rows of the table whose keys shards have no newer rows of."""
    options = ScanOptions(columns=tuple(names), filter=read.filter, with_row_address=True)
    rows = without_newer(execute_to_table(plan_scan(read.base, options)), newer)
    return rows.append_column(GENERATION, pa.array(np.zeros(len(rows), np.uint64)))


def shard_tables(shard: Shard) -> ShardTables:
    """Return the flushed tables of a shard, as its last state has them."""
    manifest: Any = shard.latest()
    if manifest is None:
        return ShardTables(shard.shard_id)
    return ShardTables(
        shard.shard_id,
        {each.generation: each.path for each in manifest.sstables},
        manifest.current_generation,
        manifest.spec_id,
    )
