"""Check that the files that a commit adds to a table exist, and that no cleanup deletes them.

A cleanup deletes files that no version mentions once they are a week old. A commit that was paused
for so long, or runs next to a cleanup with a wrong clock, may lose its files that way:

    writer     writes data/a.lance .......................... puts version 8    checks data/a.lance
    cleanup                          deletes data/a.lance

A cleanup may also be paused before it deletes. It puts its marker before it reads the versions, and
takes the time of the marker for the age of files. A file that was a week older than the newest
marker may therefore be deleted at any time, unless an earlier version mentions it:

    writer     writes data/a.lance ............... puts version 8    compares the times
    cleanup                    marker   reads versions ........................ deletes data/a.lance
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from datetime import datetime
from typing import Final

from lancelet import surroundings
from lancelet.config import IO_THREADS
from lancelet.errors import (
    CommitOutcomeUnknownError,
    CommittedFilesMissingError,
    ObjectNotFoundError,
    StorageError,
)
from lancelet.format.fragment import Fragment
from lancelet.format.index_metadata import IndexMetadata
from lancelet.format.operation import (
    AddOverlays,
    Append,
    CreateIndex,
    DataReplacement,
    Delete,
    Merge,
    Operation,
    Overwrite,
    Rewrite,
    Update,
)
from lancelet.format.paths import DATA, DELETIONS, INDICES
from lancelet.io.store import Store
from lancelet.io.uri import join, name, parent
from lancelet.table.manifests import VersionFolder
from lancelet.table.removals import UNVERIFIED_AGE, Sweep, last_sweep
from lancelet.table.snapshot import Snapshot, latest_snapshot, open_entry
from lancelet.values import dataclass

_LISTED_FROM: Final = 1000
"""Number of files of one folder from which the folder is listed instead of checking each file."""

_SHOWN: Final = 10


@dataclass(frozen=True, slots=True)
class _File:
    """A file as a manifest names it: the folder, the path within it and the base."""

    folder: str
    path: str
    base_id: int | None = None


def check_new_files(
    published: Snapshot, base: Snapshot | None, *, folder: VersionFolder | None = None
) -> None:
    """Raise if files are unsafe that the transaction of a version added to those of `base`.

    `folder` is a listing after the put, or None before it.

    Raises:
        CommittedFilesMissingError: Files are missing, or a cleanup may be about to delete them.
        CommitOutcomeUnknownError: The version was published, and its files cannot be checked.
    """
    is_published = folder is not None
    try:
        missing = _unsafe_files(published, base, folder)
    except StorageError as error:
        if not is_published:
            raise
        raise CommitOutcomeUnknownError(
            "the version was published, and the store did not answer whether its files exist; "
            "check the table before making the changes again",
            uri=published.location.uri,
            version=published.version,
        ) from error
    if not missing:
        return
    version = published.version
    advice = (
        f"version {version} was published and may not be read completely; restore version "
        f"{version - 1} and write the rows again"
        if is_published
        else "nothing was committed; write the rows again"
    )
    raise CommittedFilesMissingError(
        f"{len(missing)} files of the commit were removed before it was acknowledged, or are being "
        f"removed, as by a cleanup that took them for files of no version; {advice}",
        uri=published.location.uri,
        version=version,
        is_published=is_published,
        missing=missing[:_SHOWN],
    )


def _unsafe_files(
    published: Snapshot, base: Snapshot | None, folder: VersionFolder | None
) -> list[str]:
    files, store = _added_files(published, base), published.location.store
    sweep = last_sweep(store, folder or VersionFolder.of(store))
    unsafe = _unsafe(published, files, sweep)
    if unsafe and folder is not None and not published.exists():
        # A later version may have replaced the files before a cleanup removed this version.
        files &= _files_of_latest(published)
        unsafe = _unsafe(published, files, sweep)
    return sorted(unsafe)


def _unsafe(published: Snapshot, files: set[_File], sweep: Sweep | None) -> list[str]:
    """Return the URIs of files that are missing or that a cleanup may be about to delete."""
    times = _modified(published, files)
    missing = [uri for uri, modified in times.values() if modified is None]
    if missing or sweep is None:
        return missing
    endangered = {
        file: uri
        for file, (uri, modified) in times.items()
        if modified is not None and sweep.time - modified >= UNVERIFIED_AGE
    }
    if not endangered:
        return []
    retained = _files_until(published, sweep.version)
    return [uri for file, uri in endangered.items() if file not in retained]


def _files_until(published: Snapshot, version: int) -> set[_File]:
    """Return the files of all versions that a cleanup at `version` retained."""
    files: set[_File] = set()
    location = published.location
    for entry in location.handler.list_versions(location.store):
        if entry.version <= version:
            files |= _files_of_version(open_entry(location, entry))
    return files


def _added_files(published: Snapshot, base: Snapshot | None) -> set[_File]:
    transaction = published.transaction
    if transaction is None:
        return set()
    before: set[_File] = set()
    added: set[_File] = set()
    existing = set() if base is None else set(base.fragments.ids.tolist())
    for fragment in _fragments_of(transaction.operation):
        added.update(_files_of(fragment))
        if base is not None and int(fragment.id) in existing:
            before.update(_files_of(base.fragments.by_id(fragment.id)))
    added.update(_metadata_files(transaction.operation))
    return added - before


def _files_of_latest(published: Snapshot) -> set[_File]:
    latest = latest_snapshot(published.location)
    return set() if latest is None else _files_of_version(latest)


def _files_of_version(snapshot: Snapshot) -> set[_File]:
    files = {file for fragment in snapshot.fragments for file in _files_of(fragment)}
    return files | {file for index in snapshot.indices.indices for file in _files_of_index(index)}


def _fragments_of(operation: Operation) -> tuple[Fragment, ...]:
    """Return the fragments that an operation adds or changes."""
    match operation:
        case Append(fragments=fragments) | Merge(fragments=fragments):
            return tuple(fragments)
        case Overwrite(fragments=fragments):
            return tuple(fragments)
        case Delete(updated_fragments=updated):
            return tuple(updated)
        case Update(updated_fragments=updated, new_fragments=new):
            return (*updated, *new)
        case Rewrite(groups=groups):
            return tuple(fragment for group in groups for fragment in group.new_fragments)
        case _:
            return ()


def _metadata_files(operation: Operation) -> Iterator[_File]:
    match operation:
        case DataReplacement(replacements=replacements):
            for group in replacements:
                yield _File(DATA, group.new_file.path, group.new_file.base_id)
        case AddOverlays(groups=groups):
            for each in groups:
                for overlay in each.overlays:
                    yield _File(DATA, overlay.data_file.path, overlay.data_file.base_id)
        case CreateIndex(new_indices=indices):
            for index in indices:
                yield from _files_of_index(index)
        case Rewrite(rewritten_indices=rewritten):
            for change in rewritten:
                if change.new_id != change.old_id:
                    for file in change.new_files:
                        yield _File(INDICES, f"{change.new_id}/{file.path}")
        case _:
            return


def _files_of_index(index: IndexMetadata) -> Iterator[_File]:
    for file in index.files:
        if file.size_bytes:  # no rows are lost with an empty file
            yield _File(INDICES, f"{index.uuid}/{file.path}", index.base_id)


def _files_of(fragment: Fragment) -> Iterator[_File]:
    for file in (*fragment.files, *(overlay.data_file for overlay in fragment.overlays)):
        yield _File(DATA, file.path, file.base_id)
    deletion = fragment.deletion_file
    if deletion is not None:
        yield _File(DELETIONS, name(deletion.path(fragment.id)), deletion.base_id)


def _modified(snapshot: Snapshot, files: set[_File]) -> dict[_File, tuple[str, datetime | None]]:
    """Return the URI and the modification time of each file, None for one that does not exist."""
    bases = snapshot.manifest.bases
    folders: dict[tuple[str, str], dict[str, _File]] = defaultdict(dict)
    stores: dict[str, Store] = {}
    for file in files:
        store, path = snapshot.location.resolve(file.folder, file.path, file.base_id, bases)
        stores[store.uri] = store
        folders[store.uri, parent(path)][path] = file
    times: dict[_File, tuple[str, datetime | None]] = {}
    single: list[tuple[Store, str, _File]] = []
    for (uri, folder), by_path in folders.items():
        if len(by_path) < _LISTED_FROM:
            single += [(stores[uri], path, file) for path, file in by_path.items()]
        else:
            stored = {info.path: info.modified for info in stores[uri].list(folder)}
            for path, file in by_path.items():
                times[file] = join(uri, path), stored.get(path)
    if len(single) < 2:
        found = [_time_of(store, path) for store, path, _ in single]
    else:
        with surroundings.executor(min(IO_THREADS, len(single)), "lancelet-check") as pool:
            found = list(pool.map(lambda each: _time_of(*each[:2]), single))
    for (store, path, file), modified in zip(single, found, strict=True):
        times[file] = join(store.uri, path), modified
    return times


def _time_of(store: Store, path: str) -> datetime | None:
    try:
        return store.info(path).modified
    except ObjectNotFoundError:
        return None
