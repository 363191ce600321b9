"""Add columns. Their values are written to separate data files.

    fragment 0   a.lance [0, 1]
    add b        a.lance [0, 1]   b.lance [2]

Existing files are not rewritten. Additions that require a rewrite, such as a field of a struct in
files before version 2.1, raise an error.

A function computes new columns from batches of live rows. Batches have a fixed size, so that
results in a checkpoint can be reused when the computation is restarted.
"""

from __future__ import annotations

import json
from collections.abc import Container, Iterable, Iterator
from dataclasses import replace
from typing import assert_never

import pyarrow as pa

from lancelet.change.columns.checkpoint import BatchInfo
from lancelet.change.columns.column_file import file_version_of
from lancelet.change.columns.computed import adding_columns, source_of
from lancelet.change.columns.fields import (
    ColumnError,
    ColumnSourceError,
    ColumnUnsupportedError,
    keeps_nullability,
)
from lancelet.change.columns.from_expressions import plan_expressions
from lancelet.change.columns.from_given import Joined, plan_join, plan_rows
from lancelet.change.columns.job import ColumnJob, Committing, report_merge
from lancelet.change.columns.nested import GivenRows
from lancelet.change.columns.plan import ColumnPlan, grown_schema, guides_of, no_values, shaped
from lancelet.change.columns.rows import read_live
from lancelet.change.columns.sources import (
    ComputedColumn,
    Expressions,
    Function,
    NewColumns,
    Nulls,
    Rows,
)
from lancelet.change.dry_run import ChangeReport
from lancelet.change.mem_wal_guard import refuse_names_of_log, refuse_with_log, with_used_field_ids
from lancelet.change.rows import RowStream
from lancelet.errors import LanceletError
from lancelet.expr.expression import Column
from lancelet.expr.scan_types import scan_field
from lancelet.format.field import Field
from lancelet.format.fragment import Fragment
from lancelet.format.schema import Schema
from lancelet.format.schema_json import schema_to_json
from lancelet.format.version import FileVersion
from lancelet.scan.projection import OutputColumn, Projection, needed, project, without_columns
from lancelet.table.snapshot import Snapshot

_GUIDE = "guide of "


def add_columns(
    snapshot: Snapshot, source: NewColumns, committing: Committing | None = None
) -> Snapshot:
    """Add columns to the latest version, and return the new version."""
    how = committing or Committing()
    if isinstance(source, ComputedColumn):
        source_of(snapshot, source)  # errors of the definition come first
    how = replace(how, options=adding_columns(snapshot, how.options, source))
    return _job(snapshot, source).commit(snapshot, how)


def report_add_columns(snapshot: Snapshot, source: NewColumns) -> ChangeReport:
    """Return the effect of adding columns; calls functions and reads streams."""
    if isinstance(source, Function):
        source = replace(source, checkpoint=None)
    return report_merge(snapshot, lambda current: plan_new_columns(current, source))


def add_columns_to_fragment(
    snapshot: Snapshot, fragment: Fragment, source: NewColumns
) -> tuple[Fragment, Schema]:
    """Write new columns of a fragment; return the fragment and schema for a later commit."""
    return _job(snapshot, source).one_fragment(snapshot, fragment)


def join_columns(
    snapshot: Snapshot, rows: RowStream, left: str, right: str, committing: Committing | None = None
) -> Snapshot:
    """Join rows to the table by a key, and return the version with their columns."""
    joined = Joined.of(rows, right, snapshot.schema, left)
    job = ColumnJob(snapshot.location.store, lambda current: plan_join(current, left, joined))
    how = committing or Committing()
    return job.commit(snapshot, replace(how, options=adding_columns(snapshot, how.options)))


def report_join_columns(snapshot: Snapshot, rows: RowStream, left: str, right: str) -> ChangeReport:
    """Return the effect of joining columns without committing it."""
    joined = Joined.of(rows, right, snapshot.schema, left)
    return report_merge(snapshot, lambda current: plan_join(current, left, joined))


def join_columns_to_fragment(
    snapshot: Snapshot, fragment: Fragment, rows: RowStream, left: str, right: str
) -> tuple[Fragment, Schema]:
    """Write joined columns of a fragment; return the fragment and schema for a later commit."""
    joined = Joined.of(rows, right, snapshot.schema, left)
    job = ColumnJob(snapshot.location.store, lambda current: plan_join(current, left, joined))
    return job.one_fragment(snapshot, fragment)


def _job(snapshot: Snapshot, source: NewColumns) -> ColumnJob:
    return ColumnJob(snapshot.location.store, lambda current: plan_new_columns(current, source))


