"""Reading a dataset together with its shards: scans, lookups of keys, and searches of vectors."""

from __future__ import annotations

import math
import threading
import uuid
import weakref
from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Self

import pyarrow as pa

from lancelet import ops
from lancelet.errors import InvalidInputError, LanceletError
from lancelet.log import LOGGER
from lancelet.query import search as searches

if TYPE_CHECKING:
    from lancelet.dataset.dataset import LanceDataset
    from lancelet.ops.mem_wal.merged import MergedRead, ShardTables


class ShardSnapshot:
    """Which flushed tables of a shard to read; each method changes it and returns it."""

    def __init__(self, shard_id: str) -> None:
        """Begin with no tables."""
        self.tables = ops.mem_wal.merged.ShardTables(parse_shard_id(shard_id))

    @staticmethod
    def of(tables: ShardTables) -> ShardSnapshot:
        """Return what to read of a shard that was discovered."""
        found = ShardSnapshot(str(tables.shard_id))
        found.tables = tables
        return found

    @property
    def shard_id(self) -> str:
        """The id of the shard."""
        return str(self.tables.shard_id)

    def with_spec_id(self, spec_id: int) -> Self:
        """Say by which rule rows belong to the shard."""
        self.tables = replace(self.tables, spec_id=spec_id)
        return self

    def with_current_generation(self, generation: int) -> Self:
        """Say which generation is in memory."""
        self.tables = replace(self.tables, current_generation=generation)
        return self

    def with_sstable(self, generation: int, path: str) -> Self:
        """Add a flushed table by its folder in the shard."""
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
    """Reads a table with what shards have flushed, and what a writer has in memory."""

    def __init__(self, read: MergedRead) -> None:
        """Read this; made by a writer, or by `from_snapshots`."""
        self._read = read

    @staticmethod
    def from_snapshots(
        dataset: LanceDataset, shard_snapshots: Sequence[ShardSnapshot]
    ) -> LsmScanner:
        """Read a table and flushed tables of shards."""
        shards = tuple(each.tables for each in shard_snapshots)
        return LsmScanner(ops.mem_wal.merged.MergedRead(dataset.snapshot, shards))

    @staticmethod
    def fresh(dataset: LanceDataset) -> LsmScanner:
        """Read the latest version with all that shards have, in flushed tables and in the log.

        What a writer has put durably is there, whichever process it is in.
        """
        return LsmScanner(ops.mem_wal.fresh.fresh_read(dataset.snapshot.location))

    def project(self, columns: Sequence[str]) -> Self:
        """Return these columns, and those of the key; `s.x` is the struct `s` with `x` alone."""
        return self._with(columns=tuple(columns))

    def filter(self, expr: str) -> Self:
        """Return only rows for which an expression is true."""
        return self._with(filter=expr)

    def limit(self, n: int | None = None, offset: int | None = None) -> Self:
        """Return at most `limit` rows, after the first `offset`."""
        return self._with(limit=n, offset=offset or 0)

    def with_row_address(self) -> Self:
        """Return a column `_rowaddr`, null for rows that are not in the table."""
        return self._with(with_address=True)

    def with_memtable_gen(self) -> Self:
        """Return a column `_memtable_gen`, 0 for rows of the table."""
        return self._with(with_generation=True)

    def to_table(self) -> pa.Table:
        """Return the rows as a table."""
        return ops.mem_wal.catch_up.with_catch_up(self._read).table()

    def to_batch(self) -> pa.RecordBatch:
        """Return the rows as one batch."""
        table = self.to_table().combine_chunks()
        empty = pa.RecordBatch.from_pylist([], schema=table.schema)
        return (table.to_batches() or [empty])[0]

    def to_batches(self) -> list[pa.RecordBatch]:
        """Return the rows in batches."""
        return list(self.to_table().to_batches())

    def count_rows(self) -> int:
        """Return the number of rows."""
        return ops.mem_wal.catch_up.with_catch_up(self._read).count()

    def _with(self, **changes: Any) -> Self:
        self._read = replace(self._read, **changes)
        return self


