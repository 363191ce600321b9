"""The source of a merge, made ready to be matched: its rows, its keys, and where both end."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import pyarrow as pa

from lancelet.format.schema import Schema
from lancelet.ops.fit import fit_to_table
from lancelet.ops.merge_insert.key_columns import KeyColumns
from lancelet.ops.merge_insert.key_index import KeyIndex, Keys
from lancelet.ops.merge_insert.key_range import KeyRanges
from lancelet.ops.merge_insert.source import SourceRows
from lancelet.ops.merge_insert.spec import MergeSpec
from lancelet.ops.rows import RowStream
from lancelet.query.plan import FilterStep


@dataclass(frozen=True, slots=True, eq=False)
class Source:
    """Rows to be merged.

    `part` is what they bring of the table's schema. `steps` are conditions that every row of the
    table with a key of the source fulfils.
    """

    rows: SourceRows
    part: Schema
    key: KeyColumns
    index: KeyIndex
    steps: tuple[FilterStep, ...]


@contextmanager
def prepared(table: Schema, stream: RowStream, spec: MergeSpec) -> Iterator[Source]:
    """Read the source and its keys, and forget them at the end."""
    key = KeyColumns.of(table, spec.on)
    part = fit_to_table(table, stream.schema, may_lack_required=not spec.inserts)
    key.of_rows(pa.RecordBatch.from_pylist([], stream.schema))
    keys: list[Keys] = []
    ranges = KeyRanges(key)

    def watch(batch: pa.RecordBatch) -> None:
        columns = key.of_rows(batch)
        keys.append(Keys.of(columns))
        ranges.add(columns)

    limit = None if stream.is_in_memory else spec.memory_limit
    with SourceRows.read(stream, memory_limit=limit, watch=watch) as rows:
        index = KeyIndex.build(Keys.concat(keys))
        yield Source(rows, part, key, index, ranges.steps())
