"""Prepared statements of DuckDB, cached for datasets with the same schema.

Connecting to DuckDB, registering a table and planning a statement takes as long as executing it
over a few thousand rows, independent of the data. A prepared statement reads from slots:

    SELECT a FROM t over x     connect, register a slot as `t`, plan; put x into the slot, execute
    SELECT a FROM t over y     put y into the slot, execute

A running statement is not in the cache; it is returned after all its rows were read.
"""

from __future__ import annotations

import atexit
import threading
from collections import OrderedDict
from collections.abc import Hashable, Iterator, Mapping, Sequence
from functools import lru_cache
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset

from lancelet.dataset.sql.database import connect, only_selects
from lancelet.io.fork import reset_after_fork
from lancelet.table.snapshot import Snapshot
from lancelet.values import dataclass

_CACHED_MAX: Final = 32
_SMALL_ROWS: Final = 1 << 16
_SMALL_FRAGMENTS: Final = 64
_SMALL_BYTES: Final = 4 << 20


class _Slot(pyarrow.dataset.Dataset):  # type: ignore[misc]  # pyarrow has no types
    """A dataset with a fixed schema that delegates its scans to another dataset."""

    def __init__(self, schema: pa.Schema, *, is_small: bool) -> None:
        self._schema = schema
        self.is_small = is_small
        self.dataset: Any = None

    @property
    def schema(self) -> pa.Schema:
        return self._schema

    def scanner(
        self,
        columns: list[str] | None = None,
        filter: pc.Expression | None = None,  # noqa: A002 - pyarrow's name
        **options: Any,
    ) -> Any:
        """Return a scanner of the dataset that the slot holds."""
        scanner = self.dataset.scanner(columns=columns, filter=filter, **options)
        return _ReadRows(scanner) if self.is_small else scanner


class _ReadRows:
    """A scanner that reads all rows before it returns the first."""

    def __init__(self, scanner: Any) -> None:
        self._scanner = scanner

    def to_reader(self) -> pa.RecordBatchReader:
        """Return the rows as a stream that does not need the GIL to advance."""
        rows: pa.Table = self._scanner.to_table()
        return rows.to_reader()


@dataclass(frozen=True, slots=True, eq=False)
class Prepared:
    """A planned statement; `relation` is None if the statement returns no result."""

    key: Hashable
    connection: Any
    slots: Mapping[str, _Slot]
    relation: Any

    def close(self) -> None:
        """Close the connection of the statement."""
        self.connection.close()


class _StatementCache:
    """A cache of idle statements that evicts the least recently used one."""

    def __init__(self) -> None:
        self._empty()
        reset_after_fork(self, _StatementCache._empty)

    def take(self, key: Hashable) -> Prepared | None:
        """Remove and return a statement, or None if the cache has none for the key."""
        with self._lock:
            return self._queries.pop(key, None)

    def put(self, prepared: Prepared) -> None:
        """Add a statement; the one that it replaces or evicts is closed."""
        with self._lock:
            before = self._queries.pop(prepared.key, None)
            self._queries[prepared.key] = prepared
            dropped = self._queries.popitem(last=False)[1] if self._is_full() else None
        for other in (before, dropped):
            if other is not None:
                other.close()

    def close(self) -> None:
        """Close all statements."""
        with self._lock:
            queries = list(self._queries.values())
            self._queries.clear()
        for prepared in queries:
            prepared.close()

    def _is_full(self) -> bool:
        return len(self._queries) > _CACHED_MAX

    def _empty(self) -> None:
        # A forked child must not use the connections of its parent.
        self._lock = threading.Lock()
        self._queries: OrderedDict[Hashable, Prepared] = OrderedDict()


_CACHE: Final = _StatementCache()
# Connections must be closed before the interpreter shuts down.
atexit.register(_CACHE.close)


def prepare(text: str, tables: Mapping[str, Any]) -> Prepared:
    """Return a prepared statement, which the caller releases or closes."""
    given = {name: readable_by_duckdb(table) for name, table in tables.items()}
    schemas = {name: _schema_of(table) for name, table in given.items()}
    is_small = all(map(_is_small, given.values()))
    key = (text, is_small, *schemas.items())
    prepared = None if None in schemas.values() else _CACHE.take(key)
    if prepared is None:
        prepared = _new(text, given, key, is_cached=None not in schemas.values(), is_small=is_small)
    for name, slot in prepared.slots.items():
        slot.dataset = given[name]
    return prepared


def release(prepared: Prepared) -> None:
    """Return a statement to the cache after all its rows were read."""
    if not prepared.slots or prepared.relation is None:
        prepared.close()
        return
    for slot in prepared.slots.values():
        slot.dataset = None
    _CACHE.put(prepared)


def _new(
    text: str, given: Mapping[str, Any], key: Hashable, *, is_cached: bool, is_small: bool
) -> Prepared:
    connection = connect(text, alone=is_small)
    slots: dict[str, _Slot] = {}
    # A statement with side effects is planned for each execution.
    if is_cached and only_selects(text):
        slots = {name: _Slot(table.schema, is_small=is_small) for name, table in given.items()}
    try:
        for name, table in given.items():
            connection.register(name, slots.get(name, table))
        for name, slot in slots.items():
            slot.dataset = given[name]
        return Prepared(key, connection, slots, connection.sql(text))
    except BaseException:
        connection.close()
        raise


