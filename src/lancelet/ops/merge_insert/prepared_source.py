"""The source of a merge, made ready to be matched: its rows, its keys, and where both end."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing, contextmanager

import pyarrow as pa

from lancelet.format.schema import Schema
from lancelet.ops.fit import fit_to_table
from lancelet.ops.lossless import fit_rows
from lancelet.ops.merge_insert.key_columns import KeyColumns
from lancelet.ops.merge_insert.key_index import Keys
from lancelet.ops.merge_insert.key_passes import KeyPasses
from lancelet.ops.merge_insert.key_range import KeyRanges
from lancelet.ops.merge_insert.source import SourceRows
from lancelet.ops.merge_insert.spec import MergeSpec
from lancelet.ops.rows import RowStream, without_views
from lancelet.query.plan import FilterStep
from lancelet.values import dataclass, replace


@dataclass(frozen=True, slots=True, eq=False)
class Source:
    """Rows to be merged.

    `part` is what they bring of the table's schema. `steps` are conditions that every row of the
    table with a key of the source fulfils.
    """

    rows: SourceRows
    part: Schema
    key: KeyColumns
    keys: KeyPasses
    steps: tuple[FilterStep, ...]


@contextmanager
def prepared(table: Schema, stream: RowStream, spec: MergeSpec) -> Iterator[Source]:
    """Read the source and its keys, and forget them at the end."""
    stream = without_views(fit_rows(stream, table))
    key = KeyColumns.of(table, spec.on)
    part = fit_to_table(table, stream.schema, may_lack_required=not spec.inserts)
    key.of_rows(pa.RecordBatch.from_pylist([], stream.schema))
    ranges = KeyRanges(key)
    keys = KeyPasses(spec.memory_limit)

    def watch(batch: pa.RecordBatch) -> None:
        columns = key.of_rows(batch)
        keys.add(Keys.of(columns, with_span=True))
        ranges.add(columns)

    limit = None if stream.is_in_memory else spec.memory_limit
    with (
        closing(keys),
        SourceRows.read(stream, memory_limit=limit, watch=watch) as rows,
    ):
        yield Source(rows, part, key, keys, ranges.steps())


def refitted(source: Source, table: Schema, spec: MergeSpec) -> Source:
    """Return a source for a table whose schema has changed since it was prepared.

    The names of its columns count, as they do for a merge that begins now.
    """
    part = fit_to_table(table, source.rows.schema, may_lack_required=not spec.inserts)
    return replace(source, part=part, key=KeyColumns.of(table, spec.on))
