"""Making a version appear: the one request that decides a race.

Every way of doing it takes the same three things and either publishes or raises:

    publish(store, "_versions/<name>.manifest", data)
        returns                        the version is ours
        AlreadyExistsError             another writer has it; look at what it did and try again
        CommitOutcomeUnknownError      the reply was lost; the committer looks for its own id
"""

from __future__ import annotations

import uuid
from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any, Protocol, TypeAlias

from lancelet.errors import AlreadyExistsError
from lancelet.format.paths import staged_manifest_path
from lancelet.io import Store

CommitLock: TypeAlias = Callable[[int], AbstractContextManager[Any]]
"""A user's lock: called with a version, it is held while that version is published."""


class CommitHandler(Protocol):
    """A way to publish a manifest under a name that must be free."""

    def publish(self, store: Store, path: str, data: bytes, *, version: int) -> None:
        """Publish, or raise `AlreadyExistsError` and leave no trace."""


@dataclass(frozen=True, slots=True)
class PutIfAbsent:
    """Publishes in one conditional request, which every current store offers."""

    def publish(self, store: Store, path: str, data: bytes, *, version: int) -> None:
        """Put the manifest if its name is free."""
        del version
        store.put_if_absent(path, data)


@dataclass(frozen=True, slots=True)
class RenameIfAbsent:
    """Publishes by moving a staged manifest, where a store can move but not put conditionally."""

    def publish(self, store: Store, path: str, data: bytes, *, version: int) -> None:
        """Stage the manifest under a name of its own, then move it."""
        del version
        staged = staged_manifest_path(path, uuid.uuid4())
        store.put(staged, data)
        try:
            store.rename_if_absent(staged, path)
        except AlreadyExistsError:
            store.delete(staged)
            raise


@dataclass(frozen=True, slots=True)
class UserLock:
    """Publishes under a lock that the user brought, for stores without any condition."""

    lock: CommitLock

    def publish(self, store: Store, path: str, data: bytes, *, version: int) -> None:
        """Hold the lock, look whether the name is free, and put the manifest."""
        with self.lock(version):
            if store.exists(path):
                raise AlreadyExistsError("another writer has the version", path=path)
            store.put(path, data)
