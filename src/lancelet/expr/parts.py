"""Assemble fields that are stored in several files of a fragment.

Columns that were added or rewritten later are in separate files, so the fields of a struct may be
in different files:

    requested s{x, y, z}
    file a    s{x, y}       part of s
    file b    s{z}          part of s, null in the same rows as in file a
    neither   q             null in every row

Overlays replace values of some rows when they are read.

    in the files              0 10 20 30
    overlay of version 5  rows {1, 3}: 11 33        read   0 11 20 33
    overlay of version 6  row {3}: 99               read   0 11 20 99

An overlay stores no row numbers: the index of a value is the rank of its row among the covered
rows, which are listed for all fields or for each field. Offsets include deleted rows. The newest
overlay wins.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from typing import TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from lancelet.buffers import Int64s
from lancelet.encodings.base import RowIndices, RowRange, Rows
from lancelet.encodings.take import take_rows
from lancelet.errors import CorruptDataError, UnsupportedError
from lancelet.expr.scan_types import read_as, scan_type
from lancelet.format import logical_type
from lancelet.format.field import Field
from lancelet.format.fragment import TOMBSTONE, DataFile, DataOverlay, Fragment
from lancelet.format.roaring import parse_bitmap, to_numbers
from lancelet.table.snapshot import Snapshot

Piece: TypeAlias = tuple[Field, pa.Array]
"""A part of a field and its values."""


def part_within(field: Field, field_ids: Collection[int]) -> Field | None:
    """Return the part of a field stored in a file with these field ids, or None.

    A file lists the ids of leaf fields and, depending on its version, of their parents. Blobs and
    packed structs are stored as one column.
    """
    if not field.children or field.is_blob or field.is_packed:
        return field if field.id in field_ids else None
    parts = [part_within(child, field_ids) for child in field.children]
    stored = [part for part in parts if part is not None]
    if not stored:
        return None
    return field if stored == list(field.children) else field.with_children(stored)


def assemble(field: Field, parts: Sequence[Piece], num_rows: int) -> pa.Array:
    """Assemble a field from its parts; missing fields are null."""
    if not parts:
        return pa.nulls(num_rows, scan_type(field))
    if len(parts) == 1 and parts[0][0] == field:
        return parts[0][1]
    if field.logical_type == logical_type.STRUCT:
        return _struct(field, parts, num_rows)
    if field.logical_type in logical_type.LISTS or field.logical_type in logical_type.LARGE_LISTS:
        return _list(field, parts)
    raise UnsupportedError(
        "a field of this type cannot be assembled from several files",
        field=field.name,
        logical_type=field.logical_type,
    )


def _struct(field: Field, parts: Sequence[Piece], num_rows: int) -> pa.Array:
    children = []
    for child in field.children:
        of_child = [
            (own, array.field(index))
            for part, array in parts
            for index, own in enumerate(part.children)
            if own.id == child.id
        ]
        children.append(assemble(child, of_child, num_rows))
    first = parts[0][1]
    fields = [
        child.to_arrow().with_type(array.type)
        for child, array in zip(field.children, children, strict=True)
    ]
    mask = first.is_null() if first.null_count else None
    return pa.StructArray.from_arrays(children, fields=fields, mask=mask)


def _list(field: Field, parts: Sequence[Piece]) -> pa.Array:
    """Assemble lists from parts with equal list lengths."""
    first = parts[0][1]
    items = [(part.children[0], pc.list_flatten(array)) for part, array in parts]
    joined = assemble(field.children[0], items, len(items[0][1]))
    lengths = pc.fill_null(pc.list_value_length(first), 0)
    is_large = field.logical_type in logical_type.LARGE_LISTS
    number, kind = (pa.int64(), pa.LargeListArray) if is_large else (pa.int32(), pa.ListArray)
    zero = pa.array([0], number)
    offsets = pa.concat_arrays([zero, pc.cumulative_sum(lengths.cast(number))])
    mask = first.is_null() if first.null_count else None
    return kind.from_arrays(offsets, joined, mask=mask).cast(scan_type(field))


class Overlays:
    """The overlays of a fragment."""

    def __init__(self, snapshot: Snapshot, fragment: Fragment) -> None:
        """Create the overlays of a fragment; values are read on demand."""
        ordered = sorted(fragment.overlays, key=lambda overlay: overlay.committed_version)
        self._layers = tuple(_Layer(snapshot, overlay) for overlay in ordered)

    def touch(self, fields: Iterable[Field]) -> bool:
        """Return whether overlays replace values of any of the fields."""
        return any(layer.part(field) is not None for layer in self._layers for field in fields)

    def over(
        self, fields: Sequence[Field], arrays: Sequence[pa.Array], rows: Rows
    ) -> list[pa.Array]:
        """Return the values of rows with overlays applied."""
        offsets = np.arange(rows.start, rows.stop) if isinstance(rows, RowRange) else rows.rows
        return [
            self._over(field, array, offsets) for field, array in zip(fields, arrays, strict=True)
        ]

    def _over(self, field: Field, array: pa.Array, offsets: Int64s) -> pa.Array:
        for layer in self._layers:
            array = layer.over(field, array, offsets)
        return array


class _Layer:
    """One overlay: a file, and the covered rows by field."""

    def __init__(self, snapshot: Snapshot, overlay: DataOverlay) -> None:
        self._snapshot = snapshot
        self._file = overlay.data_file
        self._rows = _covered_rows(overlay)

    def part(self, field: Field) -> Field | None:
        """Return the part of a field that the overlay replaces, or None."""
        return part_within(field, self._rows.keys())

    def over(self, field: Field, array: pa.Array, offsets: Int64s) -> pa.Array:
        """Return the values of rows with the overlay applied."""
        part = self.part(field)
        if part is None:
            return array
        covered = [self._rows[leaf.id] for leaf in _columns(part)]
        if part == field and all(rows is covered[0] for rows in covered):
            return self._replaced(field, array, offsets, covered[0])
        if field.logical_type != logical_type.STRUCT:
            raise UnsupportedError(
                "an overlay cannot replace a part of a field of this type",
                field=field.name,
                logical_type=field.logical_type,
                path=self._file.path,
            )
        children = [
            self.over(child, array.field(index), offsets)
            for index, child in enumerate(field.children)
        ]
        mask = array.is_null() if array.null_count else None
        return pa.StructArray.from_arrays(children, fields=list(array.type), mask=mask)

    def _replaced(
        self, field: Field, array: pa.Array, offsets: Int64s, covered: Int64s
    ) -> pa.Array:
        ranks = np.searchsorted(covered, offsets)
        is_new = ranks < len(covered)
        is_new[is_new] = covered[ranks[is_new]] == offsets[is_new]
        if not is_new.any():
            return array
        if any(node.is_blob for node in field.walk()):
            raise UnsupportedError(
                "blobs in overlays cannot be read", field=field.name, path=self._file.path
            )
        new = self._values(field, ranks[is_new])
        indices = np.arange(len(array))
        indices[is_new] = len(array) + np.arange(len(new))
        both = pa.chunked_array([array, new.cast(array.type)]).unify_dictionaries()
        return take_rows(pa.concat_arrays(both.chunks), indices)

    def _values(self, field: Field, ranks: Int64s) -> pa.Array:
        reader = self._snapshot.open_file(self._file)
        if int(ranks.max()) >= reader.num_rows:
            raise CorruptDataError(
                "an overlay covers more rows than it has values",
                path=reader.path,
                rank=int(ranks.max()),
                values=reader.num_rows,
            )
        (values,) = reader.read([read_as(field)], RowIndices(ranks.astype(np.int64)))
        return values


def _covered_rows(overlay: DataOverlay) -> dict[int, Int64s]:
    """Return the covered rows of each field in ascending order."""
    ids = overlay.data_file.fields
    if overlay.coverage is None:
        raise CorruptDataError("an overlay does not list its rows", **_facts(overlay))
    if isinstance(overlay.coverage, bytes):
        shared = _numbers(overlay.coverage)
        return {own: shared for own in ids if own != TOMBSTONE}
    if len(overlay.coverage) != len(ids):
        raise CorruptDataError(
            "the row sets of an overlay do not match its fields", **_facts(overlay)
        )
    pairs = zip(ids, overlay.coverage, strict=True)
    return {own: _numbers(rows) for own, rows in pairs if own != TOMBSTONE}


def _numbers(bitmap: bytes) -> Int64s:
    return to_numbers(parse_bitmap(bitmap)).astype(np.int64)


def _columns(field: Field) -> list[Field]:
    """Return the descendants of a field that files store as columns."""
    if not field.children or field.is_blob or field.is_packed:
        return [field]
    return [leaf for child in field.children for leaf in _columns(child)]


def _facts(overlay: DataOverlay) -> dict[str, object]:
    file: DataFile = overlay.data_file
    return {"path": file.path, "fields": list(file.fields), "version": overlay.committed_version}
