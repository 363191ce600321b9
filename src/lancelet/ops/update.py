"""Updating rows: expressions are computed over the rows that match, which are written anew.

    {"price": "price * 2", "s.b": "NULL"}    where "id > 10"

    fragment 0    deleted: the rows with id > 10
    new fragment  these rows, with the new values and their ids

The expressions see the old values of all columns. What they compute is converted to the type of
the column; a value that has no place in it is an error, and nothing changes.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import field

import numpy as np
import pyarrow as pa

from lancelet.errors import ExpressionError, FieldNotFoundError, InvalidInputError, UnsupportedError
from lancelet.file.storage import check_nulls
from lancelet.format import logical_type
from lancelet.format.field import Field
from lancelet.format.field_path import format_path
from lancelet.format.operation import Update
from lancelet.ops.compact.blobs import has_blobs, with_blob_values
from lancelet.ops.delete import write_deletions
from lancelet.ops.dry_run import ChangeReport, Rehearsal
from lancelet.ops.moved_rows import RowFiles, rows_by_fragment, with_moved_ids, write_rows
from lancelet.ops.publish import Retries, publish, with_retries
from lancelet.query.compile import ExpressionLike, compile_value
from lancelet.query.evaluate import evaluate
from lancelet.query.execute import execute
from lancelet.query.expression import Cast, Expression
from lancelet.query.plan import plan_scan
from lancelet.query.projection import scan_schema
from lancelet.query.row_columns import RowColumn
from lancelet.query.scan_options import ScanOptions
from lancelet.rowids.address import UInt64s
from lancelet.table.commit import CommitOptions
from lancelet.table.conflict.rebase import AffectedRows
from lancelet.table.snapshot import Snapshot
from lancelet.values import dataclass, replace


class UnknownColumnError(FieldNotFoundError, InvalidInputError):
    """A column to be updated is not there."""


@dataclass(frozen=True, slots=True, eq=False)
class Updated:
    """The version after rows were updated, and how many there were."""

    snapshot: Snapshot
    num_rows: int


@dataclass(frozen=True, slots=True)
class UpdateOptions:
    """How rows are updated."""

    files: RowFiles = field(default_factory=RowFiles)
    retries: Retries = field(default_factory=Retries)
    commit: CommitOptions = field(default_factory=CommitOptions)


@dataclass(frozen=True, slots=True, eq=False)
class PreparedUpdate:
    """Files that were written, and the operation that makes them part of the table."""

    operation: Update
    affected: AffectedRows
    num_rows: int


@dataclass(frozen=True, slots=True)
class Assignment:
    """A field and the bound expression that computes its new value."""

    path: tuple[Field, ...]
    expression: Expression


def update_rows(
    snapshot: Snapshot,
    updates: Mapping[str, ExpressionLike],
    predicate: ExpressionLike | None = None,
    options: UpdateOptions | None = None,
) -> Updated:
    """Update the rows for which a predicate is true, in the latest version there is then."""
    options = options or UpdateOptions()

    def attempt(current: Snapshot) -> Updated:
        lazy = current.lazily()
        prepared = prepare_update(lazy, updates, predicate, options.files)
        committing = replace(
            options.commit, affected=prepared.affected, sync=lazy.location.store.settle
        )
        return Updated(publish(current, prepared.operation, committing), prepared.num_rows)

    return with_retries(snapshot, attempt, options.retries)


def report_update(
    snapshot: Snapshot,
    updates: Mapping[str, ExpressionLike],
    predicate: ExpressionLike | None = None,
    files: RowFiles | None = None,
) -> ChangeReport:
    """Return what an update would do."""
    rehearsal = Rehearsal.of(snapshot)
    prepared = prepare_update(rehearsal.snapshot, updates, predicate, files or RowFiles())
    return rehearsal.report(prepared.operation, prepared.num_rows)


def prepare_update(
    snapshot: Snapshot,
    updates: Mapping[str, ExpressionLike],
    predicate: ExpressionLike | None,
    files: RowFiles,
) -> PreparedUpdate:
    """Write the changed rows and return what is left to be committed."""
    assignments = bind_updates(snapshot, updates)
    names = (*snapshot.schema.names, RowColumn.ADDRESS.value)
    plan = plan_scan(snapshot, ScanOptions(columns=names, filter=predicate))
    moved: list[UInt64s] = []
    holds_blobs = has_blobs(snapshot.schema)

    def changed() -> Iterator[pa.RecordBatch]:
        for batch in execute(plan):
            addresses = batch.column(batch.num_columns - 1).to_numpy()
            moved.append(addresses)
            rows = assign(batch.select(snapshot.schema.names), assignments)
            if holds_blobs:
                yield from with_blob_values(snapshot, rows, addresses)
            else:
                yield rows

    fragments = write_rows(snapshot, changed(), files)
    addresses = np.concatenate([np.empty(0, np.uint64), *moved])
    rows = rows_by_fragment(addresses)
    removal = write_deletions(snapshot, rows)
    operation = Update(
        removed_fragment_ids=removal.removed,
        updated_fragments=removal.updated,
        new_fragments=with_moved_ids(snapshot, fragments, addresses),
        fields_for_preserving_bitmap=_touched_fields(assignments),
    )
    return PreparedUpdate(operation, rows, len(addresses))


def bind_updates(
    snapshot: Snapshot, updates: Mapping[str, ExpressionLike]
) -> tuple[Assignment, ...]:
    """Return expressions bound to the columns of a version, with the types of their fields."""
    if not updates:
        raise InvalidInputError("No updates provided")
    names = scan_schema(snapshot.schema)
    assignments = []
    for column, written in updates.items():
        path = _path_of(snapshot, column)
        assignments.append(Assignment(path, _bound(written, path[-1], names)))
    _check_apart(assignments)
    return tuple(assignments)


def assign(rows: pa.RecordBatch, assignments: tuple[Assignment, ...]) -> pa.RecordBatch:
    """Return rows with new values, all computed from the old ones."""
    columns = dict(zip(rows.schema.names, rows.columns, strict=True))
    for assignment in assignments:
        top, leaf = assignment.path[0], assignment.path[-1]
        values = evaluate(assignment.expression, rows)
        if values.type != leaf.arrow_type:
            values = values.cast(leaf.arrow_type)
        columns[top.name] = _with_leaf(columns[top.name], assignment.path, values)
    for assignment in assignments:
        check_nulls(columns[assignment.path[0].name], assignment.path[0])
    return pa.RecordBatch.from_arrays(list(columns.values()), list(columns))


def _path_of(snapshot: Snapshot, column: str) -> tuple[Field, ...]:
    schema = snapshot.schema
    try:
        path = schema.fields_on_path(format_path([column]) if column in schema.names else column)
    except FieldNotFoundError as error:
        raise UnknownColumnError(
            f"Column '{column}' does not exist in dataset schema", known=schema.names[:100]
        ) from error
    if any(field.logical_type != logical_type.STRUCT for field in path[:-1]):
        raise InvalidInputError(
            "only fields of structs can be updated within a column", column=column
        )
    if any(node.is_blob for node in path[-1].walk()):
        raise UnsupportedError(
            "the bytes of blobs cannot be computed by an update; merge rows with them instead",
            column=column,
        )
    return path


def _bound(written: ExpressionLike, target: Field, names: pa.Schema) -> Expression:
    """Return an expression that computes values of a field's type."""
    bound = compile_value(written, names)
    wanted = target.arrow_type
    if bound.data_type == wanted:
        return bound.expression
    storage = wanted.storage_type if isinstance(wanted, pa.BaseExtensionType) else wanted
    try:
        return compile_value(Cast(bound.expression, storage), names).expression
    except ExpressionError as error:
        raise error.with_facts(column=target.name, expected=str(wanted)) from None


