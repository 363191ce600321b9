"""What every method of a dataset works on: a version, where it is, and how it was opened."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Any, TypeAlias

from lancelet.errors import InvalidInputError, RefNotFoundError, VersionNotFoundError
from lancelet.format.refs import parse_tag
from lancelet.io.metered import PROCESS_METER, IoMeter, metered
from lancelet.table.handlers import CommitHandler, CommitLock, UserLock
from lancelet.table.location import TableLocation
from lancelet.table.manifests import list_versions
from lancelet.table.snapshot import Snapshot, open_entry, open_snapshot

VersionLike: TypeAlias = "int | str | tuple[str | None, int | str | None] | None"
"""A number, a tag, a branch with a number, or None for the latest version."""

_TAGS = "_refs/tags"


class VersionGoneError(VersionNotFoundError, OSError):
    """The version was never committed, or was cleaned up."""


@dataclass(frozen=True, slots=True)
class OpenOptions:
    """How a dataset was opened, so that it can be opened again elsewhere."""

    storage_options: Mapping[str, str] | None = None
    base_options: Mapping[str, Mapping[str, str]] | None = None
    commit_lock: CommitLock | None = None
    default_scan_options: Mapping[str, Any] | None = None

    @property
    def handler(self) -> CommitHandler | None:
        """How versions are published; None for the way that the URI says."""
        return None if self.commit_lock is None else UserLock(self.commit_lock)


@dataclass(slots=True, eq=False)
class Handle:
    """A version that is looked at, and the way to others; the one thing that changes."""

    snapshot: Snapshot
    meter: IoMeter
    options: OpenOptions = field(default_factory=OpenOptions)

    @property
    def location(self) -> TableLocation:
        """Where the table is."""
        return self.snapshot.location

    def at(self, snapshot: Snapshot) -> Handle:
        """Return a handle that looks at another version."""
        return Handle(snapshot, self.meter, self.options)


def text_of(uri: str | os.PathLike[str]) -> str:
    """Return a URI or path as text."""
    return os.fspath(uri)


def locate(uri: str, options: OpenOptions) -> tuple[TableLocation, IoMeter]:
    """Return the location that a URI names, and what counts its requests."""
    meter = PROCESS_METER.scope()
    location = TableLocation.open(uri, options.storage_options, options.base_options)
    lock = options.commit_lock
    return replace(
        location,
        store=metered(location.store, meter),
        handler=location.handler if lock is None else UserLock(lock),
    ), meter


def open_handle(
    uri: str, version: VersionLike, options: OpenOptions, *, asof: datetime | None = None
) -> Handle:
    """Open a version of the table at a URI."""
    location, meter = locate(uri, options)
    return Handle(find_snapshot(location, version, asof=asof), meter, options)


def find_snapshot(
    location: TableLocation, version: VersionLike, *, asof: datetime | None = None
) -> Snapshot:
    """Open a version by number, by tag, or as it was at a time."""
    if asof is not None:
        if version is not None:
            raise InvalidInputError("either a version or a time can be given, not both")
        return _snapshot_at(location, asof)
    match version:
        case str():
            return open_snapshot(location, _tagged_version(location, version))
        case tuple():
            branch, number = version
            folder = location if branch in {None, "main"} else location.below(f"tree/{branch}")
            return find_snapshot(folder, number)
        case _:
            return _open_version(location, version)


def _open_version(location: TableLocation, version: int | None) -> Snapshot:
    try:
        return open_snapshot(location, version)
    except VersionNotFoundError as error:
        open_snapshot(location)  # if there is no table at all, that is the better thing to say
        raise VersionGoneError(error.message, **error.facts) from error


def _tagged_version(location: TableLocation, tag: str) -> int:
    path = f"{_TAGS}/{tag}.json"
    if not location.store.exists(path):
        raise RefNotFoundError(f"Ref not found error: tag {tag} does not exist", tag=tag)
    return parse_tag(location.store.read(path)).version


def _snapshot_at(location: TableLocation, asof: datetime) -> Snapshot:
    """Return the last version that had been committed at a time."""
    moment = asof.astimezone()
    for entry in reversed(list_versions(location.store)):
        snapshot = open_entry(location, entry)
        if snapshot.manifest.timestamp <= moment:
            return snapshot
    raise VersionNotFoundError("no version is that old", asof=str(asof), uri=location.uri)
