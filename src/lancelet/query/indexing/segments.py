"""The indices of a version that filters can use, opened when they are first asked.

    by_age   segment 5f..   fragments {0, 1}     open, numbers are addresses
             segment a3..   fragments {2}
    age > 30     the answers of both, each for its own fragments

What a segment finds is turned into addresses of today: stable ids are looked up, and rows of
fragments that the segment does not cover, or that are gone, are left out.
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
"""What is raised where files of an index are missing, damaged or of a layout that is not read."""


class IndexUnusableWarning(UserWarning):
    """An index cannot be used, so its rows are looked at one by one."""


@dataclass(frozen=True, eq=False)
class TableSegment:
    """A segment of an index of a version."""

    snapshot: Snapshot
    metadata: IndexMetadata
    kind: AnyKind

    @cached_property
    def covered(self) -> frozenset[int]:
        """The fragments it has all rows of, of those there are."""
        bitmap = self.metadata.fragment_bitmap
        stale = overlaid_since(self.snapshot, self.metadata)
        return frozenset(() if bitmap is None else bitmap) & _fragment_ids(self.snapshot) - stale

    def open(self) -> Segment:
        """Return the open segment, which is kept for as long as the table is."""
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
        """The type of the values it has, if it has any."""
        opened = self.open()
        return opened.data_type if isinstance(opened, HasDataType) else None

    def addresses(self, found: RowSet) -> RowSet:
        """Return where rows that the segment found are now, in fragments that it covers."""
        if self.is_by_id:
            ids = found.listed()
            found = RowSet.of(_present(row_id_index_of(self.snapshot).addresses(ids)))
        elif self._has_moved_rows:
            found = RowSet.of(_present(self.moved(found.listed())))
        rows = found.restricted(self.covered)
        self._check_offsets(rows)
        return rows

    def named_rows(self, question: OneOf, most: int) -> UInt64s | None:
        """Return where the rows are that answer a question, if the segment names so few."""
        naming = self._naming
        numbers = None if naming is None else naming.lookup_rows(question, most)
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
        behind = offsets_of(numbers) >= rows
        if not behind.any():
            return numbers
        self._check_offsets(RowSet.of(numbers[behind & (rows > 0)]))
        inside: UInt64s = numbers[~behind]
        return inside

    @property
    def _naming(self) -> SupportsRowLookup | None:
        return cast("SupportsRowLookup", self.open()) if self._is_naming else None

    @cached_property
    def _is_naming(self) -> bool:
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
        """Whether there are live rows that it should have by what it covers, and does not.

        Releases of pylance write such segments when they compact a table once more after a
        compaction that deferred its remapping: old addresses, said to be of the newest fragments.
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
        rows = RowSet.of(np.unique(_present(located)))
        for fragment_id in self.covered:
            fragment = self.snapshot.fragments.by_id(fragment_id)
            found = rows.parts.get(fragment_id)
            deleted = self.snapshot.deletions(fragment).to_array()
            known = 0 if found is None else len(found) - sum(each in found for each in deleted)
            if known < self.snapshot.live_rows(fragment):
                return True
        return False

    @cached_property
    def has_live_rows_only(self) -> bool:
        """Whether it has every live row of its fragments and no row that is gone."""
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
                    "an index has a row that is out of range of its fragment",
                    index=self.metadata.name,
                    path=self.metadata.directory,
                    fragment_id=fragment_id,
                    offset=offsets.max(),
                    num_rows=sizes[fragment_id],
                )

    @cached_property
    def is_by_id(self) -> bool:
        """Whether its rows are numbered by stable ids."""
        by_address = self.kind.uses_addresses(self.metadata.index_version or 0)
        return self.snapshot.manifest.uses_stable_row_ids and not by_address

    def moved(self, addresses: UInt64s) -> UInt64s:
        """Return where rows are now that its files have at older addresses."""
        return fragment_reuse_of(self.snapshot).translate(addresses)

    def locate(self, numbers: UInt64s) -> UInt64s:
        """Return where rows are now; `NO_ADDRESS` where they are gone or not covered."""
        if self.is_by_id:
            addresses = row_id_index_of(self.snapshot).addresses(numbers)
        else:
            addresses = self.moved(numbers)
        covered = np.isin(fragments_of(addresses), np.array(sorted(self.covered), np.int64))
        return np.where((addresses != NO_ADDRESS) & covered, addresses, NO_ADDRESS)

    def renumber(self, numbers: UInt64s, *, by_address: bool) -> UInt64s:
        """Return the numbers that rows have for an index made today, by address or by id.

        It is `NO_ADDRESS` for rows that are gone, and for those of fragments not covered.
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
    """How many rows some fragments have, to be looked up for many at a time."""

    ids: Int64s
    rows: Int64s

    @staticmethod
    def of(ids: Iterable[int], rows: Mapping[int, int]) -> _FragmentSizes:
        ordered = sorted(ids)
        return _FragmentSizes(
            np.array(ordered, np.int64), np.array([rows[each] for each in ordered], np.int64)
        )

    def rows_of(self, fragment_ids: Int64s) -> Int64s:
        """Return the rows of each fragment, 0 for those that are not there."""
        if len(self.ids) == 1:
            return np.where(fragment_ids == self.ids[0], self.rows[0], 0)
        places = np.minimum(self.ids.searchsorted(fragment_ids), len(self.ids) - 1)
        found: Int64s = np.where(self.ids[places] == fragment_ids, self.rows[places], 0)
        return found


def folder_of(snapshot: Snapshot, metadata: IndexMetadata) -> SegmentFolder:
    """Return where the files of a segment are."""
    store, path = snapshot.location.resolve(
        INDICES, str(metadata.uuid), metadata.base_id, snapshot.manifest.bases
    )
    loads = index_loads(snapshot)
    kept = snapshot.location.metadata_cache.nested(("index", metadata.uuid), INDEX)
    version = snapshot.manifest.data_version
    return SegmentFolder(store, path, version, loads=loads, cache_scope=kept, listed=metadata.files)


def index_loads(snapshot: Snapshot) -> IndexLoads:
    """Return what was read of indices through a handle of a table."""
    return snapshot.location.open_files.pinned("index loads", IndexLoads)


def kind_of(details: AnyDetails | None) -> AnyKind | None:
    """Return the kind that details say, or None if it is unknown."""
    kind = None if details is None else kinds.registry.kind_by_details_type(details.type_url)
    return None if details is None or kind is None else kind.with_details(details.value)


def table_segment(snapshot: Snapshot, metadata: IndexMetadata) -> TableSegment | None:
    """Return a segment whose kind and version are known, else None; it is not opened."""
    kind = kind_of(metadata.details)
    if metadata.details is None and not metadata.is_system:
        kind = _kind_of_files(snapshot, metadata)
    version = metadata.index_version or 0
    if kind is None or version > kind.newest_version or loses_rows(snapshot, kind, version):
        return None
    return TableSegment(snapshot, metadata, kind)


def loses_rows(snapshot: Snapshot, kind: AnyKind, version: int) -> bool:
    """Return whether other writers take rows to be in an index after they moved them elsewhere.

    They do of values within documents, which they take to be numbered by ids where there are any.
    """
    return (
        kind.json_path is not None
        and snapshot.manifest.uses_stable_row_ids
        and kind.uses_addresses(version)
    )


def _kind_of_files(snapshot: Snapshot, metadata: IndexMetadata) -> AnyKind | None:
    """Return the kind of a segment without details, of an old release or committed by hand."""
    columns = [field for field in snapshot.schema.walk() if (int(field.id),) == metadata.fields]
    if not columns:
        return None
    folder, data_type = folder_of(snapshot, metadata), columns[0].arrow_type

    def look() -> AnyKind | None:
        listed = folder.store.list_delimited(folder.path).objects
        names = {info.path.rsplit("/", 1)[-1] for info in listed}
        kind = kinds.registry.kind_by_files(names, data_type)
        return None if kind is None or _is_ambiguous(snapshot, kind) else kind

    return snapshot.location.metadata_cache.get_or_make(("kind of files", metadata.uuid), look)


def _is_ambiguous(snapshot: Snapshot, kind: AnyKind) -> bool:
    """Return whether only the version of a segment, which nobody vouches for, tells its rows."""
    by_address = {kind.uses_addresses(version) for version in range(kind.newest_version + 1)}
    return snapshot.manifest.uses_stable_row_ids and len(by_address) > 1


def _present(addresses: UInt64s) -> UInt64s:
    present: UInt64s = addresses[addresses != NO_ADDRESS]
    return present


def is_of_index(error: LanceletError) -> bool:
    """Return whether an error is about a file of an index, and not about one with rows."""
    return str(error.facts.get("path", "")).startswith(f"{INDICES}/")


def warn_unusable(snapshot: Snapshot, error: LanceletError) -> None:
    """Say that an index cannot be used.

    Raises:
        VersionNotFoundError: It is not the index: the version that has it was cleaned up.
    """
    try:
        with snapshot.translating_missing_files():
            raise error
    except VersionNotFoundError:
        raise
    except LanceletError:
        pass
    warnings.warn(
        f"an index cannot be used, rows are scanned instead; drop it and build it again: {error}",
        IndexUnusableWarning,
        stacklevel=2,
    )


def warn_once(snapshot: Snapshot, metadata: IndexMetadata, what: str) -> None:
    """Say, once for a table that is open, why a segment is passed over."""

    def warn() -> bool:
        kind = "no details" if metadata.details is None else metadata.details.type_url
        warnings.warn(
            f"the index {metadata.name} cannot be used, and rows are scanned instead: {what} "
            f"({kind}, version {metadata.index_version or 0})",
            IndexUnusableWarning,
            stacklevel=2,
        )
        return True

    snapshot.location.open_files.pinned(("index warned about", metadata.uuid), warn)


def physical_rows_of(snapshot: Snapshot) -> PhysicalRows:
    """Return how many rows the fragments of a version have."""
    return snapshot.version_cache.get_or_make("physical rows", lambda: PhysicalRows(snapshot))


class PhysicalRows(Mapping[int, int]):
    """How many rows each fragment of a version has, looked up one by one."""

    def __init__(self, snapshot: Snapshot) -> None:
        """Look up in a version."""
        self._snapshot = snapshot
        self._known: dict[int, int] = {}

    def __getitem__(self, fragment_id: int) -> int:
        """Return how many rows a fragment has, deleted ones too."""
        if fragment_id not in self._known:
            fragment = self._snapshot.fragments.by_id(fragment_id)
            self._known[fragment_id] = self._snapshot.physical_rows(fragment)
        return self._known[fragment_id]

    def __iter__(self) -> Iterator[int]:
        """Yield the ids of the fragments."""
        return iter(self._snapshot.fragments.ids.tolist())

    def __len__(self) -> int:
        """Return how many fragments there are."""
        return len(self._snapshot.fragments)


def _fragment_ids(snapshot: Snapshot) -> frozenset[int]:
    return snapshot.version_cache.get_or_make(
        "fragment ids", lambda: frozenset(snapshot.fragments.ids.tolist())
    )
