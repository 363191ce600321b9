"""Batch reads: planned once, with the version pinned, and run by tasks that open it again.

    .load(path)       the schema, from the latest version or the one that was named
    first action      the version is pinned, its rows are cut into splits
    tasks             each opens the pinned version and yields the batches of its split

The schema that Spark hands to the reader is what is read: with `.schema("id long")` that is one
column. Spark pushes nothing else down to a source in Python without returning wrong rows later,
so filters and limits are options; see the guide.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Final

import pyarrow as pa
from pyspark.sql.datasource import DataSourceReader, InputPartition
from pyspark.sql.types import ArrayType, DataType, StructType, VariantType

from lancelet.dataset.handle import find_snapshot
from lancelet.errors import (
    FieldNotFoundError,
    SchemaMismatchError,
    VersionNotFoundError,
    similar_names,
)
from lancelet.io.mapped import forget_mapped_pages
from lancelet.ops.jobs.scan_task import ScanTask, scan
from lancelet.ops.jobs.split import Split, plan_splits
from lancelet.ops.jobs.table_ref import TableRef
from lancelet.query.indexing.choose import choose_parts
from lancelet.query.plan import plan_scan
from lancelet.query.row_columns import ROW_FIELDS
from lancelet.query.scan_options import ScanOptions
from lancelet.query.scan_types import scan_field
from lancelet.query.traversal import columns_of
from lancelet.spark.convert import convert_batch
from lancelet.spark.options import ReadOptions
from lancelet.spark.types import JSON_KEY, arrow_schema, spark_schema
from lancelet.table.snapshot import Snapshot
from lancelet.values import dataclass

_TASK_BYTES_MIN: Final = 8 * 1024 * 1024
"""How much a task reads at least: so little that tables of a few of them keep some workers busy."""


class TaskPartition(InputPartition):
    """A scan task as Spark passes it to a worker."""

    def __init__(self, task: object) -> None:
        """Carry a task."""
        super().__init__(task)


@dataclass(frozen=True)
class LanceReader(DataSourceReader):
    """A planned read: its tasks, and the schema that every batch will have."""

    tasks: tuple[ScanTask, ...]
    schema: pa.Schema

    @staticmethod
    def plan(options: Mapping[str, str], schema: StructType) -> LanceReader:
        """Pin the version that options name and plan the read of the columns of a schema."""
        wanted = ReadOptions.parse(options)
        snapshot = pinned(wanted)
        check_readable(schema, schema_of_snapshot(snapshot, wanted, every=True))
        names = tuple(schema.fieldNames())
        return LanceReader(plan_tasks(snapshot, wanted, names), arrow_schema(schema))

    def partitions(self) -> list[InputPartition]:
        """Return one partition for each task."""
        return [TaskPartition(task) for task in self.tasks]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Yield the batches of a task; Spark asks for one without a task if there are none."""
        if partition.value is None:
            return iter(())
        return run_scan(partition.value, self.schema)


def read_schema(options: Mapping[str, str]) -> StructType:
    """Return the schema of what options of a batch read ask for."""
    wanted = ReadOptions.parse(options)
    return schema_of_snapshot(pinned(wanted), wanted)


def pinned(wanted: ReadOptions) -> Snapshot:
    """Open the version that was asked for, which is then the one that all tasks read."""
    location = replace(wanted.table, version=None).locate()
    try:
        return find_snapshot(
            location, wanted.tag if wanted.version is None else wanted.version, asof=wanted.asof
        )
    except VersionNotFoundError as error:
        error.add_note(
            "a view or data frame keeps the version of its first use; make it again to read the "
            "latest one"
        )
        raise


def schema_of_snapshot(
    snapshot: Snapshot, wanted: ReadOptions, *, every: bool = False
) -> StructType:
    """Return the schema of the columns asked for, or of all there are."""
    fields = {field.name: scan_field(field) for field in snapshot.schema.fields}
    # Spark has no unsigned numbers, and no id or address comes near the largest signed one.
    known = fields | {name: pa.field(name, pa.int64()) for name in ROW_FIELDS}
    chosen = fields if wanted.columns is None else wanted.columns
    names = known if every else dict.fromkeys([*chosen, *wanted.row_columns])
    for name in names:
        if name not in known:
            raise FieldNotFoundError(
                f"the table has no such column{similar_names(name, list(known))}",
                column=name,
                uri=snapshot.location.uri,
                version=snapshot.version,
            )
    return spark_schema(pa.schema([known[name] for name in names]))


