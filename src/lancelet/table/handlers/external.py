"""Versions decided by a database, for stores that cannot put conditionally.

    1  put     _versions/7.manifest-<id>        staged, seen by nobody
    2  record  version 7 -> 7.manifest-<id>     if the database has no version 7: this decides
    3  copy    7.manifest-<id> to 7.manifest
    4  record  version 7 -> 7.manifest
    5  delete  7.manifest-<id>

From step 2 on the version exists. A writer may die at any later point: whoever finds a record of
a staged manifest, reader or writer, does what is left of the steps, and doing them twice changes
nothing. Who cannot, since it may not write or the store fails, gets an error: the folder alone
must always hold the whole table, so no version may follow one whose manifest has no name yet.
A version that the database does not know is looked for in the folder, and recorded.
"""

from __future__ import annotations

import contextlib
from datetime import UTC, datetime
from typing import Protocol

from lancelet import surroundings
from lancelet.errors import (
    AlreadyExistsError,
    CorruptDataError,
    ObjectNotFoundError,
    StorageError,
    VersionNotFoundError,
)
from lancelet.format.paths import (
    MANIFEST_SUFFIX,
    VERSIONS,
    is_detached,
    parse_manifest_name,
    staged_manifest_path,
)
from lancelet.io import Store
from lancelet.io.uri import join, name
from lancelet.table.handlers.base import CommitHandler
from lancelet.table.manifests import ManifestEntry, find_latest, find_version, list_versions
from lancelet.values import dataclass, replace


@dataclass(frozen=True, slots=True)
class ManifestRecord:
    """What the database says of a version: where its manifest is, from the root of the bucket."""

    version: int
    path: str
    size: int | None = None
    etag: str | None = None

    @property
    def is_final(self) -> bool:
        """Whether the manifest has the name that readers of the folder see."""
        return self.path.endswith(MANIFEST_SUFFIX)


class UnfinishedCommitError(StorageError):
    """A commit is recorded and its manifest has no name yet; open the table with write access."""


class ManifestRecords(Protocol):
    """The database: versions of tables, each of which can be recorded once."""

    def latest(self, table: str) -> ManifestRecord | None:
        """Return the record of a table's highest version."""

    def get(self, table: str, version: int) -> ManifestRecord | None:
        """Return the record of a version."""

    def put_if_absent(self, table: str, record: ManifestRecord) -> None:
        """Record a version that has no record yet.

        Raises:
            AlreadyExistsError: It has one; nothing changed.
            CommitOutcomeUnknownError: The reply was lost; it may or may not have this one.
        """

    def update(self, table: str, record: ManifestRecord) -> None:
        """Replace the record of a version that has one."""

    def every(self, table: str) -> list[ManifestRecord]:
        """Return the records of all versions of a table."""

    def forget(self, table: str, record: ManifestRecord) -> None:
        """Delete the record of a version if it still has the path of this one."""


