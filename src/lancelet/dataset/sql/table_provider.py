"""Datasets as DataFusion tables.

    context.register_table("t", FFILanceTableProvider(dataset, with_row_id=True))
    context.sql("SELECT * FROM t WHERE a > 3")

DataFusion's Python package reads a `pyarrow.dataset.Dataset`: it passes the columns of the
statement and the conditions that pyarrow can express, and does not evaluate those again. A table
is one partition, which preserves the order of rows.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final, TypeAlias

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset

from lancelet.expr.arrow_expression import from_arrow
from lancelet.expr.compile import compile_filter
from lancelet.expr.evaluate import evaluate_filter
from lancelet.expr.expression import Expression, In, IsTrue
from lancelet.expr.traversal import children, columns_of, with_children
from lancelet.values import dataclass

if TYPE_CHECKING:
    from lancelet.dataset.dataset import LanceDataset

EngineColumn: TypeAlias = "tuple[pa.Field, Callable[[pa.Array], pa.Array]]"
"""The field that the engine sees for a column, and the conversion of the column's values to it."""

_ROW_COLUMNS: Final = {"with_row_id": "_rowid", "with_row_address": "_rowaddr"}


class SqlTable(pyarrow.dataset.Dataset):  # type: ignore[misc]  # pyarrow has no types
    """A dataset that DataFusion can register as a table."""

    def __init__(
        self,
        dataset: LanceDataset,
        schema: pa.Schema,
        engine_columns: Mapping[str, EngineColumn] | None = None,
        failures: list[Exception] | None = None,
    ) -> None:
        """Provide the columns of `schema`, some of them converted for the engine.

        Args:
            dataset: The source of the rows.
            schema: The columns of the table.
            engine_columns: The columns with a different type in the engine.
            failures: Collects read errors, because DataFusion passes on only their text.
        """
        self._dataset = dataset
        self._engine_columns = dict(engine_columns or {})
        self._failures = failures
        self._schema = _engine_schema(schema, self._engine_columns)

    @property
    def schema(self) -> pa.Schema:
        """The columns of the table."""
        return self._schema

    def get_fragments(self, filter: pc.Expression | None = None) -> Iterator[Any]:  # noqa: A002 - pyarrow's name
        """Yield the table itself, as its only partition."""
        del filter
        yield self

    def scanner(
        self,
        schema: pa.Schema | None = None,
        columns: Sequence[str] | None = None,
        filter: pc.Expression | None = None,  # noqa: A002 - pyarrow's name
        batch_size: int | None = None,
        **options: Any,
    ) -> _TableScan:
        """Return a scan of columns, by default of all.

        Args:
            schema: The schema of the table, which pyarrow passes to fragments.
            columns: The names of the columns.
            filter: The condition on the rows.
            batch_size: The maximum number of rows per batch.
            **options: Ignored options of pyarrow scanners.
        """
        del schema, options
        names = tuple(self._schema.names if columns is None else columns)
        condition = None if filter is None else _sql_condition(filter)
        return _TableScan(self, names, condition, batch_size)

    def read(
        self, names: tuple[str, ...], condition: Expression | None, batch_size: int | None
    ) -> Iterator[pa.RecordBatch]:
        """Yield the rows of a scan."""
        try:
            yield from self._read(names, condition, batch_size)
        except Exception as error:
            if self._failures is not None:
                self._failures.append(error)
            raise

    def _read(
        self, names: tuple[str, ...], condition: Expression | None, batch_size: int | None
    ) -> Iterator[pa.RecordBatch]:
        tested = () if condition is None else sorted({path[0] for path in columns_of(condition)})
        options: dict[str, Any] = {
            **dict.fromkeys(_ROW_COLUMNS, False),
            "batch_size": batch_size,
        }
        if self._engine_columns.keys().isdisjoint((*names, *tested)):
            options["filter"] = condition
            yield from self._dataset.scanner(columns=list(names), **options).to_batches()
            return
        read = list(dict.fromkeys((*names, *tested)))
        converted = pa.schema([self._schema.field(name) for name in read])
        test = None if condition is None else compile_filter(condition, converted)
        for stored in self._dataset.scanner(columns=read, **options).to_batches():
            batch = self._converted(stored, converted)
            if test is not None:
                batch = batch.filter(evaluate_filter(test, batch))
            yield batch.select(list(names))

    def _converted(self, batch: pa.RecordBatch, schema: pa.Schema) -> pa.RecordBatch:
        arrays = [
            self._engine_columns[name][1](array) if name in self._engine_columns else array
            for name, array in zip(schema.names, batch.columns, strict=True)
        ]
        return pa.RecordBatch.from_arrays(arrays, schema=schema)


@dataclass(frozen=True, slots=True)
class _TableScan:
    """The part of `pyarrow.dataset.Scanner` that DataFusion calls."""

    table: SqlTable
    columns: tuple[str, ...]
    condition: Expression | None
    batch_size: int | None

    @property
    def projected_schema(self) -> pa.Schema:
        """The columns of the scan."""
        schema = self.table.schema
        return pa.schema([schema.field(name) for name in self.columns])

    def to_batches(self) -> Iterator[pa.RecordBatch]:
        """Yield the rows of the scan."""
        return self.table.read(self.columns, self.condition, self.batch_size)


class FFILanceTableProvider(SqlTable):
    """A dataset that DataFusion can register as a table."""

    def __init__(
        self, dataset: LanceDataset, *, with_row_id: bool = False, with_row_addr: bool = False
    ) -> None:
        """Provide a dataset, optionally with the columns `_rowid` and `_rowaddr`."""
        shown = dataset.scanner(with_row_id=with_row_id, with_row_address=with_row_addr)
        super().__init__(dataset, shown.projected_schema)


def _engine_schema(schema: pa.Schema, columns: Mapping[str, EngineColumn]) -> pa.Schema:
    fields = [columns[field.name][0] if field.name in columns else field for field in schema]
    return pa.schema(fields, metadata=schema.metadata)


def _sql_condition(condition: pc.Expression | pa.Scalar) -> Expression:
    """Rewrite a pyarrow condition of DataFusion.

    DataFusion writes `x IN (...)` as `is_in`, which is false instead of null for a null: negated,
    it would be true. A constant condition arrives as a scalar.
    """
    if isinstance(condition, pa.Scalar):
        condition = pc.scalar(condition)
    return _with_null_membership(from_arrow(condition))


def _with_null_membership(expression: Expression) -> Expression:
    parts = tuple(map(_with_null_membership, children(expression)))
    if isinstance(expression, IsTrue) and isinstance(parts[0], In):
        return parts[0]
    return with_children(expression, parts)
