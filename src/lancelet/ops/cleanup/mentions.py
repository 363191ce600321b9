"""What the versions of a table mention: the files that must not go while a version stays.

    version 7    data/a.lance   _deletions/0-6-1.arrow   _transactions/6-x.txn   _indices/5f..
    branch x     data/a.lance of the main table, which it started from

Files have names that nobody else has, so they are told apart by name alone, whichever base a
version says they are in. That keeps a few too many at worst, and never one too few.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import field
from typing import Final

import numpy as np

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
from lancelet.io.store import ObjectInfo
from lancelet.io.uri import name as last_part
from lancelet.io.uri import parent
from lancelet.table.location import TableLocation
from lancelet.table.manifests import ManifestEntry, find_lone_latest
from lancelet.table.refs import list_branches
from lancelet.values import dataclass

_LOOKS_MAX: Final = 100
"""How often the newest of the listed versions may be gone, before that is an error."""


@dataclass(frozen=True, slots=True)
class KnownVersion:
    """A version of which only is known what it mentions, and when it was committed."""

    entry: ManifestEntry
    outline: Outline
    indices: IndexSection

    @property
    def version(self) -> int:
        """The number of the version."""
        return self.entry.version


@dataclass(slots=True)
class Mentions:
    """Paths below the root of a table, and directories of index segments.

    Versions share most of their fragments, so each is taken apart once; `known` has the paths of
    fragments that were, by their bytes, and may serve several.
    """

    known: dict[bytes, tuple[str, ...]] = field(default_factory=dict)
    paths: set[str] = field(default_factory=set)
    index_directories: set[str] = field(default_factory=set)
    _last: bytes = b""

    def add(self, version: KnownVersion) -> None:
        """Add what a version mentions."""
        for fragment in self._unseen(version.outline.fragments):
            found = self.known.get(fragment)
            if found is None:
                found = self.known[fragment] = tuple(_paths_of(Fragment.parse(fragment)))
            self.paths.update(found)
        transaction = version.outline.transaction_file
        if transaction:
            self.paths.add(f"{TRANSACTIONS}/{transaction}")
        for index in version.indices.indices:
            self.index_directories.add(index_directory(index.uuid))

    def __contains__(self, path: str) -> bool:
        """Return whether a file is mentioned, or belongs to one that is."""
        if path in self.paths:
            return True
        folders = path.split("/")
        if "/".join(folders[:2]) in self.index_directories:
            return True
        # The blobs of data/a.lance are below data/a.
        return len(folders) > 2 and any(
            f"{'/'.join(folders[:depth])}.lance" in self.paths for depth in range(2, len(folders))
        )

    def _unseen(self, fragments: FragmentWire) -> Iterator[bytes]:
        """Yield the fragments that the version before did not have, byte for byte."""
        wire, last = fragments.wire.tobytes(), self._last
        self._last = wire
        # Most versions add fragments to those of the one before, or, listed from the newest
        # on, lack the last few of it.
        if last.startswith(wire):
            return
        first = int(fragments.position.searchsorted(len(last))) if wire.startswith(last) else 0
        for start, size in zip(
            fragments.position[first:].tolist(), fragments.size[first:].tolist(), strict=True
        ):
            yield wire[start : start + size]


def read_versions(
    location: TableLocation, least: int, *, wants: Callable[[ManifestEntry], bool] | None = None
) -> tuple[list[ObjectInfo], list[KnownVersion]]:
    """List the folder of versions, and read those that somebody `wants`, detached ones included.

    Others may clean up what was listed before it is read. That is no loss as long as the newest
    version of the listing is read, and is not older than the `least`: else nobody would know what
    those need that came instead, so the folder is listed again.

    Raises:
        CorruptDataError: A version cannot be read, so nobody knows what it needs.
        UnsupportedError: A version has features of a newer release, which may need any file.
        VersionNotFoundError: The newest version was gone whenever it was read.
    """
    for _ in range(_LOOKS_MAX):
        listed = list(location.store.list(VERSIONS))
        entries = [entry for info in listed if (entry := manifest_entry(info)) is not None]
        if not entries and (alone := find_lone_latest(location.store)) is not None:
            entries = [alone]
        numbers = [entry.version for entry in entries if not is_on_no_branch(entry)]
        newest = max(numbers, default=0)
        wanted = entries if wants is None else filter(wants, entries)
        read = {entry: _open_surely(location, entry) for entry in wanted}
        are_gone = {entry.version for entry, version in read.items() if version is None}
        if newest >= least and newest not in are_gone:
            return listed, [version for version in read.values() if version is not None]
    raise VersionNotFoundError(
        "whenever the versions were listed, others had removed them before they were read; "
        "nothing more was cleaned up, try again",
        uri=location.uri,
        version=least,
    )


def _open_surely(location: TableLocation, entry: ManifestEntry) -> KnownVersion | None:
    """Read a version if it still is there, or say that nothing may be cleaned up because of it."""
    try:
        data = np.frombuffer(location.store.read(entry.path), np.uint8)
        outline, indices = read_outline(data)
        check_writable(outline.reader_flags, outline.writer_flags)
        return KnownVersion(entry, outline, indices)
    except ObjectNotFoundError:
        return None
    except CorruptDataError as error:
        error.add_note("a version that cannot be read may need any file; nothing was cleaned up")
        raise error.with_facts(path=entry.path, uri=location.uri) from None


def manifest_entry(info: ObjectInfo) -> ManifestEntry | None:
    """Return what a listed file is a manifest of, detached versions included."""
    found = parse_manifest_name(last_part(info.path))
    if found is None or found.staging_id is not None or not info.size:
        return None
    if parent(info.path) != VERSIONS:
        return None
    return ManifestEntry(
        found.version, found.naming, info.path, info.size, info.modified, info.etag
    )


def is_on_no_branch(entry: ManifestEntry) -> bool:
    """Return whether a manifest is that of a detached version."""
    return is_detached(entry.version)


def branch_locations(main: TableLocation) -> Iterator[TableLocation]:
    """Yield where the branches of a table are, also those that have no name yet.

    Those that have one are where it says, even among files of other branches; for others all
    folders are looked at, but for those in which tables have their files.
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


def _paths_of(fragment: Fragment) -> Iterator[str]:
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
