"""Batch reads: planned once with a pinned version, and run by tasks that open this version.

    .load(path)       returns the schema of the latest or requested version
    first action      pins the version and divides its rows into splits
    tasks             each opens the pinned version and yields the batches of its split

Spark passes the schema of the columns to read to the reader; `.schema("id long")`
reads one column. Any other pushdown of Spark into a Python source returns wrong rows when the
source is reused, so filters and limits are options; see the guide.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Final

import pyarrow as pa
from pyspark.sql.datasource import DataSourceReader, InputPartition
from pyspark.sql.types import ArrayType, DataType, StringType, StructType, VariantType

from lancelet.dataset.handle import find_snapshot
from lancelet.errors import (
    FieldNotFoundError,
    SchemaMismatchError,
    VersionNotFoundError,
    similar_names,
)
from lancelet.expr.scan_types import scan_field
from lancelet.expr.traversal import columns_of
from lancelet.io.mapped import forget_mapped_pages
from lancelet.jobs.scan_task import ScanTask, scan
from lancelet.jobs.split import Split, plan_splits
from lancelet.jobs.table_ref import TableRef
from lancelet.scan.indexing.choose import choose_parts
from lancelet.scan.plan import plan_scan
from lancelet.scan.row_columns import ROW_FIELDS
from lancelet.scan.scan_options import ScanOptions
from lancelet.spark.convert import convert_batch
from lancelet.spark.options import ReadOptions
from lancelet.spark.types import JSON_KEY, arrow_schema, spark_schema
from lancelet.table.snapshot import Snapshot
from lancelet.values import dataclass

_TASK_BYTES_MIN: Final = 8 * 1024 * 1024
"""Minimum size of a task, small enough that small tables still use several workers."""


class TaskPartition(InputPartition):
    """A scan task in the form that Spark passes to a worker."""

    def __init__(self, task: object) -> None:
        """Wrap a task."""
        super().__init__(task)


@dataclass(frozen=True)
class LanceReader(DataSourceReader):
    """A planned read: the tasks, and the schema of all batches."""

    tasks: tuple[ScanTask, ...]
    schema: pa.Schema

    @staticmethod
    def plan(options: Mapping[str, str], schema: StructType) -> LanceReader:
        """Pin the version that the options select and plan to read the columns of a schema."""
        read_options = ReadOptions.parse(options)
        snapshot = pinned(read_options)
        check_readable(schema, schema_of_snapshot(snapshot, read_options, all_columns=True))
        names = tuple(schema.fieldNames())
        return LanceReader(plan_tasks(snapshot, read_options, names), arrow_schema(schema))

    def partitions(self) -> list[InputPartition]:
        """Return one partition per task."""
        return [TaskPartition(task) for task in self.tasks]

    def read(self, partition: InputPartition | None) -> Iterator[pa.RecordBatch]:
        """Yield the batches of a task; without tasks, Spark passes an empty partition or None."""
        if partition is None or partition.value is None:
            return iter(())
        return run_scan(partition.value, self.schema)


def read_schema(options: Mapping[str, str]) -> StructType:
    """Return the schema of a batch read with these options."""
    read_options = ReadOptions.parse(options)
    return schema_of_snapshot(pinned(read_options), read_options)


def pinned(read_options: ReadOptions) -> Snapshot:
    """Open the requested version, which all tasks then read."""
    location = replace(read_options.table, version=None).locate()
    try:
        return find_snapshot(
            location,
            read_options.tag if read_options.version is None else read_options.version,
            asof=read_options.asof,
        )
    except VersionNotFoundError as error:
        error.add_note(
            "a view or data frame is pinned to the version of its first use; create it again "
            "to read the latest version"
        )
        raise


def schema_of_snapshot(
    snapshot: Snapshot, read_options: ReadOptions, *, all_columns: bool = False
) -> StructType:
    """Return the schema of the requested columns, or of all columns."""
    fields = {field.name: scan_field(field) for field in snapshot.schema.fields}
    # Spark has no unsigned integers; ids and addresses are far below the signed maximum.
    available = fields | {name: pa.field(name, pa.int64()) for name in ROW_FIELDS}
    selected = fields if read_options.columns is None else read_options.columns
    names = available if all_columns else dict.fromkeys([*selected, *read_options.row_columns])
    for name in names:
        if name not in available:
            raise FieldNotFoundError(
                f"the table has no such column{similar_names(name, list(available))}",
                column=name,
                uri=snapshot.location.uri,
                version=snapshot.version,
            )
    return spark_schema(pa.schema([available[name] for name in names]))


def check_readable(schema: StructType, table_schema: StructType) -> None:
    """Raise if a user-specified schema is incompatible with that of the table."""
    fields = {field.name: field for field in table_schema}
    for field in schema:
        table_field = fields.get(field.name)
        if table_field is None:
            raise FieldNotFoundError(
                f"the table has no such column{similar_names(field.name, list(fields))}",
                column=field.name,
            )
        if not _is_part(
            field.dataType, table_field.dataType, is_json=bool(table_field.metadata.get(JSON_KEY))
        ):
            raise SchemaMismatchError(
                "the specified schema has another type than the table",
                column=field.name,
                expected=table_field.dataType.simpleString(),
                found=field.dataType.simpleString(),
            )
        if table_field.nullable and not field.nullable:
            raise SchemaMismatchError(
                "the specified schema does not allow nulls, but the column is nullable",
                column=field.name,
            )


def _is_part(requested: DataType, stored: DataType, *, is_json: bool = False) -> bool:
    """Return whether a type equals that of the table, possibly without some struct fields."""
    match requested, stored:
        case VariantType(), VariantType():
            return True
        case (VariantType(), _) | (StringType(), VariantType()):
            return is_json
        case StructType(), StructType():
            types = {field.name: field.dataType for field in stored}
            return all(
                field.name in types and _is_part(field.dataType, types[field.name])
                for field in requested
            )
        case ArrayType(), ArrayType():
            return _is_part(requested.elementType, stored.elementType)
        case _:
            return requested.simpleString() == stored.simpleString()


def plan_tasks(
    snapshot: Snapshot, read_options: ReadOptions, names: tuple[str, ...]
) -> tuple[ScanTask, ...]:
    """Return the tasks that read the columns of a version and those of the filter."""
    table = ref_of(snapshot, read_options)
    read, can_cut = set(names), True
    if read_options.filter is not None:
        options = ScanOptions(
            columns=(), filter=read_options.filter, fragments=read_options.fragments
        )
        plan = plan_scan(snapshot, options)
        read.update(path[0] for path in columns_of(plan.filter))
        # If an index answers the filter, tasks for parts of a fragment would each query it.
        can_cut = not (plan.is_filtered and choose_parts(plan))
    splits = plan_splits(
        snapshot,
        fields=[field for field in snapshot.schema.fields if field.name in read],
        fragments=read_options.fragments,
        split_bytes=read_options.split_bytes,
        bytes_min=_TASK_BYTES_MIN,
        can_cut=can_cut,
    )
    if read_options.limit is not None:
        splits = _limited(snapshot, splits, read_options)
    return tuple(
        ScanTask(table, names, each, read_options.filter, read_options.limit) for each in splits
    )


def ref_of(snapshot: Snapshot, read_options: ReadOptions) -> TableRef:
    """Return the reference that tasks use to open the pinned version."""
    table = read_options.table.pinned(snapshot)
    if read_options.tag is None:
        return table
    # A tag may refer to a version of another branch.
    return replace(table, uri=snapshot.location.uri, branch=None)


def run_scan(task: ScanTask, schema: pa.Schema) -> Iterator[pa.RecordBatch]:
    """Yield the rows of a task as batches of exactly this schema."""
    try:
        for batch in scan(task):
            yield convert_batch(batch, schema)
    finally:
        forget_mapped_pages()


def _limited(snapshot: Snapshot, splits: list[Split], read_options: ReadOptions) -> list[Split]:
    """Return splits with at most `limit` rows, or a single one that stops there."""
    limit = read_options.limit or 0
    if read_options.filter is not None:
        fragments = dict.fromkeys(number for split in splits for number in split.fragments)
        size = sum(split.num_bytes for split in splits)
        size = size * min(limit, snapshot.num_rows) // max(snapshot.num_rows, 1)
        return [Split(tuple(fragments), num_bytes=size)] if limit and fragments else []
    limited: list[Split] = []
    for split in splits:
        if limit <= 0:
            break
        rows = split.num_rows
        if rows is None:
            by_id = snapshot.fragments.by_id
            rows = sum(snapshot.live_rows(by_id(number)) for number in split.fragments)
        count = min(rows, limit)
        limited.append(replace(split, num_rows=count, num_bytes=split.num_bytes * count // rows))
        limit -= rows
    return limited
