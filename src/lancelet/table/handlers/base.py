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
from typing import Any, Protocol, Self, TypeAlias

from lancelet.io import Store
from lancelet.table.manifests import ManifestEntry, find_latest, find_version, list_versions

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
