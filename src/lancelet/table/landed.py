"""Whether a manifest that was put is a version of the table, or came too late.

    base 6    ours was put as 7    nothing above 7             landed
    base 6    ours was put as 7    7 is recorded as removed    ours: landed; another: late
    base 6    ours was put as 7    above is 9, with ancestor 7 ours: landed; another: late

The store gives a name to whoever asks first, and again once it was cleaned up. So a writer that
was held up between reading version 6 and putting 7 may get a name that others had, used and
deleted. Such a manifest is behind the newest version, where nobody looks for it: what it holds
is lost, unless its writer finds out. It can, since the newest version is never deleted. If 7 was
another's before, there was a version above it when ours was put, and there is one ever after:
a listing that shows none proves that 7 is ours. If there is one, either 7 was removed, which is
recorded before, or a later version says what it descends from.

Beside other writers and cleaners, which record neither, the content decides: a version above that
has what ours added came from ours. If it has not, nobody can know, and that is what is said.
"""

from __future__ import annotations

from contextlib import suppress

from lancelet.errors import (
    CommitOutcomeUnknownError,
    ObjectNotFoundError,
    StorageError,
    VersionNotFoundError,
)
from lancelet.format.manifest import Manifest, version_identifier
from lancelet.table.handlers import CommitHandler
from lancelet.table.manifests import VersionFolder
from lancelet.table.removals import Removals
from lancelet.table.snapshot import Snapshot, open_entry


def landed_in(
    published: Snapshot, base: Snapshot | None, handler: CommitHandler
) -> VersionFolder | None:
    """Return a listing that shows a manifest put on top of `base` as the version of its number.

    One that came too late is deleted, and the result is None: no version of that number is there
    any more, or will be.

    Raises:
        CommitOutcomeUnknownError: Versions were removed by others, who leave no record.
        VersionNotFoundError: The table was deleted, or made again, since it was read.
    """
    while True:
        folder = VersionFolder.of(published.location.store)
        try:
            if not handler.frees_numbers:
                _check_base(published, base, folder)
                return folder
            landed = _has_landed(published, base, folder)
        except ObjectNotFoundError:
            continue  # What was listed was cleaned up since; something newer is there.
        if landed:
            return folder
        _discard(published)
        return None


def _has_landed(published: Snapshot, base: Snapshot | None, folder: VersionFolder) -> bool:
    above = folder.above(published.version)
    if above is None:
        _check_base(published, base, folder)
        return True
    ours, store = published.manifest.transaction_file, published.location.store
    removals = Removals.of(store, folder)
    recorded = removals.transactions.get(published.version)
    if recorded is not None:
        return recorded == ours
    following = open_entry(published.location, folder.entry(store, above))
    ancestor = following.manifest.ancestor(published.version)
    if ancestor is not None:
        return ancestor == version_identifier(ours)
    if not removals.is_forgotten(published.version) and _shows(following, published, base):
        return True
    raise CommitOutcomeUnknownError(
        "versions were removed while this one was being committed, and by another library or too "
        "many to remember, so that nobody can tell whether it was one of them; look whether its "
        "changes are in the table before making them again",
        uri=published.location.uri,
        version=published.version,
        transaction_file=ours,
    )


def _shows(following: Snapshot, published: Snapshot, base: Snapshot | None) -> bool:
    """Return whether a later version has all that one added to its base, if that is anything."""
    before = set() if base is None else _content(base)
    added = _content(published) - before
    return bool(added) and added <= _content(following)


def _content(snapshot: Snapshot) -> set[tuple[object, ...]]:
    """Return what a version has that a later one keeps unless it changes it."""
    manifest: Manifest = snapshot.manifest
    content: set[tuple[object, ...]] = {("field", field) for field in manifest.schema.fields}
    content |= {("config", *item) for item in manifest.config.items()}
    content |= {("metadata", *item) for item in manifest.table_metadata.items()}
    content |= {("base", base) for base in manifest.base_paths}
    content |= {("index", index.uuid) for index in snapshot.indices.indices}
    for fragment in manifest.fragments:
        content |= {("file", file.path) for file in fragment.files}
        if fragment.deletion_file is not None:
            content.add(("deletions", fragment.deletion_file.path(fragment.id)))
    return content


def _check_base(published: Snapshot, base: Snapshot | None, folder: VersionFolder) -> None:
    """Refuse to have continued a table that was deleted, or made again, meanwhile."""
    if base is None or published.version != base.version + 1:
        return
    store = published.location.store
    if folder.file_of(base.version) is not None:
        found = folder.entry(store, base.version)
        if None in (found.etag, base.entry.etag) or found.is_that_of(base.entry):
            return
        if open_entry(published.location, found).identity == base.identity:
            return
    else:
        recorded = Removals.of(store, folder).transactions.get(base.version)
        if recorded == base.manifest.transaction_file or folder.others(published.version):
            return
        if recorded is None and _has_files(base):
            return
    _discard(published)
    raise VersionNotFoundError(
        "the table was deleted, moved or made again after it was read; open it again",
        uri=published.location.uri,
        version=base.version,
    )


def _has_files(base: Snapshot) -> bool:
    """Return whether the first file of a version is there, or it has none."""
    for fragment in base.fragments[:1]:
        for file in fragment.files[:1]:
            place = base.location.place("data", file.path, file.base_id, base.manifest.bases)
            return place.store.exists(place.path)
    return True


def _discard(late: Snapshot) -> None:
    """Delete a manifest that is no version; one that stays is deleted by cleaning up."""
    with suppress(StorageError):
        late.location.store.delete(late.entry.path)
