"""Read access to one version of a table.

A snapshot is immutable. It consists of a manifest and the location that its paths are relative to.
Opening a snapshot lists the versions and reads the tail of the manifest; sections, deletion vectors
and data files are read on demand.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import field
from typing import TYPE_CHECKING, Final, TypeVar

import numpy as np

from lancelet import surroundings
from lancelet.buffers import Int64s, run
from lancelet.errors import (
    CorruptDataError,
    DatasetNotFoundError,
    NotFoundError,
    ObjectNotFoundError,
    VersionNotFoundError,
    VersionRemovedError,
    corrupt_within,
)
from lancelet.format.flags import check_readable, check_writable
from lancelet.format.fragment import DataFile, Fragment
from lancelet.format.fragment_list import FragmentList
from lancelet.format.index_metadata import IndexSection
from lancelet.format.manifest import Manifest, SectionPositions
from lancelet.format.manifest_file import (
    StoredManifest,
    read_auxiliary_data,
    read_indices,
    read_transaction,
)
from lancelet.format.paths import DATA, DELETIONS, TRANSACTIONS, ManifestNaming, data_file_identity
from lancelet.format.schema import Schema
from lancelet.format.trailer import strip_trailer
from lancelet.format.transaction import Transaction
from lancelet.io.cache import CacheScope
from lancelet.io.store import Store
from lancelet.io.uri import name
from lancelet.rowids.deletion import NO_DELETIONS, DeletionVector
from lancelet.table.handlers import CommitHandler
from lancelet.table.location import TableLocation
from lancelet.table.manifests import ManifestEntry, VersionFolder, check_name, open_manifest
from lancelet.values import cached_property, dataclass, replace

if TYPE_CHECKING:
    from lancelet.file.base import DataFileReader
    from lancelet.file.open import StoredFields
    from lancelet.file.small_files import SmallFiles

# Modules that read data files are imported on first use: most metadata is in the manifest, and
# commands that print it start faster without these imports.

T = TypeVar("T")

_FIELD_BYTES: Final = 400
"""Estimated memory of a field in bytes."""

_ATTEMPTS_MAX: Final = 100
"""Maximum number of attempts to open the latest version while versions are being removed."""


@dataclass(frozen=True, slots=True)
class Moment:
    """A point in time by the wall clock and the monotonic clock, since either can be wrong."""

    wall_ns: int
    monotonic: float

    @staticmethod
    def now() -> Moment:
        """Return the current time."""
        return Moment(surroundings.time_ns(), surroundings.monotonic())

    def is_within(self, seconds: float) -> bool:
        """Return whether at most `seconds` have passed by both clocks."""
        now = Moment.now()
        wall = abs(now.wall_ns - self.wall_ns) / 1e9
        return wall <= seconds and now.monotonic - self.monotonic <= seconds


@dataclass(frozen=True, eq=False)
class Snapshot:
    """A version of a table that can be read."""

    location: TableLocation
    entry: ManifestEntry
    stored: StoredManifest
    opened: Moment = field(default_factory=Moment.now, repr=False)

    @cached_property
    def manifest(self) -> Manifest:
        """The decoded manifest."""
        return self.stored.manifest

    @cached_property
    def version(self) -> int:
        """The version number."""
        return self.manifest.version

    @cached_property
    def identity(self) -> str:
        """An identifier that distinguishes versions with the same number and URI.

        A table that is deleted and created again has the same version numbers at the same URI. The
        transaction file has a random name; versions of old writers that omit it are identified by
        their commit time.
        """
        manifest = self.manifest
        return f"{manifest.transaction_file} at {manifest.timestamp_ns}"

    @cached_property
    def schema(self) -> Schema:
        """The fields of the table."""
        return self.manifest.schema

    @property
    def fragments(self) -> FragmentList:
        """The fragments, decoded on access."""
        return self.manifest.fragments

    @property
    def data_bytes(self) -> int:
        """The total size of the data files in bytes, as recorded in the manifest."""
        return sum(fragment.data_bytes for fragment in self.fragments)

    @cached_property
    def version_cache(self) -> CacheScope:
        """The cache of objects derived from this version."""
        return self.location.metadata_cache.cache.scope()

    @cached_property
    def bare(self) -> Snapshot:
        """A copy without cached properties, for cached values that refer to the version.

        It avoids reference cycles through `values`.
        """
        return replace(self)

    @cached_property
    def indices(self) -> IndexSection:
        """The index segments of the version."""
        if self.stored.positions.index is None:
            return IndexSection()
        if self.stored.indices:
            return self.stored.indices[0]
        with (
            self.translating_missing_files(),
            corrupt_within(path=self.entry.path, uri=self.location.uri),
        ):
            reader = self.location.store.open_reader(self.entry.path, self.entry.size)
            return run(read_indices(self.stored), reader.read_ranges)

    @cached_property
    def auxiliary_data(self) -> Mapping[str, bytes]:
        """Application data attached to this version only, read on first access."""
        if not self.manifest.version_aux_data:
            return {}
        with (
            self.translating_missing_files(),
            corrupt_within(path=self.entry.path, uri=self.location.uri),
        ):
            reader = self.location.store.open_reader(self.entry.path, self.entry.size)
            return run(read_auxiliary_data(self.stored), reader.read_ranges)

    @cached_property
    def transaction(self) -> Transaction | None:
        """The transaction that created this version, or None if it was not recorded."""
        section_error: CorruptDataError | None = None
        if self.stored.positions.transaction is not None:
            reader = self.location.store.open_reader(self.entry.path, self.entry.size)
            try:
                return run(read_transaction(self.stored), reader.read_ranges)
            except CorruptDataError as error:
                # The transaction file is a copy.
                section_error = error.with_facts(path=self.entry.path)
        transaction = self._read_transaction_file()
        if transaction is None and section_error is not None:
            raise section_error
        return transaction

    def _read_transaction_file(self) -> Transaction | None:
        if not self.manifest.transaction_file:
            return None
        path = f"{TRANSACTIONS}/{self.manifest.transaction_file}"
        try:
            data = self.location.store.read(path)
        except ObjectNotFoundError:
            # Cleanup may remove the file; the version is readable without it.
            return None
        with corrupt_within(path=path, uri=self.location.uri):
            return Transaction.parse(strip_trailer(np.frombuffer(data, np.uint8)).data)

    def check_changeable(self) -> None:
        """Raise if the table uses a feature that this release cannot preserve on write.

        Raises:
            UnsupportedError: A newer release is required.
        """
        check_writable(self.manifest.reader_flags, self.manifest.writer_flags)

    def check_identity(self, identity: str) -> None:
        """Raise if this version belongs to another table at the same location.

        Raises:
            VersionNotFoundError: The version has another `Snapshot.identity`.
        """
        if self.identity != identity:
            raise VersionNotFoundError(
                "the table was deleted and created again since the version was read; open the "
                "table again and repeat the planning",
                uri=self.location.uri,
                version=self.version,
                expected=identity,
                found=self.identity,
            )

    def translating_missing_files(self) -> AbstractContextManager[None]:
        """Raise `VersionRemovedError` for files missing because the version was cleaned up.

        If the manifest of the version still exists, the original error is raised.
        """
        return _TranslateMissingFiles(self)

    def exists(self) -> bool:
        """Return whether the manifest still exists, under its original or its current path."""
        store, path = self.location.store, self.entry.path
        if not path or store.exists(path):
            return True
        try:
            current = self.location.handler.find_version(store, self.version, uri=self.location.uri)
        except NotFoundError:
            return False
        return store.exists(current.path)

    def matches_stored(self) -> bool:
        """Return whether the stored version of this number belongs to the same table."""
        if not self.entry.path:
            return True
        current = self.location.handler.find_version(
            self.location.store, self.version, uri=self.location.uri
        )
        return current.is_same_object(self.entry) or (
            open_entry(self.location, current).identity == self.identity
        )

    def with_deferred_sync(self) -> Snapshot:
        """Return the same version with a store whose writes may be unsynced until `flush`."""
        return self.with_location(
            replace(self.location, store=self.location.store.with_deferred_sync())
        )

    def with_location(self, location: TableLocation) -> Snapshot:
        """Return the same version and its cached properties with another location."""
        result = Snapshot(location, self.entry, self.stored)
        vars(result).update({**vars(self), "location": location})
        return result

    def with_store(self, store: Store) -> Snapshot:
        """Return the same version through another store with empty caches."""
        result = Snapshot(self.location.reopened(store), self.entry, self.stored, self.opened)
        vars(result)["indices"] = self.indices
        return result

    def deletions(self, fragment: Fragment) -> DeletionVector:
        """Return the deletion vector of a fragment."""
        deletion = fragment.deletion_file
        if deletion is None:
            return NO_DELETIONS
        store, path = self.location.resolve(
            DELETIONS, name(deletion.path(fragment.id)), deletion.base_id, self.manifest.bases
        )
        with self.translating_missing_files(), corrupt_within(path=path, uri=store.uri):
            return self.location.metadata_cache.get_or_make(
                (store.uri, path),
                lambda: DeletionVector.parse(
                    store.read(path),
                    deletion.file_type,
                    path,
                    physical_rows=self.physical_rows(fragment),
                ).validated(self.physical_rows(fragment), deletion.num_deleted_rows),
            )

    def cache_deletions(self, fragment: Fragment, deleted: DeletionVector) -> None:
        """Cache the contents of a deletion file that was just written."""
        deletion = fragment.deletion_file
        assert deletion is not None, "the file was written"
        store, path = self.location.resolve(
            DELETIONS, name(deletion.path(fragment.id)), deletion.base_id, self.manifest.bases
        )
        self.location.metadata_cache.get_or_make((store.uri, path), lambda: deleted)

    def physical_rows(self, fragment: Fragment) -> int:
        """Return the number of rows of a fragment including deleted ones.

        Manifests of old writers record 0; then the first data file is opened.
        """
        if fragment.physical_rows or not fragment.files:
            return fragment.physical_rows
        return self.open_file(fragment.files[0]).num_rows

    def live_rows(self, fragment: Fragment) -> int:
        """Return the number of rows of a fragment that are not deleted."""
        deletion = fragment.deletion_file
        if fragment.physical_rows and (deletion is None or deletion.num_deleted_rows):
            return fragment.num_rows
        return self.physical_rows(fragment) - len(self.deletions(fragment))

    @cached_property
    def rows_by_fragment(self) -> Int64s:
        """The number of live rows of each fragment.

        Counts missing from manifests of old writers are read from the files.
        """
        fragments = self.fragments
        counts = fragments.physical_rows - fragments.num_deleted_rows
        for index in np.flatnonzero(~fragments.is_counted).tolist():
            counts[index] = self.live_rows(fragments[index])
        return counts

    @cached_property
    def deleted_by_fragment(self) -> Int64s:
        """The number of deleted rows of each fragment.

        Old writers did not record the count; then the deletion file is read.
        """
        fragments = self.fragments
        counts = np.array(fragments.num_deleted_rows, np.int64)
        for index in np.flatnonzero(fragments.has_deletion_file & (counts == 0)).tolist():
            counts[index] = len(self.deletions(fragments[index]))
        return counts

    def with_single_fragment(self, fragment: Fragment) -> Snapshot:
        """Return the version restricted to one fragment, without indices.

        Old writers could assign one id to two fragments; the id of the result is unambiguous.
        """
        manifest = replace(self.manifest, fragments=FragmentList.of([fragment]))
        stored = replace(self.stored, manifest=manifest)
        result = Snapshot(self.location, self.entry, stored, self.opened)
        vars(result)["indices"] = IndexSection()
        return result

    @property
    def num_rows(self) -> int:
        """The number of live rows."""
        return int(self.rows_by_fragment.sum())

    def open_fragment(self, fragment: Fragment, make: Callable[[Snapshot, Fragment], T]) -> T:
        """Return the cached reader of a fragment, created by `make` on first use.

        The first file is part of the cache key because old writers could assign one id to two
        fragments.
        """
        key = ("reader", fragment.id, fragment.files[0].path if fragment.files else None)
        return self.version_cache.get_or_make(key, lambda: make(self.bare, fragment))

    def open_file(self, file: DataFile) -> DataFileReader:
        """Return a reader of a data file with the fields that this version reads from it."""
        store, path = self.location.resolve(DATA, file.path, file.base_id, self.manifest.bases)
        key = (store.uri, path, file.fields, file.column_indices)
        return self.location.open_files.get_or_make(key, lambda: self._open_file(file, store, path))

    def _open_file(self, file: DataFile, store: Store, path: str) -> DataFileReader:
        from lancelet.file.open import open_data_file  # noqa: PLC0415 - see above

        stored = self.stored_fields(file)
        with self.translating_missing_files():
            return open_data_file(
                store,
                path,
                size=file.size_bytes or None,
                stored=stored,
                name=data_file_identity(file.path),
                cache=self.location.metadata_cache.cache,
            )

    def open_small_files(
        self, files: Sequence[DataFile], num_rows: Sequence[int]
    ) -> SmallFiles | None:
        """Return a reader of files with a common layout, or None if each must be opened separately.

        The reader is cached for the next scan of this version.
        """
        from lancelet.file.small_files import SmallFile, open_small_files  # noqa: PLC0415 - see above

        first = files[0]
        if not first.column_indices:
            return None
        key = ("small files", *(file.path for file in files))
        cached: SmallFiles | None = self.version_cache.get(key)
        if cached is not None:
            return cached
        bases = self.manifest.bases
        paths = [self.location.resolve(DATA, file.path, file.base_id, bases) for file in files]
        small = [
            SmallFile(location.path, file.size_bytes, rows)
            for location, file, rows in zip(paths, files, num_rows, strict=True)
        ]
        with self.translating_missing_files():
            opened = open_small_files(paths[0].store, small, self.stored_fields(first))
        if opened is not None:
            self.version_cache.put(key, opened, value_bytes=opened.memory_bytes)
        return opened

    def stored_fields(self, file: DataFile) -> StoredFields:
        """Return the fields that this version reads from a data file, and their columns."""
        key = ("stored fields", file.fields, file.column_indices)
        return cached_by_schema(self, key, lambda: self._stored_fields(file))

    def _stored_fields(self, file: DataFile) -> StoredFields:
        from lancelet.file.open import StoredFields  # noqa: PLC0415 - see above

        columns_of_fields = file.column_indices or range(len(file.fields))
        used_columns = [column for column in file.column_indices if column >= 0]
        if len(set(used_columns)) < len(used_columns):
            raise CorruptDataError(
                "two fields of a data file have one column",
                path=file.path,
                fields=list(file.fields),
                column_indices=list(file.column_indices),
            )
        # Legacy files have no column indices; readers still need the positions of dropped fields.
        is_legacy = not file.column_indices
        columns = {
            field_id: column
            for field_id, column in zip(file.fields, columns_of_fields, strict=True)
            if (field_id >= 0 or is_legacy) and column >= 0
        }
        schema = self.schema.project_ids([field_id for field_id in file.fields if field_id >= 0])
        return StoredFields(schema, columns)


@dataclass(frozen=True, slots=True, eq=False)
class _SchemaCache:
    """Objects derived from a schema, cached and evicted together with it."""

    values: CacheScope
    memory_bytes: int


def cached_by_schema(snapshot: Snapshot, key: Hashable, make: Callable[[], T]) -> T:
    """Return an object derived from the schema alone, shared by all versions with this schema."""
    cache, schema = snapshot.location.metadata_cache.cache, snapshot.schema

    def begin() -> _SchemaCache:
        return _SchemaCache(cache.scope(), _FIELD_BYTES * sum(1 for _ in schema.walk()))

    return cache.get_or_make(("schema", schema), begin).values.get_or_make(key, make)


class _TranslateMissingFiles(AbstractContextManager[None]):
    """Adds the version to errors for missing files; a class since it is faster than a generator."""

    __slots__ = ("_snapshot",)

    def __init__(self, snapshot: Snapshot) -> None:
        self._snapshot = snapshot

    def __enter__(self) -> None:
        pass

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: object
    ) -> None:
        """Replace a missing-file error if the version was removed or belongs to another table."""
        if not isinstance(error, ObjectNotFoundError) or isinstance(error, VersionRemovedError):
            return
        snapshot = self._snapshot
        if not snapshot.exists():
            raise VersionRemovedError(
                "the version was cleaned up while it was read; open the latest version, or tag "
                "versions that must be retained: cleanup preserves tagged versions",
                **{"version": snapshot.version, "uri": snapshot.location.uri, **error.facts},
            ) from error
        if not snapshot.matches_stored():
            raise VersionNotFoundError(
                "the table was deleted and created again while it was read; open it again",
                **{"version": snapshot.version, "uri": snapshot.location.uri, **error.facts},
            ) from error


def unsaved_snapshot(location: TableLocation, manifest: Manifest) -> Snapshot:
    """Return an uncommitted version whose files can be read."""
    entry = ManifestEntry(manifest.version, ManifestNaming.V2, "", 0, manifest.timestamp)
    return Snapshot(location, entry, StoredManifest(manifest, SectionPositions(), 0, 0))


def written_snapshot(
    location: TableLocation,
    entry: ManifestEntry,
    stored: StoredManifest,
    indices: IndexSection,
    transaction: Transaction,
) -> Snapshot:
    """Return a version that was just committed, without reading its manifest."""
    snapshot = Snapshot(location, entry, stored)
    vars(snapshot).update(indices=indices, transaction=transaction)
    return snapshot


def open_snapshot(location: TableLocation, version: int | None = None) -> Snapshot:
    """Open a version of a table, by default the latest."""
    if version is None:
        latest = latest_snapshot(location)
        if latest is None:
            raise DatasetNotFoundError(
                f"Dataset at path {location.uri} was not found; check the path, or create one",
                uri=location.uri,
            )
        return _with_row_ids(latest)
    entry = location.handler.find_version(location.store, version, uri=location.uri)
    return _with_row_ids(open_entry(location, entry))


def _with_row_ids(snapshot: Snapshot) -> Snapshot:
    """Return the version after checking that stable row ids are complete.

    Commits skip this check: restore and overwrite repair such a table.
    """
    with corrupt_within(path=snapshot.entry.path, uri=snapshot.location.uri):
        snapshot.manifest.check_row_ids()
    return snapshot


def parse_transaction_file(identity: str) -> str:
    """Return the transaction file named in a `Snapshot.identity`, or an empty string."""
    return identity.rpartition(" at ")[0]


def latest_snapshot(
    location: TableLocation,
    handler: CommitHandler | None = None,
    *,
    cached: Snapshot | None = None,
) -> Snapshot | None:
    """Open the latest version of a table, or return None if there is no table.

    If `cached` is the latest version, its manifest is not read again. The manifest may be cleaned
    up between listing and reading; then the search is repeated. A table that is registered in an
    external database but has no manifest does not exist.
    """
    handler = handler or location.handler
    for _ in range(_ATTEMPTS_MAX):
        try:
            entry = handler.find_latest(location.store)
            if entry is None:
                return None
            if cached is not None and entry.is_same_object(cached.entry):
                return cached.with_location(location)
            return open_entry(location, entry)
        except ObjectNotFoundError as error:
            missing = error
            if not VersionFolder.of(location.store).has_versions:
                return None
    raise missing


def open_entry(location: TableLocation, entry: ManifestEntry) -> Snapshot:
    """Open a version from its listed manifest.

    Raises:
        WrongManifestError: The manifest has another version number than its name.
        UnsupportedError: A newer release is required to read it.
    """
    stored = open_manifest(location.store, entry, location.metadata_cache.cache)
    check_name(entry, stored.manifest.version, uri=location.uri)
    check_readable(stored.manifest.reader_flags, stored.manifest.writer_flags)
    return Snapshot(location, entry, stored)


def open_entries(location: TableLocation, entries: Iterable[ManifestEntry]) -> Iterator[Snapshot]:
    """Open listed versions, skipping those cleaned up in the meantime."""
    for entry in entries:
        try:
            version = open_entry(location, entry)
        except ObjectNotFoundError:
            continue
        yield version
