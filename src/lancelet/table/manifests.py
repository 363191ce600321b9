"""The manifests of a table: which versions there are, and reading one.

    _versions/18446744073709551612.manifest    version 3 in a V2 table: the newest lists first
    _versions/18446744073709551613.manifest    version 2
    _versions/3.manifest                       version 3 in a V1 table: all must be listed

A table uses one scheme of names. Staged manifests of an external store and detached versions lie
in the same folder and are no part of the history.

After each commit a note of the latest version is left in the folder. It may be missing, garbage,
too old or too new, so it only saves work where it can be checked:

    nothing in the folder changed since the note, and the note says 7;
    7 is there and was committed when the note was written; 8 is not there     7 is the latest
    anything else                                                              list
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from typing import Final

import numpy as np

from lancelet.buffers import Ranges, Slices, run
from lancelet.errors import ObjectNotFoundError, VersionNotFoundError, corrupt_within
from lancelet.format.manifest_file import (
    TAIL_BYTES,
    StoredManifest,
    parse_manifest_file,
    read_manifest,
)
from lancelet.format.paths import (
    DETACHED_BIT,
    LATEST_VERSION_HINT,
    VERSIONS,
    ManifestNaming,
    is_detached,
    manifest_path,
    parse_manifest_name,
    parse_version_hint,
)
from lancelet.io import ObjectInfo, Store
from lancelet.io.cache import CACHE, LruCache
from lancelet.io.uri import name

_NOTED_AT_COMMIT: Final = timedelta(seconds=10)
"""How long after its time of commit a manifest may be written and noted."""

_JUST_WRITTEN: Final = timedelta(seconds=1)
"""For so long the times of a file may not tell it from another one."""

_NOTE_IS_LAST: Final = timedelta(milliseconds=500)
"""How long after a note was written the folder may show the change that giving it its name was."""


@dataclass(frozen=True, slots=True)
class ManifestEntry:
    """A manifest as a listing shows it.

    `noted_at` is set where it was found by the note of the latest version, written then.
    `folder_changed_at` is set where it was found to be the latest: the last change of the folder
    by then. While that is the last one, it is the latest still.
    """

    version: int
    naming: ManifestNaming
    path: str
    size: int
    modified: datetime
    etag: str | None = None
    noted_at: datetime | None = None
    folder_changed_at: datetime | None = None

    def is_that_of(self, other: ManifestEntry) -> bool:
        """Return whether both are surely of one manifest, as it was stored once."""
        return self.etag is not None and (self.path, self.size, self.etag) == (
            other.path,
            other.size,
            other.etag,
        )


def list_manifests(store: Store) -> Iterator[ManifestEntry]:
    """Yield the committed manifests in the order of their names."""
    for info in store.list(VERSIONS):
        entry = _entry_of(info)
        if entry is not None:
            yield entry


def list_versions(store: Store) -> list[ManifestEntry]:
    """Return the committed manifests, oldest first."""
    return sorted(list_manifests(store), key=lambda entry: entry.version)


def find_latest(store: Store, *, exact: bool = False) -> ManifestEntry | None:
    """Return the newest manifest, or None if there is no table.

    That takes the note of the latest version, where the store can tell that it is fresh, else one
    page of a listing in V2 and all pages in V1. An `exact` answer never uses the note, and is
    needed where `is_as_noted` says no.
    """
    if exact:
        return _listed_latest(store)
    changed = store.last_change(VERSIONS)
    noted = None if changed is None else _noted_latest(store, changed)
    found = noted or _listed_latest(store)
    return None if found is None else replace(found, folder_changed_at=changed)


def is_as_noted(entry: ManifestEntry, committed_at: datetime) -> bool:
    """Return whether a manifest that was found by the note was the last one at that time.

    In a table that was copied all files are of one time, and only the manifest knows better.
    """
    return entry.noted_at is None or abs(entry.noted_at - committed_at) <= _NOTED_AT_COMMIT


def _noted_latest(store: Store, changed: datetime) -> ManifestEntry | None:
    """Return the newest manifest if the note of it was the last change to the folder.

    A note that is older is worth nothing: versions behind it may have been cleaned up, so that
    a free name after it does not mean that it is the last.
    """
    try:
        noted_at = store.info(LATEST_VERSION_HINT).modified
        version = parse_version_hint(store.read(LATEST_VERSION_HINT))
    except ObjectNotFoundError:
        return None
    if version is None or is_detached(version) or changed - noted_at > _NOTE_IS_LAST:
        return None
    for naming in ManifestNaming:
        found: ManifestEntry | None = None
        while version < DETACHED_BIT and (entry := _entry_at(store, version, naming)) is not None:
            found = entry
            version += 1
        if found is not None:
            return replace(found, noted_at=max(noted_at, found.modified))
    return None


def _entry_at(store: Store, version: int, naming: ManifestNaming) -> ManifestEntry | None:
    path = manifest_path(version, naming)
    try:
        info = store.info(path)
    except ObjectNotFoundError:
        return None
    return ManifestEntry(version, naming, path, info.size, info.modified, info.etag)


def _listed_latest(store: Store) -> ManifestEntry | None:
    latest: ManifestEntry | None = None
    for entry in list_manifests(store):
        if entry.naming is ManifestNaming.V2:
            # Names count down, so what lists first is the newest; a V1 name would list before
            # any V2 name only in a table whose migration was cut short.
            return entry if latest is None or entry.version > latest.version else latest
        if latest is None or entry.version > latest.version:
            latest = entry
    return latest


def find_version(store: Store, version: int, *, uri: str) -> ManifestEntry:
    """Return the manifest of a version, trying its name under both schemes."""
    for naming in (ManifestNaming.V2, ManifestNaming.V1):
        entry = _entry_at(store, version, naming)
        if entry is not None:
            return entry
    raise VersionNotFoundError(
        f"version {version} was not found: it was never committed, or was cleaned up",
        uri=uri,
        version=version,
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
    if is_small and datetime.now(UTC) - entry.modified < _JUST_WRITTEN:
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
    if found is None or found.staging_id is not None or is_detached(found.version):
        return None
    return ManifestEntry(
        found.version, found.naming, info.path, info.size, info.modified, info.etag
    )
