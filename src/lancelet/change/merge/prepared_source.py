"""The prepared source of a merge: its rows, keys and key ranges.

Zones of the table are skipped if they cannot contain a source key:

    keys 7, 3, 7        few keys: the zone must contain 3 or 7
    a million keys      many keys: the range of the zone must overlap the range of the keys
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc

from lancelet.change.fit import fit_to_table
from lancelet.change.lossless import fit_rows
from lancelet.change.merge.key_columns import KeyColumns
from lancelet.change.merge.key_index import Keys
from lancelet.change.merge.key_passes import KeyPasses
from lancelet.change.merge.source import SourceRows
from lancelet.change.merge.spec import MergeSpec
from lancelet.change.rows import RowStream, without_views
from lancelet.expr import expression as ex
from lancelet.expr.coercion import plain
from lancelet.expr.expression import Expression, Operator
from lancelet.format.schema import Schema
from lancelet.scan.plan import FilterStep
from lancelet.values import dataclass, replace

_ROWS_PART: Final = 4
"""Source rows in memory take up to this part of the memory limit."""
_FEW: Final = 4096
"""The maximum number of distinct keys that are compared individually with the range of a zone."""


@dataclass(frozen=True, slots=True, eq=False)
class Source:
    """The rows to merge.

    `part` is the subset of the table schema that the source contains. `steps` are conditions that
    all rows with a source key satisfy.
    """

    rows: SourceRows
    part: Schema
    key: KeyColumns
    keys: KeyPasses
    steps: tuple[FilterStep, ...]


@contextmanager
def prepared(table: Schema, stream: RowStream, spec: MergeSpec) -> Iterator[Source]:
    """Read the source and its keys, and release them on exit."""
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

    limit = None if stream.is_in_memory else spec.memory_limit // _ROWS_PART
    with (
        closing(keys),
        SourceRows.read(stream, memory_limit=limit, watch=watch) as rows,
    ):
        yield Source(rows, part, key, keys, ranges.steps())


def refitted(source: Source, table: Schema, spec: MergeSpec) -> Source:
    """Adapt a source to a table whose schema has changed since the source was prepared.

    Columns are matched by name, as in a new merge.
    """
    part = fit_to_table(table, source.rows.schema, may_lack_required=not spec.inserts)
    return replace(source, part=part, key=KeyColumns.of(table, spec.on))


class KeyRange:
    """The values of a key column: distinct values while there are few, then the bounds."""

    def __init__(self) -> None:
        """Create an empty range."""
        self._values: pa.Array | None = None
        self._is_all = True
        self._is_open = False

    def add(self, column: pa.Array) -> None:
        """Add values of the column; null keys never match and are ignored."""
        if self._is_open:
            return
        data_type = column.type
        if isinstance(data_type, pa.BaseExtensionType) or pa.types.is_nested(data_type):
            self._is_open = True
            return
        values = column.cast(plain(data_type)).drop_null()
        if pa.types.is_floating(values.type) and pc.any(pc.is_nan(values)).as_py():
            self._is_open = True
            return
        if self._values is not None:
            values = pa.concat_arrays([self._values, values])
        # Most keys are distinct: a prefix usually shows that there are too many.
        self._is_all = self._is_all and len(values.slice(0, 2 * _FEW).unique()) <= _FEW
        if self._is_all:
            values = values.unique()
            self._is_all = len(values) <= _FEW
        self._values = values if self._is_all or not len(values) else _bounds(values)

    def step(self, path: tuple[str, ...]) -> FilterStep | None:
        """Return a condition that all rows with a source key satisfy, or None."""
        if self._is_open or self._values is None or not len(self._values):
            return None
        column = ex.Column(path)
        if self._is_all:
            return FilterStep(ex.In(column, self._values), (), ())
        low, high = (ex.Literal(bound) for bound in self._values)
        inside: tuple[Expression, ...] = (
            ex.Comparison(Operator.GREATER_EQUAL, column, low),
            ex.Comparison(Operator.LESS_EQUAL, column, high),
        )
        return FilterStep(ex.And(inside), (), ())


class KeyRanges:
    """The ranges of all key columns."""

    def __init__(self, key: KeyColumns) -> None:
        """Create empty ranges."""
        self._key = key
        self._ranges = [KeyRange() for _ in key.paths]

    def add(self, columns: Sequence[pa.Array]) -> None:
        """Add the columns of some keys."""
        for own, column in zip(self._ranges, columns, strict=True):
            own.add(column)

    def steps(self) -> tuple[FilterStep, ...]:
        """Return conditions that all rows with a source key satisfy."""
        pairs = zip(self._ranges, self._key.paths, strict=True)
        found = (own.step(path) for own, path in pairs)
        return tuple(step for step in found if step is not None)


def _bounds(values: pa.Array) -> pa.Array:
    low, high = pc.min_max(values).values()
    return pa.array([low, high], values.type)
