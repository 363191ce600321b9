"""Rows written by tasks and not committed yet, as read by the driver."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

import pyarrow as pa

from lancelet.change.merge.key_columns import KeyColumns
from lancelet.change.merge.key_index import KeyIndex, Keys
from lancelet.errors import InvalidInputError
from lancelet.format.fragment import Fragment, FragmentId
from lancelet.format.fragment_list import FragmentList
from lancelet.format.schema import Schema
from lancelet.scan.execute import execute
from lancelet.scan.plan import plan_scan
from lancelet.scan.scan_options import ScanOptions
from lancelet.table.snapshot import Snapshot, unsaved_snapshot


def check_distinct(
    snapshot: Snapshot, schema: Schema, fragments: Sequence[Fragment], on: tuple[str, ...]
) -> None:
    """Raise if two rows have the same key, because the winner would be undefined."""
    key = KeyColumns.of(snapshot.schema, on)
    keys = [
        Keys.of(key.of_rows(batch))
        for batch in staged_rows(snapshot, schema, fragments, columns=columns_of(key))
    ]
    if not keys:
        return
    again, _ = KeyIndex.build(Keys.concat(keys)).repeats()
    if len(again):
        raise repeated_keys_error(on, len(again))


def repeated_keys_error(on: tuple[str, ...], count: int) -> InvalidInputError:
    """Return the error for rows of one batch with the same key."""
    return InvalidInputError(
        "rows of one batch have the same key; drop duplicates before the sink",
        on=on,
        duplicates=count,
    )


def staged_rows(
    snapshot: Snapshot,
    schema: Schema,
    fragments: Sequence[Fragment],
    *,
    columns: tuple[str, ...] | None = None,
) -> Iterator[pa.RecordBatch]:
    """Yield the rows of fragments that are not part of the version."""
    numbered = [replace(fragment, id=FragmentId(index)) for index, fragment in enumerate(fragments)]
    manifest = replace(snapshot.manifest, schema=schema, fragments=FragmentList.of(numbered))
    staged = unsaved_snapshot(snapshot.location, manifest)
    yield from execute(plan_scan(staged, ScanOptions(columns=columns)))


def columns_of(key: KeyColumns) -> tuple[str, ...]:
    """Return the columns that contain the keys, which may be fields of structs."""
    return tuple(dict.fromkeys(path[0] for path in key.paths))
