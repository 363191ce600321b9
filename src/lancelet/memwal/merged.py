"""Read a table together with its shards; the newest row of each key is returned.

    base          1 a   2 b   3 c
    generation 1  2 B
    in memory     3 deleted
    read          2 B   1 a

The keys of the shards are read first and determine the newest rows. Then the columns of these rows
are read, using the indices of flushed tables. Rows of the base table are returned unless the shards
contain their keys.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import field, replace
from typing import Final, TypeAlias

import numpy as np
import pyarrow as pa

from lancelet.buffers import Int64s
from lancelet.encodings.take import filter_table, take_from_table
from lancelet.errors import InvalidInputError
from lancelet.expr.compile import compile_filter
from lancelet.expr.evaluate import evaluate_filter
from lancelet.format import logical_type
from lancelet.format.field import Field
from lancelet.format.schema import Schema
from lancelet.format.shard_manifest import TOMBSTONE, ShardManifest
from lancelet.memwal.keys import last_rows
from lancelet.memwal.shard import Shard
from lancelet.memwal.sstable import open_sstable
from lancelet.memwal.state import mem_wal_state
from lancelet.rowids.address import UInt64s
from lancelet.rowids.selection import RowMask, RowSet
from lancelet.scan.execute import execute_to_table
from lancelet.scan.plan import plan_scan
from lancelet.scan.row_columns import RowColumn
from lancelet.scan.scan_options import ScanOptions
from lancelet.table.snapshot import Snapshot
from lancelet.values import dataclass

GENERATION: Final = "_memtable_gen"
_ADDRESS: Final = "_rowaddr"


class NoKeyToMergeError(InvalidInputError):
    """The operation requires a primary key to identify rows, and the table has none."""


@dataclass(frozen=True, slots=True)
class ShardTables:
    """The flushed tables of a shard to read, by generation.

    Attributes:
        shard_id: The id of the shard.
        sstables: The folder of each generation.
        current_generation: The generation of the rows in memory.
        spec_id: The id of the specification that assigns rows to the shard.
    """

    shard_id: uuid.UUID
    sstables: Mapping[int, str] = field(default_factory=dict)
    current_generation: int = 0
    spec_id: int = 0


@dataclass(frozen=True, slots=True)
class MemoryRows:
    """The rows in the memory of a writer, with a column that marks deleted rows."""

    generation: int
    rows: pa.Table


@dataclass(frozen=True, slots=True, eq=False)
class FlushedRows:
    """The newest rows of a flushed table that are not deleted, by row id."""

    generation: int
    table: Snapshot
    ids: UInt64s

    def scan_options(self, names: Sequence[str], condition: str | None) -> ScanOptions:
        """Return scan options for columns of the rows that match a filter."""
        mask = RowMask(RowSet.of(self.ids))
        return ScanOptions(columns=tuple(names), filter=condition, rows=mask, prefilter=True)


@dataclass(frozen=True, slots=True, eq=False)
class NewestRows:
    """The newest rows of the shards.

    Attributes:
        keys: All keys in the shards, including deleted keys.
        live: The newest row of each key, without deleted rows.
    """

    keys: pa.Table
    live: tuple[FlushedRows | MemoryRows, ...]


@dataclass(frozen=True, slots=True)
class Projection:
    """The columns and struct fields to return, in the requested order."""

    selection: Mapping[str, FieldSelection]

    @staticmethod
    def of(schema: Schema, columns: Sequence[str] | None, keys: Sequence[str]) -> Projection:
        """Create a projection from paths of columns, followed by missing key columns."""
        selection: dict[str, FieldSelection] = {}
        for path in schema.names if columns is None else columns:
            _select_field(selection, schema.fields_on_path(path))
        for key in keys:
            selection.setdefault(key, {})
        return Projection(selection)

    @property
    def names(self) -> list[str]:
        """The columns to read."""
        return list(self.selection)

    def prune(self, table: pa.Table) -> pa.Table:
        """Remove the struct fields that are not part of the projection."""
        for at, name in enumerate(table.schema.names):
            if self.selection.get(name):
                whole = table.column(at).combine_chunks()
                table = table.set_column(at, name, _pruned(whole, self.selection[name]))
        return table


FieldSelection: TypeAlias = "dict[str, FieldSelection]"
"""The selected children of a struct; empty for all children."""


def _select_field(selection: dict[str, FieldSelection], chain: Sequence[Field]) -> None:
    """Add the field at the end of a chain, unless an ancestor is already selected."""
    for field_, after in zip(chain, (*chain[1:], None), strict=True):
        if field_.name in selection and not selection[field_.name]:
            return
        if after is None or field_.logical_type != logical_type.STRUCT:
            selection[field_.name] = {}
            return
        selection = selection.setdefault(field_.name, {})


def _pruned(column: pa.Array, selection: FieldSelection) -> pa.Array:
    if not selection:
        return column
    if isinstance(column, pa.ChunkedArray):
        column = pa.concat_arrays(column.chunks or [pa.nulls(0, column.type)])
    parts = [_pruned(column.field(name), own) for name, own in selection.items()]
    mask = column.is_null() if column.null_count else None
    return pa.StructArray.from_arrays(parts, names=list(selection), mask=mask)


@dataclass(frozen=True, slots=True)
class MergedRead:
    """A read of a table and its shards.

    Attributes:
        base: The version of the table.
        shards: The flushed tables.
        memory: The rows in the memory of writers.
        columns: The columns to return, or None for all columns.
        filter: A SQL predicate that selects rows.
        limit: The maximum number of rows.
        offset: The number of rows to skip.
        with_address: Whether to return `_rowaddr`, which is null for rows of shards.
        with_generation: Whether to return `_memtable_gen`, which is 0 for rows of the base table.
        key_columns: The columns that identify rows, or None for the primary key of the table.
        caught_up: The last generation of each shard that the used indices cover, if later
            generations are read from flushed tables instead of unindexed fragments.
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
    key_columns: tuple[str, ...] | None = None
    caught_up: Mapping[uuid.UUID, int] | None = None

    @property
    def keys(self) -> list[str]:
        """The columns of the primary key."""
        if self.key_columns is not None:
            return _checked_keys(self.base, self.key_columns)
        keys = [key.name for key in self.base.schema.primary_key]
        if not keys:
            raise NoKeyToMergeError(
                "Dataset has no primary key. Set 'lance-schema:unenforced-primary-key' metadata "
                "on the primary key field(s)."
            )
        return keys

    def table(self) -> pa.Table:
        """Return the matching rows; rows of shards come first."""
        keys = self.keys
        projection = Projection.of(self.base.schema, self.columns, keys)
        names = projection.names
        newest, live = rows_of_shards(self, names)
        live = live.append_column(_ADDRESS, pa.nulls(len(live), pa.uint64()))
        rest = _base_rows(self, names, newest)
        columns = [*names, *self._extras()]
        found = pa.concat_tables([live.select(columns), rest.select(columns)])
        return projection.prune(found.slice(self.offset, self.limit))

    def count(self) -> int:
        """Return the number of matching rows."""
        keys = self.keys
        return len(replace(self, columns=tuple(keys)).table())

    def _extras(self) -> list[str]:
        extras = [_ADDRESS] if self.with_address else []
        return [*extras, GENERATION] if self.with_generation else extras