def plan_new_columns(snapshot: Snapshot, source: NewColumns) -> ColumnPlan:
    """Plan the addition of columns to a version."""
    if not isinstance(source, Nulls):
        refuse_with_log(snapshot, "add a computed column", "add it as all nulls, and fill it")
    match source:
        case Expressions():
            return plan_expressions(snapshot, source)
        case Function():
            return plan_function(snapshot, source)
        case Rows():
            return plan_rows(snapshot, source)
        case Nulls():
            return _plan_nulls(snapshot, source)
        case ComputedColumn():
            function = source_of(snapshot, source)
            if source.is_deferred:
                return _plan_nulls(snapshot, Nulls(function.schema))
            return plan_function(snapshot, function)
    assert_never(source)


def _plan_nulls(snapshot: Snapshot, source: Nulls) -> ColumnPlan:
    version = file_version_of(snapshot)
    if version is FileVersion.V0_1:
        raise ColumnUnsupportedError(
            "Cannot add all-null columns to legacy dataset version", version=version.value
        )
    refuse_names_of_log(snapshot, source.schema.names)
    grown = grown_schema(snapshot, source.schema)
    field_ids = {field.id for field in snapshot.schema.walk()}
    for field in _outermost(grown.added.fields, field_ids):
        if not field.nullable:
            raise ColumnError(
                f"All-null columns must be nullable, but field '{field.name}' is not",
                column=field.name,
            )
    schema = with_used_field_ids(snapshot, grown.schema, grown.schema.max_field_id)
    return ColumnPlan(schema, Schema(()), no_values)


def _outermost(fields: Iterable[Field], existing: Container[int]) -> Iterator[Field]:
    """Yield the new fields without their descendants."""
    for field in fields:
        if field.id in existing:
            yield from _outermost(field.children, existing)
        else:
            yield field


def plan_function(snapshot: Snapshot, source: Function) -> ColumnPlan:
    """Plan the addition of columns that a function computes."""
    grown = grown_schema(snapshot, source.schema)
    guides = guides_of(snapshot.schema, grown.added)
    inputs = project(snapshot.schema, source.reads)
    shapes = [
        OutputColumn(scan_field(field).with_name(_GUIDE + field.name), Column((field.name,)))
        for field in guides
    ]
    columns = (*inputs.columns, *shapes)
    read = needed(snapshot.schema, [column.expression for column in columns])
    projection = Projection(columns, *read)
    names = [field.name for field in guides]
    if source.checkpoint is not None:
        source.checkpoint.begin(_description(snapshot, source))

    def values(current: Snapshot, fragment: Fragment) -> Iterator[pa.RecordBatch]:
        batches = read_live(current, fragment, projection, source.batch_size)
        for index, batch in enumerate(batches):
            rows = _first_columns(batch, inputs.schema) if guides else batch
            result = _result(source, fragment, index, rows)
            if not guides:
                yield result
                continue
            present = pa.RecordBatch.from_arrays(batch.columns[len(inputs.columns) :], names)
            yield shaped(grown.added, present, GivenRows(result))

    return ColumnPlan(
        grown.schema,
        grown.added,
        values,
        keeps_nullability=keeps_nullability(grown.added, snapshot.schema),
        is_sequential=True,
        checkpoint=source.checkpoint,
        guides=guides,
    )


def _result(
    source: Function, fragment: Fragment, index: int, rows: pa.RecordBatch
) -> pa.RecordBatch:
    """Return the result of the function, from the checkpoint if available."""
    checkpoint = source.checkpoint
    if checkpoint is None:
        return _call(source, rows)
    info, state = BatchInfo(int(fragment.id), index), _state(fragment)
    result = checkpoint.get_batch(info, state)
    if result is None:
        result = _call(source, rows)
        checkpoint.insert_batch(info, result, state)
    return result


def _call(source: Function, rows: pa.RecordBatch) -> pa.RecordBatch:
    try:
        result = source.call(rows)
    except LanceletError:
        raise
    except Exception as error:
        raise ColumnSourceError(f"the function of new columns failed: {error}") from error
    if result.num_rows != rows.num_rows:
        raise ColumnError(
            "a function must return as many rows as it is given",
            expected=rows.num_rows,
            found=result.num_rows,
        )
    return result


def _first_columns(batch: pa.RecordBatch, schema: pa.Schema) -> pa.RecordBatch:
    if not schema.names:
        return without_columns(batch.num_rows)
    return pa.RecordBatch.from_arrays(batch.columns[: len(schema)], schema=schema)


def _state(fragment: Fragment) -> str:
    """Return the files of a fragment, which identify its rows and values."""
    deletion = fragment.deletion_file
    names = [file.path for file in fragment.files]
    return " ".join(names if deletion is None else [*names, deletion.path(fragment.id)])


def _description(snapshot: Snapshot, source: Function) -> str:
    """Return the identity of a job: table URI, input columns, batch size and output columns."""
    return json.dumps(
        {
            "table": snapshot.location.uri,
            "reads": source.reads,
            "batch_size": source.batch_size,
            "columns": schema_to_json(source.schema),
        }
    )
