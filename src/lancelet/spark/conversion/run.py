"""Conversion of tables in other formats to Lance and back, in tasks.

    convert("sales/", "sales.lance")                             Parquet, detected by file names
    convert("lake/orders", "orders.lance", source_format="delta")
    convert("photos/", "photos.lance", source_format="files")    each file a blob with its path
    convert("orders.lance", "out/", target_format="parquet")

Source or target must be Lance. The version of the source is pinned when the job begins. A Lance or
Delta target gets one new version; the files of a Parquet folder become visible one at a time at the
end. Parquet preserves Arrow types; Delta has the types of Spark.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from functools import partial
from operator import itemgetter
from typing import Any, Final, Unpack

import pyarrow as pa

from lancelet.change.fit import check_new_schema, fit_to_table
from lancelet.errors import AlreadyExistsError, InvalidInputError
from lancelet.format.fragment import Fragment
from lancelet.format.schema import Schema
from lancelet.format.version import DEFAULT_VERSION, FileVersion
from lancelet.io import open_folder
from lancelet.jobs.engine import Done
from lancelet.jobs.scan_task import ScanTask, scan
from lancelet.jobs.table_ref import TableRef
from lancelet.spark.conversion.delta import DeltaFolder
from lancelet.spark.conversion.parquet import ParquetFolder, WrittenFile
from lancelet.spark.files import (
    FilePlan,
    Publication,
    file_plan,
    latest_of,
    publish_rows,
    write_task,
)
from lancelet.spark.ingest import grouped, ingest_files
from lancelet.spark.options import ReadOptions
from lancelet.spark.reader import pinned, plan_tasks, run_scan, schema_of_snapshot
from lancelet.spark.running import Finished, Running, begin
from lancelet.spark.types import arrow_schema
from lancelet.spark.writing import write_settings
from lancelet.table.apply.state import with_actual_version
from lancelet.values import dataclass

FORMATS: Final = ("lance", "parquet", "delta", "files")
MODES: Final = ("create", "append", "overwrite")
_TASK_BYTES: Final = 256 * 1024 * 1024

Rows = ParquetFolder | DeltaFolder


@dataclass(frozen=True, slots=True)
class ImportTask:
    """Files of a source that one task reads."""

    source: Rows
    paths: tuple[str, ...]
    schema: pa.Schema


def convert(
    source: str | os.PathLike[str],
    target: str | os.PathLike[str],
    *,
    source_format: str | None = None,
    target_format: str | None = None,
    mode: str = "create",
    version: int | None = None,
    options: Mapping[str, Any] | None = None,
    bytes_per_task: int = _TASK_BYTES,
    **running: Unpack[Running],
) -> Finished:
    """Convert a table.

    Args:
        source: The table or folder to read.
        target: The table or folder to write.
        source_format: `lance`, `parquet`, `delta` or `files`; detected by default.
        target_format: `lance`, `parquet` or `delta`; by default `lance`, or `parquet` for a source
            that is Lance.
        mode: `create` raises if the target exists, `append` adds rows, and `overwrite` replaces all
            rows. Parquet folders do not support `overwrite`.
        version: The version of a Lance or Delta table to read; by default the latest.
        options: Options of files of a Lance table, as for `format("lance")`.
        bytes_per_task: The approximate input size of a task.
        running: See `Running`; storage options apply to both sides.
    """
    if mode not in MODES:
        raise InvalidInputError("unknown mode", mode=mode, expected=MODES)
    here, there = os.fspath(source), os.fspath(target)
    stored = tuple(sorted((running.get("storage_options") or {}).items()))
    kind = source_format or _format_at(here, stored)
    into = target_format or ("parquet" if kind == "lance" else "lance")
    match kind, into:
        case "lance", "parquet" | "delta":
            return _export(here, there, into, mode, version, bytes_per_task, running)
        case "files", "lance":
            if mode == "create":
                _refuse_table(begin(there, running)[1])
            return ingest_files(here, there, bytes_per_task=bytes_per_task, **running)
        case "parquet", "lance":
            folder: Rows = ParquetFolder(here, stored)
        case "delta", "lance":
            folder = DeltaFolder(here, stored, version).pinned()
        case _:
            raise InvalidInputError(
                "unsupported conversion", source=kind, target=into, expected=FORMATS
            )
    return _import(folder, there, mode, options, bytes_per_task, running)


def _format_at(uri: str, stored: tuple[tuple[str, str], ...]) -> str:
    """Detect the format of a table or folder from its file names."""
    listing = open_folder(uri, dict(stored)).list_delimited()
    folders = {folder.rstrip("/").rpartition("/")[2] for folder in listing.folders}
    for name, kind in (("_versions", "lance"), ("_delta_log", "delta")):
        if name in folders:
            return kind
    if any(info.path.endswith(".parquet") for info in listing.objects):
        return "parquet"
    raise InvalidInputError("unknown source format; set `source_format`", uri=uri, expected=FORMATS)


def _import(
    folder: Rows,
    target: str,
    mode: str,
    options: Mapping[str, Any] | None,
    bytes_per_task: int,
    running: Running,
) -> Finished:
    job, table = begin(target, running)
    if mode == "create":
        _refuse_table(table)
    schema = folder.schema()
    plan = _plan(table, schema, mode, options)
    groups = grouped(folder.sizes(), itemgetter(1), bytes_per_task)
    tasks = [ImportTask(folder, tuple(path for path, _ in group), schema) for group in groups]
    parts = job.run("convert", partial(import_files, plan), tasks)
    fragments = tuple(fragment for part in parts for fragment in part)
    settings = write_settings(table, options)
    how = Publication(mode == "overwrite", settings.stable_row_ids, settings.message)
    published = publish_rows(plan, fragments, how) or table.open()
    return Finished(published.version, job.report.work.rows, job.report)


def import_files(plan: FilePlan, task: ImportTask) -> Done[tuple[Fragment, ...]]:
    """Write the rows of some files."""
    fragments = write_task(plan, task.source.read(task.paths, task.schema))
    return Done(fragments, sum(fragment.physical_rows for fragment in fragments))


def _plan(
    table: TableRef, schema: pa.Schema, mode: str, options: Mapping[str, Any] | None
) -> FilePlan:
    settings = write_settings(table, options)
    latest = latest_of(table)
    file_version = None if latest is None else with_actual_version(latest.manifest).data_version
    if latest is not None and file_version is not None and mode == "append":
        fields = fit_to_table(latest.schema, schema)
        arrow = pa.schema([latest.schema.to_arrow().field(name) for name in schema.names])
        return file_plan(settings, latest, arrow, fields, file_version)
    check_new_schema(schema)
    version = settings.version or file_version or DEFAULT_VERSION
    fields = Schema.from_arrow(schema, blob_v2=version >= FileVersion.V2_2)
    return file_plan(settings, latest, schema, fields, version)


def _refuse_table(table: TableRef) -> None:
    if latest_of(table) is not None:
        raise AlreadyExistsError("Dataset already exists", uri=table.uri)


def _export(
    source: str,
    target: str,
    into: str,
    mode: str,
    version: int | None,
    bytes_per_task: int,
    running: Running,
) -> Finished:
    job, table = begin(source, running)
    read_options = ReadOptions(table, version=version, split_bytes=bytes_per_task)
    snapshot = pinned(read_options)
    spark_types = schema_of_snapshot(snapshot, read_options)
    tasks = plan_tasks(snapshot, read_options, tuple(spark_types.fieldNames()))
    if into == "delta":
        schema = arrow_schema(spark_types)
        delta = DeltaFolder(target, table.options)
        files = job.run("convert", partial(export_delta, delta, schema), tasks)
        delta.publish(files, schema, mode)
    else:
        folder = ParquetFolder(target, table.options)
        _check_folder(folder, mode)
        schema = snapshot.schema.to_arrow().remove_metadata()
        files = job.run("convert", partial(export_parquet, folder, schema), tasks)
        folder.publish(files)
    return Finished(snapshot.version, sum(file.rows for file in files), job.report)


def export_parquet(folder: ParquetFolder, schema: pa.Schema, task: ScanTask) -> Done[WrittenFile]:
    """Write the rows of a task as a file of Parquet."""
    batches = (pa.RecordBatch.from_arrays(each.columns, schema=schema) for each in scan(task))
    written = folder.write_hidden(batches, schema)
    return Done(written, written.rows)


def export_delta(folder: DeltaFolder, schema: pa.Schema, task: ScanTask) -> Done[WrittenFile]:
    """Write the rows of a task as a file of a Delta table."""
    written = folder.write(run_scan(task, schema), schema)
    return Done(written, written.rows)


def _check_folder(folder: ParquetFolder, mode: str) -> None:
    if mode == "overwrite":
        raise InvalidInputError(
            "a folder of Parquet files cannot be overwritten atomically; write to an empty folder",
            target=folder.uri,
        )
    if mode == "create" and any(True for _ in folder.store().list()):
        raise AlreadyExistsError("the folder is not empty", uri=folder.uri)