def _checked_keys(base: Snapshot, columns: Sequence[str]) -> list[str]:
    if not columns:
        raise NoKeyToMergeError("at least one key column is required")
    for column in columns:
        base.schema.field_by_path(column)
        if column not in base.schema.names:
            raise NoKeyToMergeError("key columns must be top-level columns", column=column)
    return list(columns)


def newest_rows(read: MergedRead, keys: Sequence[str]) -> NewestRows:
    """Return the newest row of each key in the shards.

    Each key belongs to a single shard, so that generations of different shards are not compared.
    """
    marked = (*keys, TOMBSTONE)
    plain = _plain(read.base, keys).append(pa.field(TOMBSTONE, pa.bool_()))
    parts = [plain.empty_table()]
    found: list[FlushedRows | MemoryRows] = []
    for shard, generations in tables_to_read(read):
        for generation, path in generations:
            table = open_sstable(shard, path, read.base.schema)
            names = [each for each in marked if each in table.schema.names]
            rows = execute_to_table(
                plan_scan(table, ScanOptions(columns=tuple(names), with_row_id=True))
            )
            ids = rows[RowColumn.ID.value].to_numpy()
            found.append(FlushedRows(generation, table, ids))
            parts.append(_fitting(rows, plain))
    for each in read.memory:
        found.append(each)
        parts.append(_fitting(each.rows, plain))
    together = pa.concat_tables(parts).combine_chunks()
    last = last_rows(together.select(keys))
    newest = take_from_table(together, pa.array(last))
    live_indices = last[~newest[TOMBSTONE].to_numpy()]
    starts = np.cumsum([len(part) for part in parts])
    bounds = np.searchsorted(live_indices, starts)
    live = [
        _of_these(each, live_indices[bounds[number] : bounds[number + 1]] - starts[number])
        for number, each in enumerate(found)
    ]
    return NewestRows(newest.select(keys), tuple(live))


