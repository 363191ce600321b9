"""The state of a dataset: its checked-out version, location and open options.

A namespace that describes a table with `managed_versioning` decides commits:

    put       _versions/7.manifest-<id>                 staged, not visible to readers
    create_table_version(version=7, manifest_path=..)   decides and renames the manifest
    list_table_versions(limit=1, descending=True)       the latest version
    describe_table_version(version=7)                   the path of its manifest

Like in pylance, requests are dicts, except for the listing.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Hashable, Mapping
from dataclasses import field, replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from lancelet import change, surroundings
from lancelet.arguments import instance
from lancelet.dataset.named_table import NamedTable, namespace_module
from lancelet.dataset.session import Session
from lancelet.errors import (
    AlreadyExistsError,
    CommitOutcomeUnknownError,
    CorruptDataError,
    InvalidInputError,
    VersionNotFoundError,
)
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
    from lancelet.change.dry_run import ChangeReport

VersionLike: TypeAlias = "int | str | tuple[str | None, int | None] | None"
"""A version number, a tag, a branch with a number, or None for the latest version."""

_BRANCHES: Final = f"{TREE}/"


class VersionTypeError(InvalidInputError, TypeError, OSError):
    """The value is not a version reference."""


class NegativeVersionError(InvalidInputError, OverflowError):
    """A version number is negative."""


@dataclass(frozen=True, slots=True)
class OpenOptions:
    """The options used to open a dataset, for opening it again in another process.

    Storage options may be secrets and are never displayed.
    """

    storage_options: Mapping[str, str] | None = field(default=None, repr=False)
    base_options: Mapping[str, Mapping[str, str]] | None = field(default=None, repr=False)
    commit_lock: CommitLock | None = None
    default_scan_options: Mapping[str, Any] | None = None
    named: NamedTable | None = None

    @property
    def handler(self) -> CommitHandler | None:
        """The commit handler; None to select it by the URI."""
        return None if self.commit_lock is None else UserLock(self.commit_lock)


@dataclass(slots=True, eq=False)
class Handle:
    """The checked-out snapshot and its location. The only mutable state of a dataset."""

    snapshot: Snapshot
    meter: IoMeter
    options: OpenOptions = field(default_factory=OpenOptions)

    @property
    def location(self) -> TableLocation:
        """The location of the table."""
        return self.snapshot.location

    def at(self, snapshot: Snapshot) -> Handle:
        """Return a handle for another snapshot."""
        return Handle(snapshot, self.meter, self.options)

    def change(
        self, commit: Callable[[Snapshot], Snapshot], num_rows: int = 0, *, dry_run: bool
    ) -> ChangeReport | None:
        """Commit a change and check out its version, or only report it, with `num_rows`."""
        if dry_run:
            return change.dry_run.dry_run(self.snapshot, commit, num_rows)
        self.snapshot = commit(self.snapshot)
        return None


def text_of(uri: str | os.PathLike[str]) -> str:
    """Return a URI or path as text."""
    return os.fspath(uri)


def locate(
    uri: str, options: OpenOptions, session: Session | None = None
) -> tuple[TableLocation, IoMeter]:
    """Return the table location of a URI and the meter of its requests.

    Metadata is cached in the session, by default the process-wide one.
    """
    meter = PROCESS_METER.scope()
    cache = CACHE if session is None else session.cache
    of_bases = {
        change.bases.absolute_path(path): own for path, own in (options.base_options or {}).items()
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
        store=metered(location.store.for_commits() if decides else location.store, meter),
        handler=handler,
        metadata_cache=cache.scope()
        if provider is not None
        else cache.scope_of(_identity(location)),
        open_files=cache.scope(),
    )
    return located, meter


def _identity(location: TableLocation) -> Hashable:
    """Return a key that is equal for handles with the same view of the files."""
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
    """Open a version of a table by number, tag, branch or time."""
    if asof is not None:
        if version is not None:
            raise InvalidInputError("version and asof cannot be combined")
        return refs.open_as_of(location, instance("asof", asof, datetime).astimezone())
    if version is None:
        return open_snapshot(location)
    if isinstance(version, int):
        return _open_version(location, version)
    return _open_named(refs.main_location(open_snapshot(location)), version)


def open_reference(handle: Handle, reference: VersionLike) -> Snapshot:
    """Open the version of a reference relative to a handle; None is its current version."""
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
    raise VersionTypeError("a version must be a number, a tag, or a branch with a number")


def _open_version(location: TableLocation, version: int | None) -> Snapshot:
    if version is not None and version < 0:
        raise NegativeVersionError("version numbers start at 1", version=version)
    try:
        return open_snapshot(location, version)
    except VersionNotFoundError:
        open_snapshot(location)  # raises the better error if the table does not exist
        raise


@dataclass(frozen=True, slots=True)
class NamespaceVersions(CommitHandler):
    """A commit handler that publishes and finds versions through a namespace.

    `client` is the namespace, and `root` the path of the table from the root of its store.
    """

    client: Any
    table_id: tuple[str, ...]
    root: str
    branch: str | None = None

    def publish(self, store: Store, path: str, data: bytes, *, version: int) -> None:
        """Stage the manifest, and let the namespace decide the commit."""
        if is_detached(version):
            # The name is unique to this writer, and readers never see staged manifests.
            store.put_if_absent(path, data)
            return
        staged = staged_manifest_path(path, surroundings.new_uuid())
        store.put(staged, data)
        errors = namespace_module()
        found = parse_manifest_name(name(path))
        assert found is not None, "the path is a manifest path"
        request = self._request(
            version=version,
            manifest_path=join(self.root, staged),
            manifest_size=len(data),
            naming_scheme=found.naming.name,
        )
        try:
            self.client.create_table_version(request)
        except errors.ConcurrentModificationError as error:
            store.delete(staged)
            raise AlreadyExistsError("another writer has the version", version=version) from error
        except (errors.ServiceUnavailableError, errors.InternalError) as error:
            raise CommitOutcomeUnknownError(
                "the namespace did not confirm the commit", version=version
            ) from error
        store.delete(staged)

    def find_latest(self, store: Store) -> ManifestEntry | None:
        """Return the manifest of the latest version, or None if the table does not exist."""
        names = namespace_module()
        request = self._request(limit=1, descending=True)
        try:
            answer = self.client.list_table_versions(names.ListTableVersionsRequest(**request))
        except (names.TableNotFoundError, names.TableBranchNotFoundError):
            return None
        for found in _fields(answer)["versions"][:1]:
            return self._entry(store, _fields(found))
        return None

    @property
    def frees_numbers(self) -> bool:
        """Return False: the namespace never reuses version numbers, even of removed versions."""
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
                "the namespace has no such version", uri=uri, version=version
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
                "the namespace returned a manifest of a different version",
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
    """Return the fields of a response, either a dict or a `lance_namespace` model."""
    if isinstance(answer, Mapping):
        return answer
    fields: dict[str, Any] = answer.model_dump(exclude_none=True)
    return fields
