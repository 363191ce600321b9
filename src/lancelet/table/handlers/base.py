"""The commit handler protocol: exactly one of several concurrent writers publishes a version.

    publish(store, "_versions/<name>.manifest", data, version=7)
        returns                        the version is ours
        AlreadyExistsError             another writer has it; check its changes and try again
        CommitOutcomeUnknownError      the response was lost; the committer searches for its own id

Readers use the handler to find versions. By default, it lists the manifest folder.

Handlers that publish in the manifest folder use one conditional request, a move, or a lock:

    PutIfAbsent      put 7.manifest if its name is free        every current store
    RenameIfAbsent   put 7.manifest-<id>, rename it            stores with atomic rename only
    UserLock         lock 7, check, put, unlock                stores without conditional requests
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any, Protocol, Self, TypeAlias

from lancelet import surroundings
from lancelet.errors import AlreadyExistsError, CommitOutcomeUnknownError, StorageUnavailableError
from lancelet.format.paths import staged_manifest_path
from lancelet.io import Store
from lancelet.table.manifests import ManifestEntry, find_latest, find_version, list_versions
from lancelet.values import dataclass

CommitLock: TypeAlias = Callable[[int], AbstractContextManager[Any]]
"""A user's lock: called with a version and held while that version is published."""


class CommitHandler(Protocol):
    """Publishes a manifest unless its name is used, and finds the latest one."""

    def publish(self, store: Store, path: str, data: bytes, *, version: int) -> None:
        """Publish the manifest, or raise `AlreadyExistsError` without visible changes."""

    @property
    def frees_numbers(self) -> bool:
        """Whether a version number can be published again after its manifest is deleted."""
        return True

    def find_latest(self, store: Store) -> ManifestEntry | None:
        """Return the newest manifest, or None if there is no table."""
        return find_latest(store)

    def list_versions(self, store: Store) -> list[ManifestEntry]:
        """Return the committed manifests, oldest first."""
        return list_versions(store)

    def find_version(self, store: Store, version: int, *, uri: str) -> ManifestEntry:
        """Return the manifest of a version, or raise `VersionNotFoundError`."""
        return find_version(store, version, uri=uri)

    def below(self, folder: str) -> Self:  # noqa: ARG002  # for handlers that know the table by name
        """Return the handler of a table in a subfolder, such as a branch."""
        return self


@dataclass(frozen=True, slots=True)
class PutIfAbsent(CommitHandler):
    """Publishes with one conditional request, which every current store supports."""

    def publish(self, store: Store, path: str, data: bytes, *, version: int) -> None:
        """Put the manifest if its name is free."""
        del version
        store.put_if_absent(path, data)


@dataclass(frozen=True, slots=True)
class RenameIfAbsent(CommitHandler):
    """Publishes by renaming a staged manifest, for stores without conditional puts."""

    def publish(self, store: Store, path: str, data: bytes, *, version: int) -> None:
        """Stage the manifest under a unique name, then rename it."""
        del version
        staged = staged_manifest_path(path, surroundings.new_uuid())
        store.put(staged, data)
        try:
            store.rename_if_absent(staged, path)
        except AlreadyExistsError:
            store.delete(staged)
            raise


@dataclass(frozen=True, slots=True)
class UserLock(CommitHandler):
    """Publishes under a lock provided by the user, for stores without conditional requests."""

    lock: CommitLock

    def publish(self, store: Store, path: str, data: bytes, *, version: int) -> None:
        """Hold the lock, check that the name is free, and put the manifest."""
        with self.lock(version):
            if store.exists(path):
                raise AlreadyExistsError("another writer committed the version", path=path)
            try:
                store.put(path, data)
            except StorageUnavailableError as error:
                raise CommitOutcomeUnknownError(
                    "the store did not confirm the manifest", path=path
                ) from error
