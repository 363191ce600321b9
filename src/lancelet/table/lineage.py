"""Row ids and row versions of a fragment, from any of their storage forms.

    inline      in the fragment's entry of the manifest
    external    in a byte range of another file, in older tables
    spilled     a column of the fragment's data files, under a negative field id
    absent      the row id is the row address; the version is 1

Fragments of a table with stable row ids must have row ids: otherwise its indices would return other
rows, and a moved row could get the id of another row.
"""

from __future__ import annotations

from functools import partial
from typing import Final

import numpy as np

from lancelet.buffers import ByteRanges
from lancelet.encodings.base import RowRange
from lancelet.errors import CorruptDataError
from lancelet.file.open import StoredFields, open_data_file
from lancelet.format.field import Field, FieldId
from lancelet.format.fragment import (
    CREATED_AT_VERSION_FIELD,
    LAST_UPDATED_AT_VERSION_FIELD,
    ROW_ID_FIELD,
    External,
    Fragment,
    Inline,
    Spilled,
    StoredSequence,
)
from lancelet.format.manifest import MissingRowIdsError
from lancelet.format.paths import DATA, data_file_identity
from lancelet.format.schema import Schema
from lancelet.rowids.address import UInt64s, row_address
from lancelet.rowids.index import RowIdIndex
from lancelet.rowids.sequence import RowIdSequence
from lancelet.rowids.versions import VersionSequence
from lancelet.table.snapshot import Snapshot

FIRST_VERSION: Final = 1
"""The version of rows without recorded versions."""

_NAMES: Final = {
    ROW_ID_FIELD: "_rowid",
    CREATED_AT_VERSION_FIELD: "_row_created_at_version",
    LAST_UPDATED_AT_VERSION_FIELD: "_row_last_updated_at_version",
}


def row_ids_of(snapshot: Snapshot, fragment: Fragment) -> RowIdSequence:
    """Return the row ids of a fragment, including deleted rows."""
    rows = snapshot.physical_rows(fragment)
    stored = fragment.row_ids
    if stored is None:
        if rows and snapshot.manifest.uses_stable_row_ids:
            raise MissingRowIdsError(
                "the table has stable row ids, but a fragment has none",
                path=snapshot.entry.path,
                fragment_id=fragment.id,
            )
        first = row_address(fragment.id, 0)
        return RowIdSequence.of_range(first, first + rows)
    if isinstance(stored, Spilled):
        key = ("row ids", fragment.files)
        return snapshot.location.metadata_cache.get_or_make(
            key, lambda: RowIdSequence.of(_column(snapshot, fragment, ROW_ID_FIELD))
        )
    data = sequence_bytes(snapshot, stored)
    return snapshot.location.metadata_cache.get_or_make(
        ("row ids", data), partial(RowIdSequence.parse, data, expected_rows=rows)
    )


def created_versions_of(snapshot: Snapshot, fragment: Fragment) -> VersionSequence:
    """Return the version in which each row of a fragment was created."""
    return _versions_of(snapshot, fragment, fragment.created_at_versions, CREATED_AT_VERSION_FIELD)


def updated_versions_of(snapshot: Snapshot, fragment: Fragment) -> VersionSequence:
    """Return the version in which each row of a fragment was last updated."""
    stored = fragment.last_updated_at_versions
    return _versions_of(snapshot, fragment, stored, LAST_UPDATED_AT_VERSION_FIELD)


def row_id_index_of(snapshot: Snapshot) -> RowIdIndex:
    """Return the index from stable row ids to row addresses, built once per version."""
    return snapshot.location.metadata_cache.get_or_make(
        ("row id index", snapshot.location.store.uri, snapshot.entry.path, snapshot.identity),
        lambda: RowIdIndex.build(
            (fragment.id, row_ids_of(snapshot, fragment), snapshot.deletions(fragment) or None)
            for fragment in snapshot.fragments
        ),
    )


def _versions_of(
    snapshot: Snapshot, fragment: Fragment, stored: StoredSequence | None, field_id: int
) -> VersionSequence:
    rows = snapshot.physical_rows(fragment)
    if stored is None:
        return VersionSequence.constant(rows, FIRST_VERSION)
    if isinstance(stored, Spilled):
        return snapshot.location.metadata_cache.get_or_make(
            ("row versions", fragment.files, field_id),
            lambda: VersionSequence.of(_column(snapshot, fragment, field_id)),
        )
    data = sequence_bytes(snapshot, stored)
    return snapshot.location.metadata_cache.get_or_make(
        ("row versions", data, rows), partial(VersionSequence.parse, data, expected_rows=rows)
    )


def sequence_bytes(snapshot: Snapshot, stored: Inline | External) -> bytes:
    """Return the encoded sequence from the manifest or its external file."""
    if isinstance(stored, Inline):
        return stored.data
    reader = snapshot.location.store.open_reader(stored.path)
    return reader.read_ranges(ByteRanges.of((stored.offset, stored.size))).slice_bytes(0).tobytes()


def _column(snapshot: Snapshot, fragment: Fragment, field_id: int) -> UInt64s:
    """Read the column of a spilled sequence."""
    file = fragment.find_file(field_id)
    if file is None:
        raise CorruptDataError(
            "no file of the fragment has the column of its row ids or row versions",
            fragment_id=fragment.id,
            field_id=field_id,
        )
    field = Field(_NAMES[field_id], FieldId(field_id), "uint64", nullable=False)
    column = file.column_indices[file.fields.index(field_id)]
    bases = snapshot.manifest.bases
    store, path = snapshot.location.resolve(DATA, file.path, file.base_id, bases)
    stored = StoredFields(Schema((field,)), {field_id: column})
    reader = open_data_file(
        store, path, size=file.size_bytes or None, stored=stored, name=data_file_identity(path)
    )
    (values,) = reader.read([field], RowRange(0, reader.num_rows))
    numbers: UInt64s = values.to_numpy().astype(np.uint64, copy=False)
    return numbers
