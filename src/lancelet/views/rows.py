"""Views without groups: a row for each row of the source that passes the filter.

    source   _rowid 3   {title: "Dune", price: 9}
    view     _source_row_id 3   {title: "Dune", twice: 18}

The row id of the source is the key of the view. A refresh repositions the rows of changed ids.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import field
from typing import Any, Final, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from lancelet.buffers import Int64s
from lancelet.change.merge.join import plan_keys, probe
from lancelet.change.merge.key_columns import KeyColumns
from lancelet.change.merge.key_index import KeyIndex, Keys
from lancelet.change.merge.prepared_source import KeyRanges
from lancelet.encodings.arrow import to_numpy
from lancelet.errors import ViewFunctionError
from lancelet.rowids.address import NO_ADDRESS, UInt64s
from lancelet.scan.plan import FilterStep
from lancelet.scan.row_columns import RowColumn
from lancelet.table.snapshot import Snapshot
from lancelet.upkeep.changes.rows import ChangedRows, ChangeKind
from lancelet.values import cached_property, dataclass, replace
from lancelet.views.definition import ROW_KEY, FunctionCall, Query
from lancelet.views.relation import Relation
from lancelet.views.stored import WrittenRows, write_replacing

Functions: TypeAlias = Mapping[str, Callable[..., Any]]

_BLOCK_ROWS: Final = 1 << 16
_RUNS_MAX: Final = 64
_FEW_IDS: Final = 4096
_SPARSE: Final = 16
"""If the ids are less dense than one in 16, statistics are not read."""
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
        inserted = [each for each in changes if each.kind is ChangeKind.INSERT]
        others = [each for each in changes if each.kind is not ChangeKind.INSERT]
        old = RowChanges._new(others)
        old = replace(old, shown=addresses_of_keys(view, old.ids))
        new = RowChanges._new(inserted)
        if len(new) and len(old):  # ids of a replaced table may occur again
            _, positions, again = np.intersect1d(new.ids, old.ids, return_indices=True)
            new.shown[positions] = old.shown[again]
            old = old.where(np.delete(np.arange(len(old)), again))
        return RowChanges(
            np.concatenate([old.ids, new.ids]),
            np.concatenate([old.after, new.after]),
            np.concatenate([old.shown, new.shown]),
        )

    @staticmethod
    def _new(changes: Sequence[ChangedRows]) -> RowChanges:
        """Return the changed rows without their rows in the view."""
        ids = np.concatenate([np.empty(0, np.uint64), *(each.ids for each in changes)])
        after = [np.full(len(e), NO_ADDRESS) if e.after is None else e.after for e in changes]
        addresses = np.concatenate([np.empty(0, np.uint64), *after])
        return RowChanges(ids, addresses, np.full(len(ids), NO_ADDRESS))

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


def addresses_of_keys(view: Snapshot, ids: UInt64s) -> UInt64s:
    """Return the address in a view of the row for each row of the source, or `NO_ADDRESS`."""
    found = np.full(len(ids), NO_ADDRESS)
    if not len(ids) or not view.num_rows:
        return found
    key = KeyColumns.of(view.schema, (ROW_KEY,))
    for matches in probe(plan_keys(view, key, _steps(key, ids)), key, SortedIds(ids).find):
        found[matches.rows] = matches.addresses
    return found


class SortedIds:
    """Finds distinct ids in columns of ids, which are usually a few ascending runs.

    In a run, each id is found by a binary search; other columns are found through a hash index.
    """

    def __init__(self, ids: UInt64s) -> None:
        """Find some ids."""
        self._ids = ids
        self._order = np.argsort(ids, kind="stable")
        self._sorted = ids[self._order]

    @cached_property
    def _index(self) -> KeyIndex:
        return KeyIndex.build(Keys.of([pa.array(self._ids)], with_span=True))

    def find(self, columns: Sequence[pa.Array]) -> tuple[Int64s, Int64s]:
        """Return the indices of values of a column that are found, and the index of each id."""
        values: UInt64s = to_numpy(columns[0])
        breaks = np.flatnonzero(values[1:] <= values[:-1]) + 1
        if len(breaks) > _RUNS_MAX:
            return self._index.find_rows(columns)
        empty: Int64s = np.empty(0, np.int64)
        indices, rows = [empty], [empty]
        for start, stop in zip([0, *breaks.tolist()], [*breaks.tolist(), len(values)], strict=True):
            run = values[start:stop]
            if not len(run):
                continue
            low = np.searchsorted(self._sorted, run[0])
            high = np.searchsorted(self._sorted, run[-1], side="right")
            own = self._sorted[low:high]
            slots = np.searchsorted(run, own)
            hits = np.flatnonzero(run[slots] == own)
            indices.append(slots[hits] + start)
            rows.append(self._order[low:high][hits])
        return np.concatenate(indices), np.concatenate(rows)


def _steps(key: KeyColumns, ids: UInt64s) -> tuple[FilterStep, ...]:
    """Return conditions on the key that skip rows; none if the ids are in most parts of a view."""
    if len(ids) > _FEW_IDS and int(ids.max() - ids.min()) > _SPARSE * len(ids):
        return ()
    ranges = KeyRanges(key)
    ranges.add([pa.array(ids)])
    return ranges.steps()


@dataclass(frozen=True, slots=True, eq=False)
class RowView:
    """The rows of a query without groups."""

    query: Query
    functions: Functions
    types: Mapping[str, pa.DataType] = field(default_factory=dict)
    """The types of the results of functions, or nothing before the first rows are computed."""

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

        def parts() -> Iterator[tuple[pa.RecordBatch, UInt64s]]:
            for changed in (shown, changes.where(is_present & ~is_shown)):
                for block in changed.blocks():
                    batch, passes = relation.rows_at(block.after, self._inputs(), self.query.filter)
                    own = block if passes is None else block.where(passes)
                    if batch.num_rows:
                        yield self._output(batch, own.ids), own.shown

        return WrittenRows(write_replacing(view, parts()), changes.shown[is_shown])

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


def _empty(schema: pa.Schema) -> pa.RecordBatch:
    return pa.RecordBatch.from_arrays([pa.array([], each.type) for each in schema], schema=schema)
