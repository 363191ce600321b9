"""The one writer of a shard: rows in memory, safe in the log, and flushed as tables.

put      an entry of the log, then rows in memory: what returned is not lost
flush    the rows in memory become a table, and the shard says so
open     the entries that are in no table yet are read into memory again
"""

from __future__ import annotations

import time
import uuid
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace

import numpy as np
import pyarrow as pa

from lancelet.errors import InvalidInputError, SchemaMismatchError
from lancelet.ops.mem_wal.indices import maintained_indices
from lancelet.ops.mem_wal.shard import Shard, entry_notes
from lancelet.ops.mem_wal.sstable import TOMBSTONE, stored_schema, write_sstable
from lancelet.ops.mem_wal.state import WRITER_DEFAULTS, require_mem_wal
from lancelet.table.snapshot import Snapshot


class ClosedWriterError(InvalidInputError, OSError):
    """The writer was closed."""


class NoKeyError(InvalidInputError, OSError):
    """Rows are deleted by their primary key, and there is none."""


@dataclass(slots=True)
class WriterCounts:
    """What a writer did so far."""

    puts: int = 0
    put_ns: int = 0
    wal_flushes: int = 0
    wal_bytes: int = 0
    wal_ns: int = 0
    flushes: int = 0
    flushed_rows: int = 0
    flush_ns: int = 0


class MemWalWriter:
    """Writes a shard until it is closed, or another writer claims the shard."""

    def __init__(
        self, base: Snapshot, shard_id: uuid.UUID, config: Mapping[str, int | bool | None]
    ) -> None:
        """Claim a shard and replay its log.

        Args:
            base: The version of the table to write for; it says the schema and the key.
            shard_id: Which shard.
            config: How to behave, by the names of `WRITER_DEFAULTS`, before those of the table.
        """
        state = require_mem_wal(base)
        given = {name: value for name, value in config.items() if value is not None}
        stored = {name: _parsed(value) for name, value in state.writer_defaults.items()}
        self._config = {**WRITER_DEFAULTS, **stored, **given}
        self.base = base
        self._indices = maintained_indices(base, state, self._config)
        self.shard = Shard(base.location, shard_id)
        self.counts = WriterCounts()
        self._keys = [key.name for key in base.schema.primary_key]
        self._schema = stored_schema(base.schema)
        arrow = self._schema.to_arrow()
        self._arrow = pa.schema([field.remove_metadata() for field in arrow])
        self._logged = pa.schema(
            [
                field.with_metadata({"lance:field_id": str(self._schema.fields[at].id)})
                for at, field in enumerate(self._arrow)
            ]
        )
        self.manifest = self.shard.claim(state.specs[0].spec_id if state.specs else 0)
        self._batches: list[pa.RecordBatch] = []
        self._position = self.manifest.replay_after
        self._is_closed = False
        self._replay()

    @property
    def rows(self) -> pa.Table:
        """The rows in memory, in the order they came."""
        return pa.Table.from_batches(self._batches, self._arrow)

    @property
    def num_batches(self) -> int:
        """In how many batches they came."""
        return len(self._batches)

    def put(self, batches: Iterable[pa.RecordBatch]) -> None:
        """Write rows; when this returns they are in the log."""
        self._write([self._fitted(batch) for batch in batches if batch.num_rows])

    def delete(self, batches: Iterable[pa.RecordBatch]) -> None:
        """Delete rows by their keys; other columns are left alone."""
        if not self._keys:
            raise NoKeyError(
                "delete requires a primary key, but this shard has no primary key columns"
            )
        required = [
            each.name
            for each in self._arrow
            if not each.nullable and each.name not in {*self._keys, TOMBSTONE}
        ]
        if required:
            raise NoKeyError(
                "a deleted row has its key alone, but other columns must not be null",
                columns=required,
            )
        self._write([self._mark(batch) for batch in batches if batch.num_rows])

    def flush(self) -> None:
        """Make a table of the rows in memory."""
        if not self._batches:
            return
        began = time.monotonic_ns()
        rows, generation = self.rows, self.manifest.current_generation
        table = write_sstable(self.shard, self.base, rows, generation, self._indices)
        self.manifest = self.shard.publish(
            replace(
                self.manifest,
                version=self.manifest.version + 1,
                replay_after=self._position,
                last_seen=self._position,
                current_generation=generation + 1,
                sstables=(*self.manifest.sstables, table),
            )
        )
        self._batches = []
        self.counts.flushes += 1
        self.counts.flushed_rows += len(rows)
        self.counts.flush_ns += time.monotonic_ns() - began

    def close(self) -> None:
        """Flush, and write no more."""
        if not self._is_closed:
            self.flush()
            self._is_closed = True

    def _write(self, batches: list[pa.RecordBatch]) -> None:
        if self._is_closed:
            raise ClosedWriterError("ShardWriter is already closed")
        if not batches:
            return
        began = time.monotonic_ns()
        notes = entry_notes(self.manifest.writer_epoch, self.manifest.current_generation)
        logged = [pa.RecordBatch.from_arrays(each.columns, schema=self._logged) for each in batches]
        size = self.shard.append(self._position + 1, logged, notes)
        self._position += 1
        self._batches += batches
        counts = self.counts
        counts.puts += 1
        counts.wal_flushes += 1
        counts.wal_bytes += size
        counts.put_ns += time.monotonic_ns() - began
        counts.wal_ns = counts.put_ns
        if self._is_full():
            self.flush()

    def _is_full(self) -> bool:
        rows, size = sum(map(len, self._batches)), sum(each.nbytes for each in self._batches)
        return (
            rows >= self._config["max_memtable_rows"]
            or size >= self._config["max_memtable_size"]
            or len(self._batches) >= self._config["max_memtable_batches"]
        )

    def _replay(self) -> None:
        for entry in self.shard.entries(self.manifest.replay_after):
            self._position = entry.position
            if not entry.is_fence:
                self._batches += [
                    pa.RecordBatch.from_arrays(batch.columns, schema=self._arrow)
                    for batch in entry.batches
                ]

    def _fitted(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """Return rows in the order and of the types of the table, with a mark that they live."""
        columns = []
        for field in self._arrow:
            if field.name == TOMBSTONE and self._keys:
                columns.append(pa.array(np.zeros(len(batch), np.bool_)))
            elif field.name in batch.schema.names:
                columns.append(batch.column(field.name).cast(field.type))
            else:
                columns.append(pa.nulls(len(batch), field.type))
        return self._checked(columns)

    def _mark(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        columns = []
        for field in self._arrow:
            if field.name == TOMBSTONE:
                columns.append(pa.array(np.ones(len(batch), np.bool_)))
            elif field.name in self._keys:
                columns.append(_column(batch, field))
            else:
                columns.append(pa.nulls(len(batch), field.type))
        return self._checked(columns)

    def _checked(self, columns: list[pa.Array]) -> pa.RecordBatch:
        for field, column in zip(self._arrow, columns, strict=True):
            if not field.nullable and column.null_count:
                raise SchemaMismatchError(
                    "a field that must not be null contained null values", field=field.name
                )
        return pa.RecordBatch.from_arrays(columns, schema=self._arrow)


def _column(batch: pa.RecordBatch, field: pa.Field) -> pa.Array:
    if field.name not in batch.schema.names:
        raise SchemaMismatchError("rows are deleted by their whole key", missing=field.name)
    return batch.column(field.name).cast(field.type)


def _parsed(text: str) -> int | bool:
    return text == "true" if text in {"true", "false"} else int(text)
