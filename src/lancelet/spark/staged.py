"""Rows written by tasks and not committed yet, as read by the driver."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing

import numpy as np
import pyarrow as pa

from lancelet.change.blob_copies import has_blobs, with_blob_values
from lancelet.change.merge.key_columns import KeyColumns
from lancelet.change.merge.key_index import Keys
from lancelet.change.merge.key_passes import KeyPasses
from lancelet.change.merge.spec import MergeSpec
from lancelet.change.rows import RowStream
from lancelet.errors import InvalidInputError
from lancelet.format.fragment import Fragment, FragmentId
from lancelet.format.fragment_list import FragmentList
from lancelet.format.schema import Schema
from lancelet.rowids.address import UInt64s
from lancelet.scan.execute import execute
from lancelet.scan.plan import plan_scan
from lancelet.scan.scan_options import ScanOptions
from lancelet.table.snapshot import Snapshot, unsaved_snapshot
from lancelet.values import dataclass, replace


@dataclass(frozen=True, slots=True, eq=False)
class StagedRows:
    """Rows that tasks have written to fragments, and the columns that identify a row."""

    schema: Schema
    fragments: tuple[Fragment, ...]
    on: tuple[str, ...]

    def has_all_values(self, snapshot: Snapshot) -> bool:
        """Return whether no value of the old rows is needed, neither a column nor a row id."""
        is_whole = set(self.schema.fields) == set(snapshot.schema.fields)
        return is_whole and not snapshot.manifest.uses_stable_row_ids

    def keys(self, snapshot: Snapshot, key: KeyColumns) -> Iterator[pa.RecordBatch]:
        """Yield the columns that contain the keys, which may be fields of structs."""
        columns = tuple(dict.fromkeys(path[0] for path in key.paths))
        yield from execute(plan_scan(self._version(snapshot), ScanOptions(columns=columns)))

    def rows(self, snapshot: Snapshot) -> RowStream:
        """Return all rows in the order of their columns in the table, blobs as they are written."""
        version = self._version(snapshot)
        if not has_blobs(self.schema):
            plan = plan_scan(version, ScanOptions())
            return RowStream(plan.schema, execute(plan))
        schema = pa.schema([field.to_arrow() for field in self.schema.fields])
        plan = plan_scan(version, ScanOptions(with_row_address=True))
        return RowStream(schema, _with_blobs(version, schema, execute(plan)))

    def check_distinct(self, snapshot: Snapshot) -> None:
        """Raise if two rows have the same key, because the winner would be undefined."""
        key = KeyColumns.of(snapshot.schema, self.on)
        with closing(KeyPasses(MergeSpec(on=self.on).memory_limit)) as keys:
            for batch in self.keys(snapshot, key):
                keys.add(Keys.of(key.of_rows(batch)))
            count = sum(len(each.index.repeats()[0]) for each in keys.passes())
        if count:
            raise self.repeated_keys_error(count)

    def repeated_keys_error(self, count: int) -> InvalidInputError:
        """Return the error for rows with the same key."""
        return InvalidInputError(
            "rows of one batch have the same key; drop duplicates before the sink",
            on=self.on,
            duplicates=count,
        )

    def _version(self, snapshot: Snapshot) -> Snapshot:
        numbered = [
            replace(fragment, id=FragmentId(index)) for index, fragment in enumerate(self.fragments)
        ]
        fragments = FragmentList.of(numbered)
        manifest = replace(snapshot.manifest, schema=self.schema, fragments=fragments)
        return unsaved_snapshot(snapshot.location, manifest)


def _with_blobs(
    version: Snapshot, schema: pa.Schema, batches: Iterator[pa.RecordBatch]
) -> Iterator[pa.RecordBatch]:
    for batch in batches:
        addresses: UInt64s = np.asarray(batch.column("_rowaddr"), np.uint64)
        stored = batch.select(schema.names)
        for part in with_blob_values(version, stored, addresses):
            columns = [
                array if array.type == field.type else array.cast(field.type)
                for array, field in zip(part.columns, schema, strict=True)
            ]
            yield pa.RecordBatch.from_arrays(columns, schema=schema)
