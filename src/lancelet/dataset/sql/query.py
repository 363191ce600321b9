"""SQL over datasets, which DuckDB runs unless it is a scan of one dataset; see `sql_scan`.

    dataset.sql("SELECT name FROM dataset WHERE id > 3").build().to_batch_records()
    lancelet.sql("SELECT * FROM a JOIN b USING (id)", tables={"a": first, "b": second}).to_table()

DuckDB reads a dataset as one of pyarrow's: it asks for the columns that a query needs, and hands
down what of the conditions it can. Rows stream through it. A query sees the tables it is given, or
if none are, the variables of its caller, and no files.

Queries that are nothing but a scan of one dataset, which needs no other engine.

    SELECT * FROM dataset WHERE json_get_int(doc, 'age') > 28      columns and a filter
    SELECT count(*) FROM dataset                                   DuckDB

Rows keep the types of the dataset then, and its functions on JSON can be used. A query is only
taken for a scan if it means the same to both: what they may read differently, such as `/`, is left
to DuckDB.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import field, replace
from typing import TYPE_CHECKING, Any, Final, Self, cast

import pyarrow as pa
import pyarrow.dataset

from lancelet.dataset.arguments import says_results
from lancelet.dataset.handle import Handle
from lancelet.dataset.scan.results import ArrowResult
from lancelet.dataset.sql.database import duckdb_module
from lancelet.dataset.sql.prepared import Prepared, give_back, prepare
from lancelet.errors import (
    ExpressionError,
    InvalidInputError,
    NotFoundError,
    UnsupportedError,
    similar_names,
)
from lancelet.values import dataclass

if TYPE_CHECKING:
    from lancelet.dataset.dataset import LanceDataset
    from lancelet.dataset.scan.scanner import LanceScanner

_DEFAULT_NAME: Final = "dataset"
_BATCH_ROWS: Final = 65536
_WIDE: Final = frozenset({"HUGEINT", "UHUGEINT"})
_BATCH_ROWS_MAX: Final = 2**32 - 1

_QUERY: Final = re.compile(
    r"\s*SELECT\s+(?P<columns>\*|\w+(?:\s*,\s*\w+)*)\s+FROM\s+(?P<table>\w+)"
    r"(?:\s+WHERE\s+(?P<filter>.+?))?\s*;?\s*",
    re.IGNORECASE | re.DOTALL,
)
_TEXTS: Final = re.compile(r"'(?:[^']|'')*'")
_READ_ALIKE: Final = re.compile(r"[\w\s.,()<>=!+*-]*", re.ASCII)
_CALL: Final = re.compile(r"(\w+)\s*\(")
_NO_FUNCTIONS: Final = frozenset({"and", "or", "not", "in", "where", "between"})


class SqlError(ExpressionError):
    """A query cannot be understood or run; the message is DuckDB's."""


