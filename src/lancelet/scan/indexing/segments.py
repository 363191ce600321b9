"""The index segments of a version, opened on first use.

    by_age   segment 5f..   fragments {0, 1}     open, numbers are addresses
             segment a3..   fragments {2}
    age > 30     the union of the results of both

Rows found by a segment are translated to current addresses: stable row ids are looked up, and rows
that were deleted or belong to fragments outside of the coverage are dropped.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Iterator, Mapping
from typing import Final, cast

import numpy as np
import pyarrow as pa

from lancelet import index as kinds
from lancelet.buffers import Int64s
from lancelet.errors import (
    CorruptDataError,
    LanceletError,
    ObjectNotFoundError,
    UnsupportedError,
    VersionNotFoundError,
)
from lancelet.format.index_metadata import AnyDetails, IndexMetadata
from lancelet.format.paths import INDICES
from lancelet.index.base import (
    AnyKind,
    HasDataType,
    Segment,
    SupportsCount,
    SupportsRowLookup,
    SupportsRowNumbers,
)
from lancelet.index.folder import IndexLoads, SegmentFolder
from lancelet.index.query import OneOf
from lancelet.io.cache import INDEX
from lancelet.rowids.address import (
    NO_ADDRESS,
    OFFSETS_MAX,
    UInt64s,
    distinct,
    fragments_of,
    offsets_of,
)
from lancelet.rowids.selection import ALL, RowSet
from lancelet.table.fragment_reuse import fragment_reuse_of
from lancelet.table.lineage import row_id_index_of
from lancelet.table.overlays import overlaid_since
from lancelet.table.snapshot import Snapshot
from lancelet.values import cached_property, dataclass

UNREADABLE: Final = (ObjectNotFoundError, CorruptDataError, UnsupportedError)
"""Errors for index files that are missing, damaged or of an unsupported layout."""


class IndexUnusableWarning(UserWarning):
    """An index cannot be used, so its rows are scanned."""


@dataclass(frozen=True, eq=False)
class TableSegment:
    """An index segment in a table version."""

    snapshot: Snapshot
    metadata: IndexMetadata
    kind: AnyKind

    @cached_property
    def covered(self) -> frozenset[int]:
        """The existing fragments that the segment covers."""
        bitmap = self.metadata.fragment_bitmap
        stale = overlaid_since(self.snapshot, self.metadata)
        return frozenset(() if bitmap is None else bitmap) & _fragment_ids(self.snapshot) - stale

    def open(self) -> Segment:
        """Return the open segment, cached as long as the table is open."""
        key = ("index", self.metadata.uuid)
        return self.snapshot.location.open_files.get_or_make(key, self._open)

    def _open(self) -> Segment:
        details = self.metadata.details
        folder = folder_of(self.snapshot, self.metadata)
        folder.loads.count(segments=1)
        opened: Segment = self.kind.open(folder, b"" if details is None else details.value)
        return opened

    @property
    def value_type(self) -> pa.DataType | None:
        """The type of the indexed values, or None."""
        opened = self.open()
        return opened.data_type if isinstance(opened, HasDataType) else None

    def addresses(self, found: RowSet) -> RowSet:
        """Return the current addresses of rows found by the segment, in covered fragments."""
        if self.is_by_id:
            ids = found.listed()
            found = RowSet.of(_present(row_id_index_of(self.snapshot).addresses(ids)))
        elif self._has_moved_rows:
            found = RowSet.of(_present(self.moved(found.listed())))
        rows = found.restricted(self.covered)
        self._check_offsets(rows)
        return rows

    def lookup_addresses(self, query: OneOf, most: int) -> UInt64s | None:
        """Return the addresses of matching rows, or None if there are more than `most`."""
        lookup = self._row_lookup
        numbers = None if lookup is None else lookup.lookup_rows(query, most)
        if numbers is None or not len(numbers):
            return numbers
        if self.is_by_id:
            numbers = _present(row_id_index_of(self.snapshot).addresses(numbers))
        elif self._has_moved_rows:
            numbers = _present(self.moved(numbers))
        if len(numbers) == 1:
            fragment_id, offset = divmod(int(numbers[0]), OFFSETS_MAX)
            if fragment_id in self.covered and offset < self._physical_rows[fragment_id]:
                return numbers
        rows = self._rows_covered.rows_of(fragments_of(numbers))
        is_beyond = offsets_of(numbers) >= rows
        if not is_beyond.any():
            return numbers
        self._check_offsets(RowSet.of(numbers[is_beyond & (rows > 0)]))
        inside: UInt64s = numbers[~is_beyond]
        return inside

    @property
    def _row_lookup(self) -> SupportsRowLookup | None:
        return cast("SupportsRowLookup", self.open()) if self._supports_row_lookup else None

    @cached_property
    def _supports_row_lookup(self) -> bool:
        return isinstance(self.open(), SupportsRowLookup)

    @cached_property
    def _rows_covered(self) -> _FragmentSizes:
        return _FragmentSizes.of(self.covered, self._physical_rows)

    @cached_property
    def _physical_rows(self) -> PhysicalRows:
        return physical_rows_of(self.snapshot)

    @cached_property
    def _has_moved_rows(self) -> bool:
        return bool(fragment_reuse_of(self.snapshot).versions)

    @property
    def lacks_rows(self) -> bool:
        """Whether the segment lacks live rows of fragments that it covers.

        Some pylance releases write such segments when a table is compacted again after a
        compaction with deferred remapping: old addresses with the coverage of the new fragments.
        """
        versions = fragment_reuse_of(self.snapshot).versions
        if self.is_by_id or not versions:
            return False
        key = ("lacks rows", self.metadata.uuid, self.covered, len(versions))
        return self.snapshot.location.metadata_cache.get_or_make(key, self._lacks_rows)

    def _lacks_rows(self) -> bool:
        opened = self.open()
        if not isinstance(opened, SupportsRowNumbers):
            return False
        located = self.locate(opened.numbers())
        rows = RowSet.of(distinct(_present(located)))
        for fragment_id in self.covered:
            fragment = self.snapshot.fragments.by_id(fragment_id)
            found = rows.parts.get(fragment_id)
            deleted = self.snapshot.deletions(fragment).to_array()
            num_indexed = (
                0 if found is None else len(found) - sum(each in found for each in deleted)
            )
            if num_indexed < self.snapshot.live_rows(fragment):
                return True
        return False

    @cached_property
    def has_live_rows_only(self) -> bool:
        """Whether the segment contains exactly the live rows of its fragments."""
        opened = self.open()
        live = (self.snapshot.fragments.by_id(each) for each in self.covered)
        return isinstance(opened, SupportsCount) and opened.num_rows == sum(
            self.snapshot.live_rows(fragment) for fragment in live
        )

    def _check_offsets(self, rows: RowSet) -> None:
        sizes = physical_rows_of(self.snapshot)
        for fragment_id, offsets in rows.parts.items():
            if offsets is not ALL and offsets and offsets.max() >= sizes[fragment_id]:
                raise CorruptDataError(
                    "an index refers to a row out of range of its fragment",
                    index=self.metadata.name,
                    path=self.metadata.directory,
                    fragment_id=fragment_id,
                    offset=offsets.max(),
                    num_rows=sizes[fragment_id],
                )

    @cached_property
    def is_by_id(self) -> bool:
        """Whether rows are identified by stable row ids."""
        by_address = self.kind.uses_addresses(self.metadata.index_version or 0)
        return self.snapshot.manifest.uses_stable_row_ids and not by_address

    def moved(self, addresses: UInt64s) -> UInt64s:
        """Translate older row addresses to current ones, after deferred remapping."""
        return fragment_reuse_of(self.snapshot).translate(addresses)

    def locate(self, numbers: UInt64s) -> UInt64s:
        """Return the current addresses of rows; `NO_ADDRESS` if deleted or not covered."""
        if self.is_by_id:
            addresses = row_id_index_of(self.snapshot).addresses(numbers)
        else:
            addresses = self.moved(numbers)
        covered = np.isin(fragments_of(addresses), np.array(sorted(self.covered), np.int64))
        return np.where((addresses != NO_ADDRESS) & covered, addresses, NO_ADDRESS)

    def renumber(self, numbers: UInt64s, *, by_address: bool) -> UInt64s:
        """Return the current addresses or row ids of rows, for rewriting the segment.

        Rows that were deleted or are not covered have `NO_ADDRESS`.
        """
        if self.is_by_id:
            addresses = row_id_index_of(self.snapshot).addresses(numbers)
            current = addresses if by_address else numbers
        else:
            current = addresses = self.moved(numbers)
        covered = np.isin(fragments_of(addresses), np.array(sorted(self.covered), np.int64))
        return np.where((addresses != NO_ADDRESS) & covered, current, NO_ADDRESS)


@dataclass(frozen=True, slots=True, eq=False)
class _FragmentSizes:
    """The number of rows per fragment, with vectorized lookup."""

    ids: Int64s
    rows: Int64s

    @staticmethod
    def of(ids: Iterable[int], rows: Mapping[int, int]) -> _FragmentSizes:
        ordered = sorted(ids)
        return _FragmentSizes(
            np.array(ordered, np.int64), np.array([rows[each] for each in ordered], np.int64)
        )

    def rows_of(self, fragment_ids: Int64s) -> Int64s:
        """Return the number of rows of each fragment, 0 for unknown fragments."""
        if len(self.ids) == 1:
            return np.where(fragment_ids == self.ids[0], self.rows[0], 0)
        indices = np.minimum(self.ids.searchsorted(fragment_ids), len(self.ids) - 1)
        found: Int64s = np.where(self.ids[indices] == fragment_ids, self.rows[indices], 0)
        return found


def folder_of(snapshot: Snapshot, metadata: IndexMetadata) -> SegmentFolder:
    """Return the folder with the files of a segment."""
    store, path = snapshot.location.resolve(
        INDICES, str(metadata.uuid), metadata.base_id, snapshot.manifest.bases
    )
    loads = index_loads(snapshot)
    cache_scope = snapshot.location.metadata_cache.nested(("index", metadata.uuid), INDEX)
    version = snapshot.manifest.data_version
    return SegmentFolder(
        store, path, version, loads=loads, cache_scope=cache_scope, listed=metadata.files
    )


def index_loads(snapshot: Snapshot) -> IndexLoads:
    """Return the counters of index loads of an open table."""
    return snapshot.location.open_files.pinned("index loads", IndexLoads)


def kind_of(details: AnyDetails | None) -> AnyKind | None:
    """Return the index kind of a segment from its details, or None if it is unknown."""
    kind = None if details is None else kinds.registry.kind_by_details_type(details.type_url)
    return None if details is None or kind is None else kind.with_details(details.value)


def table_segment(snapshot: Snapshot, metadata: IndexMetadata) -> TableSegment | None:
    """Return an unopened segment, or None if its kind or version is not supported."""
    kind = kind_of(metadata.details)
    if metadata.details is None and not metadata.is_system:
        kind = _kind_of_files(snapshot, metadata)
    version = metadata.index_version or 0
    if kind is None or version > kind.newest_version or loses_rows(snapshot, kind, version):
        return None
    return TableSegment(snapshot, metadata, kind)


def loses_rows(snapshot: Snapshot, kind: AnyKind, version: int) -> bool:
    """Return whether other writers may leave outdated row addresses in an index.

    They treat indices of JSON values as indices by row id if the table has stable row ids, and do
    not remap them when rows move.
    """
    return (
        kind.json_path is not None
        and snapshot.manifest.uses_stable_row_ids
        and kind.uses_addresses(version)
    )


def _kind_of_files(snapshot: Snapshot, metadata: IndexMetadata) -> AnyKind | None:
    """Return the kind of a segment without details, determined from its file names."""
    columns = [field for field in snapshot.schema.walk() if (int(field.id),) == metadata.fields]
    if not columns:
        return None
    folder, data_type = folder_of(snapshot, metadata), columns[0].arrow_type

    def find_kind() -> AnyKind | None:
        listed = folder.store.list_delimited(folder.path).objects
        names = {info.path.rsplit("/", 1)[-1] for info in listed}
        kind = kinds.registry.kind_by_files(names, data_type)
        return None if kind is None or _is_ambiguous(snapshot, kind) else kind

    return snapshot.location.metadata_cache.get_or_make(("kind of files", metadata.uuid), find_kind)


def _is_ambiguous(snapshot: Snapshot, kind: AnyKind) -> bool:
    """Return whether only the segment version distinguishes row ids from addresses.

    Segments without details have no reliable version.
    """
    by_address = {kind.uses_addresses(version) for version in range(kind.newest_version + 1)}
    return snapshot.manifest.uses_stable_row_ids and len(by_address) > 1


def _present(addresses: UInt64s) -> UInt64s:
    present: UInt64s = addresses[addresses != NO_ADDRESS]
    return present


def is_of_index(error: LanceletError) -> bool:
    """Return whether an error refers to an index file rather than a data file."""
    return str(error.facts.get("path", "")).startswith(f"{INDICES}/")


def warn_unusable(snapshot: Snapshot, error: LanceletError) -> None:
    """Warn that an index cannot be used.

    Raises:
        VersionNotFoundError: The version was cleaned up, so the index is not the cause.
    """
    try:
        with snapshot.translating_missing_files():
            raise error
    except VersionNotFoundError:
        raise
    except LanceletError:
        pass
    warnings.warn(
        f"an index cannot be used, rows are scanned instead; drop and rebuild it: {error}",
        IndexUnusableWarning,
        stacklevel=2,
    )


def warn_unusable_segment(snapshot: Snapshot, metadata: IndexMetadata, reason: str) -> None:
    """Warn that a segment is skipped, once per open table."""

    def warn() -> bool:
        kind = "no details" if metadata.details is None else metadata.details.type_url
        warnings.warn(
            f"the index {metadata.name} cannot be used, and rows are scanned instead: {reason} "
            f"({kind}, version {metadata.index_version or 0})",
            IndexUnusableWarning,
            stacklevel=2,
        )
        return True

    snapshot.location.open_files.pinned(("index warned about", metadata.uuid), warn)


def physical_rows_of(snapshot: Snapshot) -> PhysicalRows:
    """Return the number of physical rows by fragment of a version."""
    return snapshot.version_cache.get_or_make("physical rows", lambda: PhysicalRows(snapshot))


class PhysicalRows(Mapping[int, int]):
    """The number of physical rows of each fragment of a version, computed on access."""

    def __init__(self, snapshot: Snapshot) -> None:
        """Create the mapping for a version."""
        self._snapshot = snapshot
        self._rows_by_id: dict[int, int] = {}

    def __getitem__(self, fragment_id: int) -> int:
        """Return the number of rows of a fragment, including deleted rows."""
        if fragment_id not in self._rows_by_id:
            fragment = self._snapshot.fragments.by_id(fragment_id)
            self._rows_by_id[fragment_id] = self._snapshot.physical_rows(fragment)
        return self._rows_by_id[fragment_id]

    def __iter__(self) -> Iterator[int]:
        """Yield the ids of the fragments."""
        return iter(self._snapshot.fragments.ids.tolist())

    def __len__(self) -> int:
        """Return the number of fragments."""
        return len(self._snapshot.fragments)


def _fragment_ids(snapshot: Snapshot) -> frozenset[int]:
    return snapshot.version_cache.get_or_make(
        "fragment ids", lambda: frozenset(snapshot.fragments.ids.tolist())
    )
