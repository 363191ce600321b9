"""Checking what holds between the fragments of a version: ids, counts, row ids and versions."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

import numpy as np

from lancelet.errors import LanceletError
from lancelet.format.fragment import Fragment
from lancelet.ops.check.finding import Finding, Severity
from lancelet.table.lineage import (
    created_versions_of,
    row_id_index_of,
    row_ids_of,
    updated_versions_of,
)
from lancelet.table.snapshot import Snapshot

_MANIFEST_ADVICE = "restore an older version"


def check_manifest(snapshot: Snapshot) -> Iterator[Finding]:
    """Yield contradictions within the manifest."""
    path, manifest = snapshot.entry.path, snapshot.manifest
    named = snapshot.entry.version
    if named != manifest.version:
        what = f"the manifest is of version {manifest.version}, and its name says {named}"
        advice = "restore the manifest from a copy; until then neither name can be relied on"
        yield Finding(Severity.ERROR, path, what, advice)
    ids = snapshot.fragments.ids
    if not bool((np.diff(ids) > 0).all()):
        yield _error(path, "fragments are not in the order of their ids, or two have one id")
    highest = manifest.max_fragment_id
    if len(ids) and (highest is None or highest < int(ids.max())):
        yield _error(path, f"a fragment has the id {int(ids.max())}, and the highest is {highest}")
    counts = Counter(int(field.id) for field in snapshot.schema.walk())
    twice = sorted(field_id for field_id, count in counts.items() if count > 1)
    if twice:
        yield _error(path, f"several fields have the ids {twice[:10]}")
    for fragment in snapshot.fragments:
        held = Counter(
            field_id for file in fragment.files for field_id in file.fields if field_id >= 0
        )
        doubled = sorted(field_id for field_id, count in held.items() if count > 1)
        if doubled:
            yield Finding(
                Severity.WARNING,
                path,
                f"several files of fragment {fragment.id} hold the fields {doubled[:10]}",
                "compact the table; until then the first file counts",
                fragment_id=int(fragment.id),
            )


def check_ids(snapshot: Snapshot) -> Iterator[Finding]:
    """Yield contradictions between row ids, row versions and the manifest."""
    manifest = snapshot.manifest
    if not manifest.uses_stable_row_ids:
        return
    is_counted = True
    for fragment in snapshot.fragments:
        number = int(fragment.id)
        path = f"fragment {number}"
        if not _has_rows_of_files(snapshot, fragment):
            is_counted = False  # a finding of the files, and its ids could be any number
            continue
        try:
            ids = row_ids_of(snapshot, fragment).to_array()
            created = created_versions_of(snapshot, fragment).to_array()
            updated = updated_versions_of(snapshot, fragment).to_array()
        except LanceletError as error:
            yield _error(path, str(error), fragment_id=number)
            continue
        if len(ids) and int(ids.max()) >= manifest.next_row_id:
            yield _error(
                path,
                f"a row has the id {int(ids.max())}, and the next one is {manifest.next_row_id}",
                fragment_id=number,
            )
        newest = max(int(versions.max(initial=0)) for versions in (created, updated))
        if newest > snapshot.version:
            yield _error(
                path, f"rows are of version {newest}, which is to come", fragment_id=number
            )
        if bool((created > updated).any()):
            yield Finding(
                Severity.WARNING,
                path,
                "rows changed before they were created",
                "what changed since a version cannot be told of these rows",
                fragment_id=number,
            )
    if not is_counted:
        return
    try:
        row_id_index_of(snapshot)
    except LanceletError as error:
        yield _error(snapshot.entry.path, str(error))


def _has_rows_of_files(snapshot: Snapshot, fragment: Fragment) -> bool:
    """Return whether a fragment has as many rows as its files, which the manifest only claims."""
    try:
        rows = {snapshot.open_file(file).num_rows for file in fragment.files}
    except LanceletError:
        return False
    return rows <= {snapshot.physical_rows(fragment)}


def _error(path: str, what: str, fragment_id: int | None = None) -> Finding:
    return Finding(Severity.ERROR, path, what, _MANIFEST_ADVICE, fragment_id=fragment_id)
