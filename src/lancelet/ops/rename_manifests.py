"""Giving manifests the names that list newest first, in a table that has the older names.

    _versions/2.manifest    ->    _versions/18446744073709551613.manifest

Versions move oldest first, one by one, so a run that was cut short is finished by the next. No
other writer may be at work meanwhile.
"""

from __future__ import annotations

from lancelet.format.paths import ManifestNaming, manifest_path
from lancelet.table.location import TableLocation
from lancelet.table.manifests import list_versions
from lancelet.table.snapshot import open_snapshot


def rename_manifests(location: TableLocation) -> int:
    """Rename the manifests that have older names, and return how many there were."""
    open_snapshot(location).check_changeable()
    older = [entry for entry in list_versions(location.store) if entry.naming is ManifestNaming.V1]
    for entry in older:
        location.store.rename_if_absent(entry.path, manifest_path(entry.version, ManifestNaming.V2))
    return len(older)
