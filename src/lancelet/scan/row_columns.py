"""Computed columns that identify rows.

    _rowid      the stable id, or the address in tables without stable ids
    _rowaddr    the fragment id and the offset of the row
    _rowoffset  the index of the row among the live rows of the version
    _row_created_at_version, _row_last_updated_at_version

They can be used in projections, filters and expressions like other columns.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from enum import Enum
from typing import Final, TypeAlias

import numpy as np
import pyarrow as pa

from lancelet.buffers import Int64s
from lancelet.format.fragment import Fragment
from lancelet.rowids.address import UInt64s, addresses_of
from lancelet.rowids.versions import VersionSequence
from lancelet.table.lineage import created_versions_of, row_ids_of, updated_versions_of
from lancelet.table.snapshot import Snapshot
from lancelet.values import cached_property


class RowColumn(Enum):
    """The row columns by name."""

    ID = "_rowid"
    ADDRESS = "_rowaddr"
    OFFSET = "_rowoffset"
    CREATED = "_row_created_at_version"
    UPDATED = "_row_last_updated_at_version"


ROW_FIELDS: Final = {column.value: pa.field(column.value, pa.uint64()) for column in RowColumn}
"""The Arrow fields of all row columns, by name."""

_FEW_RUNS: Final = 8
_ROWS_PER_OFFSET: Final = 16

_Make: TypeAlias = Callable[["FragmentRows", Int64s], UInt64s]


def live_rows_before(snapshot: Snapshot) -> Int64s:
    """Return the number of live rows before each fragment, followed by the total."""
    return snapshot.version_cache.get_or_make(
        "live rows before", lambda: _live_rows_before(snapshot)
    )


def _live_rows_before(snapshot: Snapshot) -> Int64s:
    before: Int64s = np.zeros(len(snapshot.fragments) + 1, np.int64)
    np.cumsum(snapshot.rows_by_fragment, out=before[1:])
    before.flags.writeable = False
    return before


class FragmentRows:
    """Computes the row columns of one fragment."""

    def __init__(self, snapshot: Snapshot, fragment: Fragment) -> None:
        """Create for a fragment; required metadata is read on first use."""
        self.snapshot = snapshot
        self.fragment = fragment

    def columns(self, names: Iterable[str], offsets: Int64s) -> dict[str, pa.Array]:
        """Return row columns by name at row offsets."""
        return {name: pa.array(_MAKERS[RowColumn(name)](self, offsets)) for name in names}

    def ids(self, offsets: Int64s) -> UInt64s:
        """Return the row ids."""
        if self.fragment.row_ids is None and not self.snapshot.manifest.uses_stable_row_ids:
            return addresses_of(self.fragment.id, offsets)
        return row_ids_of(self.snapshot, self.fragment).take(offsets)

    def addresses(self, offsets: Int64s) -> UInt64s:
        """Return the row addresses."""
        return addresses_of(self.fragment.id, offsets)

    def indices(self, offsets: Int64s) -> UInt64s:
        """Return the indices of live rows among the live rows of the version."""
        deleted = self.snapshot.deletions(self.fragment).to_array()
        before: Int64s = np.searchsorted(deleted, offsets)
        return (offsets - before + self._first_index).astype(np.uint64)

    def created(self, offsets: Int64s) -> UInt64s:
        """Return the version that created each row."""
        return _at(self._created, offsets)

    def updated(self, offsets: Int64s) -> UInt64s:
        """Return the version that last updated each row."""
        return _at(self._updated, offsets)

    @cached_property
    def _first_index(self) -> int:
        fragment_index = self.snapshot.fragments.index_of(self.fragment.id)
        return int(live_rows_before(self.snapshot)[fragment_index])

    @cached_property
    def _created(self) -> VersionSequence:
        return created_versions_of(self.snapshot, self.fragment)

    @cached_property
    def _updated(self) -> VersionSequence:
        return updated_versions_of(self.snapshot, self.fragment)


def _at(versions: VersionSequence, offsets: Int64s) -> UInt64s:
    """Return the versions of rows; many of them are read faster from one value per row."""
    runs = len(versions.versions)
    is_dense = runs > _FEW_RUNS and len(offsets) * _ROWS_PER_OFFSET > len(versions)
    return versions.to_array()[offsets] if is_dense else versions.take(offsets)


_MAKERS: Final[dict[RowColumn, _Make]] = {
    RowColumn.ID: FragmentRows.ids,
    RowColumn.ADDRESS: FragmentRows.addresses,
    RowColumn.OFFSET: FragmentRows.indices,
    RowColumn.CREATED: FragmentRows.created,
    RowColumn.UPDATED: FragmentRows.updated,
}
