"""New columns that a function of the caller returns, called with batches of live rows.

Batches are as large as asked for, so that a function sees the same ones when it is run again,
and what a checkpoint has of them is not computed anew.
"""

from __future__ import annotations

import json
from collections.abc import Iterator

import pyarrow as pa

from lancelet.errors import LanceletError
from lancelet.format.fragment import Fragment
from lancelet.format.schema_json import schema_to_json
from lancelet.ops.columns.checkpoint import BatchInfo
from lancelet.ops.columns.fields import ColumnError, ColumnSourceError, keeps_nullability
from lancelet.ops.columns.nested import GivenRows
from lancelet.ops.columns.plan import ColumnPlan, grown_schema, guides_of, shaped
from lancelet.ops.columns.rows import read_live
from lancelet.ops.columns.sources import Function
from lancelet.query.expression import Column
from lancelet.query.projection import OutputColumn, Projection, needed, project, without_columns
from lancelet.query.scan_types import scan_field
from lancelet.table.snapshot import Snapshot

_GUIDE = "guide of "


def plan_function(snapshot: Snapshot, source: Function) -> ColumnPlan:
    """Return how the columns that a function makes are added to a version."""
    grown = grown_schema(snapshot, source.schema)
    guides = guides_of(snapshot.schema, grown.added)
    asked = project(snapshot.schema, source.reads)
    shapes = [
        OutputColumn(scan_field(field).with_name(_GUIDE + field.name), Column((field.name,)))
        for field in guides
    ]
    columns = (*asked.columns, *shapes)
    read = needed(snapshot.schema, [column.expression for column in columns])
    projection = Projection(columns, *read)
    names = [field.name for field in guides]
    if source.checkpoint is not None:
        source.checkpoint.begin(_description(snapshot, source))

    def values(current: Snapshot, fragment: Fragment) -> Iterator[pa.RecordBatch]:
        batches = read_live(current, fragment, projection, source.batch_size)
        for index, batch in enumerate(batches):
            rows = _first_columns(batch, asked.schema) if guides else batch
            result = _result(source, fragment, index, rows)
            if not guides:
                yield result
                continue
            present = pa.RecordBatch.from_arrays(batch.columns[len(asked.columns) :], names)
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
    """Return what the function makes of rows, or made of them in an earlier run."""
    checkpoint = source.checkpoint
    if checkpoint is None:
        return _call(source, rows)
    info, state = BatchInfo(int(fragment.id), index), _state(fragment)
    kept = checkpoint.get_batch(info, state)
    if kept is None:
        kept = _call(source, rows)
        checkpoint.insert_batch(info, kept, state)
    return kept


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
    """Return which files a fragment has, which says which rows it has, and what is in them."""
    deletion = fragment.deletion_file
    names = [file.path for file in fragment.files]
    return " ".join(names if deletion is None else [*names, deletion.path(fragment.id)])


def _description(snapshot: Snapshot, source: Function) -> str:
    """Return what is computed from what, so that nothing else is taken for it."""
    return json.dumps(
        {
            "table": snapshot.location.uri,
            "reads": source.reads,
            "batch_size": source.batch_size,
            "columns": schema_to_json(source.schema),
        }
    )
