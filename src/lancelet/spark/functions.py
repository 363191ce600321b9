"""SQL table functions that take the path of a table and need no catalog.

    SELECT * FROM lance_scan(path => 's3://b/t', filter => 'price > 10', version => 7)
    SELECT * FROM lance_versions('s3://b/t')        the versions and their operations
    SELECT * FROM lance_files('s3://b/t')           the data files of a version
    SELECT * FROM lance_changes('s3://b/t', 3, 7)   the rows that versions 3 to 7 inserted

Search functions are in `search_functions`.

A call runs in one task, which suits small or selective reads; read large tables with
`format("lance")` or `scan`. Arguments must be constants because the result columns depend on them.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final, cast

import pyarrow as pa
from pyspark.sql import SparkSession
from pyspark.sql.functions import udtf
from pyspark.sql.types import LongType, StructField, StructType
from pyspark.sql.udtf import AnalyzeArgument, AnalyzeResult, UserDefinedTableFunction

from lancelet.dataset.history.versions import describe_version
from lancelet.errors import InvalidInputError
from lancelet.jobs.inserts import OnChange, find_inserts
from lancelet.jobs.scan_task import ScanTask
from lancelet.jobs.split import Split
from lancelet.spark.options import ReadOptions, text_of
from lancelet.spark.reader import pinned, plan_tasks, run_scan, schema_of_snapshot
from lancelet.spark.types import arrow_schema, spark_schema
from lancelet.table.location import TableLocation
from lancelet.table.manifests import list_versions
from lancelet.table.snapshot import Snapshot, open_entries

Row = tuple[Any, ...]

VERSION_COLUMN: Final = "_commit_version"
_VERSIONS: Final = pa.schema(
    [
        pa.field("version", pa.int64(), nullable=False),
        pa.field("committed_at", pa.timestamp("us", "UTC"), nullable=False),
        pa.field("operation", pa.string()),
        pa.field("message", pa.string()),
        pa.field("rows", pa.int64(), nullable=False),
        pa.field("fragments", pa.int64(), nullable=False),
        pa.field("bytes", pa.int64(), nullable=False),
    ]
)
_FILES: Final = pa.schema(
    [
        pa.field("fragment_id", pa.int64(), nullable=False),
        pa.field("path", pa.string(), nullable=False),
        pa.field("rows", pa.int64(), nullable=False),
        pa.field("deleted_rows", pa.int64(), nullable=False),
        pa.field("bytes", pa.int64(), nullable=False),
        pa.field("file_version", pa.string(), nullable=False),
        pa.field("columns", pa.list_(pa.string()), nullable=False),
    ]
)


class LanceScan:
    """Rows of a table; the arguments are those of `format("lance")`."""

    @staticmethod
    def analyze(path: AnalyzeArgument, **options: AnalyzeArgument) -> AnalyzeResult:
        """Return the result columns."""
        read_options = _read_options(constant_of(path), constants_of(options))
        return AnalyzeResult(schema_of_snapshot(pinned(read_options), read_options))

    def eval(self, path: Any, **options: Any) -> Iterator[Row]:
        """Yield the rows."""
        read_options = _read_options(path, options)
        snapshot = pinned(read_options)
        schema = schema_of_snapshot(snapshot, read_options)
        for task in plan_tasks(snapshot, read_options, tuple(schema.fieldNames())):
            for batch in run_scan(task, arrow_schema(schema)):
                yield from rows_of(batch)


class LanceVersions:
    """The versions of a table, with operation and size."""

    @staticmethod
    def analyze(path: AnalyzeArgument) -> AnalyzeResult:
        """Return the columns."""
        constant_of(path)
        return AnalyzeResult(spark_schema(_VERSIONS))

    def eval(self, path: Any) -> Iterator[Row]:
        """Yield the versions, oldest first."""
        location = ReadOptions.parse({"path": path}).table.open().location
        yield from describe_versions(location)[1]


class LanceFiles:
    """Each data file of a version of a table."""

    @staticmethod
    def analyze(path: AnalyzeArgument, **options: AnalyzeArgument) -> AnalyzeResult:
        """Return the columns."""
        _read_options(constant_of(path), constants_of(options))
        return AnalyzeResult(spark_schema(_FILES))

    def eval(self, path: Any, **options: Any) -> Iterator[Row]:
        """Yield the files by fragment."""
        snapshot = pinned(_read_options(path, options))
        yield from describe_files(snapshot)[1]


class LanceChanges:
    """The rows inserted by a range of versions, with their version."""

    @staticmethod
    def analyze(
        path: AnalyzeArgument, first: AnalyzeArgument, last: AnalyzeArgument
    ) -> AnalyzeResult:
        """Return the columns of the last version and the version column."""
        read_options = _read_options(constant_of(path), {"version": constant_of(last)})
        constant_of(first)
        fields = schema_of_snapshot(pinned(read_options), read_options).fields
        return AnalyzeResult(StructType([*fields, StructField(VERSION_COLUMN, LongType(), False)]))

    def eval(self, path: Any, first: Any, last: Any) -> Iterator[Row]:
        """Yield the rows version by version."""
        uri, stop = path, int(last)
        read_options = _read_options(uri, {"version": stop})
        result_schema = arrow_schema(schema_of_snapshot(pinned(read_options), read_options))
        for version in range(int(first), stop + 1):
            for batch in _inserted(read_options, version, result_schema):
                yield from ((*row, version) for row in rows_of(batch))


TABLE_FUNCTIONS: Final = {
    "lance_scan": LanceScan,
    "lance_versions": LanceVersions,
    "lance_files": LanceFiles,
    "lance_changes": LanceChanges,
}


def register_functions(spark: SparkSession, functions: Mapping[str, type[Any]]) -> None:
    """Register table functions in a session."""
    for name, function in functions.items():
        table_function = cast("UserDefinedTableFunction", udtf(function, useArrow=False))
        spark.udtf.register(name, table_function)


def describe_versions(location: TableLocation) -> tuple[pa.Schema, list[Row]]:
    """Return the versions of a table, oldest first, and the schema of the result."""
    rows = map(_describe, open_entries(location, list_versions(location.store)))
    return _VERSIONS, [tuple(row.values()) for row in rows]


def describe_files(snapshot: Snapshot) -> tuple[pa.Schema, list[Row]]:
    """Return the data files of a version, and the schema of the result."""
    rows = [row for fragment in snapshot.fragments for row in _files_of(snapshot, fragment)]
    return _FILES, [tuple(row.values()) for row in rows]


def rows_of(batch: pa.RecordBatch) -> Iterator[Row]:
    """Yield the rows of a batch as tuples of Python values."""
    columns = [column.to_pylist(maps_as_pydicts="strict") for column in batch.columns]
    return zip(*columns, strict=True)


def _inserted(
    read_options: ReadOptions, version: int, schema: pa.Schema
) -> Iterator[pa.RecordBatch]:
    snapshot = read_options.table.at(version).open()
    table = read_options.table.pinned(snapshot)
    inserts = find_inserts(snapshot, OnChange.FAIL)
    if inserts.fragments:
        names = tuple(name for name in schema.names if name in snapshot.schema.names)
        yield from run_scan(
            ScanTask(table, names, Split(inserts.fragments), inserts.filter), schema
        )


def _describe(snapshot: Snapshot) -> dict[str, Any]:
    described = describe_version(snapshot)["metadata"]
    transaction = snapshot.transaction
    return {
        "version": snapshot.version,
        "committed_at": snapshot.manifest.timestamp,
        "operation": None if transaction is None else type(transaction.operation).__name__,
        "message": None if transaction is None else transaction.commit_message,
        "rows": int(described["total_rows"]),
        "fragments": int(described["total_fragments"]),
        "bytes": int(described["total_files_size"]),
    }


def _files_of(snapshot: Snapshot, fragment: Any) -> Iterator[dict[str, Any]]:
    field_ids = {int(node.id) for node in snapshot.schema.walk()}
    for file in fragment.files:
        names = [snapshot.schema.path_of(number) for number in file.fields if number in field_ids]
        yield {
            "fragment_id": int(fragment.id),
            "path": file.path,
            "rows": fragment.physical_rows,
            "deleted_rows": snapshot.physical_rows(fragment) - snapshot.live_rows(fragment),
            "bytes": file.size_bytes,
            "file_version": file.version.value,
            "columns": names,
        }


def _read_options(path: Any, options: dict[str, Any]) -> ReadOptions:
    given = {name.lower(): text_of(value) for name, value in options.items() if value is not None}
    return ReadOptions.parse(given | {"path": str(path)})


def constants_of(options: Mapping[str, AnalyzeArgument]) -> dict[str, Any]:
    """Return the values of arguments by name."""
    return {name: constant_of(argument) for name, argument in options.items()}


def constant_of(argument: AnalyzeArgument) -> Any:
    """Return the value of a constant argument."""
    if argument.isTable or not argument.isConstantExpression:
        raise InvalidInputError("arguments of this function must be constants")
    return argument.value
