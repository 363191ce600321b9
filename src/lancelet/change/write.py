"""Write rows as fragments of one data file each, split at the file size limits.

    rows ....|....|..     max_rows_per_file 4
    files    a    b  c    fragments without ids, which the commit assigns

Written files are not visible to readers before a commit. A failed write deletes its files.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import field
from functools import lru_cache
from typing import Final

import pyarrow as pa

from lancelet import surroundings
from lancelet.arguments import OutOfRangeError
from lancelet.change.blob_input import with_blob_structs
from lancelet.change.progress import report
from lancelet.errors import InvalidInputError, StorageError
from lancelet.file import v0_1
from lancelet.file.base import DataFileWriter
from lancelet.file.open import create_data_file
from lancelet.file.v2.writer import WriterOptions
from lancelet.format.fragment import DataFile, Fragment, FragmentId
from lancelet.format.paths import DATA, data_file_identity, data_file_name
from lancelet.format.schema import Schema
from lancelet.format.version import DEFAULT_VERSION, FileVersion
from lancelet.io.store import Store
from lancelet.values import dataclass

MAX_ROWS_PER_FILE: Final = 1024 * 1024
MAX_BYTES_PER_FILE: Final = 90 * 1024**3

_SCHEMA_CACHE_SIZE: Final = 16


@dataclass(frozen=True, slots=True)
class FileLimits:
    """The limits of data files, and of row groups in files of version 0.1."""

    max_rows_per_file: int = MAX_ROWS_PER_FILE
    max_rows_per_group: int = v0_1.LegacyWriterOptions().max_rows_per_group
    max_bytes_per_file: int = MAX_BYTES_PER_FILE

    def __post_init__(self) -> None:
        """Raise if a limit is not positive."""
        for limit in ("max_rows_per_file", "max_rows_per_group", "max_bytes_per_file"):
            value = getattr(self, limit)
            if value < 1:
                kind = OutOfRangeError if value < 0 else InvalidInputError
                raise kind(f"{limit} must be at least 1", found=value)


@dataclass(frozen=True, slots=True)
class Target:
    """A write target: the store, the folder in it, and the base id in the manifest."""

    store: Store
    folder: str = DATA
    base_id: int | None = None


@dataclass(frozen=True, slots=True)
class FileOptions:
    """The options for writing data files.

    `dictionaries` are the existing values of dictionary columns by field id, which only version 0.1
    needs. `on_begin` is called with an empty fragment when a file is started, and `on_complete`
    with the fragment when the file is finished.
    """

    version: FileVersion = DEFAULT_VERSION
    limits: FileLimits = field(default_factory=FileLimits)
    data_cache_bytes: int | None = None
    max_page_bytes: int | None = None
    pack_file_bytes: int | None = None
    dictionaries: Mapping[int, pa.Array] = field(default_factory=dict)
    on_begin: Callable[[Fragment], None] | None = None
    on_complete: Callable[[Fragment], None] | None = None


def write_fragments(
    targets: Iterable[Target],
    batches: Iterable[pa.RecordBatch],
    schema: Schema,
    options: FileOptions,
) -> tuple[Fragment, ...]:
    """Write rows to the targets in turn, one file at a time, and return their fragments."""
    writer = _FragmentWriter(list(targets), schema, options)
    rows = 0
    try:
        for batch in batches:
            writer.write(with_blob_structs(batch, schema))
            rows += batch.num_rows
            report("write rows", rows)
        fragments = writer.finish()
        report("write rows", rows, rows)
    except BaseException:
        writer.abort()
        raise
    return fragments


class DimensionError(InvalidInputError, OSError):
    """A fixed-size list has size 0, which does not record the number of rows."""


class NoColumnsError(InvalidInputError, OSError):
    """Rows have no columns, so that a data file cannot record their number."""


class _FragmentWriter:
    """Writes a sequence of data files."""

    def __init__(self, targets: list[Target], schema: Schema, options: FileOptions) -> None:
        _check_dimensions(schema)
        self._targets = targets
        self._schema = schema
        self._options = options
        self._dictionaries = dict(options.dictionaries)
        self._done: list[tuple[Target, Fragment]] = []
        self._open: tuple[Target, str, DataFileWriter] | None = None

    def write(self, batch: pa.RecordBatch) -> None:
        """Write rows, starting a new file whenever a limit is reached."""
        limits = self._options.limits
        start = 0
        if batch.num_rows and not batch.num_columns:
            raise NoColumnsError(
                "rows without columns cannot be stored; add a column", rows=batch.num_rows
            )
        while start < batch.num_rows:
            _, _, writer = self._open or self._begin()
            count = min(batch.num_rows - start, limits.max_rows_per_file - writer.num_rows)
            part = batch.slice(start, count)
            writer.write(part)
            start += count
            is_full = writer.num_rows >= limits.max_rows_per_file
            if is_full or writer.reaches(limits.max_bytes_per_file):
                self._end()

    def finish(self) -> tuple[Fragment, ...]:
        """Finish the last file and return all fragments."""
        if self._open is not None:
            self._end()
        return tuple(fragment for _, fragment in self._done)

    def abort(self) -> None:
        """Delete the written files, ignoring storage errors."""
        if self._open is not None:
            self._open[2].abort()
        for target, fragment in self._done:
            for file in fragment.files:
                with contextlib.suppress(StorageError):
                    target.store.delete(_path(target, file.path))

    def _begin(self) -> tuple[Target, str, DataFileWriter]:
        target = self._targets[len(self._done) % len(self._targets)]
        name = data_file_name(surroundings.new_uuid())
        writer = self._create(target.store, _path(target, name))
        self._open = (target, name, writer)
        if self._options.on_begin is not None:
            file = DataFile(name, (), (), *self._options.version.entry_numbers)
            self._options.on_begin(Fragment(FragmentId(len(self._done)), (file,), 0))
        return self._open

    def _create(self, store: Store, path: str) -> DataFileWriter:
        options = self._options
        if options.version is FileVersion.V0_1:
            legacy = v0_1.LegacyWriterOptions(
                max_rows_per_group=options.limits.max_rows_per_group,
                dictionaries=self._dictionaries,
            )
            return v0_1.create_file(store, path, self._schema, legacy)
        writer_options = WriterOptions(
            version=options.version,
            data_cache_bytes=options.data_cache_bytes,
            max_page_bytes=options.max_page_bytes,
            pack_file_bytes=options.pack_file_bytes,
            name=data_file_identity(path),
        )
        return create_data_file(store, path, self._schema, writer_options)

    def _end(self) -> None:
        assert self._open is not None
        target, name, writer = self._open
        summary = writer.finish()
        self._open = None
        if isinstance(writer, v0_1.LegacyFileWriter):
            self._dictionaries.update(writer.dictionaries)
        is_legacy = self._options.version is FileVersion.V0_1
        file = DataFile(
            name,
            # Without column indices, field ids must be ascending.
            tuple(sorted(writer.placement) if is_legacy else writer.placement),
            () if is_legacy else tuple(writer.placement.values()),
            *self._options.version.entry_numbers,
            summary.size_bytes,
            target.base_id,
        )
        fragment = Fragment(FragmentId(len(self._done)), (file,), summary.num_rows)
        self._done.append((target, fragment))
        if self._options.on_complete is not None:
            self._options.on_complete(fragment)


def _path(target: Target, name: str) -> str:
    return f"{target.folder}/{name}" if target.folder else name


@lru_cache(_SCHEMA_CACHE_SIZE)
def _check_dimensions(schema: Schema) -> None:
    for column in schema.fields:
        for node in column.walk():
            kind = node.arrow_type
            if pa.types.is_fixed_size_list(kind) and not kind.list_size:
                raise DimensionError(
                    "the dimension must be a positive integer", column=column.name, field=node.name
                )


def check_batches(batches: Iterable[pa.RecordBatch], schema: pa.Schema) -> Iterator[pa.RecordBatch]:
    """Yield the batches; raise if the column names of a batch differ from the schema."""
    for batch in batches:
        if batch.schema.names != schema.names:
            raise InvalidInputError(
                "the columns of a batch differ from the preceding batches",
                expected=schema.names,
                found=batch.schema.names,
            )
        yield batch
