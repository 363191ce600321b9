"""What every method of a dataset works on: a version, where it is, and how it was opened."""

from __future__ import annotations

import os
from collections.abc import Callable, Hashable, Mapping
from dataclasses import field, replace
from datetime import datetime
from typing import TYPE_CHECKING, Any, TypeAlias

from lancelet import ops
from lancelet.dataset.named_table import NamedTable
from lancelet.dataset.named_versions import NamespaceVersions
from lancelet.dataset.session import Session
from lancelet.errors import InvalidInputError, VersionNotFoundError
from lancelet.file.arguments import instance
from lancelet.format.refs import MAIN
from lancelet.io.cache import CACHE
from lancelet.io.metered import PROCESS_METER, IoMeter, metered
from lancelet.io.options import EXPIRES_AT
from lancelet.io.uri import parse_uri
from lancelet.table import refs
from lancelet.table.handlers import CommitHandler, CommitLock, PutIfAbsent, UserLock
from lancelet.table.location import TableLocation
from lancelet.table.snapshot import Snapshot, open_snapshot
from lancelet.values import dataclass

if TYPE_CHECKING:
    from lancelet.ops.dry_run import ChangeReport

VersionLike: TypeAlias = "int | str | tuple[str | None, int | None] | None"
"""A number, a tag, a branch with a number, or None for the latest version."""


class VersionTypeError(InvalidInputError, TypeError, OSError):
    """What was given cannot name a version."""


class NegativeVersionError(InvalidInputError, OverflowError):
    """A version was given by a negative number."""


@dataclass(frozen=True, slots=True)
class OpenOptions:
    """How a dataset was opened, so that it can be opened again elsewhere.

    Options of stores may be secrets, and are never part of what is shown.
    """

    storage_options: Mapping[str, str] | None = field(default=None, repr=False)
    base_options: Mapping[str, Mapping[str, str]] | None = field(default=None, repr=False)
    commit_lock: CommitLock | None = None
    default_scan_options: Mapping[str, Any] | None = None
    named: NamedTable | None = None

    @property
    def handler(self) -> CommitHandler | None:
        """How versions are published; None for the way that the URI says."""
        return None if self.commit_lock is None else UserLock(self.commit_lock)


@dataclass(slots=True, eq=False)
class Handle:
    """The checked-out version, and the way to others; the one thing that changes."""

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

    def change(
        self, change: Callable[[Snapshot], Snapshot], num_rows: int = 0, *, dry_run: bool
    ) -> ChangeReport | None:
        """Make a change and check its version out, or report it, with `num_rows`."""
        if dry_run:
            return ops.dry_run.rehearse(self.snapshot, change, num_rows)
        self.snapshot = change(self.snapshot)
        return None


def text_of(uri: str | os.PathLike[str]) -> str:
    """Return a URI or path as text."""
    return os.fspath(uri)


def locate(
    uri: str, options: OpenOptions, session: Session | None = None
) -> tuple[TableLocation, IoMeter]:
    """Return the location that a URI names, and what counts its requests.

    What is read of the table is kept in the cache of a session, by default that of the process.
    """
    meter = PROCESS_METER.scope()
    cache = CACHE if session is None else session.cache
    of_bases = {
        ops.bases.absolute_path(path): own for path, own in (options.base_options or {}).items()
    }
    storage_options, provider, is_managed = options.storage_options, None, False
    if options.named is not None:
        named = options.named
        if named.is_managed is None:
            _, storage_options, named = named.opened(storage_options)
        is_managed = bool(named.is_managed)
        if EXPIRES_AT in (storage_options or {}):
            provider = named.storage_options
    location = TableLocation.open(uri, storage_options, of_bases, provider=provider)
    handler = location.handler
    if options.commit_lock is not None:
        handler = UserLock(options.commit_lock)
    elif options.named is not None and is_managed:
        named = options.named
        handler = NamespaceVersions(named.client, named.table_id, parse_uri(location.uri).path)
    decides = isinstance(handler, PutIfAbsent)
    located = replace(
        location,
        store=metered(location.store.deciding() if decides else location.store, meter),
        handler=handler,
        kept=cache.scope() if provider is not None else cache.scope_of(_identity(location)),
        open_files=cache.scope(),
    )
    return located, meter


def _identity(location: TableLocation) -> Hashable:
    """Return what handles have in common that see the same files in the same way."""
    bases = tuple(sorted((path, *own.items()) for path, own in location.base_options.items()))
    return location.uri, frozenset(location.storage_options.items()), bases


def open_handle(
    uri: str,
    version: VersionLike,
    options: OpenOptions,
    *,
    asof: datetime | None = None,
    session: Session | None = None,
) -> Handle:
    """Open a version of the table at a URI."""
    location, meter = locate(uri, options, session)
    return Handle(find_snapshot(location, version, asof=asof), meter, options)


def find_snapshot(
    location: TableLocation, version: VersionLike, *, asof: datetime | None = None
) -> Snapshot:
    """Open a version of the table at a location: by number, by name, or as it was at a time."""
    if asof is not None:
        if version is not None:
            raise InvalidInputError("either a version or a time can be given, not both")
        return refs.open_as_of(location, instance("asof", asof, datetime).astimezone())
    if version is None:
        return open_snapshot(location)
    if isinstance(version, int):
        return _open_version(location, version)
    return _open_named(refs.main_location(open_snapshot(location)), version)


def open_reference(handle: Handle, reference: VersionLike) -> Snapshot:
    """Open what a reference means to who looks at a version; None is that version."""
    if reference is None:
        return handle.snapshot
    if isinstance(reference, int):
        return _open_version(handle.location, reference)
    return _open_named(refs.main_location(handle.snapshot), reference)


def _open_named(main: TableLocation, reference: str | tuple[str | None, int | None]) -> Snapshot:
    if isinstance(reference, str):
        tag = refs.get_tag(main, reference)
        return _open_version(refs.branch_location(main, tag.branch), tag.version)
    match reference:
        case (None | str() as branch, None | int() as number):
            if branch is not None and branch != MAIN:
                refs.get_branch(main, branch)
            return _open_version(refs.branch_location(main, branch), number)
    raise VersionTypeError("a version is a number, a tag, or a branch with a number")


def _open_version(location: TableLocation, version: int | None) -> Snapshot:
    if version is not None and version < 0:
        raise NegativeVersionError("versions are counted from 1", version=version)
    try:
        return open_snapshot(location, version)
    except VersionNotFoundError:
        open_snapshot(location)  # if there is no table at all, that is the better thing to say
        raise
