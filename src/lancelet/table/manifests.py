"""The manifests of a table: which versions there are, and reading one.

    _versions/18446744073709551612.manifest    version 3 in a V2 table: the newest lists first
    _versions/18446744073709551613.manifest    version 2
    _versions/3.manifest                       version 3 in a V1 table: all must be listed

A table uses one scheme of names. Staged manifests of an external store and detached versions lie
in the same folder and are no part of the history; neither is an empty file, by which earlier
releases claimed a name where there are no hard links. Names that begin with a dot are ours, and
come first in a listing: what cleaning up removed (`removals`), what is held against it, and that a
change of the scheme is under way.

The newest version is what one listing shows. The hint that each commit leaves is for others.
Beside the folder the first releases left `_latest.manifest`, a copy of the newest one. Where a
table came without its folder of versions, that is its one version, as its number says.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from datetime import datetime, timedelta
from itertools import islice
from typing import Final

import numpy as np

from lancelet import surroundings
from lancelet.buffers import Ranges, Slices, run
from lancelet.errors import (
    CorruptDataError,
    ObjectNotFoundError,
    VersionNotFoundError,
    corrupt_within,
)
from lancelet.format.manifest_file import (
    TAIL_BYTES,
    StoredManifest,
    parse_manifest_file,
    read_manifest,
)
from lancelet.format.paths import (
    LATEST_MANIFEST,
    MANIFEST_SUFFIX,
    RENAMING,
    V2_DIGITS,
    VERSION_MAX,
    VERSIONS,
    ManifestNaming,
    is_detached,
    manifest_name,
    manifest_path,
    parse_manifest_name,
)
from lancelet.io import ObjectInfo, Store
from lancelet.io.cache import CACHE, LruCache
from lancelet.io.uri import name
from lancelet.values import dataclass

_JUST_WRITTEN: Final = timedelta(seconds=1)
"""For so long the times of a file may not tell it from another one."""

_V2_LENGTH: Final = V2_DIGITS + len(MANIFEST_SUFFIX)

_PAGE: Final = 1000
"""How many names one request to list them brings."""

_LOOKS_MAX: Final = 100
"""How often the newest manifest may be gone when it is looked at, before that is an error."""


class MixedNamesError(CorruptDataError, ValueError):
    """Manifests have names of both schemes, so that readers may miss the newest; rename them."""


class WrongManifestError(CorruptDataError, VersionNotFoundError):
    """A manifest has the name of another version; restore the manifest of that version."""


@dataclass(frozen=True, slots=True)
class ManifestEntry:
    """A manifest as a listing shows it."""

    version: int
    naming: ManifestNaming
    path: str
    size: int
    modified: datetime
    etag: str | None = None

    def is_that_of(self, other: ManifestEntry) -> bool:
        """Return whether both are surely of one manifest, as it was stored once."""
        return self.etag is not None and (self.path, self.size, self.etag) == (
            other.path,
            other.size,
            other.etag,
        )


@dataclass(frozen=True, slots=True)
class VersionFolder:
    """What one listing of the folder of versions showed.

    `newer` and `older` are the files of manifests with names of V2 and of V1. Where names of V2
    fill a page, older versions are not among them. `dotted` are the names that begin with a dot.
    """

    newer: list[str]
    older: dict[int, str]
    dotted: tuple[str, ...]
    infos: Mapping[str, ObjectInfo]

    @staticmethod
    def of(store: Store) -> VersionFolder:
        """List the folder of versions, as far as the newest version takes.

        Raises:
            MixedNamesError: There are names of both schemes, and nobody is renaming them.
        """
        if store.lists_names:
            return VersionFolder._of(store, store.list_names(VERSIONS), {})
        listing = store.list(VERSIONS)
        infos = {name(info.path): info for info in islice(listing, _PAGE)}
        if len(infos) == _PAGE and not all(map(_comes_first, infos)):
            infos |= {name(info.path): info for info in listing}
        return VersionFolder._of(store, list(infos), infos)

    @staticmethod
    def _of(store: Store, names: list[str], infos: Mapping[str, ObjectInfo]) -> VersionFolder:
        # A table may have many thousands of versions, so most names get one look.
        newer = [
            each
            for each in names
            if len(each) == _V2_LENGTH and each[0] in "01" and each.endswith(MANIFEST_SUFFIX)
        ]
        dotted: list[str] = []
        older: dict[int, str] = {}
        if len(newer) < len(names):
            for each in names:
                if each[0] == ".":
                    dotted.append(each)
                elif len(each) < _V2_LENGTH and (found := parse_manifest_name(each)) is not None:
                    older[found.version] = each
        if newer and older and name(RENAMING) not in dotted:
            raise MixedNamesError(
                "the manifests have names of both schemes, as after a change of names that was "
                "cut short; open a version by its number and call `migrate_manifest_paths_v2()` "
                "to finish it",
                uri=store.uri,
                newest_of_new_names=_number_of(min(newer)),
                newest_of_old_names=max(older),
            )
        return VersionFolder(newer, older, tuple(dotted), infos)

    @property
    def has_versions(self) -> bool:
        """Whether any manifest was listed."""
        return bool(self.newer or self.older)

    def file_of(self, version: int) -> str | None:
        """Return the manifest that was listed for a version."""
        file = manifest_name(version)
        return file if file in self.newer else self.older.get(version)

    def others(self, version: int) -> bool:
        """Return whether any other version than one was listed."""
        return len(self.newer) + len(self.older) > (self.file_of(version) is not None)

    def above(self, version: int) -> int | None:
        """Return the lowest version that was listed above one."""
        limit = manifest_name(version)
        # Names of V2 count down, and mostly there is nothing above.
        is_newest = not self.newer or min(self.newer) >= limit
        newer = None if is_newest else max(each for each in self.newer if each < limit)
        older = min((each for each in self.older if each > version), default=None)
        found = [each for each in (older, _number_of(newer) if newer else None) if each is not None]
        return min(found, default=None)

    def newest(self, store: Store) -> ManifestEntry | None:
        """Return the newest manifest, or None if there is none.

        Raises:
            ObjectNotFoundError: It was removed since the listing.
        """
        newer = _number_of(min(self.newer)) if self.newer else None
        version = max(self.older, default=newer) if newer is None else newer
        if self.older and newer is not None:
            version = max(newer, *self.older)
        while version is not None:
            entry = self.entry(store, version)
            if entry.size:
                return entry
            # An empty file is the claim of somebody who may be dead.
            version = self._below(version)
        return None

    def entry(self, store: Store, version: int) -> ManifestEntry:
        """Return the manifest of a version that was listed."""
        file = self.file_of(version)
        assert file is not None, "the version was listed"
        path = f"{VERSIONS}/{file}"
        info = self.infos[file] if file in self.infos else store.info(path)
        naming = ManifestNaming.V2 if len(file) == _V2_LENGTH else ManifestNaming.V1
        return ManifestEntry(version, naming, path, info.size, info.modified, info.etag)

    def _below(self, version: int) -> int | None:
        """Return the highest version that was listed below one."""
        numbers = [*map(_number_of, self.newer), *self.older]
        return max((each for each in numbers if each < version), default=None)


def _number_of(file: str) -> int:
    """Return the version of a name of V2."""
    return VERSION_MAX - int(file[:V2_DIGITS])


def _is_v2(file: str) -> bool:
    return "0" <= file[0] < "2" and file.endswith(MANIFEST_SUFFIX) and len(file) == _V2_LENGTH


def _comes_first(file: str) -> bool:
    """Return whether a listing that begins with names like this one has the newest version."""
    return (file[0] == "." and file != name(RENAMING)) or _is_v2(file)


def list_manifests(store: Store) -> Iterator[ManifestEntry]:
    """Yield the committed manifests in the order of their names."""
    for info in store.list(VERSIONS):
        entry = _entry_of(info)
        if entry is not None:
            yield entry


def list_versions(store: Store) -> list[ManifestEntry]:
    """Return the committed manifests, oldest first.

    Where a version has two names, since a change of the scheme was cut short, it has the new one.
    """
    entries = sorted(list_manifests(store), key=lambda entry: entry.naming.value)
    by_version = {entry.version: entry for entry in entries}
    if not by_version and (alone := find_lone_latest(store)) is not None:
        return [alone]
    return [by_version[version] for version in sorted(by_version)]


def find_latest(store: Store) -> ManifestEntry | None:
    """Return the newest manifest, or None if there is no table.

    That takes one page of a listing in V2 and all pages in V1. Where the newest was cleaned up
    since it was listed, a newer one is there.

    Raises:
        MixedNamesError: There are names of both schemes.
    """
    for _ in range(_LOOKS_MAX):
        try:
            return VersionFolder.of(store).newest(store) or find_lone_latest(store)
        except ObjectNotFoundError as error:
            missing = error
    raise missing


def find_version(store: Store, version: int, *, uri: str) -> ManifestEntry:
    """Return the manifest of a version, trying its name under both schemes."""
    for naming in (ManifestNaming.V2, ManifestNaming.V1):
        path = manifest_path(version, naming)
        try:
            info = store.info(path)
        except ObjectNotFoundError:
            continue
        if info.size:
            return ManifestEntry(version, naming, path, info.size, info.modified, info.etag)
    alone = find_lone_latest(store)
    if alone is not None and alone.version == version:
        return alone
    raise VersionNotFoundError(
        f"version {version} was not found: it was never committed, or was cleaned up",
        uri=uri,
        version=version,
    )


def find_lone_latest(store: Store) -> ManifestEntry | None:
    """Return the manifest that a table of the first releases has beside its folder of versions."""
    try:
        info = store.info(LATEST_MANIFEST)
        data = np.frombuffer(store.read(LATEST_MANIFEST), np.uint8)
    except ObjectNotFoundError:
        return None
    with corrupt_within(path=LATEST_MANIFEST, uri=store.uri):
        version = parse_manifest_file(data).manifest.version
    return ManifestEntry(
        version, ManifestNaming.V1, LATEST_MANIFEST, info.size, info.modified, info.etag
    )


def open_manifest(store: Store, entry: ManifestEntry, cache: LruCache = CACHE) -> StoredManifest:
    """Read a manifest; what is known to be the same as before is not parsed again.

    A file that did not change for a while is known by what it is, and is not read. One that was
    just written is read, and its bytes tell whether they were parsed, or written here.
    """
    with corrupt_within(path=entry.path, uri=store.uri):
        return _open_manifest(store, entry, cache)


def _open_manifest(store: Store, entry: ManifestEntry, cache: LruCache) -> StoredManifest:
    is_small = entry.size <= TAIL_BYTES
    if is_small and surroundings.now() - entry.modified < _JUST_WRITTEN:
        return _parsed(store.read(entry.path), cache)
    reader = store.open_reader(entry.path, entry.size)
    if reader.identity is None:
        if not is_small:
            return run(read_manifest(reader.size), reader.read_ranges)
        whole = reader.read_ranges(Ranges.of((0, reader.size)))
        return _parsed(whole.slice_bytes(0).tobytes(), cache)

    def fetch(ranges: Ranges) -> Slices:
        # Fragments are decoded when they are needed, and the map should not be kept for that.
        slices = reader.read_ranges(ranges)
        return Slices.whole(slices.slice_bytes(0).copy())

    def load() -> tuple[StoredManifest, int]:
        return run(read_manifest(reader.size), fetch), reader.size

    return cache.get_or_load(("manifest", reader.identity), load)


def check_name(entry: ManifestEntry, version: int, *, uri: str) -> None:
    """Raise if a manifest is of another version than its name, as after a copy by hand.

    Raises:
        WrongManifestError: The versions differ.
    """
    if version != entry.version:
        raise WrongManifestError(
            f"the manifest is of version {version}, and its name says {entry.version}; was it "
            "copied or renamed? Restore the manifest from a copy, or delete it to go back to the "
            "version before, and use `restore` to return to an older version",
            uri=uri,
            path=entry.path,
            version=entry.version,
            version_in_manifest=version,
        )


def keep_manifest(data: bytes, stored: StoredManifest, cache: LruCache) -> None:
    """Keep what the bytes of a manifest's file say, for whoever reads the same bytes."""
    if len(data) <= TAIL_BYTES:
        cache.put(("manifest", data), stored, value_bytes=2 * len(data))


def _parsed(data: bytes, cache: LruCache) -> StoredManifest:
    known = cache.get(("manifest", data))
    if isinstance(known, StoredManifest):
        return known
    stored = parse_manifest_file(np.frombuffer(data, np.uint8))
    keep_manifest(data, stored, cache)
    return stored


def _entry_of(info: ObjectInfo) -> ManifestEntry | None:
    found = parse_manifest_name(name(info.path))
    if info.path.count("/") > 1:  # a branch of the reference among the files of this one
        return None
    if found is None or found.staging_id is not None or is_detached(found.version):
        return None
    if not info.size:
        return None
    return ManifestEntry(
        found.version, found.naming, info.path, info.size, info.modified, info.etag
    )