def rows_of_shards(read: MergedRead, names: Sequence[str]) -> tuple[pa.Table, pa.Table]:
    """Return the keys of the shards, and columns of the matching newest rows.

    The rows include their generation.
    """
    newest = newest_rows(read, read.keys)
    return newest.keys, pa.concat_tables(_live_rows(read, newest, names))


def _of_these(rows: FlushedRows | MemoryRows, row_indices: Int64s) -> FlushedRows | MemoryRows:
    if isinstance(rows, FlushedRows):
        return replace(rows, ids=rows.ids[row_indices])
    return replace(rows, rows=take_from_table(rows.rows, pa.array(row_indices)))


def tables_to_read(read: MergedRead) -> Iterator[tuple[Shard, list[tuple[int, str]]]]:
    """Yield each shard with its unmerged flushed tables, oldest first."""
    state = mem_wal_state(read.base)
    compacted = {} if state is None else state.compacted
    in_base = compacted if read.caught_up is None else read.caught_up
    for shard in read.shards:
        merged = in_base.get(shard.shard_id, 0)
        own = sorted((each, path) for each, path in shard.sstables.items() if each > merged)
        yield Shard(read.base.location, shard.shard_id), own


def _live_rows(read: MergedRead, newest: NewestRows, names: Sequence[str]) -> list[pa.Table]:
    """Return columns of the newest rows that match the filter, with their generation."""
    plain = _plain(read.base, names)
    parts = [_numbered(plain.empty_table(), 0)]
    for each in newest.live:
        if isinstance(each, FlushedRows):
            rows = execute_to_table(plan_scan(each.table, each.scan_options(names, read.filter)))
        else:
            rows = live_in_memory(each, read)
        parts.append(_numbered(_fitting(rows, plain), each.generation))
    return parts


def live_in_memory(memory: MemoryRows, read: MergedRead) -> pa.Table:
    """Return the newest rows in memory that match the filter."""
    rows = memory.rows
    if read.filter is None or not len(rows):
        return rows
    bound = compile_filter(read.filter, read.base.schema.to_arrow())
    (batch,) = rows.combine_chunks().to_batches()
    return filter_table(rows, evaluate_filter(bound, batch).to_numpy(zero_copy_only=False))


def without_newer(rows: pa.Table, newer: pa.Table) -> pa.Table:
    """Return the rows of a table, in order, without rows that have newer versions in shards."""
    rows = pa.Table.from_arrays(
        rows.columns, schema=pa.schema([each.remove_metadata() for each in rows.schema])
    )
    if not len(newer) or not len(rows):
        return rows
    keys = newer.column_names
    numbered = rows.append_column("__place", pa.array(np.arange(len(rows))))
    left = numbered.select([*keys, "__place"]).join(newer, keys, join_type="left anti")
    return take_from_table(rows, left["__place"].combine_chunks().sort())


def _plain(base: Snapshot, names: Sequence[str]) -> pa.Schema:
    """Return columns of a table without field metadata."""
    schema = base.schema.to_arrow()
    return pa.schema([schema.field(name).remove_metadata() for name in names])


def _fitting(rows: pa.Table, schema: pa.Schema) -> pa.Table:
    if TOMBSTONE in schema.names and TOMBSTONE not in rows.column_names:
        # A table that was copied into the folder manually.
        rows = rows.append_column(TOMBSTONE, pa.array(np.zeros(len(rows), np.bool_)))
    columns = [rows[field.name].cast(field.type) for field in schema]
    return pa.Table.from_arrays(columns, schema=schema)


def _numbered(rows: pa.Table, generation: int) -> pa.Table:
    return rows.append_column(GENERATION, pa.array(np.full(len(rows), generation, np.uint64)))


def _base_rows(read: MergedRead, names: Sequence[str], newer: pa.Table) -> pa.Table:
    """Return the rows of the base table without newer versions in shards."""
    options = ScanOptions(
        columns=tuple(names),
        filter=read.filter,
        with_row_address=True,
        indexed_only=read.caught_up is not None,
    )
    rows = without_newer(execute_to_table(plan_scan(read.base, options)), newer)
    return _numbered(rows, 0)


def tables_of(manifest: ShardManifest) -> ShardTables:
    """Return the flushed tables in the state of a shard."""
    return ShardTables(
        manifest.shard_id,
        {each.generation: each.path for each in manifest.sstables},
        manifest.current_generation,
        manifest.spec_id,
    )
