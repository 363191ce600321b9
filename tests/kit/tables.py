"""Small tables for tests, created without the layers above `table`.

location = TableLocation.open("memory://shelf/t.lance")
first = create_table(location, SIMPLE_SCHEMA, simple_rows(0, 10))
second = append_rows(location, first, simple_rows(10, 15))
"""

from __future__ import annotations

import uuid
from typing import Final

import pyarrow as pa

from lancelet.file.open import create_data_file
from lancelet.format.fragment import DataFile, Fragment, FragmentId
from lancelet.format.operation import Append, Operation, Overwrite
from lancelet.format.paths import data_file_name
from lancelet.format.schema import Schema
from lancelet.format.transaction import Transaction
from lancelet.format.version import DEFAULT_VERSION
from lancelet.table.commit import CommitOptions, commit
from lancelet.table.location import TableLocation
from lancelet.table.snapshot import Snapshot

SIMPLE_SCHEMA: Final = Schema.from_arrow(pa.schema([("id", pa.int64()), ("name", pa.string())]))


def simple_rows(start: int, stop: int) -> pa.Table:
    """Return rows of `SIMPLE_SCHEMA` with the ids `start` to `stop - 1`.

    >>> simple_rows(3, 4).to_pylist()
    [{'id': 3, 'name': 'row 3'}]
    """
    ids = list(range(start, stop))
    return pa.table({"id": pa.array(ids, pa.int64()), "name": [f"row {i}" for i in ids]})


def write_fragment(location: TableLocation, rows: pa.Table, schema: Schema) -> Fragment:
    """Write a data file and return its fragment, without an id."""
    name = data_file_name(uuid.uuid4())
    writer = create_data_file(location.store, f"data/{name}", schema)
    try:
        writer.write(rows)
        summary = writer.finish()
    except BaseException:
        writer.abort()
        raise
    file = DataFile(
        name,
        tuple(writer.placement),
        tuple(writer.placement.values()),
        *DEFAULT_VERSION.entry_numbers,
        summary.size_bytes,
    )
    return Fragment(FragmentId(0), (file,), summary.num_rows)


def new_transaction(read_version: int, operation: Operation) -> Transaction:
    """Return a transaction with a new id."""
    return Transaction(read_version, str(uuid.uuid4()), operation)


def create_table(
    location: TableLocation, schema: Schema, *tables: pa.Table, stable_row_ids: bool = False
) -> Snapshot:
    """Commit the first version of a table, with one fragment per table in `tables`."""
    fragments = tuple(write_fragment(location, rows, schema) for rows in tables)
    options = CommitOptions(stable_row_ids=stable_row_ids)
    return commit(location, new_transaction(0, Overwrite(fragments, schema)), options)


def append_rows(location: TableLocation, snapshot: Snapshot, rows: pa.Table) -> Snapshot:
    """Commit more rows based on a version."""
    fragment = write_fragment(location, rows, snapshot.schema)
    return commit(location, new_transaction(snapshot.version, Append((fragment,))))
