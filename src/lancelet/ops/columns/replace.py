"""Putting other values in place of columns of some fragments, as one commit.

    fragment 3   a.lance [0, 1]
    replace b    a.lance [0, -2]   b.lance [1]       all of b in fragment 3, and nothing else

Rows are not moved and no schema changes, so commits that touch other fragments or other columns
do not conflict with it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

import pyarrow as pa

from lancelet.format.fragment import Fragment
from lancelet.format.operation import DataReplacement, DataReplacementGroup
from lancelet.format.schema import Schema
from lancelet.ops.columns.column_file import write_column_file
from lancelet.ops.columns.fields import ColumnError, find_chain
from lancelet.ops.columns.job import Committing
from lancelet.ops.columns.rows import RowSupply, spread
from lancelet.ops.publish import publish
from lancelet.ops.rows import RowStream
from lancelet.table.snapshot import Snapshot


def replace_columns(
    snapshot: Snapshot,
    columns: Sequence[str],
    values: Mapping[int, RowStream],
    committing: Committing | None = None,
) -> Snapshot:
    """Replace columns of the fragments that `values` names, one row for each of their live rows.

    Raises:
        CommitConflictError: Others moved rows of these fragments, or replaced the same columns.
    """
    how = committing or Committing()
    operation = write_replacements(snapshot, columns, values)
    return publish(snapshot, operation, how.options, how.remarks)


def write_replacements(
    snapshot: Snapshot, columns: Sequence[str], values: Mapping[int, RowStream]
) -> DataReplacement:
    """Write the values of columns for some fragments, and return what puts them in place."""
    for path in columns:
        if len(find_chain(snapshot.schema, path)) > 1:
            raise ColumnError("columns are replaced as a whole; name the top-level one", path=path)
    wanted = set(columns)
    fields = tuple(field for field in snapshot.schema.fields if field.name in wanted)
    stored = Schema(fields, snapshot.schema.metadata)
    groups = [
        DataReplacementGroup(
            fragment_id,
            write_column_file(
                snapshot, fragment, stored, _rows(snapshot, fragment, stored, stream)
            ),
        )
        for fragment_id, stream in values.items()
        for fragment in [snapshot.fragments.by_id(fragment_id)]
    ]
    return DataReplacement(tuple(groups))


def _rows(
    snapshot: Snapshot, fragment: Fragment, stored: Schema, stream: RowStream
) -> Iterator[pa.RecordBatch]:
    missing = [name for name in stored.names if name not in stream.schema.names]
    if missing:
        raise ColumnError("there are no values for a column", columns=missing)
    supply = RowSupply(stream.batches, stream.schema.names)
    yield from spread(snapshot, fragment, stored, (), supply.take(snapshot.live_rows(fragment)))
    supply.check_ended()