class LsmReader:
    """Reads a dataset with all of its shards, as they were a moment ago at most.

    A thread looks again and again for the latest version and for shards and what they flushed;
    queries take what it found last, together. A context manager closes it.

    with LsmReader(dataset, refresh_interval_ms=500) as reader:
        reader.scanner().filter("id > 7").to_table()
    """

    def __init__(self, dataset: LanceDataset, *, refresh_interval_ms: int = 1000) -> None:
        """Look at a dataset now, and in intervals from then on."""
        if refresh_interval_ms < 1:
            raise InvalidInputError(
                "refresh_interval_ms must be at least 1", found=refresh_interval_ms
            )
        self._dataset = dataset
        self._stop = threading.Event()
        self._seen = self._look()
        ref = weakref.ref(self)
        seconds, stop = refresh_interval_ms / 1000, self._stop

        def look_again() -> None:
            while not stop.wait(seconds) and (reader := ref()) is not None:
                try:
                    reader.refresh()
                except LanceletError as error:
                    # What was seen last is still true, and the next look may succeed.
                    LOGGER.warning("looking for shards failed: %s", error)
                del reader

        threading.Thread(target=look_again, name="lancelet-shards", daemon=True).start()

    @property
    def dataset(self) -> LanceDataset:
        """The version that was seen last."""
        return self._seen[0]

    @property
    def shards(self) -> list[ShardSnapshot]:
        """The shards that were seen last."""
        return list(self._seen[1])

    def refresh(self) -> None:
        """Look now."""
        self._seen = self._look()

    def scanner(self) -> LsmScanner:
        """Return a scanner of what was seen last."""
        return LsmScanner.from_snapshots(*self._seen)

    def point_lookup_planner(self) -> LsmPointLookupPlanner:
        """Return what plans lookups of keys in what was seen last."""
        return LsmPointLookupPlanner(*self._seen)

    def vector_search_planner(
        self,
        vector_column: str,
        distance_type: str | None = None,
        filter: str | None = None,  # noqa: A002 - as of the planner
    ) -> LsmVectorSearchPlanner:
        """Return what plans searches of vectors in what was seen last."""
        return LsmVectorSearchPlanner(
            *self._seen, vector_column, distance_type=distance_type, filter=filter
        )

    def close(self) -> None:
        """Look no more."""
        self._stop.set()

    def _look(self) -> tuple[LanceDataset, list[ShardSnapshot]]:
        # Shards first: what is merged after that is known to the version, and skipped.
        shards = self._dataset.mem_wal_shards()
        return self._dataset.checkout_version(self._dataset.latest_version), shards

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class ExecutionPlan:
    """A lookup or search that is ready to run."""

    def __init__(self, _raw: MergedRead, _run: Any, _steps: Sequence[str]) -> None:
        """Run a function that returns the rows; made by a planner."""
        self._read = _raw
        self._run = _run
        self._steps = _steps

    @property
    def schema(self) -> pa.Schema:
        """The schema of the rows."""
        schema: pa.Schema = self._run().schema
        return schema

    @property
    def dataset_schema(self) -> pa.Schema:
        """The schema of the table."""
        return self._read.base.schema.to_arrow()

    def explain(self) -> str:
        """Return the steps, the last first."""
        return "\n".join("  " * depth + step for depth, step in enumerate(self._steps))

    def to_table(self) -> pa.Table:
        """Return the rows as a table."""
        table: pa.Table = self._run()
        return table

    def to_reader(self) -> pa.RecordBatchReader:
        """Return the rows as a stream."""
        return self.to_table().to_reader()

    def to_batches(self) -> list[pa.RecordBatch]:
        """Return the rows in batches."""
        return list(self.to_table().to_batches())


class LsmPointLookupPlanner:
    """Looks rows up by their key, the newest first."""

    def __init__(
        self,
        dataset: LanceDataset,
        shard_snapshots: Sequence[ShardSnapshot],
        pk_columns: Sequence[str] | None = None,
    ) -> None:
        """Look in a table and in flushed tables of shards."""
        self._read = ops.mem_wal.merged.MergedRead(
            dataset.snapshot,
            tuple(each.tables for each in shard_snapshots),
            key_columns=None if pk_columns is None else tuple(pk_columns),
        )
        self._keys = self._read.keys

    def plan_lookup(
        self, pk_value: pa.Array, columns: Sequence[str] | None = None
    ) -> ExecutionPlan:
        """Return the plan of looking up one key.

        Args:
            pk_value: An array with the value, or with a struct of the values of several columns.
            columns: What to return, by default all columns.
        """
        if len(pk_value) != 1:
            raise InvalidInputError("one key is looked up at a time", found=len(pk_value))
        is_struct = pa.types.is_struct(pk_value.type)
        values = pk_value.flatten() if is_struct else [pk_value]
        key = pa.Table.from_arrays(list(values), self._keys)
        wanted = None if columns is None else tuple(columns)
        read, where = self._read, _equality(key)

        def run() -> pa.Table:
            return ops.mem_wal.lookup.look_up(read, key, where, wanted)

        shown = wanted or self._read.base.schema.names
        steps = [f"Project: {', '.join(shown)}", f"Lookup: {where}", "LsmScan"]
        return ExecutionPlan(read, run, steps)


class LsmVectorSearchPlanner:
    """Searches the vectors of a table together with those of its shards."""

    def __init__(
        self,
        dataset: LanceDataset,
        shard_snapshots: Sequence[ShardSnapshot],
        vector_column: str,
        pk_columns: Sequence[str] | None = None,
        distance_type: str | None = None,
        filter: str | None = None,  # noqa: A002 - pylance's name
    ) -> None:
        """Search a column; the rows that a filter is true for, if one is given."""
        self._read = ops.mem_wal.merged.MergedRead(
            dataset.snapshot,
            tuple(each.tables for each in shard_snapshots),
            filter=filter,
            key_columns=None if pk_columns is None else tuple(pk_columns),
        )
        self._read.keys  # noqa: B018 - without a key nothing tells which rows are newer
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
        """Return the plan of finding the `k` nearest rows.

        Args:
            query: The vector.
            k: How many rows.
            nprobes: The number of partitions of the table's index to search. Rows that it lacks
                are all compared, and so are flushed ones unless a flushed table has many.
            columns: What to return, by default all columns; `_distance` comes behind.
            refine_base_table: Whether the distances that an index of the table estimates are
                computed from the vectors. They are anyhow where shards have rows to compare with.
            overfetch_factor: How many times `k` rows are first asked of the table, of which some
                may have newer ones; more are asked for if too few are left.
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
        wanted = {
            "column": self._column,
            "q": query,
            "k": k,
            "metric": self._metric,
            "nprobes": nprobes,
        }
        search = searches.vector.read_vector_search(schema, wanted)

        def run() -> pa.Table:
            return ops.mem_wal.nearest.nearest_rows(
                read, search, columns, overfetch=overfetch_factor, is_exact=refine_base_table
            )

        steps = [f"Limit: limit={k}", f"KNNVectorDistance: metric={self._metric}", "LsmScan"]
        return ExecutionPlan(read, run, steps)


def parse_shard_id(text: str) -> uuid.UUID:
    """Return the id of a shard."""
    try:
        return uuid.UUID(text)
    except ValueError as error:
        raise InvalidInputError(f"Invalid shard_id UUID: {text}") from error


def _equality(key: pa.Table) -> str:
    """Return SQL that is true for rows with a key."""
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