@dataclass(frozen=True, slots=True)
class SqlQuery(ArrowResult):
    """A query that is ready to run; it runs anew each time that rows are asked for."""

    text: str
    tables: Mapping[str, Any]
    batch_size: int = _BATCH_ROWS
    batch_size_bytes: int | None = None

    def to_stream_reader(self) -> pa.RecordBatchReader:
        """Return the result as a stream.

        Returns:
            A `pyarrow.RecordBatchReader`.

        Raises:
            ExpressionError: If the expression does not parse, or names a column that is not there.

        Example:
            ```python
            dataset.sql("select name from dataset").build().to_stream_reader().read_all()
            ```
        """
        schema, batches = self._start()
        return pa.RecordBatchReader.from_batches(schema, batches)

    stream = to_stream_reader

    def to_pandas(self, **kwargs: Any) -> Any:
        """Return the result as a pandas data frame.

        Args:
            kwargs: Arguments of `pyarrow.Table.to_pandas`.

        Returns:
            A `pandas.DataFrame`.

        Raises:
            ExpressionError: If the expression does not parse, or names a column that is not there.

        Example:
            ```python
            dataset.sql("select name from dataset").build().to_pandas()
            ```
        """
        return self.to_table().to_pandas(**kwargs)

    def to_batch_records(self) -> list[pa.RecordBatch]:
        """Return the result as record batches.

        Returns:
            The batches; none if there are no rows.

        Raises:
            ExpressionError: If the expression does not parse, or names a column that is not there.

        Example:
            ```python
            dataset.sql("select name from dataset").build().to_batch_records()
            ```
        """
        _, batches = self._start()
        return [batch for batch in batches if batch.num_rows]

    def to_table(self) -> pa.Table:
        """Return the result as an Arrow table.

        Returns:
            The rows, in memory.

        Raises:
            ExpressionError: If the expression does not parse, or names a column that is not there.

        Example:
            ```python
            dataset.sql("select max(price) as top from dataset").build().to_table()
            ```
        """
        return self.to_stream_reader().read_all()

    def _start(self) -> tuple[pa.Schema, Iterator[pa.RecordBatch]]:
        scanned = self._as_scan()
        if scanned is not None:
            reader = scanned.to_reader()
            return reader.schema, _batches(reader, None, self.batch_size_bytes)
        reader, prepared = _run(self)
        found = reader.schema
        schema = _narrowed_schema(found, prepared)
        rows = reader if schema is found else _narrowed(reader, schema)
        return schema, _batches(rows, prepared, self.batch_size_bytes)

    def _as_scan(self) -> LanceScanner | None:
        if len(self.tables) != 1:
            return None
        ((name, table),) = self.tables.items()
        if not isinstance(table, SqlMethods):
            return None
        return scan_of_query(self.text, name, table, self.batch_size)


@dataclass(slots=True)
@says_results
class SqlQueryBuilder:
    """Makes a query over one dataset, which is called `dataset` unless it is given a name."""

    dataset: LanceDataset
    text: str
    _name: str = _DEFAULT_NAME
    _options: dict[str, Any] = field(default_factory=dict)

    def table_name(self, table_name: str) -> Self:
        """Set the name of the dataset within the query.

        Args:
            table_name: The name, by default `dataset`.

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
            with_row_id: Whether to.

        Example:
            ```python
            dataset.sql("SELECT id, _rowid FROM dataset").with_row_id().build().to_batch_records()
            ```
        """
        return self._set("with_row_id", with_row_id)

    def with_row_addr(self, with_row_addr: bool = True) -> Self:
        """Add a column `_rowaddr` to the dataset.

        Args:
            with_row_addr: Whether to.

        Example:
            ```python
            query = dataset.sql("SELECT id, _rowaddr FROM dataset")
            query.with_row_addr().build().to_batch_records()
            ```
        """
        return self._set("with_row_address", with_row_addr)

    def blob_handling(self, blob_handling: str) -> Self:
        """Set what blob columns are read as.

        Args:
            blob_handling: `blobs_descriptions`, the default, or `all_binary`.

        Raises:
            InvalidInputError: If an argument has a value that it cannot have.

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

        Raises:
            InvalidInputError: If an argument has a value that it cannot have.

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

        Raises:
            InvalidInputError: If an argument has a value that it cannot have.

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
            {self._name: table},
            self._options.get("batch_size", _BATCH_ROWS),
            self._options.get("batch_size_bytes"),
        )

    def _set(self, name: str, value: object) -> Self:
        self._options[name] = value
        return self


class SqlMethods:
    """Runs SQL on a dataset."""

    def sql(self, sql: str) -> SqlQueryBuilder:
        """Start an SQL query over the dataset, which is called `dataset` in it.

        Needs the extra `sql`.

        Args:
            sql: The query, in DuckDB's dialect.

        Returns:
            A builder.

        Raises:
            UnsupportedError: If DuckDB is not installed.

        Example:
            ```python
            dataset.sql("select count(*) as n from dataset where price > 3").build().to_table()
            ```
        """
        return SqlQueryBuilder(cast("LanceDataset", self), sql)


def _run(query: SqlQuery) -> tuple[pa.RecordBatchReader, Prepared]:
    """Start a query; what it reads from has to be kept for as long as it is read."""
    duckdb = duckdb_module()
    try:
        prepared = prepare(query.text, query.tables)
    except duckdb.Error as error:
        raise _told(error, query) from error
    relation = prepared.relation
    if relation is None:  # a statement that has no rows, not even none
        return pa.RecordBatchReader.from_batches(pa.schema([]), []), prepared
    # Its name changed with DuckDB 2.
    read = getattr(relation, "to_arrow_reader", None) or relation.fetch_arrow_reader
    try:
        return read(query.batch_size), prepared
    except duckdb.Error as error:
        prepared.close()
        raise _told(error, query) from error


def _narrowed_schema(schema: pa.Schema, prepared: Prepared) -> pa.Schema:
    """Return a schema with 64 bits for whole numbers of 128, as DuckDB's sums are."""
    types = () if prepared.relation is None else prepared.relation.types
    for place, each in enumerate(types):
        if str(each) in _WIDE:
            schema = schema.set(place, schema.field(place).with_type(pa.int64()))
    return schema


