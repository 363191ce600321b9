"""Publishing in the folder of manifests itself: one conditional request, a move, or a lock.

PutIfAbsent      put 7.manifest if its name is free        every current store
RenameIfAbsent   put 7.manifest-<id>, move it to the name  stores that can move, not put
UserLock         lock 7, look, put, unlock                 stores without any condition
"""

from __future__ import annotations

from lancelet import surroundings
from lancelet.errors import (
    AlreadyExistsError,
    CommitOutcomeUnknownError,
    StorageUnavailableError,
)
from lancelet.format.paths import staged_manifest_path
from lancelet.io import Store
from lancelet.table.handlers.base import CommitHandler, CommitLock
from lancelet.values import dataclass


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
