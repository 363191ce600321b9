"""The indices of a version that filters can use, opened when they are first asked.

    by_age   segment 5f..   fragments {0, 1}     open, numbers are addresses
             segment a3..   fragments {2}
    age > 30     the answers of both, each for its own fragments

What a segment finds is turned into addresses of today: stable ids are looked up, and rows of
fragments that the segment does not cover, or that are gone, are left out.
"""

from __future__ import annotations

import warnings
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from lancelet.errors import CorruptDataError, LanceletError, ObjectNotFoundError
from lancelet.format.index_metadata import IndexMetadata
from lancelet.format.paths import INDICES
from lancelet.format.version import FileVersion
from lancelet.index.base import ScalarKind, Segment
from lancelet.index.folder import SegmentFolder
from lancelet.index.question import Question
from lancelet.index.registry import kind_of_type
from lancelet.rowids.address import NO_ADDRESS, UInt64s, fragments_of
from lancelet.rowids.selection import NO_ROWS, RowSet
from lancelet.table.fragment_reuse import current_coverage, fragment_reuse_of
from lancelet.table.lineage import row_id_index_of
from lancelet.table.snapshot import Snapshot


class IndexUnusableWarning(UserWarning):
    """An index cannot be used, so its rows are looked at one by one."""


@dataclass(frozen=True, eq=False)
class TableSegment:
    """A segment of an index of a version."""

    snapshot: Snapshot
    metadata: IndexMetadata
    kind: ScalarKind

    @cached_property
    def covered(self) -> frozenset[int]:
        """The fragments it has rows of, of those there are."""
        bitmap = self.metadata.fragment_bitmap
        return frozenset(() if bitmap is None else bitmap) & _fragment_ids(self.snapshot)

    def open(self) -> Segment:
        """Return the open segment, which is kept for as long as the table is."""
        location = self.snapshot.location
        key = ("index", self.metadata.uuid)
        return location.kept.get_or_make(key, self._open)

    def _open(self) -> Segment:
        details = self.metadata.details
        folder = folder_of(self.snapshot, self.metadata)
        return self.kind.open(folder, b"" if details is None else details.value)

    def addresses(self, found: RowSet) -> RowSet:
        """Return where rows that the segment found are now, in fragments that it covers."""
        if self.is_by_id:
            found = RowSet.of(_present(row_id_index_of(self.snapshot).addresses(_numbers(found))))
        elif fragment_reuse_of(self.snapshot).versions:
            found = RowSet.of(_present(self.moved(_numbers(found))))
        return found.restricted(self.covered)

    @property
    def is_by_id(self) -> bool:
        """Whether its rows are numbered by stable ids."""
        by_address = self.kind.uses_addresses(self.metadata.index_version or 0)
        return self.snapshot.manifest.uses_stable_row_ids and not by_address

    def moved(self, addresses: UInt64s) -> UInt64s:
        """Return where rows are now that its files have at older addresses."""
        return fragment_reuse_of(self.snapshot).translate(addresses)

    def renumber(self, numbers: UInt64s) -> UInt64s:
        """Return the numbers that rows have for an index made today.

        It is `NO_ADDRESS` for rows that are gone, and for those of fragments not covered.
        """
        if self.is_by_id:
            current, addresses = numbers, row_id_index_of(self.snapshot).addresses(numbers)
        else:
            current = addresses = self.moved(numbers)
        covered = np.isin(fragments_of(addresses), np.array(sorted(self.covered), np.int64))
        return np.where((addresses != NO_ADDRESS) & covered, current, NO_ADDRESS)


