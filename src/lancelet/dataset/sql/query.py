"""SQL over datasets.

    dataset.sql("SELECT name FROM dataset WHERE id > 3").build().to_batch_records()
    lancelet.sql("SELECT * FROM a JOIN b USING (id)", tables={"a": first, "b": second}).to_table()

DataFusion runs the first, as in the reference implementation; DuckDB runs the second.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import field, replace
from functools import partial
from html import escape
from typing import TYPE_CHECKING, Any, Final, Self, TypeAlias, cast

import pyarrow as pa

from lancelet.dataset.handle import Handle
from lancelet.dataset.scan.results import ArrowResult
from lancelet.dataset.show import display
from lancelet.dataset.show.listing import ROWS_SHOWN, table_of
from lancelet.dataset.sql import datafusion_engine
from lancelet.dataset.sql.errors import SqlError
from lancelet.errors import InvalidInputError, LanceletError
from lancelet.values import dataclass

if TYPE_CHECKING:
    from lancelet.dataset.dataset import LanceDataset

__all__ = ["Engine", "SqlError", "SqlMethods", "SqlQuery", "SqlQueryBuilder"]

Engine: TypeAlias = "Callable[[int], tuple[pa.Schema, Iterator[pa.RecordBatch]]]"
"""Executes a statement in batches of at most the given number of rows."""

_DEFAULT_NAME: Final = "dataset"
_BATCH_ROWS: Final = 65536
_PREVIEW_BATCH_ROWS: Final = 1024
_BATCH_ROWS_MAX: Final = 2**32 - 1
_SHOWN_ERRORS: Final = (LanceletError, pa.ArrowException)


@dataclass(frozen=True, slots=True, repr=False)
class SqlQuery(ArrowResult):
    """A statement that is executed each time its rows are read."""

    text: str
    engine: Engine = field(repr=False)
    batch_size: int = _BATCH_ROWS
    batch_size_bytes: int | None = None

    def __str__(self) -> str:
        """Run the query, and show its first rows and the number of the others."""
        return table_of(self.to_table())

    def __repr__(self) -> str:
        """Run the query until its first rows are read, and show them, or the error."""
        try:
            first = self._first_rows(ROWS_SHOWN + 1)
        except _SHOWN_ERRORS as error:
            return f"{display.line('SqlQuery', self.text)}: {error}"
        text = table_of(first.slice(0, ROWS_SHOWN))
        return f"{text}\n... more rows" if first.num_rows > ROWS_SHOWN else text

    def _repr_html_(self) -> str:
        try:
            return display.preview(self._first_rows(ROWS_SHOWN))
        except _SHOWN_ERRORS:
            return f"<pre>{escape(repr(self))}</pre>"

    def _first_rows(self, count: int) -> pa.Table:
        schema, batches = self.engine(min(self.batch_size, _PREVIEW_BATCH_ROWS))
        found: list[pa.RecordBatch] = []
        for batch in batches:
            found.append(batch)
            if sum(each.num_rows for each in found) >= count:
                break
        return pa.Table.from_batches(found, schema).slice(0, count)

    def to_stream_reader(self) -> pa.RecordBatchReader:
        """Return the result as a stream.

        Returns:
            A `pyarrow.RecordBatchReader`.

        Raises:
            ExpressionError: If the expression is invalid or refers to an unknown column.

        Example:
            ```python
            dataset.sql("select name from dataset").build().to_stream_reader().read_all()
            ```
        """
        schema, batches = self.engine(self.batch_size)
        return pa.RecordBatchReader.from_batches(schema, self._limited(batches))

    stream = to_stream_reader

    def to_pandas(self, **kwargs: Any) -> Any:
        """Return the result as a pandas data frame.

        Args:
            kwargs: Arguments of `pyarrow.Table.to_pandas`.

        Returns:
            A `pandas.DataFrame`.

        Raises:
            ExpressionError: If the expression is invalid or refers to an unknown column.

        Example:
            ```python
            dataset.sql("select name from dataset").build().to_pandas()
            ```
        """
        return self.to_table().to_pandas(**kwargs)

    def to_batch_records(self) -> list[pa.RecordBatch]:
        """Return the result as record batches.

        Returns:
            The batches; empty if the result has no rows.

        Raises:
            ExpressionError: If the expression is invalid or refers to an unknown column.

        Example:
            ```python
            dataset.sql("select name from dataset").build().to_batch_records()
            ```
        """
        _, batches = self.engine(self.batch_size)
        return [batch for batch in self._limited(batches) if batch.num_rows]

    def to_table(self) -> pa.Table:
        """Return the result as an Arrow table.

        Returns:
            The rows, in memory.

        Raises:
            ExpressionError: If the expression is invalid or refers to an unknown column.

        Example:
            ```python
            dataset.sql("select max(price) as top from dataset").build().to_table()
            ```
        """
        return self.to_stream_reader().read_all()

    def _limited(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Yield batches within the limits `batch_size` and `batch_size_bytes`."""
        for batch in batches:
            step = self.batch_size
            if self.batch_size_bytes is not None and batch.nbytes > self.batch_size_bytes:
                step = min(step, max(1, batch.num_rows * self.batch_size_bytes // batch.nbytes))
            for start in range(0, batch.num_rows, step):
                yield batch.slice(start, step)


@dataclass(slots=True, repr=False)
class SqlQueryBuilder:
    """Builds a query over one dataset, which has the name `dataset` by default."""

    dataset: LanceDataset
    text: str
    _name: str = _DEFAULT_NAME
    _options: dict[str, Any] = field(default_factory=dict)

    def __repr__(self) -> str:
        """Run the query and show its first rows, or the error."""
        return repr(self.build())

    def _repr_html_(self) -> str:
        return self.build()._repr_html_()

    def table_name(self, table_name: str) -> Self:
        """Set the name of the dataset within the query.

        Args:
            table_name: The name, by default `dataset`.

        Returns:
            The builder.

        Example:
            ```python
            dataset.sql("SELECT * FROM books").table_name("books").build().to_batch_records()
            ```
        """
        self._name = table_name
        return self

    def with_row_id(self, with_row_id: bool = True) -> Self:
        """Add a column `_rowid` to the dataset.

        Args:
            with_row_id: Whether to add the column.

        Returns:
            The builder.

        Example:
            ```python
            dataset.sql("SELECT id, _rowid FROM dataset").with_row_id().build().to_batch_records()
            ```
        """
        return self._set("with_row_id", with_row_id)

    def with_row_addr(self, with_row_addr: bool = True) -> Self:
        """Add a column `_rowaddr` to the dataset.

        Args:
            with_row_addr: Whether to add the column.

        Returns:
            The builder.

        Example:
            ```python
            query = dataset.sql("SELECT id, _rowaddr FROM dataset")
            query.with_row_addr().build().to_batch_records()
            ```
        """
        return self._set("with_row_address", with_row_addr)

    def blob_handling(self, blob_handling: str) -> Self:
        """Set the representation of blob columns.

        Args:
            blob_handling: `blobs_descriptions`, the default, or `all_binary`.

        Returns:
            The builder.

        Raises:
            InvalidInputError: If an argument is invalid.

        Example:
            ```python
            query = dataset.sql("SELECT * FROM dataset")
            query.blob_handling("all_binary").build().to_batch_records()
            ```
        """
        return self._set("blob_handling", blob_handling)

    def batch_size(self, batch_size: int) -> Self:
        """Set the maximum number of rows per batch.

        Args:
            batch_size: The number of rows.

        Returns:
            The builder.

        Raises:
            InvalidInputError: If an argument is invalid.

        Example:
            ```python
            dataset.sql("SELECT * FROM dataset").batch_size(5).build().to_batch_records()
            ```
        """
        if not 1 <= batch_size <= _BATCH_ROWS_MAX:
            raise InvalidInputError(
                f"batch_size must be between 1 and {_BATCH_ROWS_MAX}", found=batch_size
            )
        return self._set("batch_size", batch_size)

    def batch_size_bytes(self, batch_size_bytes: int) -> Self:
        """Set the approximate maximum size of a batch.

        Args:
            batch_size_bytes: The number of bytes.

        Returns:
            The builder.

        Raises:
            InvalidInputError: If an argument is invalid.

        Example:
            ```python
            query = dataset.sql("SELECT * FROM dataset")
            query.batch_size_bytes(1 << 20).build().to_batch_records()
            ```
        """
        if batch_size_bytes < 1:
            raise InvalidInputError("batch_size_bytes must be at least 1", found=batch_size_bytes)
        return self._set("batch_size_bytes", batch_size_bytes)

    def build(self) -> SqlQuery:
        """Build the query; it runs when its result is read.

        Returns:
            The query.

        Example:
            ```python
            builder = dataset.sql("select id, price from books where price > 3")
            builder.table_name("books").build().to_polars()
            ```
        """
        defaults = {**self.dataset.default_scan_options, **self._options}
        options = replace(self.dataset.open_options, default_scan_options=defaults)
        handle = Handle(self.dataset.snapshot, self.dataset.meter, options)
        table = type(self.dataset)(self.dataset.uri, session=self.dataset.session(), _handle=handle)
        return SqlQuery(
            self.text,
            partial(datafusion_engine.run, self.text, self._name, table),
            self._options.get("batch_size", _BATCH_ROWS),
            self._options.get("batch_size_bytes"),
        )

    def _set(self, name: str, value: object) -> Self:
        self._options[name] = value
        return self


class SqlMethods:
    """Methods that run SQL on a dataset."""

    def sql(self, sql: str) -> SqlQueryBuilder:
        """Start a SQL query over the dataset, which has the name `dataset`.

        Requires the extra `sql`.

        Args:
            sql: One read-only statement in the dialect of DataFusion.

        Returns:
            A builder.

        Raises:
            UnsupportedError: If DataFusion is not installed.

        Example:
            ```python
            dataset.sql("select count(*) as n from dataset where price > 3").build().to_table()
            ```
        """
        return SqlQueryBuilder(cast("LanceDataset", self), sql)
