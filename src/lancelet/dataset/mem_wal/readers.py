"""Reads of a dataset together with its shards: scans, key lookups and vector searches."""

from __future__ import annotations

import math
import threading
import uuid
import weakref
from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Self

import pyarrow as pa

from lancelet import memwal, surroundings
from lancelet import search as searches
from lancelet.errors import InvalidInputError, LanceletError
from lancelet.log import LOGGER

if TYPE_CHECKING:
    from lancelet.dataset.dataset import LanceDataset
    from lancelet.memwal.merged import MergedRead, ShardTables


class ShardSnapshot:
    """The flushed SSTables of a shard to read. Each method changes and returns the snapshot."""

    def __init__(self, shard_id: str) -> None:
        """Create a snapshot without SSTables."""
        self.tables = memwal.merged.ShardTables(parse_shard_id(shard_id))

    @staticmethod
    def of(tables: ShardTables) -> ShardSnapshot:
        """Return the snapshot of a discovered shard."""
        found = ShardSnapshot(str(tables.shard_id))
        found.tables = tables
        return found

    @property
    def shard_id(self) -> str:
        """The id of the shard."""
        return str(self.tables.shard_id)

    def with_spec_id(self, spec_id: int) -> Self:
        """Set the id of the sharding rule."""
        self.tables = replace(self.tables, spec_id=spec_id)
        return self

    def with_current_generation(self, generation: int) -> Self:
        """Set the generation of the memtable."""
        self.tables = replace(self.tables, current_generation=generation)
        return self

    def with_sstable(self, generation: int, path: str) -> Self:
        """Add a flushed SSTable by its folder in the shard."""
        tables = {**self.tables.sstables, generation: path}
        self.tables = replace(self.tables, sstables=tables)
        return self

    def __repr__(self) -> str:
        tables = self.tables
        return (
            f"ShardSnapshot(shard_id={self.shard_id!r}, current_gen={tables.current_generation}, "
            f"sstables={len(tables.sstables)})"
        )


class LsmScanner:
    """Scans a table together with the flushed and in-memory rows of its shards."""

    def __init__(self, read: MergedRead) -> None:
        """Wrap a merged read; created by a writer or by `from_snapshots`."""
        self._read = read

    @staticmethod
    def from_snapshots(
        dataset: LanceDataset, shard_snapshots: Sequence[ShardSnapshot]
    ) -> LsmScanner:
        """Return a scanner of a table and the SSTables of shards."""
        shards = tuple(each.tables for each in shard_snapshots)
        return LsmScanner(memwal.merged.MergedRead(dataset.snapshot, shards))

    @staticmethod
    def fresh(dataset: LanceDataset) -> LsmScanner:
        """Return a scanner of the latest version and all shards, both flushed and logged rows.

        Includes all durable writes, also those of writers in other processes.
        """
        return LsmScanner(memwal.fresh.fresh_read(dataset.snapshot.location))

    def project(self, columns: Sequence[str]) -> Self:
        """Select columns in addition to the key; `s.x` selects the field `x` of the struct `s`."""
        return self._with(columns=tuple(columns))

    def filter(self, expr: str) -> Self:
        """Filter rows by an expression."""
        return self._with(filter=expr)

    def limit(self, n: int | None = None, offset: int | None = None) -> Self:
        """Limit the scan to `limit` rows after the first `offset`."""
        return self._with(limit=n, offset=offset or 0)

    def with_row_address(self) -> Self:
        """Add a column `_rowaddr`, null for rows outside of the base table."""
        return self._with(with_address=True)

    def with_memtable_gen(self) -> Self:
        """Add a column `_memtable_gen`, 0 for rows of the base table."""
        return self._with(with_generation=True)

    def to_table(self) -> pa.Table:
        """Return the rows as a table."""
        return memwal.catch_up.with_catch_up(self._read).table()

    def to_batch(self) -> pa.RecordBatch:
        """Return the rows as one record batch."""
        table = self.to_table().combine_chunks()
        empty = pa.RecordBatch.from_pylist([], schema=table.schema)
        return (table.to_batches() or [empty])[0]

    def to_batches(self) -> list[pa.RecordBatch]:
        """Return the rows as record batches."""
        return list(self.to_table().to_batches())

    def count_rows(self) -> int:
        """Return the number of rows."""
        return memwal.catch_up.with_catch_up(self._read).count()

    def _with(self, **changes: Any) -> Self:
        self._read = replace(self._read, **changes)
        return self