@dataclass(frozen=True, eq=False)
class ColumnIndex:
    """An index on one column: its segments, which cover different fragments."""

    name: str
    path: tuple[str, ...]
    segments: tuple[TableSegment, ...]

    @cached_property
    def covered(self) -> frozenset[int]:
        """The fragments that some segment has rows of."""
        return frozenset().union(*(segment.covered for segment in self.segments))

    def estimate(self, question: Question) -> int | None:
        """Return about how many rows will be found, or None if the index cannot answer."""
        total = 0
        for segment in self.segments:
            own = segment.open().estimate(question)
            if own is None:
                return None
            total += own
        return total

    def search(self, question: Question) -> tuple[RowSet, bool]:
        """Return the rows that answer a question, and whether no others are among them."""
        rows, is_exact = NO_ROWS, True
        for segment in self.segments:
            found = segment.open().search(question)
            rows |= segment.addresses(found.rows)
            is_exact &= found.is_exact
        return rows, is_exact

    def nulls(self) -> RowSet | None:
        """Return the rows without a value, or None if a segment does not know."""
        rows = NO_ROWS
        for segment in self.segments:
            own = segment.open().nulls()
            if own is None:
                return None
            rows |= segment.addresses(own)
        return rows


def column_indices(snapshot: Snapshot) -> dict[tuple[str, ...], tuple[ColumnIndex, ...]]:
    """Return the indices that can be used, by the path of their column."""
    return snapshot.kept.get_or_make("column indices", lambda: _find(snapshot))


def folder_of(snapshot: Snapshot, metadata: IndexMetadata) -> SegmentFolder:
    """Return where the files of a segment are."""
    store, path = snapshot.location.place(
        INDICES, str(metadata.uuid), metadata.base_id, snapshot.manifest.bases
    )
    return SegmentFolder(store, path, data_version_of(snapshot))


def data_version_of(snapshot: Snapshot) -> FileVersion:
    """Return the version of the format that new files of a table have."""
    return snapshot.manifest.data_version


def _find(snapshot: Snapshot) -> dict[tuple[str, ...], tuple[ColumnIndex, ...]]:
    by_name: dict[str, list[IndexMetadata]] = {}
    for metadata in current_coverage(snapshot):
        if len(metadata.fields) == 1 and not metadata.is_system:
            by_name.setdefault(metadata.name, []).append(metadata)
    found: dict[tuple[str, ...], tuple[ColumnIndex, ...]] = {}
    for name, segments in by_name.items():
        usable = [segment for segment in (_usable(snapshot, each) for each in segments) if segment]
        if not usable:
            continue
        schema = snapshot.schema
        fields = schema.fields_on_path(schema.path_of(segments[0].fields[0]))
        path = tuple(field.name for field in fields)
        found[path] = (*found.get(path, ()), ColumnIndex(name, path, tuple(usable)))
    return found


def table_segment(snapshot: Snapshot, metadata: IndexMetadata) -> TableSegment | None:
    """Return a segment whose kind and version are known, else None; it is not opened."""
    kind = None if metadata.details is None else kind_of_type(metadata.details.type_url)
    if kind is None or (metadata.index_version or 0) > kind.newest_version:
        return None
    return TableSegment(snapshot, metadata, kind)


def _numbers(rows: RowSet) -> UInt64s:
    return rows.addresses({})


def _present(addresses: UInt64s) -> UInt64s:
    present: UInt64s = addresses[addresses != NO_ADDRESS]
    return present


def _usable(snapshot: Snapshot, metadata: IndexMetadata) -> TableSegment | None:
    """Return the segment if its kind and version are known and its files are sound."""
    segment = table_segment(snapshot, metadata)
    if segment is None or not segment.covered:
        return None
    try:
        segment.open()
    except (ObjectNotFoundError, CorruptDataError) as error:
        warn_unusable(error.with_facts(index=metadata.name))
        return None
    return segment


def warn_unusable(error: LanceletError) -> None:
    """Say that an index cannot be used."""
    warnings.warn(
        f"an index cannot be used, rows are scanned instead; drop it and build it again: {error}",
        IndexUnusableWarning,
        stacklevel=2,
    )


def _fragment_ids(snapshot: Snapshot) -> frozenset[int]:
    return snapshot.kept.get_or_make(
        "fragment ids", lambda: frozenset(snapshot.fragments.ids.tolist())
    )