def check_readable(wanted: StructType, known: StructType) -> None:
    """Refuse a schema of the user that the table does not have."""
    fields = {field.name: field for field in known}
    for field in wanted:
        found = fields.get(field.name)
        if found is None:
            raise FieldNotFoundError(
                f"the table has no such column{similar_names(field.name, list(fields))}",
                column=field.name,
            )
        if not _is_part(field.dataType, found.dataType, is_json=bool(found.metadata.get(JSON_KEY))):
            raise SchemaMismatchError(
                "the schema that was asked for has another type than the table",
                column=field.name,
                expected=found.dataType.simpleString(),
                found=field.dataType.simpleString(),
            )
        if found.nullable and not field.nullable:
            raise SchemaMismatchError(
                "the schema that was asked for allows no nulls, and the table does",
                column=field.name,
            )


def _is_part(wanted: DataType, found: DataType, *, is_json: bool = False) -> bool:
    """Say whether a type is that of the table, some fields of a struct left out at most."""
    match wanted, found:
        case VariantType(), _:
            return is_json
        case StructType(), StructType():
            types = {field.name: field.dataType for field in found}
            return all(
                field.name in types and _is_part(field.dataType, types[field.name])
                for field in wanted
            )
        case ArrayType(), ArrayType():
            return _is_part(wanted.elementType, found.elementType)
        case _:
            return wanted.simpleString() == found.simpleString()


def plan_tasks(
    snapshot: Snapshot, wanted: ReadOptions, names: tuple[str, ...]
) -> tuple[ScanTask, ...]:
    """Return the tasks that read columns of a version, and those that its filter speaks of."""
    table = ref_of(snapshot, wanted)
    read, can_cut = set(names), True
    if wanted.filter is not None:
        options = ScanOptions(columns=(), filter=wanted.filter, fragments=wanted.fragments)
        plan = plan_scan(snapshot, options)
        read.update(path[0] for path in columns_of(plan.filter))
        # Where an index finds the rows, tasks for parts of a fragment would all ask it.
        can_cut = not (plan.is_filtered and choose_parts(plan))
    splits = plan_splits(
        snapshot,
        fields=[field for field in snapshot.schema.fields if field.name in read],
        fragments=wanted.fragments,
        split_bytes=wanted.split_bytes,
        bytes_min=_TASK_BYTES_MIN,
        can_cut=can_cut,
    )
    if wanted.limit is not None:
        splits = _limited(snapshot, splits, wanted)
    return tuple(ScanTask(table, names, each, wanted.filter, wanted.limit) for each in splits)


def ref_of(snapshot: Snapshot, wanted: ReadOptions) -> TableRef:
    """Return the name by which tasks open the version that was pinned."""
    table = wanted.table.pinned(snapshot)
    if wanted.tag is None:
        return table
    # A tag may name a version of another branch than the one that was asked.
    return replace(table, uri=snapshot.location.uri, branch=None)


def run_scan(task: ScanTask, schema: pa.Schema) -> Iterator[pa.RecordBatch]:
    """Yield the rows of a task as batches of exactly this schema."""
    try:
        for batch in scan(task):
            yield convert_batch(batch, schema)
    finally:
        forget_mapped_pages()


def _limited(snapshot: Snapshot, splits: list[Split], wanted: ReadOptions) -> list[Split]:
    """Return splits that hold no more rows than the limit, or a single one that stops there."""
    limit = wanted.limit or 0
    if wanted.filter is not None:
        fragments = dict.fromkeys(number for split in splits for number in split.fragments)
        size = sum(split.num_bytes for split in splits)
        size = size * min(limit, snapshot.num_rows) // max(snapshot.num_rows, 1)
        return [Split(tuple(fragments), num_bytes=size)] if limit and fragments else []
    kept: list[Split] = []
    for split in splits:
        if limit <= 0:
            break
        rows = split.num_rows
        if rows is None:
            by_id = snapshot.fragments.by_id
            rows = sum(snapshot.live_rows(by_id(number)) for number in split.fragments)
        count = min(rows, limit)
        kept.append(replace(split, num_rows=count, num_bytes=split.num_bytes * count // rows))
        limit -= rows
    return kept
