"""Rename manifests from the V1 naming scheme to V2, which lists newest versions first.

    _versions/.renaming    while it exists, the names of both schemes belong to one table
    _versions/2.manifest    ->    _versions/18446744073709551613.manifest

An interrupted run leaves a readable table, and the next run completes it. It also completes an
interrupted migration by another library, whose tables are not readable until then. No other process
may write to the table during the migration.
"""

from __future__ import annotations

from lancelet.errors import AlreadyExistsError, DatasetNotFoundError
from lancelet.format.paths import RENAMING, ManifestNaming, manifest_path
from lancelet.io import Store
from lancelet.table.location import TableLocation
from lancelet.table.manifests import ManifestEntry, list_manifests
from lancelet.table.snapshot import open_entry


def rename_manifests(location: TableLocation) -> int:
    """Rename the manifests with V1 names, and return their number."""
    store = location.store
    entries = sorted(list_manifests(store), key=lambda entry: entry.version)
    if not entries:
        raise DatasetNotFoundError("dataset not found", uri=location.uri)
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
        # A store without atomic rename was interrupted between copying and deleting.
        if store.read(renamed) != store.read(entry.path):
            raise
        store.delete(entry.path)