class LsmReader:
    """Reads a dataset with all of its shards, with bounded staleness.

    A background thread periodically fetches the latest version and the shards. Queries use the last
    consistent result. A context manager closes the reader.

    with LsmReader(dataset, refresh_interval_ms=500) as reader:
        reader.scanner().filter("id > 7").to_table()
    """

    def __init__(self, dataset: LanceDataset, *, refresh_interval_ms: int = 1000) -> None:
        """Fetch the current state and start the background refresh."""
        if refresh_interval_ms < 1:
            raise InvalidInputError(
                "refresh_interval_ms must be at least 1", found=refresh_interval_ms
            )
        self._dataset = dataset
        self._stop = threading.Event()
        self._state = self._fetch()
        ref = weakref.ref(self)
        seconds, stop = refresh_interval_ms / 1000, self._stop

        def refresh_periodically() -> None:
            while not stop.wait(seconds) and (reader := ref()) is not None:
                try:
                    reader.refresh()
                except LanceletError as error:
                    # The last state remains consistent, and the next refresh may succeed.
                    LOGGER.warning("refreshing the shards failed: %s", error)
                del reader

        surroundings.start_thread(refresh_periodically, "lancelet-shards")

    @property
    def dataset(self) -> LanceDataset:
        """The dataset at the last refresh."""
        return self._state[0]

    @property
    def shards(self) -> list[ShardSnapshot]:
        """The shards at the last refresh."""
        return list(self._state[1])

    def refresh(self) -> None:
        """Refresh the state now."""
        self._state = self._fetch()

    def scanner(self) -> LsmScanner:
        """Return a scanner of the last state."""
        return LsmScanner.from_snapshots(*self._state)

    def point_lookup_planner(self) -> LsmPointLookupPlanner:
        """Return a planner of key lookups in the last state."""
        return LsmPointLookupPlanner(*self._state)

    def vector_search_planner(
        self,
        vector_column: str,
        distance_type: str | None = None,
        filter: str | None = None,  # noqa: A002 - as in the planner
    ) -> LsmVectorSearchPlanner:
        """Return a planner of vector searches in the last state."""
        return LsmVectorSearchPlanner(
            *self._state, vector_column, distance_type=distance_type, filter=filter
        )

    def close(self) -> None:
        """Stop the background refresh."""
        self._stop.set()

    def _fetch(self) -> tuple[LanceDataset, list[ShardSnapshot]]:
        # List shards first: rows merged afterwards are in the version too, and are skipped.
        shards = self._dataset.mem_wal_shards()
        return self._dataset.checkout_version(self._dataset.latest_version), shards

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class ExecutionPlan:
    """A key lookup or vector search that is ready to execute."""

    def __init__(self, _raw: MergedRead, _run: Any, _steps: Sequence[str]) -> None:
        """Wrap a function that returns the rows; created by a planner."""
        self._read = _raw
        self._run = _run
        self._steps = _steps

    @property
    def schema(self) -> pa.Schema:
        """The schema of the result."""
        schema: pa.Schema = self._run().schema
        return schema

    @property
    def dataset_schema(self) -> pa.Schema:
        """The schema of the table."""
        return self._read.base.schema.to_arrow()

    def explain(self) -> str:
        """Return the plan as text, the last operator first."""
        return "\n".join("  " * depth + step for depth, step in enumerate(self._steps))

    def to_table(self) -> pa.Table:
        """Return the rows as a table."""
        table: pa.Table = self._run()
        return table

    def to_reader(self) -> pa.RecordBatchReader:
        """Return the rows as a record batch reader."""
        return self.to_table().to_reader()

    def to_batches(self) -> list[pa.RecordBatch]:
        """Return the rows as record batches."""
        return list(self.to_table().to_batches())


