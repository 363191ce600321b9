"""The write-ahead log of a table as a stream: new entries by shard, in order.

    option log = true         the columns of the table, and `_tombstone`, true for deletions
    a new stream              starts with the oldest entries in the log
    {"shards": {id: 7}}       all entries up to position 7 of a shard were read

Entries are streamed as soon as they are durable, possibly before a version contains their rows.
Entries that were removed from the log before they were read are an error.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import pyarrow as pa
from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.types import StructType

from lancelet import memwal as mem_wal
from lancelet.errors import (
    FieldNotFoundError,
    InvalidInputError,
    VersionNotFoundError,
    similar_names,
)
from lancelet.expr.scan_types import scan_field
from lancelet.format.shard_manifest import wal_entry_position
from lancelet.jobs.table_ref import TableRef
from lancelet.memwal.reconcile import plain_schema, reconcile_batch
from lancelet.memwal.shard import Shard, list_shards
from lancelet.spark.convert import convert_batch
from lancelet.spark.options import StreamOptions
from lancelet.spark.reader import TaskPartition, check_readable
from lancelet.spark.types import arrow_schema, spark_schema
from lancelet.table.snapshot import Snapshot


@dataclass(frozen=True, slots=True)
class _Entries:
    """A range of the entries of a shard."""

    shard: uuid.UUID
    after: int
    last: int


@dataclass
class LogStreamReader(DataSourceStreamReader):
    """Plans and runs the batches of one stream of a log."""

    table: TableRef
    schema: pa.Schema

    @staticmethod
    def prepare(options: StreamOptions, schema: StructType) -> LogStreamReader:
        """Return a reader of the columns of a schema."""
        snapshot = options.read.table.open()
        mem_wal.state.require_mem_wal(snapshot)
        check_readable(schema, log_schema(snapshot, None))
        return LogStreamReader(options.read.table, arrow_schema(schema))

    def initialOffset(self) -> dict[str, Any]:  # noqa: N802 - Spark's name
        """Return the start offset of a new stream."""
        return _offset({shard.shard_id: min(found) - 1 for shard, found in self._positions()})

    def latestOffset(  # noqa: N802 - Spark's name
        self, start: dict[str, Any] | None = None, limit: object = None
    ) -> dict[str, Any]:
        """Return the end offset of the next batch."""
        del start, limit
        return _offset({shard.shard_id: max(found) for shard, found in self._positions()})

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[InputPartition]:
        """Return a task for each shard with new entries."""
        begin = _parsed(start)
        # The first entry of a shard that had no entries when the stream started is number 1.
        entries = [
            _Entries(shard, begin.get(shard, 0), last) for shard, last in _parsed(end).items()
        ]
        return [TaskPartition(each) for each in entries if each.last > each.after]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Yield the rows of a range of entries."""
        entries: _Entries = partition.value
        snapshot = replace(self.table, version=None).open()
        shard = Shard(snapshot.location, entries.shard)
        position = entries.after
        for entry in shard.entries(entries.after):
            if entry.position > entries.last:
                break
            position = entry.position
            for batch in entry.batches:
                rows = reconcile_batch(batch, snapshot.schema)
                yield convert_batch(rows.select(self.schema.names), self.schema)
        if position < entries.last:
            raise VersionNotFoundError(
                "log entries were removed before the stream read them; restart the stream with a "
                "new checkpoint, and remove entries later",
                shard=str(entries.shard),
                wal_entry=position + 1,
            )

    def _positions(self) -> Iterator[tuple[Shard, list[int]]]:
        """Yield the shards that have entries, with their positions."""
        location = replace(self.table, version=None).open().location
        for shard_id in list_shards(location):
            shard = Shard(location, shard_id)
            names = shard.store.list_names("wal")
            found = [wal_entry_position(f"wal/{name}") for name in names]
            if positions := [each for each in found if each is not None]:
                yield shard, positions


def log_schema(snapshot: Snapshot, columns: tuple[str, ...] | None) -> StructType:
    """Return the schema of log rows: columns of the table and `_tombstone`."""
    fields = {field.name: field for field in plain_schema(snapshot.schema)}
    stored = {field.name: scan_field(field) for field in snapshot.schema.fields}
    chosen = list(fields) if columns is None else list(columns)
    for name in chosen:
        if name not in fields:
            raise FieldNotFoundError(
                f"the log has no such column{similar_names(name, list(fields))}", column=name
            )
    shown = [stored.get(name, fields[name]).with_nullable(fields[name].nullable) for name in chosen]
    return spark_schema(pa.schema(shown))


def _offset(positions: Mapping[uuid.UUID, int]) -> dict[str, Any]:
    return {"shards": {str(shard): position for shard, position in positions.items()}}


def _parsed(form: dict[str, Any]) -> dict[uuid.UUID, int]:
    try:
        return {uuid.UUID(shard): int(position) for shard, position in form["shards"].items()}
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise InvalidInputError(
            "the checkpoint has offsets of another source", offset=form
        ) from error
