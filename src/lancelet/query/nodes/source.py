"""What the steps of a scan read from: a fragment of a version, opened once for all of them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

import numpy as np
import pyarrow as pa

from lancelet.buffers import Int64s
from lancelet.encodings.base import RowIndices, RowRange, Rows
from lancelet.encodings.take import is_contiguous, take_ascending
from lancelet.format.field import Field
from lancelet.format.fragment import Fragment
from lancelet.io.metered import IoCounts
from lancelet.query.fragment_reader import FragmentReader
from lancelet.query.row_columns import FragmentRows
from lancelet.rowids.address import UInt64s, addresses_of
from lancelet.rowids.deletion import NO_DELETIONS, DeletionVector
from lancelet.table.snapshot import Snapshot
from lancelet.values import cached_property

_DENSE: Final = 0.25
"""From this share of selected rows on, all rows are read and the others dropped."""


_FEW: Final = 8
"""So few rows are read one by one, however near they are."""


class FragmentSource:
    """A fragment with everything that is needed to read rows of it."""

    def __init__(self, snapshot: Snapshot, fragment: Fragment, *, with_deleted: bool) -> None:
        """Read a fragment of a version, without its deleted rows unless they are asked for."""
        self.snapshot = snapshot
        self.fragment = fragment
        self.with_deleted = with_deleted
        self.rows = FragmentRows(snapshot, fragment)
        self._reader: FragmentReader | None = None

    @property
    def reader(self) -> FragmentReader:
        """The reader of the fragment's files, kept for as long as the version is."""
        if self._reader is None:  # any thread finds the same
            self._reader = self.snapshot.open_fragment(self.fragment, FragmentReader)
        return self._reader

    @cached_property
    def num_rows(self) -> int:
        """How many rows the fragment has, deleted ones too."""
        return self.snapshot.physical_rows(self.fragment)

    @cached_property
    def hidden(self) -> DeletionVector:
        """The rows that are not to be seen."""
        return NO_DELETIONS if self.with_deleted else self.snapshot.deletions(self.fragment)

    @cached_property
    def _hidden_offsets(self) -> Int64s:
        return self.hidden.to_array().astype(np.int64)

    @property
    def num_visible(self) -> int:
        """How many rows are to be seen."""
        return self.num_rows - len(self.hidden)

    def visible(self, rows: RowRange) -> Int64s | None:
        """Return the offsets within `rows` that are to be seen, or None if it is all of them."""
        if not self.hidden:
            return None
        hidden = self._hidden_offsets
        first, stop = np.searchsorted(hidden, [rows.start, rows.stop])
        if first == stop:
            return None
        kept = np.ones(len(rows), np.bool_)
        kept[hidden[first:stop] - rows.start] = False
        return np.flatnonzero(kept).astype(np.int64) + rows.start

    def without_hidden(self, offsets: Int64s) -> Int64s:
        """Return those of ascending offsets that are to be seen."""
        hidden = self._hidden_offsets
        return offsets if not len(hidden) else np.setdiff1d(offsets, hidden, assume_unique=True)

    def window(self, start: int, stop: int) -> RowRange:
        """Return the rows from one visible row to before another, by their places among these."""
        if not self.hidden:
            return RowRange(start, stop)
        bounds = self.hidden.physical_offsets(np.array([start, stop - 1], np.int64))
        return RowRange(int(bounds[0]), int(bounds[1]) + 1)

    def read(
        self, fields: Sequence[Field], rows: RowRange, selected: Int64s | None
    ) -> list[pa.Array]:
        """Return the values of fields in a range, or in the selected rows of it."""
        wanted = _rows_to_read(rows, selected)
        arrays = self.reader.read(fields, wanted)
        if selected is None or len(wanted) == len(selected):
            return arrays
        chosen = selected - rows.start if rows.start else selected
        return [take_ascending(array, chosen) for array in arrays]

    def estimate_reads(
        self, fields: Sequence[Field], rows: RowRange, selected: Int64s | None
    ) -> IoCounts:
        """Return about what reading fields in a range, or in rows of it, asks of storage."""
        return self.reader.estimate_reads(fields, _rows_to_read(rows, selected))

    def take(self, fields: Sequence[Field], offsets: Int64s) -> list[pa.Array]:
        """Return the values of fields in rows, in any order and as often as they are named."""
        return self.reader.read(fields, RowIndices(offsets))

    def row_columns_at(self, names: Sequence[str], offsets: Int64s) -> dict[str, pa.Array]:
        """Return row columns of rows, in any order."""
        return self.rows.columns(names, offsets)

    def row_columns(
        self, names: Sequence[str], rows: RowRange, selected: Int64s | None
    ) -> dict[str, pa.Array]:
        """Return row columns of a range, or of the selected rows of it."""
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
        """Yield the rows as batches in their order."""
        return self.reader.iter_batches(fields, rows, batch_size)

    def addresses(self, offsets: Int64s) -> UInt64s:
        """Return the addresses of rows."""
        return addresses_of(self.fragment.id, offsets)

    def by_member(self, offsets: Int64s) -> Iterator[tuple[FragmentSource, Int64s]]:
        """Yield the fragment with the offsets, if there are any, as packs yield theirs."""
        if len(offsets):
            yield self, offsets

    def _without_deleted(self, ids: pa.Array, offsets: Int64s) -> pa.Array:
        deleted = np.isin(offsets, self.snapshot.deletions(self.fragment).to_array())
        return pa.array(ids.to_numpy(), mask=deleted)


def _rows_to_read(rows: RowRange, selected: Int64s | None) -> Rows:
    """Return which rows of a range are read if some are selected: these, or all of it."""
    if selected is None:
        return rows
    if len(selected) <= _FEW or not dense_enough(len(selected), len(rows)):
        return RowIndices(selected)
    if is_contiguous(selected):
        return RowRange(int(selected[0]), int(selected[-1]) + 1)
    return rows


def dense_enough(wanted: int, rows: int) -> bool:
    """Say whether so many of the rows of a range are wanted that all are best read."""
    return wanted >= _DENSE * rows


def sources(
    snapshot: Snapshot, fragments: Sequence[int] | None, *, with_deleted: bool = False
) -> Iterator[FragmentSource]:
    """Yield the fragments of a version, or those with the given ids, in order."""
    chosen = (
        iter(snapshot.fragments)
        if fragments is None
        else (snapshot.fragments.by_id(fragment_id) for fragment_id in fragments)
    )
    for fragment in chosen:
        yield FragmentSource(snapshot, fragment, with_deleted=with_deleted)


def waits_for_storage(snapshot: Snapshot) -> bool:
    """Say whether reading mostly waits for a network, so that more should go on at once."""
    return snapshot.version_cache.get_or_make(
        "waits for storage",
        lambda: not snapshot.location.store.uri.startswith(("file:", "memory:")),
    )