def _is_small(table: Any) -> bool:
    """Return whether a dataset is small enough to be read before the statement starts."""
    snapshot = getattr(table, "snapshot", None)
    if not isinstance(snapshot, Snapshot) or len(snapshot.fragments) > _SMALL_FRAGMENTS:
        return False
    files = [file for fragment in snapshot.fragments for file in fragment.files]
    has_sizes = all(file.size_bytes for file in files)
    return has_sizes and snapshot.num_rows <= _SMALL_ROWS and snapshot.data_bytes <= _SMALL_BYTES


def _schema_of(table: Any) -> bytes | None:
    """Return the serialized schema of a Lance dataset, or None for other tables."""
    if not isinstance(getattr(table, "snapshot", None), Snapshot):
        return None
    schema: pa.Schema = table.schema
    stored: bytes = schema.serialize().to_pybytes()
    return stored


def readable_by_duckdb(table: Any) -> Any:
    """Return the table, with a converted view of its columns if DuckDB lacks their types.

    float16 is converted to float32 and decimal256 to float64, while the rows stream. Conditions
    are evaluated on the converted values. Row ids that a dataset returns by default are not
    scanned, unless a statement refers to them as columns.

    >>> readable_by_duckdb(pa.table({"a": pa.array([1.5]).cast(pa.float16())})).schema.field("a")
    pyarrow.Field<a: float>
    """
    schema = getattr(table, "schema", None)
    if not isinstance(schema, pa.Schema):
        return table
    is_scanned = _scan_schema(table, schema) is schema
    if is_scanned and _schema_for(schema) == schema and not _default_columns(table):
        return table
    if isinstance(table, pyarrow.dataset.Dataset):
        return _ConvertedDataset(table)
    converted = _schema_for(schema)
    if isinstance(table, pa.Table):
        return table.cast(converted)
    return pa.RecordBatchReader.from_batches(converted, _converted(table, converted))


class _ConvertedDataset(pyarrow.dataset.Dataset):  # type: ignore[misc]  # pyarrow has no types
    """A dataset that converts columns to types that DuckDB has."""

    def __init__(self, dataset: pyarrow.dataset.Dataset) -> None:
        self._dataset = dataset
        self._scanned = _scan_schema(dataset, dataset.schema)
        self._converted = _schema_for(self._scanned)

    @property
    def schema(self) -> pa.Schema:
        return self._converted

    def scanner(
        self,
        columns: Sequence[str] | None = None,
        filter: pc.Expression | None = None,  # noqa: A002 - pyarrow's name
        **options: Any,
    ) -> pyarrow.dataset.Scanner:
        """Return a scanner of converted columns."""
        names = list(self.schema.names if columns is None else columns)
        schema = pa.schema([self.schema.field(name) for name in names])
        options |= _default_columns(self._dataset)
        if schema == pa.schema([self._scanned.field(name) for name in names]):
            return self._dataset.scanner(columns=names, filter=filter, **options)
        batches = _converted(self._dataset.scanner(columns=names, **options).to_batches(), schema)
        return pyarrow.dataset.Scanner.from_batches(batches, schema=schema, filter=filter)


def _scan_schema(table: Any, schema: pa.Schema) -> pa.Schema:
    """Return the schema of scans; blob columns may be binary."""
    if "blob_handling" not in getattr(table, "default_scan_options", {}):
        return schema
    found: pa.Schema = table.scanner(**_default_columns(table)).projected_schema
    return found


def _default_columns(table: Any) -> dict[str, bool]:
    """Return overrides for the default scan options that add columns."""
    defaults = getattr(table, "default_scan_options", {})
    return {name: False for name in ("with_row_id", "with_row_address") if defaults.get(name)}


def _converted(batches: Iterator[pa.RecordBatch], schema: pa.Schema) -> Iterator[pa.RecordBatch]:
    for batch in batches:
        arrays = [batch.column(field.name).cast(field.type) for field in schema]
        yield pa.RecordBatch.from_arrays(arrays, schema=schema)


@lru_cache(maxsize=256)
def _schema_for(schema: pa.Schema) -> pa.Schema:
    return pa.schema([_field_for(field) for field in schema], metadata=schema.metadata)


def _field_for(field: pa.Field) -> pa.Field:
    found = _type_for(field.type)
    return field if found == field.type else field.with_type(found)


def _type_for(data_type: pa.DataType) -> pa.DataType:
    if pa.types.is_float16(data_type):
        return pa.float32()
    if pa.types.is_decimal256(data_type):
        return pa.float64()
    if pa.types.is_struct(data_type):
        return pa.struct([_field_for(field) for field in data_type])
    if pa.types.is_fixed_size_list(data_type):
        return pa.list_(_field_for(data_type.value_field), data_type.list_size)
    if pa.types.is_large_list(data_type):
        return pa.large_list(_field_for(data_type.value_field))
    if pa.types.is_list(data_type):
        return pa.list_(_field_for(data_type.value_field))
    return data_type
