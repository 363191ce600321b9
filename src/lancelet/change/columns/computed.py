"""Computed columns: columns with a stored definition, and the rows whose values are out of date.

    field metadata   lancelet.computed   {"function": "embed", "inputs": ["title"]}
    table config     lancelet.computed   {"version": 12, "own": [14]}

The values of a row are up to date if it was last updated up to version 12, or by version 14, which
a refresh committed. Other rows were inserted or updated since. A row has one version, so a refresh
computes all columns of a row together.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final, TypeAlias

import numpy as np
import pyarrow as pa

from lancelet import surroundings
from lancelet.buffers import Int64s
from lancelet.change.columns.add import add_columns
from lancelet.change.columns.fields import ColumnError
from lancelet.change.columns.from_given import Joined
from lancelet.change.columns.sources import Function
from lancelet.change.columns.update import update_fragment_columns
from lancelet.change.publish import publish
from lancelet.change.settings import update_config
from lancelet.errors import ColumnFunctionError, CommitConflictError, CorruptDataError
from lancelet.format.field import Field
from lancelet.format.fragment import Fragment
from lancelet.format.operation import Update, UpdateMode
from lancelet.format.roaring import render_bitmap, to_bitmap
from lancelet.format.schema import Schema
from lancelet.rowids.address import UInt64s, addresses_of
from lancelet.scan.projection import Projection, project
from lancelet.scan.take import take_addresses
from lancelet.table.commit import refresh_snapshot
from lancelet.table.lineage import updated_versions_of
from lancelet.table.snapshot import Snapshot, open_snapshot
from lancelet.values import dataclass, replace

Functions: TypeAlias = Mapping[str, Callable[..., Any]]

STORED_KEY: Final = "lancelet.computed"
"""The key in the metadata of fields, and in the table config."""

_CONFLICTS_MAX: Final = 10
_ROW_ADDRESS: Final = "_rowaddr"


@dataclass(frozen=True, slots=True)
class ComputedColumn:
    """A column whose definition is stored with the table.

    `value` is an expression, or a Python function that gets an Arrow array for each of `inputs` and
    returns an array of `data_type`. The table stores the name of a function, not its code.

    Attributes:
        name: The name of the column.
        value: An expression, or a function.
        inputs: The arguments of a function: columns or expressions.
        data_type: The type of the results of a function.
    """

    name: str
    value: str | Callable[..., Any]
    inputs: tuple[str, ...] = ()
    data_type: pa.DataType | None = None


@dataclass(frozen=True, slots=True)
class StaleRows:
    """The computed columns of a table, and the rows whose values are out of date.

    Attributes:
        columns: The expression, or the call of the function, by column.
        rows: The number of rows that were inserted or updated since their values were computed.
        fragments: The number of fragments with such rows.
    """

    columns: Mapping[str, str]
    rows: int
    fragments: int


@dataclass(frozen=True, slots=True)
class RefreshedRows:
    """The result of a refresh.

    Attributes:
        refreshed: The number of rows whose values were computed.
        remaining: The number of rows that are still out of date.
    """

    refreshed: int
    remaining: int


@dataclass(frozen=True, slots=True)
class RefreshBudget:
    """Limits of a refresh; None for no limit."""

    rows: int | None = None
    seconds: float | None = None


@dataclass(frozen=True, slots=True)
class _Definition:
    """A definition as stored: an expression, or the name of a function and its inputs."""

    expression: str | None
    function: str | None
    inputs: tuple[str, ...]

    @staticmethod
    def of(column: ComputedColumn) -> _Definition:
        if isinstance(column.value, str):
            if column.inputs or column.data_type is not None:
                raise ColumnFunctionError(
                    "an expression has no inputs and no type; omit them", column=column.name
                )
            return _Definition(column.value, None, (column.value,))
        if not column.inputs or column.data_type is None:
            raise ColumnFunctionError(
                "a function requires `inputs` and `data_type`", column=column.name
            )
        function = getattr(column.value, "__name__", type(column.value).__name__)
        return _Definition(None, function, tuple(column.inputs))

    @staticmethod
    def parse(text: str, column: str) -> _Definition:
        try:
            stored = json.loads(text)
            return _Definition(
                stored.get("expression"), stored.get("function"), tuple(stored["inputs"])
            )
        except (AttributeError, KeyError, TypeError, ValueError) as error:
            raise CorruptDataError(
                "the definition of a computed column is damaged; drop the column and add it again",
                column=column,
            ) from error

    def __str__(self) -> str:
        return self.expression or f"{self.function}({', '.join(self.inputs)})"

    def render(self) -> str:
        """Return the text for the field metadata."""
        return json.dumps(
            {
                "expression": self.expression,
                "function": self.function,
                "inputs": list(self.inputs),
            }
        )

    def projection(self, schema: Schema) -> Projection:
        """Return the projection that computes the inputs."""
        return project(schema, {f"_{n}": text for n, text in enumerate(self.inputs)})

    def values(self, inputs: pa.RecordBatch, data_type: pa.DataType, call: Any) -> pa.Array:
        """Return the values for computed inputs."""
        if self.expression is not None:
            return self._cast(inputs.column(0), data_type)
        result = call(*inputs.columns)
        if isinstance(result, pa.ChunkedArray):
            result = result.combine_chunks()
        try:
            array = result if isinstance(result, pa.Array) else pa.array(result, data_type)
        except (TypeError, pa.ArrowException) as error:
            raise ColumnFunctionError(
                f"the function of a computed column returned no array of its type: {error}",
                function=self.function,
                expected=str(data_type),
            ) from error
        if len(array) != inputs.num_rows:
            raise ColumnFunctionError(
                "the function of a computed column must return one value per row",
                function=self.function,
                rows=inputs.num_rows,
                values=len(array),
            )
        return self._cast(array, data_type)

    def _cast(self, array: pa.Array, data_type: pa.DataType) -> pa.Array:
        """Return values with the type of the column; an input or the column may have been cast."""
        if array.type == data_type:
            return array
        try:
            return array.cast(data_type)
        except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
            raise ColumnFunctionError(
                "the definition of a computed column has values of another type than the column",
                definition=str(self),
                expected=str(data_type),
                found=str(array.type),
            ) from error


@dataclass(frozen=True, slots=True)
class _State:
    """The version up to which values are up to date, and later versions of refreshes."""

    version: int
    own: tuple[int, ...]

    @staticmethod
    def of(snapshot: Snapshot) -> _State:
        text = snapshot.manifest.config.get(STORED_KEY)
        if text is None:
            return _State(0, ())
        try:
            stored = json.loads(text)
            return _State(int(stored["version"]), tuple(map(int, stored["own"])))
        except (KeyError, TypeError, ValueError) as error:
            raise CorruptDataError(
                "the record of computed columns in the table config is damaged; delete the entry "
                "to compute all values again",
                key=STORED_KEY,
                found=text,
            ) from error

    def put(self, snapshot: Snapshot) -> Snapshot:
        """Record the state in the table config."""
        text = json.dumps({"version": self.version, "own": list(self.own)})
        return update_config(snapshot, {STORED_KEY: text})

    def stale_in(self, snapshot: Snapshot, fragment: Fragment) -> Int64s:
        """Return the offsets of the live rows of a fragment that are out of date."""
        sequence = updated_versions_of(snapshot, fragment)
        own = np.array(self.own, np.uint64)
        is_stale = (sequence.versions > self.version) & ~np.isin(sequence.versions, own)
        if not is_stale.any():
            return np.empty(0, np.int64)
        flags = np.repeat(is_stale, sequence.lengths)
        flags &= snapshot.deletions(fragment).live_within(0, len(flags))
        return np.flatnonzero(flags)


def source_of(snapshot: Snapshot, column: ComputedColumn) -> Function:
    """Return the values of a new computed column."""
    if not snapshot.manifest.uses_stable_row_ids:
        raise ColumnError(
            "computed columns require the row versions of stable row ids; create the table with "
            "enable_stable_row_ids=True",
            uri=snapshot.location.uri,
        )
    definition = _Definition.of(column)
    projection = definition.projection(snapshot.schema)
    if projection.row_columns:
        raise ColumnError(
            "row columns cannot be inputs of a computed column",
            column=column.name,
            input=projection.row_columns[0],
        )
    if not projection.fields:
        raise ColumnError(
            "a computed column requires an input column; add a column with other values by an "
            "expression, as in add_columns({name: expression})",
            column=column.name,
        )
    for field in projection.fields:
        if STORED_KEY in field.metadata:
            raise ColumnError(
                "a computed column cannot be the input of another one; write the inputs of both",
                column=column.name,
                input=field.name,
            )
    data_type = column.data_type or projection.schema.field(0).type
    metadata = {STORED_KEY: definition.render()}
    schema = pa.schema([pa.field(column.name, data_type, metadata=metadata)])

    def call(batch: pa.RecordBatch) -> pa.RecordBatch:
        values = definition.values(projection.compute(batch), data_type, column.value)
        return pa.RecordBatch.from_arrays([values], schema=schema)

    return Function(call, schema, tuple(field.name for field in projection.fields))


def add_computed_column(snapshot: Snapshot, column: ComputedColumn) -> Snapshot:
    """Add a column with the values of its definition, and store the definition."""
    source = source_of(snapshot, column)
    return adding_columns(snapshot, lambda: add_columns(snapshot, source))


def adding_columns(snapshot: Snapshot, add: Callable[[], Snapshot]) -> Snapshot:
    """Add columns, which updates all rows but changes no input of a computed column."""
    latest = refresh_snapshot(snapshot)
    state = _State.of(latest)
    if not state.version or not has_computed_columns(latest):
        state = _State(latest.version, ())
    elif (stale := _num_stale(latest)) > 0:
        raise ColumnError(
            "values of computed columns are out of date, and a new column would hide which rows; "
            "call refresh_columns first",
            rows=stale,
        )
    added = add()
    if added.version > latest.version + 1:
        before = open_snapshot(added.location, added.version - 1)
        if has_computed_columns(before):
            if _num_stale(before):
                return added  # another writer changed rows meanwhile; all values are out of date
            state = _State.of(before)
    return replace(state, own=(*state.own, added.version)).put(added)


def has_computed_columns(snapshot: Snapshot) -> bool:
    """Return whether a table has computed columns."""
    return any(STORED_KEY in field.metadata for field in snapshot.schema.fields)


def stale_rows(snapshot: Snapshot) -> StaleRows:
    """Return the computed columns, and the rows that are out of date."""
    columns = {field.name: str(definition) for field, definition in _computed(snapshot)}
    counts = [len(offsets) for _, offsets in _stale_rows(snapshot, _State.of(snapshot))]
    return StaleRows(columns, sum(counts) if columns else 0, len(counts) if columns else 0)


def refresh_columns(
    snapshot: Snapshot, functions: Functions, budget: RefreshBudget | None = None
) -> tuple[Snapshot, RefreshedRows]:
    """Compute the values that are out of date; each fragment is committed once."""
    limits, current = _Limits.of(budget or RefreshBudget()), refresh_snapshot(snapshot)
    total, conflicts = 0, 0
    while True:
        try:
            for published, count in _refreshed_fragments(current, functions, limits, total):
                current, total = published, total + count
            break
        except CommitConflictError:
            # Another writer changed the fragment; its rows are found again.
            conflicts += 1
            if conflicts == _CONFLICTS_MAX:
                raise
            current = refresh_snapshot(current)
    return current, RefreshedRows(total, stale_rows(current).rows)


@dataclass(frozen=True, slots=True)
class _Limits:
    """The rows that may be computed, and the time at which to stop."""

    rows: int | None
    deadline: float | None

    @staticmethod
    def of(budget: RefreshBudget) -> _Limits:
        now = surroundings.monotonic()
        return _Limits(budget.rows, None if budget.seconds is None else now + budget.seconds)

    def is_reached(self, done: int) -> bool:
        if self.rows is not None and done >= self.rows:
            return True
        return self.deadline is not None and surroundings.monotonic() >= self.deadline


def _refreshed_fragments(
    snapshot: Snapshot, functions: Functions, limits: _Limits, done: int
) -> Iterator[tuple[Snapshot, int]]:
    """Refresh the rows of one fragment after the other, each in a commit of its own."""
    computed = list(_computed(snapshot))
    calls = {field.name: _called(field, own, functions) for field, own in computed}
    state, start, is_complete = _State.of(snapshot), snapshot, True
    for fragment, stale in list(_stale_rows(snapshot, state)) if computed else ():
        if limits.is_reached(done):
            return
        offsets = stale if limits.rows is None else stale[: limits.rows - done]
        is_complete = is_complete and len(offsets) == len(stale)
        addresses = addresses_of(fragment.id, offsets)
        columns = {
            field.name: own.values(_inputs(snapshot, own, addresses), field.arrow_type, call)
            for (field, own), call in zip(computed, calls.values(), strict=True)
        }
        joined = Joined(pa.array(addresses), pa.table(columns))
        current = snapshot.fragments.by_id(int(fragment.id))
        updated = update_fragment_columns(snapshot, current, _ROW_ADDRESS, joined)
        operation = Update(
            updated_fragments=(updated.fragment,),
            fields_modified=updated.field_ids,
            mode=UpdateMode.REWRITE_COLUMNS,
            updated_offsets={int(fragment.id): render_bitmap(to_bitmap(updated.offsets))},
        )
        published = publish(snapshot, operation)
        state = replace(state, own=(*state.own, published.version))
        snapshot = state.put(published)
        done += len(offsets)
        yield snapshot, len(offsets)
    if is_complete and state.version < start.version:
        later = tuple(number for number in state.own if number > start.version)
        yield _State(start.version, later).put(snapshot), 0


def _inputs(snapshot: Snapshot, definition: _Definition, addresses: UInt64s) -> pa.RecordBatch:
    rows = take_addresses(snapshot, addresses, definition.projection(snapshot.schema))
    (batch,) = rows.combine_chunks().to_batches()
    return batch


def _called(field: Field, definition: _Definition, functions: Functions) -> Any:
    """Return the function of a column; None for an expression."""
    if definition.function is None:
        return None
    call = functions.get(definition.function)
    if call is None:
        raise ColumnFunctionError(
            "the function of a computed column was not passed; pass it as "
            f"functions={{{definition.function!r}: ...}}",
            column=field.name,
            function=definition.function,
        )
    return call


def _num_stale(snapshot: Snapshot) -> int:
    return sum(len(offsets) for _, offsets in _stale_rows(snapshot, _State.of(snapshot)))


def _stale_rows(snapshot: Snapshot, state: _State) -> Iterator[tuple[Fragment, Int64s]]:
    for fragment in snapshot.fragments:
        offsets = state.stale_in(snapshot, fragment)
        if len(offsets):
            yield fragment, offsets


def _computed(snapshot: Snapshot) -> Iterator[tuple[Field, _Definition]]:
    for field in snapshot.schema.fields:
        text = field.metadata.get(STORED_KEY)
        if text is not None:
            yield field, _Definition.parse(text, field.name)
