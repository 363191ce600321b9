"""The manifests of a table: which versions there are, and reading one.

    _versions/18446744073709551612.manifest    version 3 in a V2 table: the newest lists first
    _versions/18446744073709551613.manifest    version 2
    _versions/3.manifest                       version 3 in a V1 table: all must be listed

A table uses one scheme of names. Staged manifests of an external store and detached versions lie
in the same folder and are no part of the history.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime

from lancelet.buffers import run
from lancelet.errors import DatasetNotFoundError, ObjectNotFoundError, VersionNotFoundError
from lancelet.format.manifest_file import StoredManifest, read_manifest
from lancelet.format.paths import (
    VERSIONS,
    ManifestNaming,
    is_detached,
    manifest_path,
    parse_manifest_name,
)
from lancelet.io import ObjectInfo, ObjectReader, Store
from lancelet.io.uri import name


@dataclass(frozen=True, slots=True)
class ManifestEntry:
    """A manifest as a listing shows it."""

    version: int
    naming: ManifestNaming
    path: str
    size: int
    modified: datetime
    etag: str | None = None


def list_manifests(store: Store) -> Iterator[ManifestEntry]:
    """Yield the committed manifests in the order of their names."""
    for info in store.list(VERSIONS):
        entry = _entry_of(info)
        if entry is not None:
            yield entry


def list_versions(store: Store) -> list[ManifestEntry]:
    """Return the committed manifests, oldest first."""
    return sorted(list_manifests(store), key=lambda entry: entry.version)


def find_latest(store: Store) -> ManifestEntry | None:
    """Return the newest manifest, or None if there is no table; one page of a listing in V2."""
    latest: ManifestEntry | None = None
    for entry in list_manifests(store):
        if entry.naming is ManifestNaming.V2:
            # Names count down, so what lists first is the newest; a V1 name would list before
            # any V2 name only in a table whose migration was cut short.
            return entry if latest is None or entry.version > latest.version else latest
        if latest is None or entry.version > latest.version:
            latest = entry
    return latest


def latest_of(store: Store, uri: str) -> ManifestEntry:
    """Return the newest manifest, or raise `DatasetNotFoundError`."""
    entry = find_latest(store)
    if entry is None:
        raise DatasetNotFoundError(
            "no dataset was found there; check the path, or create one", uri=uri
        )
    return entry


def find_version(store: Store, version: int, *, uri: str) -> ManifestEntry:
    """Return the manifest of a version, trying its name under both schemes."""
    for naming in (ManifestNaming.V2, ManifestNaming.V1):
        path = manifest_path(version, naming)
        try:
            info = store.info(path)
        except ObjectNotFoundError:
            continue
        return ManifestEntry(version, naming, path, info.size, info.modified, info.etag)
    raise VersionNotFoundError(
        "the version was never committed, or was cleaned up", uri=uri, version=version
    )


def open_manifest(store: Store, entry: ManifestEntry) -> tuple[StoredManifest, ObjectReader]:
    """Read a manifest; the reader serves the other sections of its file."""
    reader = store.open_reader(entry.path, entry.size)
    return run(read_manifest(reader.size), reader.read_ranges), reader


def _entry_of(info: ObjectInfo) -> ManifestEntry | None:
    found = parse_manifest_name(name(info.path))
    if found is None or found.staging_id is not None or is_detached(found.version):
        return None
    return ManifestEntry(
        found.version, found.naming, info.path, info.size, info.modified, info.etag
    )
