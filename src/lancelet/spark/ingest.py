"""Ingests files of any type, such as images, audio and documents, as blobs.

    ingest_files("s3://bucket/photos", "photos.lance", pattern="*.jpg", spark=spark)

    path        size      modified               data
    a/1.jpg     81234     2024-02-29 12:00:00    a blob of 81234 bytes

Blobs are stored out of line, so scans of the other columns do not read them. A task reads files in
small batches.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import field
from fnmatch import fnmatch
from functools import partial
from operator import attrgetter
from typing import Any, Final, TypeVar, Unpack

import pyarrow as pa

from lancelet.format.fragment import Fragment
from lancelet.io import open_folder
from lancelet.io.store import ObjectInfo
from lancelet.jobs.engine import Done
from lancelet.spark.files import (
    FilePlan,
    Publication,
    latest_of,
    plan_files,
    publish_rows,
    write_task,
)
from lancelet.spark.options import WriteSettings
from lancelet.spark.running import Finished, Running, begin
from lancelet.spark.types import spark_schema
from lancelet.values import dataclass

T = TypeVar("T")

_SIZE: Final = attrgetter("size")
_TASK_BYTES: Final = 256 * 1024 * 1024
_BATCH_BYTES: Final = 16 * 1024 * 1024
_FIELDS: Final = (
    pa.field("path", pa.string(), nullable=False),
    pa.field("size", pa.int64(), nullable=False),
    pa.field("modified", pa.timestamp("us", "UTC")),
    pa.field("data", pa.large_binary(), metadata={"lance-encoding:blob": "true"}),
)


@dataclass(frozen=True, slots=True)
class FileGroup:
    """The files of one task."""

    source: str
    options: tuple[tuple[str, str], ...] = field(repr=False)
    files: tuple[ObjectInfo, ...]


def ingest_files(
    source: str | os.PathLike[str],
    uri: str | os.PathLike[str],
    *,
    pattern: str = "*",
    source_options: Mapping[str, str] | None = None,
    message: str | None = None,
    bytes_per_task: int = _TASK_BYTES,
    **running: Unpack[Running],
) -> Finished:
    """Append the files in a folder to a table, which is created if needed.

    Args:
        source: The folder, on any store.
        uri: The table, which has the columns `path`, `size`, `modified` and the blobs `data`.
        pattern: A pattern for paths within the folder, such as `*.jpg`.
        source_options: Settings of the folder's store; by default those of the table.
        message: The message of the transaction.
        bytes_per_task: The approximate number of bytes that a task reads.
        running: See `Running`.
    """
    job, table = begin(uri, running)
    options = table.options if source_options is None else tuple(sorted(source_options.items()))
    store = open_folder(source, dict(options))
    files = [info for info in store.list() if fnmatch(info.path, pattern)]
    latest = latest_of(table)
    frame = spark_schema(pa.schema(_FIELDS))
    plan = plan_files(WriteSettings(table), latest, frame, replaces=False)
    groups = [
        FileGroup(os.fspath(source), options, group)
        for group in grouped(files, _SIZE, bytes_per_task)
    ]
    parts = job.run("ingest", partial(ingest_group, plan), groups)
    fragments = tuple(fragment for part in parts for fragment in part)
    published = publish_rows(plan, fragments, Publication(message=message)) or latest
    assert published is not None
    return Finished(published.version, len(files), job.report)


def ingest_group(plan: FilePlan, group: FileGroup) -> Done[tuple[Fragment, ...]]:
    """Write the files of a task."""
    return Done(write_task(plan, _batches(group)), len(group.files))


def _batches(group: FileGroup) -> Iterator[pa.RecordBatch]:
    store = open_folder(group.source, dict(group.options))
    for infos in grouped(group.files, _SIZE, _BATCH_BYTES):
        rows: list[dict[str, Any]] = [
            {
                "path": info.path,
                "size": info.size,
                "modified": info.modified,
                "data": store.read(info.path),
            }
            for info in infos
        ]
        yield pa.RecordBatch.from_pylist(rows, pa.schema(_FIELDS))


def grouped(
    items: Iterable[T], size_of: Callable[[T], int], max_size: int
) -> Iterator[tuple[T, ...]]:
    """Yield groups of consecutive items with at most `max_size` in total; larger items are alone.

    >>> list(grouped([3, 4, 9, 1], int, 8))
    [(3, 4), (9,), (1,)]
    """
    group: list[T] = []
    total = 0
    for item in items:
        size = size_of(item)
        if group and total + size > max_size:
            yield tuple(group)
            group, total = [], 0
        group.append(item)
        total += size
    if group:
        yield tuple(group)
