"""Check a version, or all versions of a table, at a level.

    present     one request per file
    footers     reads the footer of each file
    checksums   reads all bytes
    decode      decodes all values
    indices     compares ids, counts and indices with the rows

Fragments that versions share unchanged are checked once.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Sequence
from itertools import chain

import numpy as np

from lancelet.change.progress import counted
from lancelet.errors import LanceletError, ObjectNotFoundError, VersionRemovedError
from lancelet.file.pool import map_ordered
from lancelet.format.fragment import Fragment
from lancelet.format.paths import TRANSACTIONS
from lancelet.scan.nodes.source import waits_for_storage
from lancelet.table.lineage import (
    created_versions_of,
    row_id_index_of,
    row_ids_of,
    updated_versions_of,
)
from lancelet.table.snapshot import Snapshot, open_entry
from lancelet.upkeep.check.files import FragmentCheck
from lancelet.upkeep.check.finding import Coverage, Finding, Findings, Level, Severity
from lancelet.upkeep.check.indices import check_indices

_MANIFEST_ADVICE = "restore an older version"


def check(
    snapshot: Snapshot, level: Level = Level.DECODE, *, all_versions: bool = False
) -> Findings:
    """Return the findings of a version, or of all versions of the table.

    Versions that are cleaned up during the check are skipped.

    Raises:
        VersionRemovedError: The version was cleaned up during the check.
    """
    if not all_versions:
        return _check_version(snapshot, level, frozenset(), set())
    findings = Findings((), Coverage(level))
    seen: set[bytes] = set()
    location = snapshot.location
    for entry in location.handler.list_versions(location.store):
        fragments: set[bytes] = set()
        try:
            version = open_entry(location, entry)
        except ObjectNotFoundError:
            continue  # The version was cleaned up.
        except LanceletError as error:
            advice = "restore the manifest from a copy; other versions remain readable"
            findings.append(Finding(Severity.ERROR, entry.path, str(error), advice))
            continue
        try:
            version_findings = _check_version(version, level, seen, fragments)
        except VersionRemovedError:
            continue  # Its shared fragments are checked with other versions.
        findings += version_findings
        findings.coverage.add(version_findings.coverage)
        seen |= fragments
    return findings


def check_not_removed(snapshot: Snapshot, findings: Sequence[Finding]) -> None:
    """Raise if findings are caused by a concurrent cleanup of the version.

    The manifest is deleted before other files, so that it is checked after files are missing.

    Raises:
        VersionRemovedError: The version was cleaned up.
        VersionNotFoundError: The table was deleted and created again.
    """
    if not findings or (snapshot.exists() and snapshot.matches_stored()):
        return
    with snapshot.translating_missing_files():
        raise ObjectNotFoundError("files of the version are missing", finding=str(findings[0]))


def check_fragments(
    snapshot: Snapshot,
    fragments: Iterable[Fragment],
    level: Level,
    coverage: Coverage | None = None,
) -> Iterator[Finding]:
    """Yield the findings of fragments, and add to `coverage` what was checked."""

    def check_one(fragment: Fragment) -> Findings:
        check = FragmentCheck(snapshot, fragment, level)
        return Findings(check.findings(), check.coverage)

    checked = map_ordered(check_one, fragments, waits=waits_for_storage(snapshot))
    stage = f"check version {snapshot.version}"
    for findings in counted(stage, checked, len(snapshot.fragments)):
        if coverage is not None:
            coverage.add(findings.coverage)
        yield from findings


def check_metadata(snapshot: Snapshot, level: Level) -> Iterator[Finding]:
    """Yield the findings of a version, except for the files of its fragments."""
    yield from check_manifest(snapshot)
    yield from _check_transaction(snapshot)
    yield from check_indices(snapshot, level)
    if level >= Level.INDICES:
        yield from check_ids(snapshot)


def _check_version(
    snapshot: Snapshot, level: Level, seen: Collection[bytes], fragments: set[bytes]
) -> Findings:
    """Check a version except for `seen` fragments, and add the checked ones to `fragments`."""

    def is_new(fragment: Fragment) -> bool:
        entry = fragment.render()
        if entry in seen or entry in fragments:
            return False
        fragments.add(entry)
        return True

    coverage = Coverage(level)
    with snapshot.translating_missing_files():
        new = filter(is_new, snapshot.fragments)
        file_findings = check_fragments(snapshot, new, level, coverage)
        findings = Findings(chain(file_findings, check_metadata(snapshot, level)), coverage)
    check_not_removed(snapshot, findings)
    return findings


def _check_transaction(snapshot: Snapshot) -> Iterator[Finding]:
    name = snapshot.manifest.transaction_file
    if not name or snapshot.stored.positions.transaction is not None:
        return
    if not snapshot.location.store.exists(f"{TRANSACTIONS}/{name}"):
        yield Finding(
            Severity.WARNING,
            f"{TRANSACTIONS}/{name}",
            "the file is missing",
            "writers based on an older version must retry their commit",
        )


def check_manifest(snapshot: Snapshot) -> Iterator[Finding]:
    """Yield inconsistencies of the manifest."""
    path, manifest = snapshot.entry.path, snapshot.manifest
    ids = snapshot.fragments.ids
    if not bool((np.diff(ids) > 0).all()):
        yield _error(path, "fragment ids are not ascending and unique")
    highest = manifest.max_fragment_id
    if len(ids) and (highest is None or highest < int(ids.max())):
        yield _error(path, f"a fragment has id {int(ids.max())}, but the highest id is {highest}")
    counts = Counter(int(field.id) for field in snapshot.schema.walk())
    duplicates = sorted(field_id for field_id, count in counts.items() if count > 1)
    if duplicates:
        yield _error(path, f"several fields have the same ids {duplicates[:10]}")
    for fragment in snapshot.fragments:
        field_counts = Counter(
            field_id for file in fragment.files for field_id in file.fields if field_id >= 0
        )
        repeated = sorted(field_id for field_id, count in field_counts.items() if count > 1)
        if repeated:
            yield Finding(
                Severity.WARNING,
                path,
                f"several files of fragment {fragment.id} contain the fields {repeated[:10]}",
                "compact the table; until then the first file takes precedence",
                fragment_id=int(fragment.id),
            )


def check_ids(snapshot: Snapshot) -> Iterator[Finding]:
    """Yield inconsistencies of row ids, row versions and the manifest."""
    manifest = snapshot.manifest
    if not manifest.uses_stable_row_ids:
        return
    is_counted = True
    for fragment in snapshot.fragments:
        number = int(fragment.id)
        path = f"fragment {number}"
        if not _row_count_matches(snapshot, fragment):
            is_counted = False  # Reported as a finding of the files; row ids may be of any number.
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
                f"a row has id {int(ids.max())}, but the next row id is {manifest.next_row_id}",
                fragment_id=number,
            )
        newest = max(int(versions.max(initial=0)) for versions in (created, updated))
        if newest > snapshot.version:
            yield _error(
                path, f"rows have version {newest}, which does not exist yet", fragment_id=number
            )
        if bool((created > updated).any()):
            yield Finding(
                Severity.WARNING,
                path,
                "rows were updated before they were created",
                "change feeds may omit these rows",
                fragment_id=number,
            )
    if not is_counted:
        return
    try:
        row_id_index_of(snapshot)
    except LanceletError as error:
        yield _error(snapshot.entry.path, str(error))


def _row_count_matches(snapshot: Snapshot, fragment: Fragment) -> bool:
    """Return whether the row count of a fragment matches its files."""
    try:
        rows = {snapshot.open_file(file).num_rows for file in fragment.files}
    except LanceletError:
        return False
    return rows <= {snapshot.physical_rows(fragment)}


def _error(path: str, message: str, fragment_id: int | None = None) -> Finding:
    return Finding(Severity.ERROR, path, message, _MANIFEST_ADVICE, fragment_id=fragment_id)
