"""Collect the files that versions refer to, which cleanup must not delete.

    version 7    data/a.lance   _deletions/0-6-1.arrow   _transactions/6-x.txn   _indices/5f..
    branch x     data/a.lance of the main table, from which it was created

File names are unique, so that files are compared by name, whatever their base is. At worst, this
retains some unreferenced files.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import field
from typing import Final

import numpy as np

from lancelet.buffers import Bytes
from lancelet.errors import CorruptDataError, ObjectNotFoundError, VersionNotFoundError
from lancelet.format.flags import check_writable
from lancelet.format.fragment import External, Fragment
from lancelet.format.fragment_list import FragmentWire
from lancelet.format.index_metadata import IndexSection
from lancelet.format.manifest import Outline
from lancelet.format.manifest_file import read_outline
from lancelet.format.paths import (
    DATA,
    TABLE_FOLDERS,
    TRANSACTIONS,
    TREE,
    VERSIONS,
    branch_root,
    index_directory,
    is_detached,
    parse_manifest_name,
)
from lancelet.io.store import ObjectInfo, Store
from lancelet.io.uri import name as last_part
from lancelet.io.uri import parent
from lancelet.table.location import TableLocation
from lancelet.table.manifests import ManifestEntry, find_lone_latest
from lancelet.table.refs import list_branches
from lancelet.values import dataclass

_BATCH_BYTES: Final = 8 << 20
"""Bytes of manifests that are read together."""

_LISTINGS_MAX: Final = 100
"""Maximum number of listings, if the newest listed version was always removed before it was read.
"""


@dataclass(frozen=True, slots=True)
class VersionOutline:
    """The entry, outline and indices of a version."""

    entry: ManifestEntry
    outline: Outline
    indices: IndexSection

    @property
    def version(self) -> int:
        """The version number."""
        return self.entry.version


@dataclass(slots=True)
class Mentions:
    """Paths relative to the root of a table, and directories of index segments.

    Versions share most fragments, so that each distinct fragment is parsed once. `parsed` maps
    serialized fragments to their paths, and can be shared.
    """

    parsed: dict[bytes, tuple[str, ...]] = field(default_factory=dict)
    paths: set[str] = field(default_factory=set)
    index_directories: set[str] = field(default_factory=set)
    _last: bytes = b""

    def add(self, version: VersionOutline) -> None:
        """Add the files that a version refers to."""
        for fragment in self._new_fragments(version.outline.fragments):
            paths = self.parsed.get(fragment)
            if paths is None:
                paths = self.parsed[fragment] = tuple(_fragment_paths(Fragment.parse(fragment)))
            self.paths.update(paths)
        transaction = version.outline.transaction_file
        if transaction:
            self.paths.add(f"{TRANSACTIONS}/{transaction}")
        for index in version.indices.indices:
            self.index_directories.add(index_directory(index.uuid))

    def __contains__(self, path: str) -> bool:
        """Return whether a file is referenced, or belongs to a referenced file."""
        if path in self.paths:
            return True
        folders = path.split("/")
        if "/".join(folders[:2]) in self.index_directories:
            return True
        # The blobs of data/a.lance are stored in data/a.
        return len(folders) > 2 and any(
            f"{'/'.join(folders[:depth])}.lance" in self.paths for depth in range(2, len(folders))
        )

    def _new_fragments(self, fragments: FragmentWire) -> Iterator[bytes]:
        """Yield the serialized fragments that the previously added version does not contain."""
        wire, last = fragments.wire.tobytes(), self._last
        self._last = wire
        # Most versions append fragments to those of the previous version or, in descending order,
        # lack the last few.
        if last.startswith(wire):
            return
        first = int(fragments.position.searchsorted(len(last))) if wire.startswith(last) else 0
        for start, size in zip(
            fragments.position[first:].tolist(), fragments.size[first:].tolist(), strict=True
        ):
            yield wire[start : start + size]


def read_versions(
    location: TableLocation,
    version_min: int,
    *,
    selects: Callable[[ManifestEntry], bool] | None = None,
) -> tuple[list[ObjectInfo], list[VersionOutline]]:
    """List the version folder, and read the selected versions, including detached ones.

    Versions may be cleaned up between listing and reading. If the newest listed version was removed
    or is older than `version_min`, newer versions may refer to any file,
    and the folder is listed again.

    Raises:
        CorruptDataError: A version cannot be read, so that its files are unknown.
        UnsupportedError: A version has newer features, which may refer to any file.
        VersionNotFoundError: The newest version was removed before every read.
    """
    for _ in range(_LISTINGS_MAX):
        listed = list(location.store.list(VERSIONS))
        entries = [entry for info in listed if (entry := manifest_entry(info)) is not None]
        if not entries and (single := find_lone_latest(location.store)) is not None:
            entries = [single]
        numbers = [entry.version for entry in entries if not is_detached_entry(entry)]
        newest = max(numbers, default=0)
        selected = entries if selects is None else list(filter(selects, entries))
        read = dict(zip(selected, _read_outlines(location, selected), strict=True))
        missing = {entry.version for entry, version in read.items() if version is None}
        if newest >= version_min and newest not in missing:
            return listed, [version for version in read.values() if version is not None]
    raise VersionNotFoundError(
        "the newest version was removed before it could be read, in every attempt; nothing more "
        "was cleaned up, try again",
        uri=location.uri,
        version=version_min,
    )


def _read_outlines(
    location: TableLocation, entries: Sequence[ManifestEntry]
) -> Iterator[VersionOutline | None]:
    """Read versions in batches; yield None for those that were removed."""
    for start, stop in _batches([entry.size for entry in entries]):
        batch = entries[start:stop]
        for entry, data in zip(batch, _read_together(location.store, batch), strict=True):
            yield _read_outline_if_exists(location, entry, data)


def _batches(sizes: Sequence[int]) -> Iterator[tuple[int, int]]:
    """Yield ranges of consecutive files to read together.

    >>> list(_batches([_BATCH_BYTES, 1, 2]))
    [(0, 1), (1, 3)]
    """
    start = num_bytes = 0
    for index, size in enumerate(sizes):
        if index > start and num_bytes + size > _BATCH_BYTES:
            yield start, index
            start, num_bytes = index, 0
        num_bytes += size
    if start < len(sizes):
        yield start, len(sizes)


def _read_together(store: Store, entries: Sequence[ManifestEntry]) -> Sequence[Bytes | None]:
    """Return the content of manifests, or None for each if they must be read one by one."""
    sizes = [entry.size for entry in entries]
    try:
        content = store.read_together([entry.path for entry in entries], sizes)
    except ObjectNotFoundError:
        content = None
    if content is None:
        return [None] * len(entries)
    return np.split(content, np.cumsum(sizes[:-1]))


def _read_outline_if_exists(
    location: TableLocation, entry: ManifestEntry, data: Bytes | None
) -> VersionOutline | None:
    """Return a version, read unless `data` is its manifest; None if it was removed.

    Raises if it is unreadable.
    """
    try:
        if data is None:
            data = np.frombuffer(location.store.read(entry.path), np.uint8)
        outline, indices = read_outline(data)
        check_writable(outline.reader_flags, outline.writer_flags)
        return VersionOutline(entry, outline, indices)
    except ObjectNotFoundError:
        return None
    except CorruptDataError as error:
        error.add_note(
            "a version that cannot be read may refer to any file; nothing was cleaned up"
        )
        raise error.with_facts(path=entry.path, uri=location.uri) from None


def manifest_entry(info: ObjectInfo) -> ManifestEntry | None:
    """Return the manifest entry of a listed file, including detached versions, or None."""
    parsed = parse_manifest_name(last_part(info.path))
    if parsed is None or parsed.staging_id is not None or not info.size:
        return None
    if parent(info.path) != VERSIONS:
        return None
    return ManifestEntry(
        parsed.version, parsed.naming, info.path, info.size, info.modified, info.etag
    )


def is_detached_entry(entry: ManifestEntry) -> bool:
    """Return whether a manifest belongs to a detached version."""
    return is_detached(entry.version)


def branch_locations(main: TableLocation) -> Iterator[TableLocation]:
    """Yield the locations of all branches, including unnamed ones.

    Named branches are located by name, even below other branches. Others are found by listing all
    folders except for those with table files.
    """
    named = {branch_root(name) for name in list_branches(main)}
    yield from map(main.below, sorted(named))
    folders = [TREE]
    while folders:
        folder = folders.pop()
        below = main.store.list_delimited(folder).folders
        is_table = f"{folder}/{VERSIONS}" in below
        if is_table and folder not in named:
            yield main.below(folder)
        folders += [
            inner for inner in below if not is_table or last_part(inner) not in TABLE_FOLDERS
        ]


def _fragment_paths(fragment: Fragment) -> Iterator[str]:
    for file in (*fragment.files, *(overlay.data_file for overlay in fragment.overlays)):
        yield f"{DATA}/{file.path}"
    if fragment.deletion_file is not None:
        yield fragment.deletion_file.path(fragment.id)
    for sequence in (
        fragment.row_ids,
        fragment.created_at_versions,
        fragment.last_updated_at_versions,
    ):
        if isinstance(sequence, External):
            yield sequence.path
