"""Publish versions through a database, for stores without conditional puts.

    1  put     _versions/7.manifest-<id>        staged, invisible to readers
    2  record  version 7 -> 7.manifest-<id>     if absent in the database: this decides
    3  copy    7.manifest-<id> to 7.manifest
    4  record  version 7 -> 7.manifest
    5  delete  7.manifest-<id>

The version exists from step 2 on. A writer may stop at any later point: every reader or writer that
finds a record of a staged manifest completes the remaining steps, which are idempotent. If it
cannot, because it has no write access or the store fails, it raises an error: the folder alone must
always hold the whole table, so no version may follow one whose manifest is not yet renamed. A
version missing from the database is searched in the folder and recorded.
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
    """A version in the database; `path` is relative to the root of the bucket."""

    version: int
    path: str
    size: int | None = None
    etag: str | None = None

    @property
    def is_final(self) -> bool:
        """Whether the manifest has its final name, which readers of the folder use."""
        return self.path.endswith(MANIFEST_SUFFIX)


class UnfinishedCommitError(StorageError):
    """A recorded commit lacks the final manifest name; open the table with write access."""


class ManifestRecords(Protocol):
    """A database of table versions, each of which can be recorded once."""

    def latest(self, table: str) -> ManifestRecord | None:
        """Return the record of a table's highest version."""

    def get(self, table: str, version: int) -> ManifestRecord | None:
        """Return the record of a version."""

    def put_if_absent(self, table: str, record: ManifestRecord) -> None:
        """Record a version that has no record yet.

        Raises:
            AlreadyExistsError: The version has a record; nothing changed.
            CommitOutcomeUnknownError: The response was lost; the version may have been recorded.
        """

    def update(self, table: str, record: ManifestRecord) -> None:
        """Replace the record of a version that has one."""

    def every(self, table: str) -> list[ManifestRecord]:
        """Return the records of all versions of a table."""

    def forget(self, table: str, record: ManifestRecord) -> None:
        """Delete the record of a version if it still has the path of this one."""


@dataclass(frozen=True, slots=True)
class ExternalStore(CommitHandler):
    """Publishes in a database under the key `table`: its path from the root of the bucket."""

    records: ManifestRecords
    table: str

    def publish(self, store: Store, path: str, data: bytes, *, version: int) -> None:
        """Stage the manifest, record it if absent, and rename it."""
        if is_detached(version):
            # Detached names are unique, and readers do not query the database for them.
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
            # The version is published. The next reader completes the remaining steps; it may
            # already have done so, and the version may have been cleaned up since.
            return

    def find_latest(self, store: Store) -> ManifestEntry | None:
        """Return the newest recorded manifest, else the newest in the folder."""
        record = self.records.latest(self.table)
        if record is None:
            return find_latest(store)
        return self._entry(store, record)

    def list_versions(self, store: Store) -> list[ManifestEntry]:
        """Return the committed manifests, oldest first, completing the newest commit if needed."""
        record = self.records.latest(self.table)
        if record is not None:
            self._finished(store, record)
        return list_versions(store)

    @property
    def frees_numbers(self) -> bool:
        """Return False: the database retains the records of removed versions."""
        return False

    def find_version(self, store: Store, version: int, *, uri: str) -> ManifestEntry:
        """Return the manifest of a version, and record it if absent."""
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
            # Another process recorded it concurrently; the name is final either way.
            return entry
        return entry

    def below(self, folder: str) -> ExternalStore:
        """Return the handler of a table in a subfolder."""
        return replace(self, table=join(self.table, folder))

    def _record(self, store: Store, record: ManifestRecord) -> None:
        """Record a version, replacing the records of a dropped table at the same path."""
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
        """Return the records if none has a manifest, staged or final, as after a drop.

        A manifest is staged before it is recorded, and the newest is never cleaned up. All recorded
        manifests may be cleaned up between two requests of a delayed writer, so the folder is also
        listed first: the newest manifest of that time is in both.
        """
        listed = {name(info.path) for info in store.list(VERSIONS)}
        records = self.records.every(self.table)
        listed |= {name(info.path) for info in store.list(VERSIONS)}
        names = {name(record.path) for record in records}
        final = {each.partition(MANIFEST_SUFFIX)[0] + MANIFEST_SUFFIX for each in names}
        return [] if listed & (names | final) else records

    def _entry(self, store: Store, record: ManifestRecord) -> ManifestEntry:
        """Return the manifest of a record after completing its commit."""
        record = self._finished(store, record)
        file = name(record.path)
        parsed = parse_manifest_name(file)
        if parsed is None or parsed.version != record.version:
            raise CorruptDataError(
                "the database has a manifest under the wrong version",
                path=record.path,
                version=record.version,
            )
        path = f"{VERSIONS}/{file}"
        if record.size is None:
            info = store.info(path)
            return ManifestEntry(
                record.version, parsed.naming, path, info.size, info.modified, info.etag
            )
        unknown_time = datetime.fromtimestamp(0, UTC)
        return ManifestEntry(
            record.version, parsed.naming, path, record.size, unknown_time, record.etag
        )

    def _finished(self, store: Store, record: ManifestRecord) -> ManifestRecord:
        """Return a record with the final manifest name after completing its commit."""
        if record.is_final:
            return record
        try:
            return self._finish(store, record)
        except StorageError as error:
            raise UnfinishedCommitError(
                "a writer stopped before renaming the manifest of this version, and the rename "
                "failed; open the table once with write access to its folder and to the "
                "manifest store",
                uri=store.uri,
                version=record.version,
                path=record.path,
            ) from error

    def _finish(self, store: Store, record: ManifestRecord) -> ManifestRecord:
        """Copy a recorded manifest to its final name; concurrent calls are safe."""
        file = name(record.path)
        final_name = file.partition(MANIFEST_SUFFIX)[0] + MANIFEST_SUFFIX
        staged, final = f"{VERSIONS}/{file}", f"{VERSIONS}/{final_name}"
        # If another process completed the last step, the final name exists.
        with contextlib.suppress(ObjectNotFoundError):
            store.copy(staged, final)
        info = store.info(final)
        finished = ManifestRecord(record.version, join(self.table, final), info.size, info.etag)
        self.records.update(self.table, finished)
        # The commit is complete; cleanup deletes a remaining staged manifest.
        with contextlib.suppress(StorageError):
            store.delete(staged)
        return finished
