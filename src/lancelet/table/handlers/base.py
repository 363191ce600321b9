"""What a commit handler promises: of many writers of one version, exactly one publishes it.

    publish(store, "_versions/<name>.manifest", data, version=7)
        returns                        the version is ours
        AlreadyExistsError             another writer has it; look at what it did and try again
        CommitOutcomeUnknownError      the reply was lost; the committer looks for its own id

Where the decision is made is also where readers must look. For most handlers that is the folder
of manifests itself, so a handler finds versions by listing it unless it says otherwise.

Publishing in the folder of manifests itself: one conditional request, a move, or a lock.

PutIfAbsent      put 7.manifest if its name is free        every current store
RenameIfAbsent   put 7.manifest-<id>, move it to the name  stores that can move, not put
UserLock         lock 7, look, put, unlock                 stores without any condition
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
"""A user's lock: called with a version, it is held while that version is published."""


class CommitHandler(Protocol):
    """A way to publish a manifest under a name that must be free, and to find the latest."""

    def publish(self, store: Store, path: str, data: bytes, *, version: int) -> None:
        """Publish, or raise `AlreadyExistsError` and change nothing that readers see."""

    @property
    def frees_numbers(self) -> bool:
        """Whether the number of a version can be published again once its manifest is deleted."""
        return True

    def find_latest(self, store: Store) -> ManifestEntry | None:
        """Return the newest manifest, or None if there is no table; see `find_latest`."""
        return find_latest(store)

    def list_versions(self, store: Store) -> list[ManifestEntry]:
        """Return the committed manifests, oldest first."""
        return list_versions(store)

    def find_version(self, store: Store, version: int, *, uri: str) -> ManifestEntry:
        """Return the manifest of a version, or raise `VersionNotFoundError`."""
        return find_version(store, version, uri=uri)

    def below(self, folder: str) -> Self:  # noqa: ARG002  # for handlers that know the table by name
        """Return the handler of a table in a folder of this one's, such as a branch."""
        return self


@dataclass(frozen=True, slots=True)
class PutIfAbsent(CommitHandler):
    """Publishes in one conditional request, which every current store offers."""

    def publish(self, store: Store, path: str, data: bytes, *, version: int) -> None:
        """Put the manifest if its name is free."""
        del version
        store.put_if_absent(path, data)


@dataclass(frozen=True, slots=True)
class RenameIfAbsent(CommitHandler):
    """Publishes by moving a staged manifest, where a store can move but not put conditionally."""

    def publish(self, store: Store, path: str, data: bytes, *, version: int) -> None:
        """Stage the manifest under a name of its own, then move it."""
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
    """Publishes under a lock that the user brought, for stores without any condition."""

    lock: CommitLock

    def publish(self, store: Store, path: str, data: bytes, *, version: int) -> None:
        """Hold the lock, look whether the name is free, and put the manifest."""
        with self.lock(version):
            if store.exists(path):
                raise AlreadyExistsError("another writer has the version", path=path)
            try:
                store.put(path, data)
            except StorageUnavailableError as error:
                raise CommitOutcomeUnknownError(
                    "the store did not say whether it has the manifest", path=path
                ) from error
