"""One version of a table, with what it takes to read it.

A snapshot never changes: it is a manifest, and the location that its files are relative to.
Opening one costs a listing and a read of the manifest's tail; sections, deletion vectors and data
files are read when somebody asks.
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

# Readers of data files are imported when one is opened: much that is asked of a table is in its
# manifest, and a command that prints it should not wait for them.

T = TypeVar("T")

_FIELD_BYTES: Final = 400
"""What a field takes in memory, about."""

_LOOKS_MAX: Final = 100
"""How often the latest version may be gone when it is read, before that is an error."""


@dataclass(frozen=True, slots=True)
class Moment:
    """A time by the two clocks of the machine, of which either one may be wrong."""

    wall_ns: int
    monotonic: float

    @staticmethod
    def now() -> Moment:
        """Return the current time."""
        return Moment(surroundings.time_ns(), surroundings.monotonic())

    def is_within(self, seconds: float) -> bool:
        """Return whether no more than some seconds passed since then, by either clock."""
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
        """Everything the version is, apart from its files."""
        return self.stored.manifest

    @cached_property
    def version(self) -> int:
        """The number of the version."""
        return self.manifest.version

    @cached_property
    def identity(self) -> str:
        """What tells the version from any other of its number, at this place or elsewhere.

        A table that is deleted and made again has the same versions at the same URI. The file of
        the transaction has a random name; old writers left it out, and the time of the commit
        tells their versions apart.
        """
        manifest = self.manifest
        return f"{manifest.transaction_file} at {manifest.timestamp_ns}"

    @cached_property
    def schema(self) -> Schema:
        """The fields of the table."""
        return self.manifest.schema

    @property
    def fragments(self) -> FragmentList:
        """The fragments, decoded one by one as they are asked for."""
        return self.manifest.fragments

    @property
    def data_bytes(self) -> int:
        """How many bytes the data files have, as far as the manifest says."""
        return sum(fragment.data_bytes for fragment in self.fragments)

    @cached_property
    def kept(self) -> CacheScope:
        """What layers above worked out for this version."""
        return self.location.kept.cache.scope()

    @cached_property
    def bare(self) -> Snapshot:
        """The same version, for values in `kept`, which would hold on to themselves by this one."""
        return replace(self)

    @cached_property
    def indices(self) -> IndexSection:
        """The index segments of the version."""
        if self.stored.positions.index is None:
            return IndexSection()
        if self.stored.indices:
            return self.stored.indices[0]
        with self.while_there(), corrupt_within(path=self.entry.path, uri=self.location.uri):
            reader = self.location.store.open_reader(self.entry.path, self.entry.size)
            return run(read_indices(self.stored), reader.read_ranges)

    @cached_property
    def auxiliary_data(self) -> Mapping[str, bytes]:
        """What a writer attached to this version alone; read when it is asked for."""
        if not self.manifest.version_aux_data:
            return {}
        with self.while_there(), corrupt_within(path=self.entry.path, uri=self.location.uri):
            reader = self.location.store.open_reader(self.entry.path, self.entry.size)
            return run(read_auxiliary_data(self.stored), reader.read_ranges)

    @cached_property
    def transaction(self) -> Transaction | None:
        """What was committed as this version; None where the writer did not say."""
        unsound: CorruptDataError | None = None
        if self.stored.positions.transaction is not None:
            reader = self.location.store.open_reader(self.entry.path, self.entry.size)
            try:
                return run(read_transaction(self.stored), reader.read_ranges)
            except CorruptDataError as error:
                # The file says the same.
                unsound = error.with_facts(path=self.entry.path)
        found = self._transaction_of_file()
        if found is None and unsound is not None:
            raise unsound
        return found

    def _transaction_of_file(self) -> Transaction | None:
        if not self.manifest.transaction_file:
            return None
        path = f"{TRANSACTIONS}/{self.manifest.transaction_file}"
        try:
            data = self.location.store.read(path)
        except ObjectNotFoundError:
            # Cleaning up may remove it; a version is readable without.
            return None
        with corrupt_within(path=path, uri=self.location.uri):
            return Transaction.parse(strip_trailer(np.frombuffer(data, np.uint8)).data)

    def check_changeable(self) -> None:
        """Refuse to change a table that has features which this release would not keep intact.

        Raises:
            UnsupportedError: A newer release is needed.
        """
        check_writable(self.manifest.reader_flags, self.manifest.writer_flags)

    def check_identity(self, identity: str) -> None:
        """Refuse a version of another table at the same place.

        Raises:
            VersionNotFoundError: The version has another `Snapshot.identity`.
        """
        if self.identity != identity:
            raise VersionNotFoundError(
                "the table was deleted and made again since the version was read; open the table "
                "again, and plan work on it again",
                uri=self.location.uri,
                version=self.version,
                expected=identity,
                found=self.identity,
            )

    def while_there(self) -> AbstractContextManager[None]:
        """Say of a file that is missing that the version was cleaned up, if it was.

        As long as the version has its manifest, the file is missed where it should be.
        """
        return _WhileThere(self)

    def is_there(self) -> bool:
        """Return whether the version can still be found, where it was or where it is now."""
        store, path = self.location.store, self.entry.path
        if not path or store.exists(path):
            return True
        try:
            found = self.location.handler.find_version(store, self.version, uri=self.location.uri)
        except NotFoundError:
            return False
        return store.exists(found.path)

    def is_where_it_was(self) -> bool:
        """Return whether the version of this number is this one, and not of another table."""
        if not self.entry.path:
            return True
        found = self.location.handler.find_version(
            self.location.store, self.version, uri=self.location.uri
        )
        return found.is_that_of(self.entry) or (
            open_entry(self.location, found).identity == self.identity
        )

    def lazily(self) -> Snapshot:
        """Return the same version; what is written beside it need not survive until `settle`."""
        return self.beside(replace(self.location, store=self.location.store.lazily()))

    def beside(self, location: TableLocation) -> Snapshot:
        """Return the same version, with what is known of it, at another form of its location."""
        other = Snapshot(location, self.entry, self.stored)
        vars(other).update({**vars(self), "location": location})
        return other

    def apart(self, store: Store) -> Snapshot:
        """Return the same version through another store, with nothing of its files in memory."""
        other = Snapshot(self.location.apart(store), self.entry, self.stored, self.opened)
        vars(other)["indices"] = self.indices
        return other

    def deletions(self, fragment: Fragment) -> DeletionVector:
        """Return which rows of a fragment are deleted."""
        deletion = fragment.deletion_file
        if deletion is None:
            return NO_DELETIONS
        store, path = self.location.place(
            DELETIONS, name(deletion.path(fragment.id)), deletion.base_id, self.manifest.bases
        )
        with self.while_there(), corrupt_within(path=path, uri=store.uri):
            return self.location.kept.get_or_make(
                (store.uri, path),
                lambda: DeletionVector.parse(
                    store.read(path),
                    deletion.file_type,
                    path,
                    physical_rows=self.physical_rows(fragment),
                ).validated(self.physical_rows(fragment), deletion.num_deleted_rows),
            )

    def keep_deletions(self, fragment: Fragment, deleted: DeletionVector) -> None:
        """Keep what a deletion file says that was just written, so that nobody reads it again."""
        deletion = fragment.deletion_file
        assert deletion is not None, "the file was written"
        store, path = self.location.place(
            DELETIONS, name(deletion.path(fragment.id)), deletion.base_id, self.manifest.bases
        )
        self.location.kept.get_or_make((store.uri, path), lambda: deleted)

    def physical_rows(self, fragment: Fragment) -> int:
        """Return how many rows a fragment has, deleted ones too.

        Tables from before rows were counted in the manifest say 0; there a file is asked.
        """
        if fragment.physical_rows or not fragment.files:
            return fragment.physical_rows
        return self.open_file(fragment.files[0]).num_rows

    def live_rows(self, fragment: Fragment) -> int:
        """Return how many rows of a fragment are not deleted."""
        deletion = fragment.deletion_file
        if fragment.physical_rows and (deletion is None or deletion.num_deleted_rows):
            return fragment.num_rows
        return self.physical_rows(fragment) - len(self.deletions(fragment))

    @cached_property
    def rows_by_fragment(self) -> Int64s:
        """How many rows of each fragment are not deleted.

        The manifest knows, except in old tables, whose files are asked.
        """
        fragments = self.fragments
        counts = fragments.physical_rows - fragments.num_deleted_rows
        for place in np.flatnonzero(~fragments.is_counted).tolist():
            counts[place] = self.live_rows(fragments[place])
        return counts

    @cached_property
    def deleted_by_fragment(self) -> Int64s:
        """How many rows of each fragment are deleted.

        Old writers left the count out of the manifest; there the deletion file is read.
        """
        fragments = self.fragments
        counts = np.array(fragments.num_deleted_rows, np.int64)
        for place in np.flatnonzero(fragments.has_deletion_file & (counts == 0)).tolist():
            counts[place] = len(self.deletions(fragments[place]))
        return counts

    def with_one_fragment(self, fragment: Fragment) -> Snapshot:
        """Return the version as if it had one fragment and no indices.

        Old writers gave two fragments one id, and here the id is unambiguous.
        """
        manifest = replace(self.manifest, fragments=FragmentList.of([fragment]))
        stored = replace(self.stored, manifest=manifest)
        other = Snapshot(self.location, self.entry, stored, self.opened)
        vars(other)["indices"] = IndexSection()
        return other

    @property
    def num_rows(self) -> int:
        """How many rows are not deleted."""
        return int(self.rows_by_fragment.sum())

    def open_fragment(self, fragment: Fragment, make: Callable[[Snapshot, Fragment], T]) -> T:
        """Return what reads a fragment, made by `make` when it is first asked for.

        It is kept for as long as the version is. Old writers gave two fragments one id, so the
        first file tells them apart.
        """
        key = ("reader", fragment.id, fragment.files[0].path if fragment.files else None)
        return self.kept.get_or_make(key, lambda: make(self.bare, fragment))

    def open_file(self, file: DataFile) -> DataFileReader:
        """Return a reader of a data file, with the fields that this version knows of it."""
        store, path = self.location.place(DATA, file.path, file.base_id, self.manifest.bases)
        key = (store.uri, path, file.fields, file.column_indices)
        return self.location.open_files.get_or_make(key, lambda: self._open_file(file, store, path))

    def _open_file(self, file: DataFile, store: Store, path: str) -> DataFileReader:
        from lancelet.file.open import open_data_file  # noqa: PLC0415 - see above

        stored = self.stored_fields(file)
        with self.while_there():
            return open_data_file(
                store,
                path,
                size=file.size_bytes or None,
                stored=stored,
                name=data_file_identity(file.path),
                cache=self.location.kept.cache,
            )

    def open_small_files(
        self, files: Sequence[DataFile], num_rows: Sequence[int]
    ) -> SmallFiles | None:
        """Return a reader of files of one layout, or None if they have to be opened one by one.

        It is kept for the next scan of this version, as far as the cache has room.
        """
        from lancelet.file.small_files import SmallFile, open_together  # noqa: PLC0415 - see above

        first = files[0]
        if not first.column_indices:
            return None
        key = ("small files", *(file.path for file in files))
        known: SmallFiles | None = self.kept.get(key)
        if known is not None:
            return known
        bases = self.manifest.bases
        places = [self.location.place(DATA, file.path, file.base_id, bases) for file in files]
        small = [
            SmallFile(place.path, file.size_bytes, rows)
            for place, file, rows in zip(places, files, num_rows, strict=True)
        ]
        with self.while_there():
            opened = open_together(places[0].store, small, self.stored_fields(first))
        if opened is not None:
            self.kept.put(key, opened, value_bytes=opened.memory_bytes)
        return opened

    def stored_fields(self, file: DataFile) -> StoredFields:
        """Return the fields that this version knows of a data file, and their columns."""
        key = ("stored fields", file.fields, file.column_indices)
        return of_schema(self, key, lambda: self._stored_fields(file))

    def _stored_fields(self, file: DataFile) -> StoredFields:
        from lancelet.file.open import StoredFields  # noqa: PLC0415 - see above

        places = file.column_indices or range(len(file.fields))
        taken = [column for column in file.column_indices if column >= 0]
        if len(set(taken)) < len(taken):
            raise CorruptDataError(
                "two fields of a data file have one column",
                path=file.path,
                fields=list(file.fields),
                column_indices=list(file.column_indices),
            )
        # Where no columns are given, whoever looks for them must know that fields were taken over.
        is_legacy = not file.column_indices
        columns = {
            field_id: column
            for field_id, column in zip(file.fields, places, strict=True)
            if (field_id >= 0 or is_legacy) and column >= 0
        }
        schema = self.schema.project_ids([field_id for field_id in file.fields if field_id >= 0])
        return StoredFields(schema, columns)


@dataclass(frozen=True, slots=True, eq=False)
class _OfSchema:
    """What follows from a schema, and what the schema takes, which goes with it."""

    kept: CacheScope
    memory_bytes: int


def of_schema(snapshot: Snapshot, key: Hashable, make: Callable[[], T]) -> T:
    """Return what follows from the schema alone, made once for all versions that have it."""
    cache, schema = snapshot.location.kept.cache, snapshot.schema

    def begin() -> _OfSchema:
        return _OfSchema(cache.scope(), _FIELD_BYTES * sum(1 for _ in schema.walk()))

    return cache.get_or_make(("schema", schema), begin).kept.get_or_make(key, make)


class _WhileThere(AbstractContextManager[None]):
    """Names the version that a missing file was of; no generator, as each read passes here."""

    __slots__ = ("_snapshot",)

    def __init__(self, snapshot: Snapshot) -> None:
        self._snapshot = snapshot

    def __enter__(self) -> None:
        """Begin to read."""

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: object
    ) -> None:
        """Say what a missing file means."""
        if not isinstance(error, ObjectNotFoundError) or isinstance(error, VersionRemovedError):
            return
        snapshot = self._snapshot
        if not snapshot.is_there():
            raise VersionRemovedError(
                "the version was cleaned up while it was read; open the latest one, or give "
                "versions that are still read a tag, which cleaning up respects",
                **{"version": snapshot.version, "uri": snapshot.location.uri, **error.facts},
            ) from error
        if not snapshot.is_where_it_was():
            raise VersionNotFoundError(
                "the table was deleted and made again while it was read; open it again",
                **{"version": snapshot.version, "uri": snapshot.location.uri, **error.facts},
            ) from error


def unsaved_snapshot(location: TableLocation, manifest: Manifest) -> Snapshot:
    """Return a version that is about to be committed, whose files can be read already."""
    entry = ManifestEntry(manifest.version, ManifestNaming.V2, "", 0, manifest.timestamp)
    return Snapshot(location, entry, StoredManifest(manifest, SectionPositions(), 0, 0))


def written_snapshot(
    location: TableLocation,
    entry: ManifestEntry,
    stored: StoredManifest,
    indices: IndexSection,
    transaction: Transaction,
) -> Snapshot:
    """Return a version that was just committed, without reading it back."""
    snapshot = Snapshot(location, entry, stored)
    vars(snapshot).update(indices=indices, transaction=transaction)
    return snapshot


def open_snapshot(location: TableLocation, version: int | None = None) -> Snapshot:
    """Open a version of the table at a location, by default the latest."""
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
    """Return a version, unless its rows should have stable ids and some have none.

    Only commits open such a version as well: a restore or an overwrite is the way out.
    """
    with corrupt_within(path=snapshot.entry.path, uri=snapshot.location.uri):
        snapshot.manifest.check_row_ids()
    return snapshot


def transaction_file_of(identity: str) -> str:
    """Return the file of the transaction that a `Snapshot.identity` names, empty without one."""
    return identity.rpartition(" at ")[0]


def latest_snapshot(
    location: TableLocation,
    handler: CommitHandler | None = None,
    *,
    known: Snapshot | None = None,
) -> Snapshot | None:
    """Open the latest version of the table at a location, or return None if there is no table.

    Its manifest is not read if it is that of a `known` version. While others commit and clean up,
    what was found may be gone when it is read; then a newer version is there. What a database
    records of a table is no table if there is no manifest left.
    """
    handler = handler or location.handler
    for _ in range(_LOOKS_MAX):
        try:
            entry = handler.find_latest(location.store)
            if entry is None:
                return None
            if known is not None and entry.is_that_of(known.entry):
                return known.beside(location)
            return open_entry(location, entry)
        except ObjectNotFoundError as error:
            missing = error
            if not VersionFolder.of(location.store).has_versions:
                return None
    raise missing


def open_entry(location: TableLocation, entry: ManifestEntry) -> Snapshot:
    """Open a version whose manifest was listed, if this release may read it.

    Raises:
        WrongManifestError: The manifest is of another version than its name.
    """
    stored = open_manifest(location.store, entry, location.kept.cache)
    check_name(entry, stored.manifest.version, uri=location.uri)
    check_readable(stored.manifest.reader_flags, stored.manifest.writer_flags)
    return Snapshot(location, entry, stored)


def open_entries(location: TableLocation, entries: Iterable[ManifestEntry]) -> Iterator[Snapshot]:
    """Open listed versions; those that were cleaned up since then are left out."""
    for entry in entries:
        try:
            version = open_entry(location, entry)
        except ObjectNotFoundError:
            continue
        yield version