def _narrowed(batches: Iterable[pa.RecordBatch], schema: pa.Schema) -> Iterator[pa.RecordBatch]:
    for batch in batches:
        try:
            columns = [
                column.cast(field.type) if column.type != field.type else column
                for field, column in zip(schema, batch.columns, strict=True)
            ]
        except pa.ArrowInvalid as error:
            raise SqlError(
                "an integer does not fit 64 bits; cast it to DOUBLE or DECIMAL in the query"
            ) from error
        yield pa.RecordBatch.from_arrays(columns, schema=schema)


def _batches(
    batches: Iterable[pa.RecordBatch], prepared: Prepared | None, most_bytes: int | None
) -> Iterator[pa.RecordBatch]:
    is_done = False
    try:
        for batch in batches:
            if most_bytes is None or batch.nbytes <= most_bytes:
                yield batch
                continue
            step = max(1, batch.num_rows * most_bytes // batch.nbytes)
            for start in range(0, batch.num_rows, step):
                yield batch.slice(start, step)
        is_done = True
    finally:
        if prepared is not None:
            (give_back if is_done else Prepared.close)(prepared)


def _told(error: Exception, query: SqlQuery) -> SqlError:
    message = str(error)
    missing = re.search(r"Table with name (\S+) does not exist", message)
    if missing is not None:
        # DuckDB would suggest tables of its own.
        message = (
            f"{message.splitlines()[0]} Tables are datasets and frames in variables of the caller, "
            f"or those that `tables` names{similar_names(missing[1], sorted(query.tables))}"
        )
    return SqlError(message, query=query.text, tables=sorted(query.tables))


def scan_of_query(text: str, name: str, dataset: Any, batch_size: int) -> LanceScanner | None:
    """Return the scan that a query over one dataset is, or None if it is more than that."""
    query = _QUERY.fullmatch(text)
    if query is None or query["table"].lower() != name.lower():
        return None
    condition = query["filter"]
    if condition is not None and not _is_read_alike(condition):
        return None
    options: dict[str, Any] = {"filter": condition, "batch_size": batch_size}
    if query["columns"] != "*":
        names = re.findall(r"\w+", query["columns"])
        if not set(names).issubset(dataset.schema.names):
            return None
        options |= {"columns": names, "with_row_id": False, "with_row_address": False}
    try:
        found: LanceScanner = dataset.scanner(**options)
    except (InvalidInputError, NotFoundError, UnsupportedError):
        return None  # DuckDB may understand it, or says what is wrong
    return found


def _is_read_alike(condition: str) -> bool:
    """Return whether a condition means the same to everybody."""
    bare = _TEXTS.sub("", condition)
    called = {found.lower() for found in _CALL.findall(bare)} - _NO_FUNCTIONS
    return _READ_ALIKE.fullmatch(bare) is not None and all(
        each.startswith("json_") for each in called
    )
