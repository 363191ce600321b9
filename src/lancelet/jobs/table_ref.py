"""Picklable references to table versions, which tasks on other machines open.

    TableRef("s3://b/t.lance", branch=None, version=7)

Snapshots hold open files and caches and are not transferred. A URI and a version number do not
identify a version, since a table can be deleted and created again. Therefore, the driver pins the
version that it planned with, and tasks reject any other:

    driver   pinned(snapshot)   version 1, identity 0-<uuid>.txn at 1700000000000000000
    task     open()             that version, or an error that the table was replaced

A process caches the last pinned versions, since Spark runs many tasks in one worker process; only
the first task reads the manifest.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field, replace
from functools import lru_cache
from typing import Final

from lancelet.change.bases import absolute_path
from lancelet.io.metered import PROCESS_METER, metered
from lancelet.table.location import TableLocation
from lancelet.table.refs import branch_location
from lancelet.table.snapshot import Snapshot, open_snapshot
from lancelet.values import dataclass

_VERSION_CACHE_SIZE: Final = 8
_LOCATION_CACHE_SIZE: Final = 32


@dataclass(frozen=True, slots=True)
class TableRef:
    """The URI, branch and version of a table; version None means the latest.

    `identity` is the `Snapshot.identity` of a pinned version.
    """

    uri: str
    options: tuple[tuple[str, str], ...] = field(default=(), repr=False)
    branch: str | None = None
    version: int | None = None
    identity: str | None = None

    @staticmethod
    def of(uri: str, options: Mapping[str, str] | None = None) -> TableRef:
        """Return a reference to the latest version of a table.

        Tasks may run in other folders, so that a relative path becomes an absolute one.

        >>> TableRef.of("/data/a.lance", {"region": "eu"}).at(3).version
        3
        """
        return TableRef(absolute_path(uri), tuple(sorted((options or {}).items())))

    def at(self, version: int | None) -> TableRef:
        """Return a reference to another version of the same branch."""
        return replace(self, version=version, identity=None)

    def pinned(self, snapshot: Snapshot) -> TableRef:
        """Return a reference to exactly the version of a snapshot."""
        return replace(self, version=snapshot.version, identity=snapshot.identity)

    def on_branch(self, branch: str) -> TableRef:
        """Return a reference to the latest version of a branch."""
        return replace(self, branch=branch, version=None, identity=None)

    def locate(self) -> TableLocation:
        """Return the location of the table or of its branch, without reading anything."""
        return _locate(self.uri, self.options, self.branch)

    def open(self) -> Snapshot:
        """Open the version; pinned versions are cached per process.

        Raises:
            VersionNotFoundError: The version does not exist, or differs from the pinned one.
        """
        if self.identity is None:
            return open_snapshot(self.locate(), self.version)
        return _open(self)


@lru_cache(maxsize=_LOCATION_CACHE_SIZE)
def _locate(uri: str, options: tuple[tuple[str, str], ...], branch: str | None) -> TableLocation:
    location = TableLocation.open(uri, dict(options))
    location = replace(location, store=metered(location.store, PROCESS_METER.scope()))
    return branch_location(location, branch)


@lru_cache(maxsize=_VERSION_CACHE_SIZE)
def _open(ref: TableRef) -> Snapshot:
    assert ref.identity is not None, "only pinned versions are cached"
    snapshot = open_snapshot(ref.locate(), ref.version)
    snapshot.check_identity(ref.identity)
    return snapshot
