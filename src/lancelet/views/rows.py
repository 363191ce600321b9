"""Views without groups: a row for each row of the source that passes the filter.

    source   _rowid 3   {title: "Dune", price: 9}
    view     _source_row_id 3   {title: "Dune", twice: 18}

The row id of the source is the key of the view. A refresh replaces the rows of changed ids.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import field
from typing import Any, Final, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from lancelet.change.merge.join import join
from lancelet.change.merge.key_columns import KeyColumns
from lancelet.change.merge.key_index import Keys
from lancelet.change.merge.key_passes import KeyPasses
from lancelet.change.merge.prepared_source import KeyRanges
from lancelet.change.moved_rows import RowFiles, with_moved_ids, write_rows
from lancelet.config import MEMORY_LIMIT_BYTES
from lancelet.encodings.arrow import to_numpy
from lancelet.errors import ViewFunctionError
from lancelet.format.field_path import format_path
from lancelet.format.fragment import Fragment
from lancelet.rowids.address import NO_ADDRESS, UInt64s
from lancelet.scan.plan import projection_of
from lancelet.scan.projection import scan_schema
from lancelet.scan.row_columns import RowColumn
from lancelet.scan.take import take_addresses
from lancelet.table.snapshot import Snapshot
from lancelet.upkeep.changes.rows import ChangedRows, ChangeKind
from lancelet.values import dataclass
from lancelet.views.definition import ROW_KEY, FunctionCall, Query
from lancelet.views.relation import Relation

Functions: TypeAlias = Mapping[str, Callable[..., Any]]

_BLOCK_ROWS: Final = 1 << 16
# Columns of views do not have this name.
_ARGUMENT: Final = f"{ROW_KEY}_argument"


@dataclass(frozen=True, slots=True, eq=False)
class RowChanges:
    """Changed rows of the source: ids, new addresses, and the addresses of their rows in the view.

    `NO_ADDRESS` marks rows that do not exist.
    """

    ids: UInt64s
    after: UInt64s
    shown: UInt64s

    def __len__(self) -> int:
        """Return the number of rows."""
        return len(self.ids)

    @staticmethod
    def of(changes: Sequence[ChangedRows], view: Snapshot) -> RowChanges:
        """Return the changed rows, found in the view."""
        inserted = [each.ids for each in changes if each.kind is ChangeKind.INSERT]
        ids, after = [np.empty(0, np.uint64)], [np.empty(0, np.uint64)]
        for change in changes:
            own = change.ids
            if change.after is None and inserted:  # ids of a replaced table may occur again
                own = np.setdiff1d(own, np.concatenate(inserted))
            ids.append(own)
            gone = np.full(len(own), NO_ADDRESS)
            after.append(gone if change.after is None else change.after)
        together = np.concatenate(ids)
        return RowChanges(together, np.concatenate(after), addresses_of_keys(view, together))

    def where(self, chosen: npt.NDArray[Any]) -> RowChanges:
        """Return some of the rows, given by a mask or by their indices."""
        return RowChanges(self.ids[chosen], self.after[chosen], self.shown[chosen])

    def slice(self, start: int, stop: int) -> RowChanges:
        """Return the rows from `start` to `stop`, exclusive."""
        return RowChanges(self.ids[start:stop], self.after[start:stop], self.shown[start:stop])

    def blocks(self, rows: int = _BLOCK_ROWS) -> Iterator[RowChanges]:
        """Yield slices of some rows."""
        for start in range(0, len(self), rows):
            yield self.slice(start, start + rows)


@dataclass(frozen=True, slots=True, eq=False)
class WrittenRows:
    """New fragments of a view, and the addresses of the rows that they replace or that are gone."""

    fragments: tuple[Fragment, ...]
    replaced: UInt64s


def addresses_of_keys(view: Snapshot, ids: UInt64s) -> UInt64s:
    """Return the address in a view of the row for each row of the source, or `NO_ADDRESS`."""
    found = np.full(len(ids), NO_ADDRESS)
    if not len(ids) or not view.num_rows:
        return found
    key = KeyColumns.of(view.schema, (ROW_KEY,))
    keys = pa.array(ids)
    with closing(KeyPasses(MEMORY_LIMIT_BYTES)) as passes:
        passes.add(Keys.of([keys], with_span=True))
        ranges = KeyRanges(key)
        ranges.add([keys])
        matches = join(view, key, passes, ranges.steps()).matches
    found[matches.rows] = matches.addresses
    return found


@dataclass(frozen=True, slots=True, eq=False)
class RowView:
    """The rows of a query without groups."""

    query: Query
    functions: Functions
    types: Mapping[str, pa.DataType] = field(default_factory=dict)
    """The types of the results of functions, if they are known."""

    @property
    def calls_functions(self) -> bool:
        """Whether the query calls Python functions."""
        return any(isinstance(each.value, FunctionCall) for each in self.query.columns)

    def without_rows(self, relation: Relation) -> pa.RecordBatch:
        """Return a batch without rows, with the schema of the table of the view."""
        return self._output(_empty(relation.schema_of(self._inputs())), np.array([], np.uint64))

    def all_rows(
        self, relation: Relation, fragments: tuple[int, ...] | None = None
    ) -> Iterator[pa.RecordBatch]:
        """Yield all rows of the view, or those of some fragments of the source."""
        batches = relation.rows(
            self._inputs(), self.query.filter, fragments=fragments, with_row_id=True
        )
        for batch in batches:
            ids = to_numpy(batch.column(RowColumn.ID.value))
            yield self._output(batch.drop_columns([RowColumn.ID.value]), ids)

    def write_changed(self, relation: Relation, view: Snapshot, changes: RowChanges) -> WrittenRows:
        """Write the new rows of the view for changed rows of the source.

        Rows that the view shows are moved with their ids, and precede other rows.
        """
        is_present = changes.after != NO_ADDRESS
        is_shown = changes.shown != NO_ADDRESS
        shown = changes.where(is_present & is_shown)
        shown = shown.where(np.argsort(shown.shown, kind="stable"))
        moved = [np.empty(0, np.uint64)]

        def rows() -> Iterator[pa.RecordBatch]:
            for changed in (shown, changes.where(is_present & ~is_shown)):
                for block in changed.blocks():
                    batch, passes = relation.rows_at(block.after, self._inputs(), self.query.filter)
                    own = block if passes is None else block.where(passes)
                    if not batch.num_rows:
                        continue
                    if changed is shown:
                        moved.append(own.shown)
                    yield _as_stored(view, self._output(batch, own.ids), own.shown)

        fragments = write_rows(view, rows(), RowFiles())
        fragments = with_moved_ids(view, fragments, np.concatenate(moved))
        return WrittenRows(fragments, changes.shown[is_shown])

    def _inputs(self) -> dict[str, str]:
        """Return the expressions to read: columns, and the arguments of functions."""
        inputs: dict[str, str] = {}
        for number, column in enumerate(self.query.columns):
            if isinstance(column.value, FunctionCall):
                for index, argument in enumerate(column.value.arguments):
                    inputs[f"{_ARGUMENT}_{number}_{index}"] = argument
            else:
                assert isinstance(column.value, str), "a view without groups has no aggregates"
                inputs[column.name] = column.value
        return inputs

    def _output(self, batch: pa.RecordBatch, ids: UInt64s) -> pa.RecordBatch:
        """Return the columns of the view, computed from the columns that were read."""
        arrays: list[pa.Array] = []
        fields: list[pa.Field] = []
        for number, column in enumerate(self.query.columns):
            if isinstance(column.value, FunctionCall):
                array = self._called(number, column.value, batch)
                fields.append(pa.field(column.name, array.type))
            else:
                array = batch.column(column.name)
                fields.append(batch.schema.field(column.name))
            arrays.append(array)
        arrays.append(pa.array(ids, pa.uint64()))
        fields.append(pa.field(ROW_KEY, pa.uint64(), nullable=False))
        return pa.RecordBatch.from_arrays(arrays, schema=pa.schema(fields))

    def _called(self, number: int, call: FunctionCall, batch: pa.RecordBatch) -> pa.Array:
        function = self.functions.get(call.function)
        if function is None:
            raise ViewFunctionError(
                "the view calls a Python function that was not passed; pass it as "
                f"functions={{{call.function!r}: ...}}",
                function=call.function,
            )
        names = [f"{_ARGUMENT}_{number}_{index}" for index in range(len(call.arguments))]
        result = function(*(batch.column(name) for name in names))
        try:
            array = result if isinstance(result, pa.Array) else pa.array(result)
        except (TypeError, pa.ArrowException) as error:
            raise ViewFunctionError(
                f"a Python function of the view returned no array: {error}",
                function=call.function,
            ) from error
        if isinstance(array, pa.ChunkedArray):
            array = array.combine_chunks()
        if len(array) != batch.num_rows:
            raise ViewFunctionError(
                "a Python function of the view must return one value per row",
                function=call.function,
                rows=batch.num_rows,
                values=len(array),
            )
        expected = self.types.get(self.query.columns[number].name, array.type)
        if array.type == expected:
            return array
        try:
            return array.cast(expected)
        except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
            raise ViewFunctionError(
                "a Python function of the view returned values of another type than before; "
                "create the view again to change the type",
                function=call.function,
                expected=str(expected),
                found=str(array.type),
            ) from error


def _as_stored(view: Snapshot, batch: pa.RecordBatch, shown: UInt64s) -> pa.RecordBatch:
    """Return rows with the columns of the table of a view; unknown ones keep their values."""
    schema = scan_schema(view.schema)
    names = view.schema.names
    others = [name for name in names if name not in batch.schema.names]
    stored = None
    if others and len(shown) and shown[0] != NO_ADDRESS:
        columns = {name: format_path([name]) for name in others}
        stored = take_addresses(view, shown, projection_of(view, columns)).combine_chunks()
    arrays = list[pa.Array]()
    for name in names:
        data_type = schema.field(name).type
        if name in others:
            nulls = pa.nulls(batch.num_rows, data_type)
            arrays.append(nulls if stored is None else stored.column(name).combine_chunks())
        else:
            array = batch.column(name)
            arrays.append(array if array.type == data_type else array.cast(data_type))
    return pa.RecordBatch.from_arrays(arrays, names)


def _empty(schema: pa.Schema) -> pa.RecordBatch:
    return pa.RecordBatch.from_arrays([pa.array([], each.type) for each in schema], schema=schema)
