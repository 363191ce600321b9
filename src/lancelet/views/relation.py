"""The rows that a query reads: rows of the source, with columns of joined tables.

    source   k 7, price 3      d   id 7, name "Dune"
    row      source{k 7, price 3}, d{id 7, name "Dune"}

A key of a joined table is unique, so each row of the source has at most one row of each table, and
the row id of the source identifies the row. Conditions on columns of the source are evaluated while
the source is read. The columns of joined tables that are used are read into memory.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Final, Protocol, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from lancelet.buffers import Int64s
from lancelet.change.merge.key_index import KeyIndex, Keys
from lancelet.encodings.arrow import to_numpy
from lancelet.encodings.take import filter_batch
from lancelet.errors import InvalidInputError
from lancelet.expr import expression as ex
from lancelet.expr.compile import ExpressionLike, compile_filter, compile_value
from lancelet.expr.evaluate import evaluate, evaluate_filter
from lancelet.expr.expression import Comparison, Expression
from lancelet.expr.scan_types import scan_field
from lancelet.expr.simplify import split_conjuncts
from lancelet.expr.traversal import children, columns_of, with_children
from lancelet.format.field_path import format_path
from lancelet.rowids.address import UInt64s
from lancelet.scan.execute import execute, execute_to_table
from lancelet.scan.plan import plan_scan, projection_of
from lancelet.scan.projection import scan_schema
from lancelet.scan.row_columns import ROW_FIELDS, RowColumn
from lancelet.scan.scan_options import ScanOptions
from lancelet.scan.take import take_addresses
from lancelet.table.snapshot import Snapshot
from lancelet.upkeep.changes.rows import ChangedRows
from lancelet.values import cached_property, dataclass
from lancelet.views.definition import SOURCE, Join, Query

Flags: TypeAlias = npt.NDArray[np.bool_]
Fragments: TypeAlias = tuple[int, ...] | None
ReadField: TypeAlias = tuple[str, int, str, str, bool]
"""The table, id, name and type of a field, and whether it is nullable."""

_PASSES: Final = "_source_row_id_passes"  # columns of views do not have this name
_LISTED_KEYS_MAX: Final = 1 << 17
"""Up to this number of keys, rows are read by a condition on the key."""


class Relation(Protocol):
    """The rows of a query before they are grouped."""

    @property
    def source(self) -> Snapshot:
        """The version of the source."""

    def schema_of(self, expressions: Mapping[str, str]) -> pa.Schema:
        """Return the types of expressions."""

    def rows(
        self,
        expressions: Mapping[str, str],
        condition: ExpressionLike | None,
        *,
        fragments: Fragments = None,
        with_row_id: bool = False,
    ) -> Iterator[pa.RecordBatch]:
        """Yield expressions of the rows that pass a condition."""

    def rows_at(
        self, addresses: UInt64s, expressions: Mapping[str, str], condition: str | None
    ) -> tuple[pa.RecordBatch, Flags | None]:
        """Return expressions of rows of the source that pass, and which rows pass; None for all."""

    def fields_of(self, expressions: Iterable[str]) -> set[ReadField]:
        """Return all fields that expressions read."""

    def reads_positions(self, expressions: Iterable[str]) -> bool:
        """Return whether expressions read the positions of rows."""


_POSITIONS: Final = frozenset({RowColumn.ADDRESS.value, RowColumn.OFFSET.value})


def relation_of(query: Query, source: Snapshot, tables: Mapping[str, Snapshot]) -> Relation:
    """Return the rows that a query reads."""
    if not query.joins:
        return SourceRows(source)
    return JoinedRows(source, tuple(JoinedTable(each, tables[each.name]) for each in query.joins))


@dataclass(frozen=True, slots=True, eq=False)
class SourceRows:
    """The rows of the source."""

    source: Snapshot

    def schema_of(self, expressions: Mapping[str, str]) -> pa.Schema:
        """Return the types of expressions."""
        return projection_of(self.source, expressions).schema

    def rows(
        self,
        expressions: Mapping[str, str],
        condition: ExpressionLike | None,
        *,
        fragments: Fragments = None,
        with_row_id: bool = False,
    ) -> Iterator[pa.RecordBatch]:
        """Yield expressions of the rows that pass a condition."""
        options = ScanOptions(
            columns=expressions, filter=condition, fragments=fragments, with_row_id=with_row_id
        )
        return execute(plan_scan(self.source, options))

    def rows_at(
        self, addresses: UInt64s, expressions: Mapping[str, str], condition: str | None
    ) -> tuple[pa.RecordBatch, Flags | None]:
        """Return expressions of rows of the source that pass, and which rows pass; None for all."""
        if condition is None:
            return _taken(self.source, addresses, expressions), None
        batch = _taken(self.source, addresses, {**expressions, _PASSES: condition})
        passes = to_numpy(batch.column(_PASSES).fill_null(False))
        batch = batch.drop_columns([_PASSES])
        return (batch, None) if passes.all() else (filter_batch(batch, pa.array(passes)), passes)

    def fields_of(self, expressions: Iterable[str]) -> set[ReadField]:
        """Return all fields that expressions read."""
        return _fields(SOURCE, self.source, expressions)

    def reads_positions(self, expressions: Iterable[str]) -> bool:
        """Return whether expressions read the positions of rows."""
        read = projection_of(self.source, _numbered(expressions)).row_columns
        return not _POSITIONS.isdisjoint(read)


@dataclass(frozen=True, eq=False)
class JoinedTable:
    """A version of a joined table."""

    join: Join
    snapshot: Snapshot

    @cached_property
    def data_type(self) -> pa.DataType:
        """The columns as a struct."""
        return pa.struct([scan_field(each) for each in self.snapshot.schema.fields])

    def structs(self, paths: frozenset[tuple[str, ...]]) -> pa.RecordBatch:
        """Read all rows, with the columns on paths, as structs with the name of the table."""
        names = _names_of(paths, self.join.name)
        rows = execute_to_table(plan_scan(self.snapshot, ScanOptions(columns=names)))
        return _structs(self.join.name, rows)

    def structs_at(self, addresses: UInt64s, paths: frozenset[tuple[str, ...]]) -> pa.RecordBatch:
        """Read rows by address, like `structs`."""
        columns = {name: format_path([name]) for name in _names_of(paths, self.join.name)}
        rows = take_addresses(self.snapshot, addresses, projection_of(self.snapshot, columns))
        return _structs(self.join.name, rows)


@dataclass(frozen=True, slots=True, eq=False)
class _Found:
    """The rows of a joined table in memory, found by key."""

    index: KeyIndex
    rows: pa.RecordBatch

    @property
    def memory_bytes(self) -> int:
        """Approximate memory use; the index has about 16 bytes per key."""
        return int(self.rows.nbytes) + self.index.keys.nbytes + 16 * len(self.index.keys)

    def rows_of(self, columns: Sequence[pa.Array]) -> Int64s:
        """Return the row with each key, or -1."""
        rows: Int64s = np.full(len(columns[0]), -1, np.int64)
        indices, found = self.index.find_rows(columns)
        rows[indices] = found
        return rows


@dataclass(frozen=True, slots=True, eq=False)
class _Compiled:
    """Expressions over joined rows, and the columns to read."""

    outputs: tuple[tuple[pa.Field, Expression], ...]
    own: Expression | None
    rest: Expression | None
    names: tuple[str, ...]
    tables: tuple[frozenset[tuple[str, ...]], ...]


@dataclass(frozen=True, eq=False)
class JoinedRows:
    """The rows of the source with the rows of joined tables."""

    source: Snapshot
    tables: tuple[JoinedTable, ...]

    @cached_property
    def _schema(self) -> pa.Schema:
        columns = [pa.field(SOURCE, pa.struct(list(scan_schema(self.source.schema))))]
        columns += [pa.field(each.join.name, each.data_type) for each in self.tables]
        return pa.schema(columns)

    @cached_property
    def _keys(self) -> tuple[tuple[tuple[Expression, ...], tuple[Expression, ...]], ...]:
        """The keys of each table: expressions of the source, and of the table, of equal types."""
        return tuple(self._keys_of(each.join) for each in self.tables)

    @cached_property
    def _tables(self) -> dict[tuple[int, frozenset[tuple[str, ...]]], _Found]:
        return {}

    def _keys_of(self, join: Join) -> tuple[tuple[Expression, ...], tuple[Expression, ...]]:
        own, other = list[Expression](), list[Expression]()
        for left, right in join.keys:
            bound = compile_filter(f"{left} = {right}", self._schema)
            if not isinstance(bound, Comparison):
                raise InvalidInputError(
                    "the columns of the join cannot be compared", left=left, right=right
                )
            own.append(bound.left)
            other.append(bound.right)
        return tuple(own), tuple(other)

    def schema_of(self, expressions: Mapping[str, str]) -> pa.Schema:
        """Return the types of expressions."""
        return pa.schema([field for field, _ in self._compile(expressions, None).outputs])

    def rows(
        self,
        expressions: Mapping[str, str],
        condition: ExpressionLike | None,
        *,
        fragments: Fragments = None,
        with_row_id: bool = False,
    ) -> Iterator[pa.RecordBatch]:
        """Yield expressions of the rows that pass a condition."""
        compiled = self._compile(expressions, condition)
        options = ScanOptions(
            columns=compiled.names,
            filter=compiled.own,
            fragments=fragments,
            with_row_id=with_row_id,
        )
        for batch in execute(plan_scan(self.source, options)):
            found, passes = self._joined(batch.select(list(compiled.names)), compiled)
            if with_row_id:
                ids = batch.column(RowColumn.ID.value)
                ids = ids if passes is None else ids.filter(pa.array(passes))
                found = found.append_column(ROW_FIELDS[RowColumn.ID.value], ids)
            if found.num_rows:
                yield found

    def rows_at(
        self, addresses: UInt64s, expressions: Mapping[str, str], condition: str | None
    ) -> tuple[pa.RecordBatch, Flags | None]:
        """Return expressions of rows of the source that pass, and which rows pass; None for all."""
        compiled = self._compile(expressions, condition)
        columns = {name: format_path([name]) for name in compiled.names}
        batch = _taken(self.source, addresses, columns)
        if compiled.own is None:
            return self._joined(batch, compiled)
        own = to_numpy(evaluate_filter(compiled.own, batch))
        found, passes = self._joined(filter_batch(batch, pa.array(own)), compiled)
        if passes is not None:
            own = own.copy()
            own[np.flatnonzero(own)[~passes]] = False
        return found, own

    def fields_of(self, expressions: Iterable[str]) -> set[ReadField]:
        """Return all fields that expressions read."""
        found = set[ReadField]()
        paths = self._paths_of(expressions)
        for name, snapshot in self._snapshots.items():
            columns = [format_path(path[1:]) for path in paths if path[0] == name]
            found |= _fields(name, snapshot, columns)
        return found

    def reads_positions(self, expressions: Iterable[str]) -> bool:
        """Return whether expressions read the positions of rows."""
        return any(path[1] in _POSITIONS for path in self._paths_of(expressions))

    def rows_that_refer(
        self, position: int, keys: Sequence[pa.Array]
    ) -> Iterator[tuple[UInt64s, UInt64s]]:
        """Yield the ids and addresses of the rows of the source with one of the keys of a table."""
        own, _ = self._keys[position]
        index = KeyIndex.build(Keys.of(keys, with_span=True))
        names = _names_of(_paths(own), SOURCE)
        listed = keys[0].drop_null().unique()
        first = _of_source(own[0])
        condition = ex.In(first, listed) if len(listed) <= _LISTED_KEYS_MAX else None
        options = ScanOptions(
            columns=names, filter=condition, with_row_id=True, with_row_address=True
        )
        for batch in execute(plan_scan(self.source, options)):
            structs = _structs(SOURCE, batch.select(list(names)))
            hits, _ = index.find_rows([evaluate(each, structs) for each in own])
            ids, addresses = (
                to_numpy(batch.column(name.value))[hits]
                for name in (RowColumn.ID, RowColumn.ADDRESS)
            )
            if len(hits):
                yield ids, addresses

    def keys_at(self, position: int, addresses: UInt64s) -> list[pa.Array]:
        """Return the keys of rows of a joined table, as compared with those of the source."""
        _, other = self._keys[position]
        rows = self.tables[position].structs_at(addresses, _paths(other))
        return [_decoded(evaluate(each, rows)) for each in other]

    def check_keys(self) -> None:
        """Raise if two rows of a joined table have the same key."""
        for position in range(len(self.tables)):
            self._table(position, frozenset())

    @property
    def _snapshots(self) -> dict[str, Snapshot]:
        return {SOURCE: self.source} | {each.join.name: each.snapshot for each in self.tables}

    def _paths_of(self, expressions: Iterable[str]) -> set[tuple[str, ...]]:
        compiled = [compile_value(each, self._schema).expression for each in expressions]
        keys = [side for sides in self._keys for side in (*sides[0], *sides[1])]
        return set(_paths([*compiled, *keys]))

    def _compile(
        self, expressions: Mapping[str, str], condition: ExpressionLike | None
    ) -> _Compiled:
        outputs = list[tuple[pa.Field, Expression]]()
        for name, text in expressions.items():
            bound = compile_value(text, self._schema)
            field = pa.field(name, bound.data_type)
            if isinstance(bound.expression, ex.Column):
                field = self._field_at(bound.expression.path, field)
            outputs.append((field, bound.expression))
        own, rest = list[Expression](), list[Expression]()
        if condition is not None:
            for part in split_conjuncts(compile_filter(condition, self._schema)):
                is_own = all(path[0] == SOURCE for path in part.columns)
                (own if is_own else rest).append(part.expression)
        keys = [side for sides in self._keys for side in sides[0]]
        paths = _paths([*(each for _, each in outputs), *rest, *keys])
        filtered = _of_source(_conjunction(own)) if own else None
        names = _names_of(paths | (_paths(own) if own else frozenset()), SOURCE)
        tables = tuple(
            frozenset(path for path in paths if path[0] == each.join.name) for each in self.tables
        )
        return _Compiled(
            tuple(outputs), filtered, _conjunction(rest) if rest else None, names, tables
        )

    def _field_at(self, path: tuple[str, ...], otherwise: pa.Field) -> pa.Field:
        """Return a stored field, with its metadata, under another name."""
        field = self._schema.field(path[0])
        for name in path[1:]:
            if not pa.types.is_struct(field.type):
                return otherwise
            field = field.type.field(name)
        return field.with_name(otherwise.name).with_nullable(True)

    def _table(self, position: int, paths: frozenset[tuple[str, ...]]) -> _Found:
        """Return the rows of a joined table with some columns, or raise if keys are repeated.

        The cache shares them between the tasks of a process, and between versions of the source.
        """
        if (position, paths) not in self._tables:
            table, (_, other) = self.tables[position], self._keys[position]
            key = "joined rows", table.join.name, tuple(map(str, other)), paths
            self._tables[position, paths] = table.snapshot.version_cache.get_or_make(
                key, lambda: _found(table, other, paths)
            )
        return self._tables[position, paths]

    def _joined(
        self, batch: pa.RecordBatch, compiled: _Compiled
    ) -> tuple[pa.RecordBatch, Flags | None]:
        """Join rows of the source; return the expressions, and which of the rows pass."""
        structs = _structs(SOURCE, batch)
        passes: Flags | None = None
        matches = list[tuple[_Found, Int64s]]()
        for position, paths in enumerate(compiled.tables):
            table = self._table(position, paths)
            rows = table.rows_of([evaluate(each, structs) for each in self._keys[position][0]])
            if not self.tables[position].join.is_left:
                passes = _both(passes, rows >= 0)
            matches.append((table, rows))
        if passes is not None:
            structs = filter_batch(structs, pa.array(passes))
            matches = [(table, rows[passes]) for table, rows in matches]
        for each, (table, rows) in zip(self.tables, matches, strict=True):
            taken = table.rows.column(0).take(pa.array(rows, mask=rows < 0))
            structs = structs.append_column(each.join.name, taken)
        if compiled.rest is not None:
            true = to_numpy(evaluate_filter(compiled.rest, structs))
            structs = filter_batch(structs, pa.array(true))
            if passes is None:
                passes = true
            else:
                passes = passes.copy()
                passes[np.flatnonzero(passes)[~true]] = False
        arrays = list[pa.Array]()
        for field, expression in compiled.outputs:
            values = evaluate(expression, structs)
            arrays.append(values if values.type == field.type else values.cast(field.type))
        fields = [field for field, _ in compiled.outputs]
        return _batch(arrays, fields, structs.num_rows), passes


def _found(
    table: JoinedTable, keys: Sequence[Expression], paths: frozenset[tuple[str, ...]]
) -> _Found:
    """Read the rows of a joined table, or raise if keys are repeated."""
    rows = table.structs(paths | _paths(keys))
    columns = [evaluate(each, rows) for each in keys]
    index = KeyIndex.build(Keys.of(columns, with_span=True))
    repeated, _ = index.repeats()
    if len(repeated):
        row = int(repeated[0])
        raise InvalidInputError(
            "several rows of a joined table have the same key; delete all but one of them, or "
            "join on a column with distinct values",
            table=table.join.name,
            key=", ".join(str(column[row].as_py()) for column in columns),
            uri=table.snapshot.location.uri,
        )
    return _Found(index, rows)


def rows_that_refer(
    begin: JoinedRows,
    end: JoinedRows,
    position: int,
    changes: Sequence[ChangedRows],
) -> Iterator[tuple[UInt64s, UInt64s]]:
    """Yield the ids and addresses of the rows of the source that refer to changed rows of a table.

    These are the rows with the key of a changed row, before or after the change.
    """
    parts = [
        relation.keys_at(position, np.concatenate(addresses))
        for relation, addresses in (
            (begin, [each.before for each in changes if each.before is not None]),
            (end, [each.after for each in changes if each.after is not None]),
        )
        if addresses
    ]
    if parts:
        end_types = [each.type for each in parts[-1]]
        columns = [
            pa.concat_arrays([part[index].cast(data_type) for part in parts])
            for index, data_type in enumerate(end_types)
        ]
        yield from end.rows_that_refer(position, columns)


def _decoded(array: pa.Array) -> pa.Array:
    is_dictionary = pa.types.is_dictionary(array.type)
    return array.cast(array.type.value_type) if is_dictionary else array


def _both(left: Flags | None, right: Flags) -> Flags:
    return right if left is None else left & right


def _conjunction(parts: Sequence[Expression]) -> Expression:
    return parts[0] if len(parts) == 1 else ex.And(tuple(parts))


def _paths(expressions: Iterable[Expression]) -> frozenset[tuple[str, ...]]:
    return frozenset(path for each in expressions for path in columns_of(each))


def _names_of(paths: Iterable[tuple[str, ...]], table: str) -> tuple[str, ...]:
    """Return the names of the columns of a table on paths."""
    return tuple(sorted({path[1] for path in paths if path[0] == table}))


def _of_source(expression: Expression) -> Expression:
    """Return an expression of columns of the source without the name of the source."""
    if isinstance(expression, ex.Column):
        return ex.Column(expression.path[1:])
    parts = children(expression)
    return with_children(expression, tuple(map(_of_source, parts))) if parts else expression


def _structs(name: str, rows: pa.RecordBatch | pa.Table) -> pa.RecordBatch:
    """Return rows with their columns in one struct."""
    columns = [
        each.combine_chunks() if isinstance(each, pa.ChunkedArray) else each
        for each in rows.columns
    ]
    fields = [field.with_nullable(True) for field in rows.schema]
    if not columns:
        return _batch([], [], rows.num_rows)
    return pa.RecordBatch.from_arrays([pa.StructArray.from_arrays(columns, fields=fields)], [name])


def _batch(arrays: list[pa.Array], fields: list[pa.Field], num_rows: int) -> pa.RecordBatch:
    if not arrays:
        rows = pa.StructArray.from_buffers(pa.struct([]), num_rows, [None])
        return pa.RecordBatch.from_struct_array(rows)
    return pa.RecordBatch.from_arrays(arrays, schema=pa.schema(fields))


def _taken(snapshot: Snapshot, addresses: UInt64s, columns: Mapping[str, str]) -> pa.RecordBatch:
    """Return rows by address as one batch."""
    table = take_addresses(snapshot, addresses, projection_of(snapshot, columns)).combine_chunks()
    batches = table.to_batches()
    if batches:
        (batch,) = batches
        return batch
    arrays = [pa.array([], each.type) for each in table.schema]
    return pa.RecordBatch.from_arrays(arrays, schema=table.schema)


def _numbered(expressions: Iterable[str]) -> dict[str, str]:
    return {f"_{number}": text for number, text in enumerate(expressions)}


def _fields(table: str, snapshot: Snapshot, expressions: Iterable[str]) -> set[ReadField]:
    return {
        (table, int(node.id), node.name, node.logical_type, node.nullable)
        for field in projection_of(snapshot, _numbered(expressions)).fields
        for node in field.walk()
    }
