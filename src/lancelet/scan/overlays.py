"""Apply overlays: new values that replace those of some rows when they are read.

    in the files              0 10 20 30
    overlay of version 5  rows {1, 3}: 11 33        read   0 11 20 33
    overlay of version 6  row {3}: 99               read   0 11 20 99

An overlay stores no row numbers: the index of a value is the rank of its row among the covered
rows, which are listed for all fields or for each field. Offsets include deleted rows. The newest
overlay wins.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np
import pyarrow as pa

from lancelet.buffers import Int64s
from lancelet.encodings.base import RowIndices, RowRange, Rows
from lancelet.encodings.take import take_rows
from lancelet.errors import CorruptDataError, UnsupportedError
from lancelet.expr.scan_types import read_as
from lancelet.format import logical_type
from lancelet.format.field import Field
from lancelet.format.fragment import TOMBSTONE, DataFile, DataOverlay, Fragment
from lancelet.format.roaring import parse_bitmap, to_numbers
from lancelet.scan.field_parts import part_within
from lancelet.table.snapshot import Snapshot


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
