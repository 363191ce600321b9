"""Check that the files that a commit adds to a table exist.

A cleanup deletes files that no version mentions once they are a week old. A commit that was paused
for so long, or runs next to a cleanup with a wrong clock, may lose its files that way:

    writer     writes data/a.lance .......................... puts version 8    checks data/a.lance
    cleanup                          deletes data/a.lance
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from typing import Final

from lancelet import surroundings
from lancelet.config import IO_THREADS
from lancelet.errors import CommitOutcomeUnknownError, CommittedFilesMissingError, StorageError
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
from lancelet.table.snapshot import Snapshot, latest_snapshot
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


def check_new_files(published: Snapshot, base: Snapshot | None, *, is_published: bool) -> None:
    """Raise if files are missing that the transaction of a version added to those of `base`.

    Raises:
        CommittedFilesMissingError: Files are missing.
        CommitOutcomeUnknownError: The version was published, and its files cannot be checked.
    """
    try:
        missing = _missing_files(published, base, is_published=is_published)
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
        f"version {version} was published and cannot be read completely; restore version "
        f"{version - 1} and write the rows again"
        if is_published
        else "nothing was committed; write the rows again"
    )
    raise CommittedFilesMissingError(
        f"{len(missing)} files of the commit were removed before it was acknowledged, as by a "
        f"cleanup that took them for files of no version; {advice}",
        uri=published.location.uri,
        version=version,
        is_published=is_published,
        missing=missing[:_SHOWN],
    )


def _missing_files(published: Snapshot, base: Snapshot | None, *, is_published: bool) -> list[str]:
    files = _added_files(published, base)
    missing = sorted(_missing(published, files))
    if missing and is_published and not published.exists():
        # A later version may have replaced the files before a cleanup removed this version.
        missing = sorted(_missing(published, files & _files_of_latest(published)))
    return missing


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
    if latest is None:
        return set()
    files = {file for fragment in latest.fragments for file in _files_of(fragment)}
    return files | {file for index in latest.indices.indices for file in _files_of_index(index)}


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


def _missing(snapshot: Snapshot, files: set[_File]) -> Iterator[str]:
    """Yield the URIs of files that do not exist."""
    bases = snapshot.manifest.bases
    folders: dict[tuple[str, str], list[str]] = defaultdict(list)
    stores: dict[str, Store] = {}
    for file in files:
        store, path = snapshot.location.resolve(file.folder, file.path, file.base_id, bases)
        stores[store.uri] = store
        folders[store.uri, parent(path)].append(path)
    single: list[tuple[Store, str]] = []
    for (uri, folder), paths in folders.items():
        if len(paths) < _LISTED_FROM:
            single += [(stores[uri], path) for path in paths]
        else:
            stored = {info.path for info in stores[uri].list(folder)}
            yield from (join(uri, path) for path in paths if path not in stored)
    if len(single) < 2:
        exists = [store.exists(path) for store, path in single]
    else:
        with surroundings.executor(min(IO_THREADS, len(single)), "lancelet-check") as pool:
            exists = list(pool.map(lambda each: each[0].exists(each[1]), single))
    for (store, path), is_there in zip(single, exists, strict=True):
        if not is_there:
            yield join(store.uri, path)
