"""List and open the manifests of a table.

    _versions/18446744073709551612.manifest    version 3 in a V2 table: the newest lists first
    _versions/18446744073709551613.manifest    version 2
    _versions/3.manifest                       version 3 in a V1 table: all must be listed

A table uses one naming scheme. Staged manifests of an external manifest store and detached versions
are stored in the same folder but are not part of the history. Empty manifests are ignored: earlier
releases created them to reserve a name on file systems without hard links. Names that start with a
dot list first and are specific to this library: removal records and holds (`removals`), and the
marker of a naming scheme migration.

One listing determines the newest version. Each commit writes the version hint for other readers.
The first releases of Lance also wrote `_latest.manifest`, a copy of the newest manifest. If a table
lacks the folder of versions, this copy is its only version.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import datetime, timedelta
from itertools import islice
from typing import Final

import numpy as np

from lancelet import surroundings
from lancelet.buffers import ByteRanges, ByteSlices, run
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

_SETTLING_TIME: Final = timedelta(seconds=1)
"""Age below which modification time and size do not identify the content of a file."""

_V2_LENGTH: Final = V2_DIGITS + len(MANIFEST_SUFFIX)

_FIRST_V2_NAME: Final = manifest_name(10**9)
_LAST_V2_NAME: Final = manifest_name(0)
"""The range of names that V1 manifests do not have, up to version 18 billion."""

_PAGE: Final = 1000
"""Names per listing request."""

_ATTEMPTS_MAX: Final = 100
"""Maximum number of attempts to open the newest manifest while versions are being removed."""


class MixedNamesError(CorruptDataError, ValueError):
    """The table has manifests of both naming schemes; complete the migration."""


class WrongManifestError(CorruptDataError, VersionNotFoundError):
    """A manifest has the name of another version; restore the manifest of that version."""


@dataclass(frozen=True, slots=True)
class ManifestEntry:
    """A listed manifest."""

    version: int
    naming: ManifestNaming
    path: str
    size: int
    modified: datetime
    etag: str | None = None

    def is_same_object(self, other: ManifestEntry) -> bool:
        """Return whether both entries are certainly the same stored object."""
        return self.etag is not None and (self.path, self.size, self.etag) == (
            other.path,
            other.size,
            other.etag,
        )


@dataclass(frozen=True, slots=True)
class VersionFolder:
    """The result of listing the folder of versions.

    `names` are sorted, so those of V2 manifests follow each other, the newest first, and are found
    by bisection: a table may have thousands. If they fill the first page of a listing, older ones
    are missing. `older` are the manifests with V1 names, and `dotted` the names that start with a
    dot.
    """

    names: Sequence[str]
    older: dict[int, str]
    dotted: tuple[str, ...]
    infos: Mapping[str, ObjectInfo]

    @staticmethod
    def of(store: Store) -> VersionFolder:
        """List the folder of versions until the newest version is determined.

        Raises:
            MixedNamesError: Both naming schemes occur and no migration is running.
        """
        if store.lists_names:
            return VersionFolder._of(store, store.list_names(VERSIONS), {})
        listing = store.list(VERSIONS)
        infos = {name(info.path): info for info in islice(listing, _PAGE)}
        if len(infos) == _PAGE and not all(map(_sorts_before_v1, infos)):
            infos |= {name(info.path): info for info in listing}
        return VersionFolder._of(store, sorted(infos), infos)

    @staticmethod
    def _of(store: Store, names: Sequence[str], infos: Mapping[str, ObjectInfo]) -> VersionFolder:
        dotted: list[str] = []
        older: dict[int, str] = {}
        start, end = bisect_left(names, _FIRST_V2_NAME), bisect_right(names, _LAST_V2_NAME)
        for each in (*names[:start], *names[end:]):
            if each[0] == ".":
                dotted.append(each)
            elif len(each) < _V2_LENGTH and (parsed := parse_manifest_name(each)) is not None:
                older[parsed.version] = each
        folder = VersionFolder(names, older, tuple(dotted), infos)
        if older and (newer := next(folder._v2_names(), None)) and name(RENAMING) not in dotted:
            raise MixedNamesError(
                "the manifests have names of both schemes, as after an interrupted migration; "
                "open a version by its number and call `migrate_manifest_paths_v2()` to "
                "complete it",
                uri=store.uri,
                newest_of_new_names=_parse_v2_name(newer),
                newest_of_old_names=max(older),
            )
        return folder

    @property
    def has_versions(self) -> bool:
        """Whether any manifest was listed."""
        return bool(self.older) or next(self._v2_names(), None) is not None

    def get_file(self, version: int) -> str | None:
        """Return the name of the listed manifest of a version, or None."""
        file = manifest_name(version)
        index = bisect_left(self.names, file)
        is_listed = index < len(self.names) and self.names[index] == file
        return file if is_listed and _is_v2(file) else self.older.get(version)

    def has_other_versions(self, version: int) -> bool:
        """Return whether any version other than `version` was listed."""
        file = manifest_name(version)
        return any(each != version for each in self.older) or any(
            each != file for each in self._v2_names()
        )

    def next_version(self, version: int) -> int | None:
        """Return the lowest listed version above `version`, or None."""
        index = bisect_left(self.names, manifest_name(version)) - 1
        while index >= 0 and not _is_v2(self.names[index]):
            index -= 1
        higher = [each for each in self.older if each > version]
        if index >= 0:
            higher.append(_parse_v2_name(self.names[index]))
        return min(higher, default=None)

    def newest(self, store: Store) -> ManifestEntry | None:
        """Return the newest manifest, or None if the folder has none.

        Raises:
            ObjectNotFoundError: The manifest was removed after the listing.
        """
        version = self._highest_version(self._v2_names(), self.older)
        while version is not None:
            entry = self.entry(store, version)
            if entry.size:
                return entry
            # Empty files were written by earlier releases to reserve a name.
            after = bisect_right(self.names, manifest_name(version))
            lower = [each for each in self.older if each < version]
            version = self._highest_version(self._v2_names(after), lower)
        return None

    def entry(self, store: Store, version: int) -> ManifestEntry:
        """Return the entry of a listed version."""
        file = self.get_file(version)
        assert file is not None, "the version was listed"
        path = f"{VERSIONS}/{file}"
        info = self.infos[file] if file in self.infos else store.info(path)
        naming = ManifestNaming.V2 if len(file) == _V2_LENGTH else ManifestNaming.V1
        return ManifestEntry(version, naming, path, info.size, info.modified, info.etag)

    def _v2_names(self, start: int = 0) -> Iterator[str]:
        """Yield the listed V2 names from an index on, the newest first."""
        return (
            file
            for file in map(self.names.__getitem__, range(start, len(self.names)))
            if _is_v2(file)
        )

    @staticmethod
    def _highest_version(newer: Iterator[str], older: Iterable[int]) -> int | None:
        newest = next(newer, None)
        numbers = [*older] if newest is None else [_parse_v2_name(newest), *older]
        return max(numbers, default=None)


def _parse_v2_name(file: str) -> int:
    """Return the version of a V2 name."""
    return VERSION_MAX - int(file[:V2_DIGITS])


def _is_v2(file: str) -> bool:
    return len(file) == _V2_LENGTH and file[0] in "01" and file.endswith(MANIFEST_SUFFIX)


def _sorts_before_v1(file: str) -> bool:
    """Return whether a name sorts before all V1 names; then one page has the newest version."""
    return (file[0] == "." and file != name(RENAMING)) or _is_v2(file)


def list_manifests(store: Store) -> Iterator[ManifestEntry]:
    """Yield the committed manifests in the order of their names."""
    for info in store.list(VERSIONS):
        entry = _to_entry(info)
        if entry is not None:
            yield entry


def list_versions(store: Store) -> list[ManifestEntry]:
    """Return the committed manifests, oldest first.

    If an interrupted migration left two names for a version, the entry has the new name.
    """
    entries = sorted(list_manifests(store), key=lambda entry: entry.naming.value)
    by_version = {entry.version: entry for entry in entries}
    if not by_version and (alone := find_lone_latest(store)) is not None:
        return [alone]
    return [by_version[version] for version in sorted(by_version)]


def find_latest(store: Store) -> ManifestEntry | None:
    """Return the newest manifest, or None if there is no table.

    This takes one page of a listing for V2 names and all pages for V1. If the newest manifest is
    cleaned up after the listing, the listing is repeated.

    Raises:
        MixedNamesError: Both naming schemes occur.
    """
    for _ in range(_ATTEMPTS_MAX):
        try:
            return VersionFolder.of(store).newest(store) or find_lone_latest(store)
        except ObjectNotFoundError as error:
            missing = error
    raise missing


def find_version(store: Store, version: int, *, uri: str) -> ManifestEntry:
    """Return the manifest of a version, trying both naming schemes."""
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
    """Return the `_latest.manifest` entry of a table of the first releases, or None."""
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
    """Read a manifest, reusing the cached result of an unchanged file.

    Files that are older than a second are identified by their metadata and are not read again.
    Newer files are read, and parsed only if their bytes are not cached.
    """
    with corrupt_within(path=entry.path, uri=store.uri):
        return _open_manifest(store, entry, cache)


def _open_manifest(store: Store, entry: ManifestEntry, cache: LruCache) -> StoredManifest:
    is_small = entry.size <= TAIL_BYTES
    if is_small and surroundings.now() - entry.modified < _SETTLING_TIME:
        return _parse_cached(store.read(entry.path), cache)
    identity = store.identity_if_cheap(entry.path)
    if identity is not None:
        cached = cache.get(("manifest", identity))
        if isinstance(cached, StoredManifest):
            return cached
    reader = store.open_reader(entry.path, entry.size)
    if reader.identity is None:
        if not is_small:
            return run(read_manifest(reader.size), reader.read_ranges)
        whole = reader.read_ranges(ByteRanges.of((0, reader.size)))
        return _parse_cached(whole.slice_bytes(0).tobytes(), cache)

    def fetch(ranges: ByteRanges) -> ByteSlices:
        # Fragments are decoded lazily; copying avoids retaining the memory map.
        slices = reader.read_ranges(ranges)
        return ByteSlices.whole(slices.slice_bytes(0).copy())

    def load() -> tuple[StoredManifest, int]:
        return run(read_manifest(reader.size), fetch), reader.size

    return cache.get_or_load(("manifest", reader.identity), load)


def check_name(entry: ManifestEntry, version: int, *, uri: str) -> None:
    """Raise if the version in a manifest differs from its name, as after a manual copy.

    Raises:
        WrongManifestError: The versions differ.
    """
    if version != entry.version:
        raise WrongManifestError(
            f"the manifest contains version {version}, but its name is that of version "
            f"{entry.version}; it may have been copied or renamed: restore the manifest from a "
            "copy, or delete it to return to the previous version, and use `restore` to return "
            "to an older version",
            uri=uri,
            path=entry.path,
            version=entry.version,
            version_in_manifest=version,
        )


def cache_manifest(data: bytes, stored: StoredManifest, cache: LruCache) -> None:
    """Cache a manifest by the bytes of its file."""
    if len(data) <= TAIL_BYTES:
        cache.put(("manifest", data), stored, value_bytes=2 * len(data))


def _parse_cached(data: bytes, cache: LruCache) -> StoredManifest:
    cached = cache.get(("manifest", data))
    if isinstance(cached, StoredManifest):
        return cached
    stored = parse_manifest_file(np.frombuffer(data, np.uint8))
    cache_manifest(data, stored, cache)
    return stored


def _to_entry(info: ObjectInfo) -> ManifestEntry | None:
    parsed = parse_manifest_name(name(info.path))
    if info.path.count("/") > 1:  # Git-like references can contain nested folders.
        return None
    if parsed is None or parsed.staging_id is not None or is_detached(parsed.version):
        return None
    if not info.size:
        return None
    return ManifestEntry(
        parsed.version, parsed.naming, info.path, info.size, info.modified, info.etag
    )
