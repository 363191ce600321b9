"""Naming a version of a table by a plain value, so that a task elsewhere can open it.

    TableRef("s3://b/t.lance", branch=None, version=7)

A snapshot holds open files and caches, which stay where they are; the name of it travels. A URI
and a number do not identify a version, since a table can be deleted and made again at the same
place. So a driver pins the version that it planned with, and a task refuses any other one:

    driver   pinned(snapshot)   version 1, identity 0-<uuid>.txn at 1700000000000000000
    task     open()             that version, or an error that says the table was replaced

A process keeps the last few pinned versions that it opened: Spark gives one worker process many
tasks, and only the first of them reads the manifest.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field, replace
from functools import lru_cache
from typing import Final

from lancelet.io.metered import PROCESS_METER, metered
from lancelet.table.location import TableLocation
from lancelet.table.refs import branch_location
from lancelet.table.snapshot import Snapshot, open_snapshot
from lancelet.values import dataclass

_KEPT_VERSIONS: Final = 8
_KEPT_LOCATIONS: Final = 32


@dataclass(frozen=True, slots=True)
class TableRef:
    """Where a table is, which branch of it, and which version; None means the latest.

    `identity` is the `Snapshot.identity` of a pinned version.
    """

    uri: str
    options: tuple[tuple[str, str], ...] = field(default=(), repr=False)
    branch: str | None = None
    version: int | None = None
    identity: str | None = None

    @staticmethod
    def of(uri: str, options: Mapping[str, str] | None = None) -> TableRef:
        """Name the latest version of a table.

        >>> TableRef.of("a.lance", {"region": "eu"}).at(3).version
        3
        """
        return TableRef(uri, tuple(sorted((options or {}).items())))

    def at(self, version: int | None) -> TableRef:
        """Name another version of the same branch."""
        return replace(self, version=version, identity=None)

    def pinned(self, snapshot: Snapshot) -> TableRef:
        """Name the version that a snapshot of this table is, and no other of its number."""
        return replace(self, version=snapshot.version, identity=snapshot.identity)

    def on_branch(self, branch: str) -> TableRef:
        """Name the latest version of a branch."""
        return replace(self, branch=branch, version=None, identity=None)

    def locate(self) -> TableLocation:
        """Return the location of the table or of its branch; nothing is read."""
        return _locate(self.uri, self.options, self.branch)

    def open(self) -> Snapshot:
        """Open the version; a pinned one is opened once per process.

        Raises:
            VersionNotFoundError: The version does not exist, or is not the one that was pinned.
        """
        if self.identity is None:
            return open_snapshot(self.locate(), self.version)
        return _open(self)


@lru_cache(maxsize=_KEPT_LOCATIONS)
def _locate(uri: str, options: tuple[tuple[str, str], ...], branch: str | None) -> TableLocation:
    location = TableLocation.open(uri, dict(options))
    location = replace(location, store=metered(location.store, PROCESS_METER.scope()))
    return branch_location(location, branch)


@lru_cache(maxsize=_KEPT_VERSIONS)
def _open(ref: TableRef) -> Snapshot:
    assert ref.identity is not None, "only pinned versions are cached"
    snapshot = open_snapshot(ref.locate(), ref.version)
    snapshot.check_identity(ref.identity)
    return snapshot