def _with_leaf(array: pa.Array, path: tuple[Field, ...], values: pa.Array) -> pa.Array:
    """Return a column with other values at the end of a path; a null struct stays null."""
    if len(path) == 1:
        return values
    children = [
        _with_leaf(array.field(place), path[1:], values)
        if child.name == path[1].name
        else array.field(place)
        for place, child in enumerate(array.type)
    ]
    mask = array.is_null() if array.null_count else None
    return pa.StructArray.from_arrays(children, fields=list(array.type), mask=mask)


def _touched_fields(assignments: tuple[Assignment, ...]) -> tuple[int, ...]:
    """Return the ids of the fields that change, with those around and within them."""
    ids: dict[int, None] = {}
    for assignment in assignments:
        for each in (*assignment.path[:-1], *assignment.path[-1].walk()):
            ids[int(each.id)] = None
    return tuple(ids)


def _check_apart(assignments: list[Assignment]) -> None:
    """Refuse to set a field twice, or a struct and a field of it."""
    paths = [tuple(each.id for each in assignment.path) for assignment in assignments]
    for place, path in enumerate(paths):
        for other in paths[:place]:
            shorter = min(len(path), len(other))
            if path[:shorter] == other[:shorter]:
                raise InvalidInputError(
                    "a field is set twice", column=assignments[place].path[-1].name
                )
