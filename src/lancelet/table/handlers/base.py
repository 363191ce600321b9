"""What a commit handler promises: of many writers of one version, exactly one publishes it.

    publish(store, "_versions/<name>.manifest", data, version=7)
        returns                        the version is ours
        AlreadyExistsError             another writer has it; look at what it did and try again
        CommitOutcomeUnknownError      the reply was lost; the committer looks for its own id

Where the decision is made is also where readers must look. For most handlers that is the folder
of manifests itself, so a handler finds versions by listing it unless it says otherwise.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from datetime import datetime
from typing import Any, Protocol, Self, TypeAlias

from lancelet.format.paths import VERSIONS
from lancelet.io import Store
from lancelet.table.manifests import ManifestEntry, find_latest, find_version, list_versions

CommitLock: TypeAlias = Callable[[int], AbstractContextManager[Any]]
"""A user's lock: called with a version, it is held while that version is published."""


class CommitHandler(Protocol):
    """A way to publish a manifest under a name that must be free, and to find the latest."""

    def publish(self, store: Store, path: str, data: bytes, *, version: int) -> None:
        """Publish, or raise `AlreadyExistsError` and change nothing that readers see."""

    def find_latest(self, store: Store, *, exact: bool = False) -> ManifestEntry | None:
        """Return the newest manifest, or None if there is no table; see `find_latest`."""
        return find_latest(store, exact=exact)

    def list_versions(self, store: Store) -> list[ManifestEntry]:
        """Return the committed manifests, oldest first."""
        return list_versions(store)

    def last_change(self, store: Store) -> datetime | None:
        """Return when a version was last published or removed, if that is known at once.

        While this stays the same, the version that was the latest is so still.
        """
        return store.last_change(VERSIONS)

    def find_version(self, store: Store, version: int, *, uri: str) -> ManifestEntry:
        """Return the manifest of a version, or raise `VersionNotFoundError`."""
        return find_version(store, version, uri=uri)

    def below(self, folder: str) -> Self:  # noqa: ARG002  # for handlers that know the table by name
        """Return the handler of a table in a folder of this one's, such as a branch."""
        return self