class LsmPointLookupPlanner:
    """Plans lookups of rows by key; the newest row wins."""

    def __init__(
        self,
        dataset: LanceDataset,
        shard_snapshots: Sequence[ShardSnapshot],
        pk_columns: Sequence[str] | None = None,
    ) -> None:
        """Plan lookups in a table and the SSTables of shards."""
        self._read = memwal.merged.MergedRead(
            dataset.snapshot,
            tuple(each.tables for each in shard_snapshots),
            key_columns=None if pk_columns is None else tuple(pk_columns),
        )
        self._keys = self._read.keys

    def plan_lookup(
        self, pk_value: pa.Array, columns: Sequence[str] | None = None
    ) -> ExecutionPlan:
        """Plan the lookup of one key.

        Args:
            pk_value: An array with one value, or one struct for a composite key.
            columns: The columns to return, by default all columns.
        """
        if len(pk_value) != 1:
            raise InvalidInputError("a lookup requires exactly one key", found=len(pk_value))
        is_struct = pa.types.is_struct(pk_value.type)
        values = pk_value.flatten() if is_struct else [pk_value]
        key = pa.Table.from_arrays(list(values), self._keys)
        selected = None if columns is None else tuple(columns)
        read, where = self._read, _equality(key)

        def run() -> pa.Table:
            return memwal.lookup.lookup_row(read, key, where, selected)

        shown = selected or self._read.base.schema.names
        steps = [f"Project: {', '.join(shown)}", f"Lookup: {where}", "LsmScan"]
        return ExecutionPlan(read, run, steps)


class LsmVectorSearchPlanner:
    """Plans vector searches in a table together with its shards."""

    def __init__(
        self,
        dataset: LanceDataset,
        shard_snapshots: Sequence[ShardSnapshot],
        vector_column: str,
        pk_columns: Sequence[str] | None = None,
        distance_type: str | None = None,
        filter: str | None = None,  # noqa: A002 - pylance's name
    ) -> None:
        """Plan searches of a vector column, optionally filtered."""
        self._read = memwal.merged.MergedRead(
            dataset.snapshot,
            tuple(each.tables for each in shard_snapshots),
            filter=filter,
            key_columns=None if pk_columns is None else tuple(pk_columns),
        )
        self._read.keys  # noqa: B018 - raises if there is no key to deduplicate rows by
        self._column = vector_column
        self._metric = distance_type or "l2"

    def plan_search(
        self,
        query: Any,
        k: int = 10,
        nprobes: int = 20,
        columns: Sequence[str] | None = None,
        refine_base_table: bool = False,
        overfetch_factor: float = 1.0,
    ) -> ExecutionPlan:
        """Plan a search of the `k` nearest rows.

        Args:
            query: The query vector.
            k: The number of rows.
            nprobes: The number of partitions to probe in the index of the base table. Unindexed
                rows and small SSTables are searched exhaustively.
            columns: The columns to return, by default all columns, followed by `_distance`.
            refine_base_table: Whether to recompute approximate distances of the base table from
                the vectors. Always done if shards contain rows.
            overfetch_factor: The number of candidates of the base table as a multiple of `k`, since
                some may have newer rows in shards. More candidates are fetched if too few remain.
        """
        if k < 1:
            raise InvalidInputError("k must be positive", k=k)
        if nprobes < 1:
            raise InvalidInputError("nprobes must be positive", nprobes=nprobes)
        if not math.isfinite(overfetch_factor) or overfetch_factor < 1:
            raise InvalidInputError(
                "overfetch_factor must be finite and at least 1", overfetch_factor=overfetch_factor
            )
        read, schema = self._read, self._read.base.schema
        parameters = {
            "column": self._column,
            "q": query,
            "k": k,
            "metric": self._metric,
            "nprobes": nprobes,
        }
        search = searches.vector.read_vector_search(schema, parameters)

        def run() -> pa.Table:
            return memwal.nearest.nearest_rows(
                read, search, columns, overfetch=overfetch_factor, is_exact=refine_base_table
            )

        steps = [f"Limit: limit={k}", f"KNNVectorDistance: metric={self._metric}", "LsmScan"]
        return ExecutionPlan(read, run, steps)


def parse_shard_id(text: str) -> uuid.UUID:
    """Parse the UUID of a shard."""
    try:
        return uuid.UUID(text)
    except ValueError as error:
        raise InvalidInputError(f"Invalid shard_id UUID: {text}") from error


def _equality(key: pa.Table) -> str:
    """Return a SQL condition that selects a key."""
    parts: Iterable[str] = (
        f"`{name}` = {_literal(column[0])}"
        for name, column in zip(key.column_names, key.columns, strict=True)
    )
    return " AND ".join(parts)


def _literal(value: pa.Scalar) -> str:
    found = value.as_py()
    if isinstance(found, bool):
        return str(found).upper()
    if isinstance(found, int | float):
        return repr(found)
    if isinstance(found, bytes):
        return f"x'{found.hex()}'"
    text = str(found).replace("'", "''")
    return f"'{text}'"
