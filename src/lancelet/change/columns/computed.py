"""Define computed columns: bind their inputs, and compute their values.

    definition   embed(title)              inputs  title, field 1
    renamed      title to headline         inputs  headline, field 1
    dropped      headline                  an error that names the computed column

`lancelet.table.computed_columns` describes what is stored.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from functools import partial
from typing import Any, TypeAlias

import numpy as np
import pyarrow as pa

from lancelet.change.columns.fields import ColumnError
from lancelet.change.columns.sources import ComputedColumn, Function, NewColumns, Nulls
from lancelet.errors import ColumnFunctionError, LanceletError
from lancelet.expr.compile import ExpressionLike
from lancelet.expr.expression import Column, Expression
from lancelet.expr.parse import parse_with_source
from lancelet.expr.traversal import children, columns_of, with_children
from lancelet.format.field import Field
from lancelet.format.field_path import format_path, parse_path
from lancelet.format.schema import Schema
from lancelet.scan.projection import Projection, project, stored_path
from lancelet.table.commit import CommitOptions, refresh_snapshot
from lancelet.table.computed_columns import (
    STORED_KEY,
    Definition,
    InputField,
    UpToDate,
    definitions_of,
    entries_after_adding,
    has_computed_columns,
    ids_of_stale_rows,
    stale_offsets,
)
from lancelet.table.snapshot import Snapshot
from lancelet.values import dataclass, replace

Functions: TypeAlias = Mapping[str, Callable[..., Any]]


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


def source_of(snapshot: Snapshot, column: ComputedColumn) -> Function:
    """Return the values of a new computed column."""
    if not snapshot.manifest.uses_stable_row_ids:
        raise ColumnError(
            "computed columns require the row versions of stable row ids; call "
            "migrate_to_stable_row_ids, or create tables with enable_stable_row_ids=True",
            uri=snapshot.location.uri,
        )
    definition = _definition_of(column)
    projection = bound_inputs(definition, snapshot.schema, column.name)
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
    stored = with_input_fields(definition, snapshot.schema)
    schema = pa.schema([pa.field(column.name, data_type, metadata={STORED_KEY: stored.render()})])

    def call(batch: pa.RecordBatch) -> pa.RecordBatch:
        values = values_of(definition, projection.compute(batch), data_type, column.value)
        return pa.RecordBatch.from_arrays([values], schema=schema)

    return Function(call, schema, tuple(field.name for field in projection.fields))


def adding_columns(
    snapshot: Snapshot, options: CommitOptions, source: NewColumns | None = None
) -> CommitOptions:
    """Return the options of a commit that adds columns.

    Raises:
        ColumnError: The commit would hide which rows are out of date.
    """
    if isinstance(source, Nulls):
        return options
    has_computed = has_computed_columns(snapshot)
    if isinstance(source, ComputedColumn) and source.is_deferred:
        if has_computed:
            raise ColumnError(
                "the table has other computed columns, whose rows would all be out of date; add "
                "the column with its values, without is_deferred",
                column=source.name,
            )
        return replace(options, config_entries=lambda _before, _version: UpToDate(0).to_config())
    if has_computed and ids_of_stale_rows(refresh_snapshot(snapshot)) is None:
        raise ColumnError(
            "too many values of computed columns are out of date, and a new column would hide "
            "which rows; call refresh_columns first",
            column=getattr(source, "name", None),
        )
    is_computed = isinstance(source, ComputedColumn)
    entries = partial(entries_after_adding, is_computed=is_computed)
    return replace(options, config_entries=entries)


def stale_rows(snapshot: Snapshot) -> StaleRows:
    """Return the computed columns, and the rows that are out of date."""
    schema = snapshot.schema
    columns = {field.name: _text(own, schema) for field, own in definitions_of(schema)}
    counts = [len(offsets) for _, offsets in stale_offsets(snapshot)]
    return StaleRows(columns, sum(counts), len(counts))


def bound_inputs(definition: Definition, schema: Schema, column: str) -> Projection:
    """Return the projection that computes the inputs."""
    moved = _moved_paths(definition, schema)
    dropped = next((path for path, found in moved.items() if found is None), None)
    if dropped is not None:
        raise ColumnError(
            "an input of a computed column was dropped or replaced; drop the computed column, and "
            "add it again with a column that exists",
            column=column,
            input=format_path(dropped),
        )
    texts = enumerate(definition.inputs)
    return project(schema, {f"_{number}": _renamed(text, moved) for number, text in texts})


def with_input_fields(definition: Definition, schema: Schema) -> Definition:
    """Return a definition with the field ids of its inputs in a schema."""
    moved = _moved_paths(definition, schema)
    fields = []
    paths = (columns_of(parse_with_source(text)[0]) for text in definition.inputs)
    for path in sorted(frozenset[tuple[str, ...]]().union(*paths)):
        (bound,) = project(schema, {"_": Column(moved.get(path) or path)}).columns
        for resolved in sorted(columns_of(bound.expression)):
            stored = stored_path(schema, resolved)
            node = schema.field_by_path(stored)
            ids = tuple(int(each.id) for each in node.walk())
            fields.append(InputField(path, len(parse_path(stored)), ids))
    return replace(definition, fields=tuple(fields))


def with_replaced_inputs(before: Schema, after: Schema) -> Schema:
    """Return an altered schema whose definitions have the new field ids of their inputs.

    Both schemas have the same structure, apart from the children of fields with new types.
    """
    if not any(STORED_KEY in field.metadata for field in after.fields):
        return after
    pairs = zip(before.fields, after.fields, strict=True)
    new = {int(old.id): found for pair in pairs for old, found in _pairs(*pair)}

    def updated(field: Field) -> Field:
        text = field.metadata.get(STORED_KEY)
        if text is None:
            return field
        definition = Definition.parse(text, field.name)
        if definition.fields is None:
            try:
                definition = with_input_fields(definition, before)
            except LanceletError:
                return field  # an input does not exist; a refresh reports it
        assert definition.fields is not None
        fields = tuple(
            replace(each, ids=tuple(int(node.id) for node in new[each.ids[0]].walk()))
            if each.ids[0] in new
            else each
            for each in definition.fields
        )
        rendered = replace(definition, fields=fields).render()
        return replace(field, metadata={**field.metadata, STORED_KEY: rendered})

    return replace(after, fields=tuple(map(updated, after.fields)))


def _pairs(before: Field, after: Field) -> Iterator[tuple[Field, Field]]:
    yield before, after
    if len(before.children) == len(after.children):
        for old, new in zip(before.children, after.children, strict=True):
            yield from _pairs(old, new)


def check_inputs_remain(before: Schema, after: Schema) -> None:
    """Raise if a remaining computed column has an input that is dropped."""
    for field, definition in definitions_of(after):
        for each in definition.fields or ():
            number = each.ids[0]
            if number in before.by_id and number not in after.by_id:
                raise ColumnError(
                    "the column is an input of a computed column; drop the computed column first, "
                    "or both together",
                    column=before.path_of(number),
                    computed=field.name,
                )


def values_of(
    definition: Definition, inputs: pa.RecordBatch, data_type: pa.DataType, call: Any
) -> pa.Array:
    """Return the values of a column for computed inputs."""
    if definition.expression is not None:
        return _cast(definition, inputs.column(0), data_type)
    result = call(*inputs.columns)
    if isinstance(result, pa.ChunkedArray):
        result = result.combine_chunks()
    try:
        if isinstance(result, np.ndarray) and result.ndim == 2:  # one vector per row
            result = pa.FixedSizeListArray.from_arrays(result.reshape(-1), result.shape[1])
        array = result if isinstance(result, pa.Array) else pa.array(result, data_type)
    except (TypeError, ValueError, pa.ArrowException) as error:
        raise ColumnFunctionError(
            f"the function of a computed column returned no array of its type: {error}",
            function=definition.function,
            expected=str(data_type),
        ) from error
    if len(array) != inputs.num_rows:
        raise ColumnFunctionError(
            "the function of a computed column must return one value per row",
            function=definition.function,
            rows=inputs.num_rows,
            values=len(array),
        )
    return _cast(definition, array, data_type)


def function_of(field: Field, definition: Definition, functions: Functions) -> Any:
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


def _definition_of(column: ComputedColumn) -> Definition:
    if isinstance(column.value, str):
        if column.inputs or column.data_type is not None:
            raise ColumnFunctionError(
                "an expression has no inputs and no type; omit them", column=column.name
            )
        return Definition(column.value, None, (column.value,))
    if not column.inputs or column.data_type is None:
        raise ColumnFunctionError(
            "a function requires `inputs` and `data_type`", column=column.name
        )
    function = getattr(column.value, "__name__", type(column.value).__name__)
    if function == "<lambda>":
        raise ColumnFunctionError(
            "refresh_columns finds functions by name, and a lambda has none; define it with def",
            column=column.name,
        )
    return Definition(None, function, tuple(column.inputs))


def _cast(definition: Definition, array: pa.Array, data_type: pa.DataType) -> pa.Array:
    """Return values with the type of the column; an input or the column may have been cast."""
    if array.type == data_type:
        return array
    try:
        return array.cast(data_type)
    except pa.ArrowException as error:
        raise ColumnFunctionError(
            "the definition of a computed column has values of another type than the column",
            definition=_original_text(definition),
            expected=str(data_type),
            found=str(array.type),
        ) from error


def _original_text(definition: Definition) -> str:
    return definition.expression or f"{definition.function}({', '.join(definition.inputs)})"


def _text(definition: Definition, schema: Schema) -> str:
    """Return the expression or call, with the present names of inputs that were renamed."""
    moved = _moved_paths(definition, schema)
    inputs = [str(_renamed(text, moved)) for text in definition.inputs]
    if definition.function is None:
        return inputs[0]
    return f"{definition.function}({', '.join(inputs)})"


def _moved_paths(
    definition: Definition, schema: Schema
) -> dict[tuple[str, ...], tuple[str, ...] | None]:
    """Return the present path of each input, or None if it was dropped."""
    return {each.path: each.path_in(schema) for each in definition.fields or ()}


def _renamed(text: str, moved: Mapping[tuple[str, ...], tuple[str, ...] | None]) -> ExpressionLike:
    if all(found is None or found == path for path, found in moved.items()):
        return text

    def visit(node: Expression) -> Expression:
        if isinstance(node, Column):
            return Column(moved.get(node.path) or node.path)
        return with_children(node, tuple(map(visit, children(node))))

    return visit(parse_with_source(text)[0])
