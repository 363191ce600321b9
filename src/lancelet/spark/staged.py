"""Rows that tasks wrote and nobody committed yet, as the driver reads them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

import numpy as np
import pyarrow as pa

from lancelet.errors import InvalidInputError
from lancelet.format.fragment import Fragment, FragmentId
from lancelet.format.fragment_list import FragmentList
from lancelet.format.schema import Schema
from lancelet.ops.merge_insert.key_columns import KeyColumns
from lancelet.ops.merge_insert.key_index import KeyIndex, Keys
from lancelet.query.execute import execute
from lancelet.query.plan import plan_scan
from lancelet.query.scan_options import ScanOptions
from lancelet.table.snapshot import Snapshot, unsaved_snapshot


def check_distinct(
    beside: Snapshot, schema: Schema, fragments: Sequence[Fragment], on: tuple[str, ...]
) -> None:
    """Refuse rows of which two have the same key; it is undefined which of them should win."""
    key = KeyColumns.of(beside.schema, on)
    keys = [
        Keys.of(key.of_rows(batch))
        for batch in staged_rows(beside, schema, fragments, columns=tuple(key.names))
    ]
    if not keys:
        return
    first = KeyIndex.build(Keys.concat(keys)).first_rows()
    again = np.flatnonzero(first != np.arange(len(first)))
    if len(again):
        raise InvalidInputError(
            "rows of one batch have the same key; drop duplicates before the sink",
            on=on,
            duplicates=len(again),
        )


def staged_rows(
    beside: Snapshot,
    schema: Schema,
    fragments: Sequence[Fragment],
    *,
    columns: tuple[str, ...] | None = None,
) -> Iterator[pa.RecordBatch]:
    """Yield the rows of fragments that lie beside a version and are not part of it."""
    numbered = [replace(fragment, id=FragmentId(place)) for place, fragment in enumerate(fragments)]
    manifest = replace(beside.manifest, schema=schema, fragments=FragmentList.of(numbered))
    staged = unsaved_snapshot(beside.location, manifest)
    yield from execute(plan_scan(staged, ScanOptions(columns=columns)))
