"""Update rows: compute new values with expressions and rewrite the matching rows.

    {"price": "price * 2", "s.b": "NULL"}    where "id > 10"

    fragment 0    deleted: the rows with id > 10
    new fragment  these rows, with the new values and the same ids

Expressions refer to the old values of all columns. The results are cast to the column type; if a
value does not fit, the update fails and nothing changes.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import field

import numpy as np
import pyarrow as pa

from lancelet.change.blob_copies import has_blobs, with_blob_values
from lancelet.change.delete import write_deletions
from lancelet.change.dry_run import ChangeReport, DryRun
from lancelet.change.moved_rows import RowFiles, rows_by_fragment, with_moved_ids, write_rows
from lancelet.change.publish import Retries, publish, with_retries
from lancelet.errors import ExpressionError, FieldNotFoundError, InvalidInputError, UnsupportedError
from lancelet.expr.compile import ExpressionLike, compile_value
from lancelet.expr.evaluate import evaluate
from lancelet.expr.expression import Cast, Expression
from lancelet.file.storage import check_nulls
from lancelet.format import logical_type
from lancelet.format.field import Field
from lancelet.format.field_path import format_path
from lancelet.format.operation import Update
from lancelet.rowids.address import UInt64s
from lancelet.scan.execute import execute
from lancelet.scan.plan import plan_scan
from lancelet.scan.projection import scan_schema
from lancelet.scan.row_columns import RowColumn
from lancelet.scan.scan_options import ScanOptions
from lancelet.table.commit import CommitOptions
from lancelet.table.conflict.rebase import AffectedRows
from lancelet.table.snapshot import Snapshot
from lancelet.values import dataclass, replace


class UnknownColumnError(FieldNotFoundError, InvalidInputError):
    """A column to update does not exist."""


@dataclass(frozen=True, slots=True, eq=False)
class Updated:
    """The version after an update, and the number of updated rows."""

    snapshot: Snapshot
    num_rows: int


@dataclass(frozen=True, slots=True)
class UpdateOptions:
    """The options of an update."""

    files: RowFiles = field(default_factory=RowFiles)
    retries: Retries = field(default_factory=Retries)
    commit: CommitOptions = field(default_factory=CommitOptions)


@dataclass(frozen=True, slots=True, eq=False)
class PreparedUpdate:
    """Written files, and the operation that commits them."""

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
    """Update the rows that match a predicate in the latest version."""
    options = options or UpdateOptions()

    def attempt(current: Snapshot) -> Updated:
        deferred = current.with_deferred_sync()
        prepared = prepare_update(deferred, updates, predicate, options.files)
        committing = replace(
            options.commit, affected=prepared.affected, sync=deferred.location.store.flush
        )
        return Updated(publish(current, prepared.operation, committing), prepared.num_rows)

    return with_retries(snapshot, attempt, options.retries)


def report_update(
    snapshot: Snapshot,
    updates: Mapping[str, ExpressionLike],
    predicate: ExpressionLike | None = None,
    files: RowFiles | None = None,
) -> ChangeReport:
    """Return the effect of an update without committing it."""
    dry_run = DryRun.of(snapshot)
    prepared = prepare_update(dry_run.snapshot, updates, predicate, files or RowFiles())
    return dry_run.report(prepared.operation, prepared.num_rows)


def prepare_update(
    snapshot: Snapshot,
    updates: Mapping[str, ExpressionLike],
    predicate: ExpressionLike | None,
    files: RowFiles,
) -> PreparedUpdate:
    """Write the changed rows and return the uncommitted update."""
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
    """Bind expressions to the columns of a version, with the types of the updated fields."""
    if not updates:
        raise InvalidInputError("No updates provided")
    names = scan_schema(snapshot.schema)
    assignments = []
    for column, source in updates.items():
        path = _path_of(snapshot, column)
        assignments.append(Assignment(path, _compile_for_field(source, path[-1], names)))
    _check_distinct(assignments)
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
            f"Column '{column}' does not exist in dataset schema", available=schema.names[:100]
        ) from error
    if any(field.logical_type != logical_type.STRUCT for field in path[:-1]):
        raise InvalidInputError("within a column, only struct fields can be updated", column=column)
    if any(node.is_blob for node in path[-1].walk()):
        raise UnsupportedError(
            "an update cannot compute blobs; use merge_insert with the new blobs instead",
            column=column,
        )
    return path


def _compile_for_field(source: ExpressionLike, target: Field, names: pa.Schema) -> Expression:
    """Compile an expression, with a cast to the type of the target field."""
    bound = compile_value(source, names)
    data_type = target.arrow_type
    if bound.data_type == data_type:
        return bound.expression
    storage = data_type.storage_type if isinstance(data_type, pa.BaseExtensionType) else data_type
    try:
        return compile_value(Cast(bound.expression, storage), names).expression
    except ExpressionError as error:
        raise error.with_facts(column=target.name, expected=str(data_type)) from None


def _with_leaf(array: pa.Array, path: tuple[Field, ...], values: pa.Array) -> pa.Array:
    """Replace the values of a nested field; null structs stay null."""
    if len(path) == 1:
        return values
    children = [
        _with_leaf(array.field(index), path[1:], values)
        if child.name == path[1].name
        else array.field(index)
        for index, child in enumerate(array.type)
    ]
    mask = array.is_null() if array.null_count else None
    return pa.StructArray.from_arrays(children, fields=list(array.type), mask=mask)


def _touched_fields(assignments: tuple[Assignment, ...]) -> tuple[int, ...]:
    """Return the ids of the updated fields with their ancestors and descendants."""
    ids: dict[int, None] = {}
    for assignment in assignments:
        for node in (*assignment.path[:-1], *assignment.path[-1].walk()):
            ids[int(node.id)] = None
    return tuple(ids)


def _check_distinct(assignments: list[Assignment]) -> None:
    """Raise if a field is set twice, or both a struct and one of its fields."""
    paths = [tuple(field.id for field in assignment.path) for assignment in assignments]
    for index, path in enumerate(paths):
        for other in paths[:index]:
            shorter = min(len(path), len(other))
            if path[:shorter] == other[:shorter]:
                raise InvalidInputError(
                    "a field is set twice", column=assignments[index].path[-1].name
                )
