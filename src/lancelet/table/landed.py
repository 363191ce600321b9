"""Determine whether a published manifest became a version of the table or was too late.

    base 6    ours was put as 7    no version above 7          committed
    base 6    ours was put as 7    7 is recorded as removed    ours: committed; another: late
    base 6    ours was put as 7    9 exists, with ancestor 7   ours: committed; another: late

A conditional put succeeds again once a name was cleaned up. A writer that was paused between
reading version 6 and putting 7 may therefore put a name that other writers used and removed. Such a
manifest is older than the newest version and is never read: its changes are lost unless the writer
detects it. This is possible because the newest version is never removed. If 7 belonged to another
writer before, a higher version existed when ours was put, and one exists ever since: a listing
without a higher version proves that 7 is ours. Otherwise either the removal of 7 was recorded in
advance, or a later version records its ancestor.

Other libraries write neither records nor ancestors. Then the content decides: a higher version that
contains the changes of our commit was derived from it. If it does not, the outcome is unknown.
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


def confirm_version(
    published: Snapshot, base: Snapshot | None, handler: CommitHandler
) -> VersionFolder | None:
    """Return a listing that confirms that a put manifest is the version of its number.

    A manifest that was too late is deleted, and the result is None: no version of that number
    exists or can exist later.

    Raises:
        CommitOutcomeUnknownError: Another library removed versions without a record.
        VersionNotFoundError: The table was deleted, or created again, since it was read.
    """
    while True:
        folder = VersionFolder.of(published.location.store)
        try:
            if not handler.frees_numbers:
                _check_base(published, base, folder)
                return folder
            is_confirmed = _is_committed(published, base, folder)
        except ObjectNotFoundError:
            continue  # A listed version was cleaned up, so a newer one exists.
        if is_confirmed:
            return folder
        _discard(published)
        return None


def _is_committed(published: Snapshot, base: Snapshot | None, folder: VersionFolder) -> bool:
    above = folder.next_version(published.version)
    if above is None:
        _check_base(published, base, folder)
        return True
    ours, store = published.manifest.transaction_file, published.location.store
    removals = Removals.load(store, folder)
    recorded = removals.transactions.get(published.version)
    if recorded is not None:
        return recorded == ours
    following = open_entry(published.location, folder.entry(store, above))
    ancestor = following.manifest.ancestor(published.version)
    if ancestor is not None:
        return ancestor == version_identifier(ours)
    if not removals.is_forgotten(published.version) and _contains_changes(
        following, published, base
    ):
        return True
    raise CommitOutcomeUnknownError(
        "versions were removed during this commit by another library, or too many to be "
        "recorded, so it is unknown whether the commit succeeded; check whether its changes are "
        "in the table before repeating them",
        uri=published.location.uri,
        version=published.version,
        transaction_file=ours,
    )


def _contains_changes(following: Snapshot, published: Snapshot, base: Snapshot | None) -> bool:
    """Return whether a later version has everything that a version added to its base.

    Returns False if the version added nothing that could be compared.
    """
    before = set() if base is None else _content(base)
    added = _content(published) - before
    return bool(added) and added <= _content(following)


def _content(snapshot: Snapshot) -> set[tuple[object, ...]]:
    """Return the content of a version that later versions inherit unless they change it."""
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
    """Raise if the table was deleted or created again since `base` was read."""
    if base is None or published.version != base.version + 1:
        return
    store = published.location.store
    if folder.get_file(base.version) is not None:
        stored = folder.entry(store, base.version)
        if None in (stored.etag, base.entry.etag) or stored.is_same_object(base.entry):
            return
        if open_entry(published.location, stored).identity == base.identity:
            return
    else:
        recorded = Removals.load(store, folder).transactions.get(base.version)
        if recorded == base.manifest.transaction_file or folder.has_other_versions(
            published.version
        ):
            return
        if recorded is None and _has_files(base):
            return
    _discard(published)
    raise VersionNotFoundError(
        "the table was deleted, moved or created again after it was read; open it again",
        uri=published.location.uri,
        version=base.version,
    )


def _has_files(base: Snapshot) -> bool:
    """Return whether the first data file of a version exists; True if it has none."""
    for fragment in base.fragments[:1]:
        for file in fragment.files[:1]:
            location = base.location.resolve("data", file.path, file.base_id, base.manifest.bases)
            return location.store.exists(location.path)
    return True


def _discard(late: Snapshot) -> None:
    """Delete a manifest that is not a version; cleanup deletes it if this fails."""
    with suppress(StorageError):
        late.location.store.delete(late.entry.path)
