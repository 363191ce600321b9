"""What every method of a dataset works on: a version, where it is, and how it was opened.

Versions that a namespace decides: those of tables it describes with `managed_versioning`.

    put       _versions/7.manifest-<id>                 staged, seen by nobody
    create_table_version(version=7, manifest_path=..)   decides, and gives the manifest its name
    list_table_versions(limit=1, descending=True)       the latest
    describe_table_version(version=7)                   where the manifest of a version is

Requests are dicts but for the list, as pylance asks and answers.
"""

from __future__ import annotations

import os
import uuid
from collections.abc import Callable, Hashable, Mapping
from dataclasses import field, replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from lancelet import ops
from lancelet.dataset.named_table import NamedTable, namespace_module
from lancelet.dataset.session import Session
from lancelet.errors import (
    AlreadyExistsError,
    CommitOutcomeUnknownError,
    CorruptDataError,
    InvalidInputError,
    VersionNotFoundError,
)
from lancelet.file.arguments import instance
from lancelet.format.paths import (
    TREE,
    VERSIONS,
    is_detached,
    parse_manifest_name,
    staged_manifest_path,
)
from lancelet.format.refs import MAIN
from lancelet.io import Store
from lancelet.io.cache import CACHE
from lancelet.io.metered import PROCESS_METER, IoMeter, metered
from lancelet.io.options import EXPIRES_AT
from lancelet.io.uri import join, name, parse_uri
from lancelet.table import refs
from lancelet.table.handlers import CommitHandler, CommitLock, PutIfAbsent, UserLock
from lancelet.table.location import TableLocation
from lancelet.table.manifests import ManifestEntry, find_version
from lancelet.table.snapshot import Snapshot, open_snapshot
from lancelet.values import dataclass

if TYPE_CHECKING:
    from lancelet.ops.dry_run import ChangeReport

VersionLike: TypeAlias = "int | str | tuple[str | None, int | None] | None"
"""A number, a tag, a branch with a number, or None for the latest version."""

_BRANCHES: Final = f"{TREE}/"


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
            return ops.dry_run.dry_run(self.snapshot, change, num_rows)
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
        metadata_cache=cache.scope()
        if provider is not None
        else cache.scope_of(_identity(location)),
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


@dataclass(frozen=True, slots=True)
class NamespaceVersions(CommitHandler):
    """Publishes and finds versions by asking a namespace for them.

    `client` is the namespace, and `root` the table's path from the root of its store.
    """

    client: Any
    table_id: tuple[str, ...]
    root: str
    branch: str | None = None

    def publish(self, store: Store, path: str, data: bytes, *, version: int) -> None:
        """Stage the manifest, and let the namespace decide."""
        if is_detached(version):
            # No other writer can want its name, and no reader asks the namespace for it.
            store.put_if_absent(path, data)
            return
        staged = staged_manifest_path(path, uuid.uuid4())
        store.put(staged, data)
        errors = namespace_module()
        found = parse_manifest_name(name(path))
        assert found is not None, "it is the path of a manifest"
        wanted = self._request(
            version=version,
            manifest_path=join(self.root, staged),
            manifest_size=len(data),
            naming_scheme=found.naming.name,
        )
        try:
            self.client.create_table_version(wanted)
        except errors.ConcurrentModificationError as error:
            store.delete(staged)
            raise AlreadyExistsError("another writer has the version", version=version) from error
        except (errors.ServiceUnavailableError, errors.InternalError) as error:
            raise CommitOutcomeUnknownError(
                "the namespace did not say whether it took the version", version=version
            ) from error
        store.delete(staged)

    def find_latest(self, store: Store) -> ManifestEntry | None:
        """Return the manifest of the highest version, or None if there is no table."""
        names = namespace_module()
        wanted = self._request(limit=1, descending=True)
        try:
            answer = self.client.list_table_versions(names.ListTableVersionsRequest(**wanted))
        except (names.TableNotFoundError, names.TableBranchNotFoundError):
            return None
        for found in _fields(answer)["versions"][:1]:
            return self._entry(store, _fields(found))
        return None

    @property
    def frees_numbers(self) -> bool:
        """Return False: the namespace keeps what it took, also of versions that were removed."""
        return False

    def find_version(self, store: Store, version: int, *, uri: str) -> ManifestEntry:
        """Return the manifest of a version."""
        if is_detached(version):
            return find_version(store, version, uri=uri)
        errors = namespace_module()
        try:
            answer = self.client.describe_table_version(self._request(version=version))
        except (errors.TableVersionNotFoundError, errors.TableNotFoundError) as error:
            raise VersionNotFoundError(
                "the namespace knows of no such version", uri=uri, version=version
            ) from error
        return self._entry(store, _fields(_fields(answer)["version"]))

    def below(self, folder: str) -> NamespaceVersions:
        """Return the handler of a branch."""
        branch = folder.removeprefix(_BRANCHES)
        return replace(self, root=join(self.root, folder), branch=branch)

    def _request(self, **fields: Any) -> dict[str, Any]:
        branch = {} if self.branch is None else {"branch": self.branch}
        return {"id": list(self.table_id), **branch, **fields}

    def _entry(self, store: Store, version: Mapping[str, Any]) -> ManifestEntry:
        number, file = version["version"], name(version["manifest_path"])
        found = parse_manifest_name(file)
        if found is None or found.version != number:
            raise CorruptDataError(
                "the namespace has a manifest under another version than its own",
                path=version["manifest_path"],
                version=number,
            )
        path, size = f"{VERSIONS}/{file}", version.get("manifest_size")
        if size is None:
            info = store.info(path)
            return ManifestEntry(number, found.naming, path, info.size, info.modified, info.etag)
        unknown = datetime.fromtimestamp(0, UTC)
        return ManifestEntry(number, found.naming, path, size, unknown, version.get("e_tag"))


def _fields(answer: Any) -> Mapping[str, Any]:
    """Return the fields of an answer, which is a dict or a value of the namespace's models."""
    if isinstance(answer, Mapping):
        return answer
    fields: dict[str, Any] = answer.model_dump(exclude_none=True)
    return fields
