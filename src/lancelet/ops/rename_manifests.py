"""Giving manifests the names that list newest first, in a table that has the older names.

    _versions/.renaming    while it is there, names of both schemes are one table
    _versions/2.manifest    ->    _versions/18446744073709551613.manifest

A run that was cut short at any point leaves a table that reads, and is finished by the next; so is
one of another library, whose tables do not read until then. No other writer may be at work
meanwhile.
"""

from __future__ import annotations

from lancelet.errors import AlreadyExistsError, DatasetNotFoundError
from lancelet.format.paths import RENAMING, ManifestNaming, manifest_path
from lancelet.io import Store
from lancelet.table.location import TableLocation
from lancelet.table.manifests import ManifestEntry, list_manifests
from lancelet.table.snapshot import open_entry


def rename_manifests(location: TableLocation) -> int:
    """Rename the manifests that have older names, and return how many there were."""
    store = location.store
    entries = sorted(list_manifests(store), key=lambda entry: entry.version)
    if not entries:
        raise DatasetNotFoundError("there is no dataset to change", uri=location.uri)
    open_entry(location, entries[-1]).check_changeable()
    older = [entry for entry in entries if entry.naming is ManifestNaming.V1]
    if older:
        store.put(RENAMING, b"{}")
    for entry in older:
        _rename(store, entry)
    store.delete(RENAMING)
    return len(older)


def _rename(store: Store, entry: ManifestEntry) -> None:
    renamed = manifest_path(entry.version, ManifestNaming.V2)
    try:
        store.rename_if_absent(entry.path, renamed)
    except AlreadyExistsError:
        # A store that cannot move was cut short between the new name and the old one.
        if store.read(renamed) != store.read(entry.path):
            raise
        store.delete(entry.path)
