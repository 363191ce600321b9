"""Write a data file with additional columns of a fragment.

    fragment   a.lance [0, 1, 2]     5 rows, including 2 deleted rows
    write      b.lance [2, 3]        5 rows

All files of a fragment have the same rows, including deleted ones, and in version 0.1 the same row
groups.

Files of version 0.1 store nulls only for strings and binary values: null numbers and booleans would
be read as 0 or false, and null lists as empty lists. New columns with such nulls are rejected,
although other writers accept them.
"""

from __future__ import annotations

from collections.abc import Iterable

import pyarrow as pa
import pyarrow.compute as pc

from lancelet import surroundings
from lancelet.change.blob_input import BlobPolicy, resolve_blobs, with_blob_structs
from lancelet.change.columns.fields import ColumnUnsupportedError
from lancelet.errors import InternalError
from lancelet.file import v0_1
from lancelet.file.base import DataFileWriter
from lancelet.file.open import create_data_file
from lancelet.file.v0_1 import LegacyFileReader
from lancelet.file.v2.writer import WriterOptions
from lancelet.format.field import Field
from lancelet.format.fragment import DataFile, Fragment
from lancelet.format.paths import DATA, data_file_identity, data_file_name
from lancelet.format.schema import Schema
from lancelet.format.version import FileVersion
from lancelet.table.apply.state import with_actual_version
from lancelet.table.dictionaries import dictionary_values_of
from lancelet.table.snapshot import Snapshot


def file_version_of(snapshot: Snapshot) -> FileVersion:
    """Return the file version of new files of a table."""
    return with_actual_version(snapshot.manifest).data_version


def write_column_file(
    snapshot: Snapshot, fragment: Fragment, schema: Schema, batches: Iterable[pa.RecordBatch]
) -> DataFile:
    """Write values for all rows of a fragment, including deleted ones; return the file entry."""
    version = file_version_of(snapshot)
    name = data_file_name(surroundings.new_uuid())
    writer = _create(snapshot, fragment, schema, f"{DATA}/{name}")
    try:
        policy = BlobPolicy(
            tuple(snapshot.manifest.bases.values()),
            storage_options=snapshot.location.storage_options,
        )
        for batch in resolve_blobs(iter(batches), schema, policy):
            if version is FileVersion.V0_1:
                check_nulls_storable(batch, schema.fields)
            writer.write(with_blob_structs(batch, schema))
        _check_rows(fragment, expected=snapshot.physical_rows(fragment), found=writer.num_rows)
        summary = writer.finish()
    except BaseException:
        writer.abort()
        raise
    # Without column indices, field ids must be ascending.
    is_legacy = version is FileVersion.V0_1
    fields = tuple(sorted(writer.placement) if is_legacy else writer.placement)
    columns = () if is_legacy else tuple(writer.placement.values())
    return DataFile(name, fields, columns, *version.entry_numbers, summary.size_bytes)


def _create(snapshot: Snapshot, fragment: Fragment, schema: Schema, path: str) -> DataFileWriter:
    store, version = snapshot.location.store, file_version_of(snapshot)
    if version is not FileVersion.V0_1:
        return create_data_file(
            store, path, schema, WriterOptions(version=version, name=data_file_identity(path))
        )
    reader = snapshot.open_file(fragment.files[0])
    if not isinstance(reader, LegacyFileReader):
        raise InternalError("a table of version 0.1 has a file of a later one", path=reader.path)
    options = v0_1.LegacyWriterOptions(
        batch_lengths=reader.batch_lengths.tolist(), dictionaries=dictionary_values_of(snapshot)
    )
    return v0_1.create_file(store, path, schema, options)


def _check_rows(fragment: Fragment, *, expected: int, found: int) -> None:
    if found != expected:
        raise InternalError(
            "a file of columns does not have the rows of its fragment",
            fragment_id=fragment.id,
            expected=expected,
            found=found,
        )


_T = pa.types


def check_nulls_storable(batch: pa.RecordBatch, fields: tuple[Field, ...]) -> None:
    """Raise if new columns contain nulls that version 0.1 cannot store."""
    for field in fields:
        _check(batch.column(field.name), field.name)


def _check(array: pa.Array, path: str) -> None:
    if isinstance(array, pa.ExtensionArray):
        array = array.storage
    kind = array.type
    if _keeps_nulls(kind):
        return
    if array.null_count:
        raise ColumnUnsupportedError(
            f"Column '{path}' has null values of type {kind}, but storing nulls for this data type "
            "is not supported by files of version 0.1",
            column=path,
            type=str(kind),
            nulls=array.null_count,
            version=FileVersion.V0_1.value,
        )
    if _T.is_struct(kind):
        for index in range(kind.num_fields):
            _check(array.field(index), f"{path}.{kind.field(index).name}")
    elif _T.is_list(kind) or _T.is_large_list(kind) or _T.is_fixed_size_list(kind):
        _check(pc.list_flatten(array), f"{path}.item")


def _keeps_nulls(kind: pa.DataType) -> bool:
    is_text = _T.is_string(kind) or _T.is_large_string(kind)
    return bool(is_text or _T.is_binary(kind) or _T.is_large_binary(kind) or _T.is_null(kind))
