"""The fragments that the steps of a scan read, opened once for all steps."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

import numpy as np
import pyarrow as pa

from lancelet.buffers import Int64s
from lancelet.encodings.base import RowIndices, RowRange, Rows
from lancelet.encodings.take import is_contiguous, take_ascending
from lancelet.expr.scan_types import scan_type
from lancelet.file.schedule import fixed_row_bytes
from lancelet.format.field import Field
from lancelet.format.fragment import Fragment
from lancelet.io.metered import IoCounts
from lancelet.rowids.address import UInt64s, addresses_of
from lancelet.rowids.deletion import NO_DELETIONS, DeletionVector
from lancelet.scan.fragment_reader import FragmentReader
from lancelet.scan.row_columns import FragmentRows
from lancelet.table.snapshot import Snapshot
from lancelet.values import cached_property

_DENSE_SHARE: Final = 0.25
"""Minimum share of selected rows for reading all rows of a range."""

_DENSE_NARROW_SHARE: Final = 0.08
"""The same for numbers, which are decoded faster than they are looked up."""

_NARROW_BYTES: Final = 16

_SINGLE_ROWS_MAX: Final = 8
"""Up to this number of selected rows are read individually, however dense."""


class FragmentSource:
    """A fragment, with its reader, deletions and row columns."""

    def __init__(self, snapshot: Snapshot, fragment: Fragment, *, with_deleted: bool) -> None:
        """Create a source; deleted rows are hidden unless `with_deleted`."""
        self.snapshot = snapshot
        self.fragment = fragment
        self.with_deleted = with_deleted
        self.rows = FragmentRows(snapshot, fragment)
        self._reader: FragmentReader | None = None

    @property
    def reader(self) -> FragmentReader:
        """The reader of the data files, cached with the snapshot."""
        if self._reader is None:  # concurrent threads get the same reader
            self._reader = self.snapshot.open_fragment(self.fragment, FragmentReader)
        return self._reader

    @cached_property
    def num_rows(self) -> int:
        """The number of rows, including deleted ones."""
        return self.snapshot.physical_rows(self.fragment)

    @cached_property
    def hidden(self) -> DeletionVector:
        """The rows to hide."""
        return NO_DELETIONS if self.with_deleted else self.snapshot.deletions(self.fragment)

    @cached_property
    def _hidden_offsets(self) -> Int64s:
        return self.hidden.to_array().astype(np.int64)

    @property
    def num_visible(self) -> int:
        """The number of visible rows."""
        return self.num_rows - len(self.hidden)

    def visible(self, rows: RowRange) -> Int64s | None:
        """Return the visible row offsets within `rows`, or None if all rows are visible."""
        if not self.hidden:
            return None
        hidden = self._hidden_within(rows)
        if not len(hidden):
            return None
        mask = np.ones(len(rows), np.bool_)
        mask[hidden - rows.start] = False
        offsets = np.flatnonzero(mask).astype(np.int64, copy=False)
        offsets += rows.start
        return offsets

    def count_visible(self, rows: RowRange) -> int:
        """Return the number of visible rows of a range."""
        return len(rows) - (len(self._hidden_within(rows)) if self.hidden else 0)

    def _hidden_within(self, rows: RowRange) -> Int64s:
        first, stop = np.searchsorted(self._hidden_offsets, [rows.start, rows.stop])
        return self._hidden_offsets[first:stop]

    def without_hidden(self, offsets: Int64s) -> Int64s:
        """Return the visible ones of ascending row offsets."""
        hidden = self._hidden_offsets
        return offsets if not len(hidden) else np.setdiff1d(offsets, hidden, assume_unique=True)

    def visible_among(self, offsets: Int64s) -> Int64s | None:
        """Return the positions of the visible ones of ascending offsets; None if all are."""
        if not self.hidden or not len(offsets):
            return None
        first, stop = int(offsets[0]), int(offsets[-1]) + 1
        hidden = self._hidden_within(RowRange(first, stop))
        if not len(hidden):
            return None
        is_visible = np.ones(stop - first, np.bool_)
        is_visible[hidden - first] = False
        return np.flatnonzero(is_visible[offsets - first])

    def window(self, start: int, stop: int) -> RowRange:
        """Return the row range of visible rows, given as indices among the visible rows."""
        if not self.hidden:
            return RowRange(start, stop)
        bounds = self.hidden.physical_offsets(np.array([start, stop - 1], np.int64))
        return RowRange(int(bounds[0]), int(bounds[1]) + 1)

    def read(
        self, fields: Sequence[Field], rows: RowRange, selected: Int64s | None
    ) -> list[pa.Array]:
        """Return the values of fields in a range, or in selected rows of it."""
        rows_read = _rows_to_read(fields, rows, selected)
        arrays = self.reader.read(fields, rows_read)
        if selected is None or len(rows_read) == len(selected):
            return arrays
        chosen = selected - rows.start if rows.start else selected
        return [take_ascending(array, chosen) for array in arrays]

    def estimate_reads(
        self, fields: Sequence[Field], rows: RowRange, selected: Int64s | None
    ) -> IoCounts:
        """Estimate the reads of fields in a range, or in selected rows of it."""
        return self.reader.estimate_reads(fields, _rows_to_read(fields, rows, selected))

    def take(self, fields: Sequence[Field], offsets: Int64s) -> list[pa.Array]:
        """Return the values of fields at row offsets, in any order and with duplicates."""
        return self.reader.read(fields, RowIndices(offsets))

    def row_columns_at(self, names: Sequence[str], offsets: Int64s) -> dict[str, pa.Array]:
        """Return row columns at row offsets, in any order."""
        return self.rows.columns(names, offsets)

    def row_columns(
        self, names: Sequence[str], rows: RowRange, selected: Int64s | None
    ) -> dict[str, pa.Array]:
        """Return row columns of a range, or of selected rows of it."""
        if not names:
            return {}
        offsets = np.arange(rows.start, rows.stop) if selected is None else selected
        columns = self.rows.columns(names, offsets)
        if self.with_deleted and "_rowid" in columns:
            columns["_rowid"] = self._without_deleted(columns["_rowid"], offsets)
        return columns

    def iter_batches(
        self, fields: Sequence[Field], rows: RowRange, batch_size: int | None
    ) -> Iterator[pa.RecordBatch]:
        """Yield the rows as ordered batches."""
        return self.reader.iter_batches(fields, rows, batch_size)

    def addresses(self, offsets: Int64s) -> UInt64s:
        """Return the row addresses of offsets."""
        return addresses_of(self.fragment.id, offsets)

    def by_member(self, offsets: Int64s) -> Iterator[tuple[FragmentSource, Int64s]]:
        """Yield the fragment and the offsets, with the interface of a pack."""
        if len(offsets):
            yield self, offsets

    def _without_deleted(self, ids: pa.Array, offsets: Int64s) -> pa.Array:
        deleted = np.isin(offsets, self.snapshot.deletions(self.fragment).to_array())
        return pa.array(ids.to_numpy(), mask=deleted)


def _rows_to_read(fields: Sequence[Field], rows: RowRange, selected: Int64s | None) -> Rows:
    """Return the rows to read for selected rows of a range: these rows, or the whole range."""
    if selected is None:
        return rows
    if len(selected) <= _SINGLE_ROWS_MAX or not dense_enough(fields, len(selected), len(rows)):
        return RowIndices(selected)
    if is_contiguous(selected):
        return RowRange(int(selected[0]), int(selected[-1]) + 1)
    return rows


def dense_enough(fields: Sequence[Field], selected: int, rows: int) -> bool:
    """Return whether enough rows of a range are selected to read the whole range."""
    if selected >= _DENSE_SHARE * rows:
        return True
    return selected >= _DENSE_NARROW_SHARE * rows and all(map(_is_narrow, fields))


def _is_narrow(field: Field) -> bool:
    width = fixed_row_bytes(scan_type(field))
    return width is not None and width <= _NARROW_BYTES


def sources(
    snapshot: Snapshot, fragments: Sequence[int] | None, *, with_deleted: bool = False
) -> Iterator[FragmentSource]:
    """Yield the fragments of a snapshot, or those with the given ids, in order."""
    chosen = (
        iter(snapshot.fragments)
        if fragments is None
        else (snapshot.fragments.by_id(fragment_id) for fragment_id in fragments)
    )
    for fragment in chosen:
        yield FragmentSource(snapshot, fragment, with_deleted=with_deleted)


def waits_for_storage(snapshot: Snapshot) -> bool:
    """Return whether reads mostly wait for a network and benefit from more parallelism."""
    return snapshot.version_cache.get_or_make(
        "waits for storage",
        lambda: not snapshot.location.store.uri.startswith(("file:", "memory:")),
    )