@dataclass(frozen=True, slots=True)
class ExternalStore(CommitHandler):
    """Publishes in a database under the name `table`: its path from the root of the bucket."""

    records: ManifestRecords
    table: str

    def publish(self, store: Store, path: str, data: bytes, *, version: int) -> None:
        """Stage the manifest, record it if no other writer did, and give it its name."""
        if is_detached(version):
            # No other writer can want its name, and no reader asks the database for it.
            store.put_if_absent(path, data)
            return
        staged = staged_manifest_path(path, surroundings.new_uuid())
        store.put(staged, data)
        record = ManifestRecord(version, join(self.table, staged), len(data))
        try:
            self._record(store, record)
        except AlreadyExistsError:
            store.delete(staged)
            raise
        try:
            self._finish(store, record)
        except (StorageError, ObjectNotFoundError):
            # The version is published; whoever reads it next does what is left. Somebody may
            # have done so, and cleaned it up since.
            return

    def find_latest(self, store: Store) -> ManifestEntry | None:
        """Return the newest manifest that is recorded, else the newest in the folder."""
        record = self.records.latest(self.table)
        if record is None:
            return find_latest(store)
        return self._entry(store, record)

    def list_versions(self, store: Store) -> list[ManifestEntry]:
        """Return the committed manifests, oldest first, the newest finished if it was not."""
        record = self.records.latest(self.table)
        if record is not None:
            self._finished(store, record)
        return list_versions(store)

    @property
    def frees_numbers(self) -> bool:
        """Return False: the database keeps what it recorded, also of versions that were removed."""
        return False

    def find_version(self, store: Store, version: int, *, uri: str) -> ManifestEntry:
        """Return the manifest of a version, and record it if it was not."""
        if is_detached(version):
            return find_version(store, version, uri=uri)
        record = self.records.get(self.table, version)
        if record is not None:
            try:
                entry = self._entry(store, record)
                store.info(entry.path)
            except ObjectNotFoundError as error:
                raise VersionNotFoundError(
                    "the version was cleaned up", uri=uri, version=version
                ) from error
            return entry
        entry = find_version(store, version, uri=uri)
        path = join(self.table, entry.path)
        try:
            self.records.put_if_absent(
                self.table, ManifestRecord(version, path, entry.size, entry.etag)
            )
        except AlreadyExistsError:
            # Somebody else recorded it meanwhile, and the name is final either way.
            return entry
        return entry

    def below(self, folder: str) -> ExternalStore:
        """Return the handler of a table in a folder of this one's."""
        return replace(self, table=join(self.table, folder))

    def _record(self, store: Store, record: ManifestRecord) -> None:
        """Record a version, in place of those of a table that was there before, if it is gone."""
        try:
            self.records.put_if_absent(self.table, record)
        except AlreadyExistsError:
            dead = self._dead_records(store)
            if not dead:
                raise
            for each in dead:
                self.records.forget(self.table, each)
            self.records.put_if_absent(self.table, record)

    def _dead_records(self, store: Store) -> list[ManifestRecord]:
        """Return the records if none has a manifest, staged or not, as after a table was dropped.

        A manifest is staged before it is recorded, and the newest is never cleaned up. Who is held
        up between two looks may find all that was recorded cleaned up since, so the folder is
        looked at before as well: then the newest of that time is in both.
        """
        found = {name(info.path) for info in store.list(VERSIONS)}
        records = self.records.every(self.table)
        found |= {name(info.path) for info in store.list(VERSIONS)}
        names = {name(record.path) for record in records}
        final = {each.partition(MANIFEST_SUFFIX)[0] + MANIFEST_SUFFIX for each in names}
        return [] if found & (names | final) else records

    def _entry(self, store: Store, record: ManifestRecord) -> ManifestEntry:
        """Return the manifest of a record, after the steps that are left."""
        record = self._finished(store, record)
        file = name(record.path)
        found = parse_manifest_name(file)
        if found is None or found.version != record.version:
            raise CorruptDataError(
                "the database has a manifest under another version than its own",
                path=record.path,
                version=record.version,
            )
        path = f"{VERSIONS}/{file}"
        if record.size is None:
            info = store.info(path)
            return ManifestEntry(
                record.version, found.naming, path, info.size, info.modified, info.etag
            )
        unknown = datetime.fromtimestamp(0, UTC)
        return ManifestEntry(record.version, found.naming, path, record.size, unknown, record.etag)

    def _finished(self, store: Store, record: ManifestRecord) -> ManifestRecord:
        """Return a record whose manifest has its name, after the steps that are left."""
        if record.is_final:
            return record
        try:
            return self._finish(store, record)
        except StorageError as error:
            raise UnfinishedCommitError(
                "a writer stopped before the manifest of this version had its name, and it could "
                "not be given; open the table once with access that may write to its folder and "
                "to the manifest store",
                uri=store.uri,
                version=record.version,
                path=record.path,
            ) from error

    def _finish(self, store: Store, record: ManifestRecord) -> ManifestRecord:
        """Give a recorded manifest its name; another process may do the same at the same time."""
        file = name(record.path)
        final_name = file.partition(MANIFEST_SUFFIX)[0] + MANIFEST_SUFFIX
        staged, final = f"{VERSIONS}/{file}", f"{VERSIONS}/{final_name}"
        # If the last step was done by another, all were, and the name is there.
        with contextlib.suppress(ObjectNotFoundError):
            store.copy(staged, final)
        info = store.info(final)
        finished = ManifestRecord(record.version, join(self.table, final), info.size, info.etag)
        self.records.update(self.table, finished)
        # The commit is complete; a staged manifest that stays is left to cleaning up.
        with contextlib.suppress(StorageError):
            store.delete(staged)
        return finished
