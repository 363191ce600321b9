"""Views without groups: a row for each row of the source that passes the filter.

    source   _rowid 3   {title: "Dune", price: 9}
    view     _source_row_id 3   {title: "Dune", twice: 18}

The row id of the source is the key of the view. A refresh replaces the rows of changed ids.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import field
from typing import Any, Final, TypeAlias

import numpy as np
import pyarrow as pa

from lancelet.encodings.arrow import to_numpy
from lancelet.encodings.take import filter_batch
from lancelet.errors import ViewFunctionError
from lancelet.rowids.address import UInt64s
from lancelet.scan.execute import execute
from lancelet.scan.plan import plan_scan, projection_of
from lancelet.scan.row_columns import RowColumn
from lancelet.scan.scan_options import ScanOptions
from lancelet.scan.take import take_addresses
from lancelet.table.snapshot import Snapshot
from lancelet.upkeep.changes.rows import ChangedRows, ChangeKind
from lancelet.values import dataclass
from lancelet.views.definition import ROW_KEY, FunctionCall, Query

Functions: TypeAlias = Mapping[str, Callable[..., Any]]

_BLOCK_ROWS: Final = 1 << 16
# Columns of views do not have these names.
_PASSES: Final = f"{ROW_KEY}_passes"
_ARGUMENT: Final = f"{ROW_KEY}_argument"


@dataclass(frozen=True, slots=True, eq=False)
class RowView:
    """The rows of a query without groups."""

    query: Query
    functions: Functions
    types: Mapping[str, pa.DataType] = field(default_factory=dict)
    """The types of the results of functions, if they are known."""

    def without_rows(self, source: Snapshot) -> pa.RecordBatch:
        """Return a batch without rows, with the schema of the table of the view."""
        plan = plan_scan(source, ScanOptions(columns=self._inputs(), limit=0))
        return self._output(_empty(plan.schema), np.array([], np.uint64))

    def all_rows(self, source: Snapshot) -> Iterator[pa.RecordBatch]:
        """Yield all rows of the view."""
        options = ScanOptions(columns=self._inputs(), filter=self.query.filter, with_row_id=True)
        for batch in execute(plan_scan(source, options)):
            ids = to_numpy(batch.column(RowColumn.ID.value))
            yield self._output(batch.drop_columns([RowColumn.ID.value]), ids)

    def changed_rows(
        self, source: Snapshot, changes: Iterable[ChangedRows]
    ) -> Iterator[pa.RecordBatch]:
        """Yield the new rows of the view for inserted and updated rows of the source."""
        inputs = dict(self._inputs())
        if self.query.filter is not None:
            inputs[_PASSES] = self.query.filter
        projection = projection_of(source, inputs)
        for change in _blocks(changes):
            if change.after is None:
                continue
            table = take_addresses(source, change.after, projection).combine_chunks()
            (batch,) = table.to_batches() or [_empty(table.schema)]
            ids = change.ids
            if self.query.filter is not None:
                passes = to_numpy(batch.column(_PASSES).fill_null(False))
                batch = filter_batch(batch.drop_columns([_PASSES]), pa.array(passes))
                ids = ids[passes]
            if batch.num_rows:
                yield self._output(batch, ids)

    def removed_ids(self, source: Snapshot, changes: Iterable[ChangedRows]) -> UInt64s:
        """Return the ids of rows that were deleted, or pass the filter no longer."""
        projection = projection_of(source, {_PASSES: self.query.filter or "true"})
        removed, present = [np.array([], np.uint64)], [np.array([], np.uint64)]
        for change in _blocks(changes):
            if change.after is None:
                removed.append(change.ids)
            elif change.kind is ChangeKind.INSERT:
                present.append(change.ids)  # an id of a replaced table may occur again
            elif self.query.filter is not None:
                passes = take_addresses(source, change.after, projection).column(_PASSES)
                flags = to_numpy(passes.combine_chunks().fill_null(False))
                removed.append(change.ids[~flags])
        return np.setdiff1d(np.concatenate(removed), np.concatenate(present))

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


def _blocks(changes: Iterable[ChangedRows]) -> Iterator[ChangedRows]:
    for change in changes:
        for start in range(0, len(change), _BLOCK_ROWS):
            yield change.slice(start, start + _BLOCK_ROWS)


def _empty(schema: pa.Schema) -> pa.RecordBatch:
    return pa.RecordBatch.from_arrays([pa.array([], each.type) for each in schema], schema=schema)
