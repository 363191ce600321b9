"""Replace the values of columns in some fragments, in one commit.

    fragment 3   a.lance [0, 1]
    replace b    a.lance [0, -2]   b.lance [1]       replaces b in fragment 3 only

Rows and schema do not change, so that concurrent changes to other fragments or columns do not
conflict.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

import pyarrow as pa

from lancelet.change.columns.column_file import write_column_file
from lancelet.change.columns.fields import ColumnError, find_chain
from lancelet.change.columns.job import Committing
from lancelet.change.columns.rows import RowSupply, expand
from lancelet.change.publish import publish
from lancelet.change.rows import RowStream
from lancelet.format.fragment import Fragment
from lancelet.format.operation import DataReplacement, DataReplacementGroup
from lancelet.format.schema import Schema
from lancelet.table.snapshot import Snapshot


def replace_columns(
    snapshot: Snapshot,
    columns: Sequence[str],
    values: Mapping[int, RowStream],
    committing: Committing | None = None,
) -> Snapshot:
    """Replace columns of the fragments in `values`, with one row for each live row.

    Raises:
        CommitConflictError: A concurrent commit moved rows of these fragments, or replaced the
            same columns.
    """
    how = committing or Committing()
    operation = write_replacements(snapshot, columns, values)
    return publish(snapshot, operation, how.options, how.properties)


def write_replacements(
    snapshot: Snapshot, columns: Sequence[str], values: Mapping[int, RowStream]
) -> DataReplacement:
    """Write the values of columns, and return the operation that replaces them."""
    for path in columns:
        if len(find_chain(snapshot.schema, path)) > 1:
            raise ColumnError("columns are replaced as a whole; name the top-level one", path=path)
    names = set(columns)
    fields = tuple(field for field in snapshot.schema.fields if field.name in names)
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
    yield from expand(snapshot, fragment, stored, (), supply.take(snapshot.live_rows(fragment)))
    supply.check_ended()
