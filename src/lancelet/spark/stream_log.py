"""The log of a table as the source of a stream: what was put since, shard by shard, in order.

    option log = true         the columns of the table, and `_tombstone` for rows that are deletions
    a new stream              begins with the oldest entries that the log still has
    {"shards": {id: 7}}       all entries up to position 7 of a shard were read

A table is read as it was put together: an entry may come before the version that has its rows, and
no version is waited for. Entries that were collected before they were read are an error.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import pyarrow as pa
from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.types import StructType

from lancelet.errors import (
    FieldNotFoundError,
    InvalidInputError,
    VersionNotFoundError,
    similar_names,
)
from lancelet.format.shard_manifest import wal_entry_position
from lancelet.ops import mem_wal
from lancelet.ops.jobs.table_ref import TableRef
from lancelet.ops.mem_wal.reconcile import plain_schema, reconcile_batch
from lancelet.ops.mem_wal.shard import Shard, list_shards
from lancelet.query.scan_types import scan_field
from lancelet.spark.convert import convert_batch
from lancelet.spark.options import StreamOptions
from lancelet.spark.reader import TaskPartition, check_readable
from lancelet.spark.types import arrow_schema, spark_schema
from lancelet.table.snapshot import Snapshot


@dataclass(frozen=True, slots=True)
class _Entries:
    """The entries of a shard behind a position, up to another."""

    shard: uuid.UUID
    after: int
    last: int


@dataclass
class LogStreamReader(DataSourceStreamReader):
    """Plans and runs the batches of one stream of a log."""

    table: TableRef
    schema: pa.Schema

    @staticmethod
    def prepare(wanted: StreamOptions, schema: StructType) -> LogStreamReader:
        """Return the reader of the columns of a schema."""
        snapshot = wanted.read.table.open()
        mem_wal.state.require_mem_wal(snapshot)
        check_readable(schema, log_schema(snapshot, None))
        return LogStreamReader(wanted.read.table, arrow_schema(schema))

    def initialOffset(self) -> dict[str, Any]:  # noqa: N802 - Spark's name
        """Return where a new stream begins."""
        return _offset({shard.shard_id: min(found) - 1 for shard, found in self._positions()})

    def latestOffset(  # noqa: N802 - Spark's name
        self, start: dict[str, Any] | None = None, limit: object = None
    ) -> dict[str, Any]:
        """Return where the next batch ends."""
        del start, limit
        return _offset({shard.shard_id: max(found) for shard, found in self._positions()})

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[InputPartition]:
        """Return a task for each shard that has something new."""
        begin = _parsed(start)
        # A shard that nobody had written when the stream began has its first entry at 1.
        entries = [
            _Entries(shard, begin.get(shard, 0), last) for shard, last in _parsed(end).items()
        ]
        return [TaskPartition(each) for each in entries if each.last > each.after]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Yield the rows of some entries."""
        wanted: _Entries = partition.value
        snapshot = replace(self.table, version=None).open()
        shard = Shard(snapshot.location, wanted.shard)
        position = wanted.after
        for entry in shard.entries(wanted.after):
            if entry.position > wanted.last:
                break
            position = entry.position
            for batch in entry.batches:
                rows = reconcile_batch(batch, snapshot.schema)
                yield convert_batch(rows.select(self.schema.names), self.schema)
        if position < wanted.last:
            raise VersionNotFoundError(
                "the stream had not read an entry of the log when it was collected; start the "
                "stream anew, or collect later than the stream may fall behind",
                shard=str(wanted.shard),
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
    """Return the schema of a log's rows: columns of the table, and which rows are deletions."""
    known = {field.name: field for field in plain_schema(snapshot.schema)}
    stored = {field.name: scan_field(field) for field in snapshot.schema.fields}
    chosen = list(known) if columns is None else list(columns)
    for name in chosen:
        if name not in known:
            raise FieldNotFoundError(
                f"the log has no such column{similar_names(name, list(known))}", column=name
            )
    fields = [stored.get(name, known[name]).with_nullable(known[name].nullable) for name in chosen]
    return spark_schema(pa.schema(fields))


def _offset(positions: Mapping[uuid.UUID, int]) -> dict[str, Any]:
    return {"shards": {str(shard): position for shard, position in positions.items()}}


def _parsed(form: dict[str, Any]) -> dict[uuid.UUID, int]:
    try:
        return {uuid.UUID(shard): int(position) for shard, position in form["shards"].items()}
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise InvalidInputError(
            "the checkpoint has offsets that are not of this source", offset=form
        ) from error
