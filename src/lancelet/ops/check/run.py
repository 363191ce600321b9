"""Checking a version, or all of them, to a level.

    present     one request per file
    footers     reads the end of each
    checksums   reads every byte
    decode      and decodes it
    indices     and compares ids, counts and indices with the rows

A fragment that several versions share as it is is checked once.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Sequence
from itertools import chain

import numpy as np

from lancelet.errors import LanceletError, ObjectNotFoundError, VersionRemovedError
from lancelet.file.pool import map_ordered
from lancelet.format.fragment import Fragment
from lancelet.format.paths import TRANSACTIONS
from lancelet.ops.check.files import FragmentCheck
from lancelet.ops.check.finding import Coverage, Finding, Findings, Level, Severity
from lancelet.ops.check.indices import check_indices
from lancelet.ops.progress import counted
from lancelet.query.nodes.source import waits_for_storage
from lancelet.table.lineage import (
    created_versions_of,
    row_id_index_of,
    row_ids_of,
    updated_versions_of,
)
from lancelet.table.snapshot import Snapshot, open_entry

_MANIFEST_ADVICE = "restore an older version"


def check(
    snapshot: Snapshot, level: Level = Level.DECODE, *, all_versions: bool = False
) -> Findings:
    """Return what is wrong with a version, or with every version of the table.

    Versions that others clean up meanwhile are left out.

    Raises:
        VersionRemovedError: The version was cleaned up while it was checked.
    """
    if not all_versions:
        return _check_version(snapshot, level, frozenset(), set())
    found = Findings((), Coverage(level))
    seen: set[bytes] = set()
    location = snapshot.location
    for entry in location.handler.list_versions(location.store):
        fragments: set[bytes] = set()
        try:
            version = open_entry(location, entry)
        except ObjectNotFoundError:
            continue  # cleaned up since it was listed
        except LanceletError as error:
            advice = "restore the manifest from a copy; other versions can be read"
            found.append(Finding(Severity.ERROR, entry.path, str(error), advice))
            continue
        try:
            own = _check_version(version, level, seen, fragments)
        except VersionRemovedError:
            continue  # and what it shares with others is looked at with them
        found += own
        found.coverage.add(own.coverage)
        seen |= fragments
    return found


def check_still_there(snapshot: Snapshot, findings: Sequence[Finding]) -> None:
    """Refuse findings that are no damage, as the version was cleaned up since.

    Its manifest goes before its files, so it is looked for once files are missed.

    Raises:
        VersionRemovedError: The version was cleaned up.
        VersionNotFoundError: The table was deleted and made again.
    """
    if not findings or (snapshot.is_there() and snapshot.is_where_it_was()):
        return
    with snapshot.while_there():
        raise ObjectNotFoundError("files of the version are gone", finding=str(findings[0]))


def check_fragments(
    snapshot: Snapshot,
    fragments: Iterable[Fragment],
    level: Level,
    coverage: Coverage | None = None,
) -> Iterator[Finding]:
    """Yield what is wrong with the files of fragments; `coverage` counts what was looked at."""

    def check_one(fragment: Fragment) -> Findings:
        check = FragmentCheck(snapshot, fragment, level)
        return Findings(check.findings(), check.coverage)

    checked = map_ordered(check_one, fragments, waits=waits_for_storage(snapshot))
    stage = f"check version {snapshot.version}"
    for findings in counted(stage, checked, len(snapshot.fragments)):
        if coverage is not None:
            coverage.add(findings.coverage)
        yield from findings


def check_beside_fragments(snapshot: Snapshot, level: Level) -> Iterator[Finding]:
    """Yield what is wrong with a version apart from the files of its fragments."""
    yield from check_manifest(snapshot)
    yield from _check_transaction(snapshot)
    yield from check_indices(snapshot, level)
    if level >= Level.INDICES:
        yield from check_ids(snapshot)


def _check_version(
    snapshot: Snapshot, level: Level, seen: Collection[bytes], fragments: set[bytes]
) -> Findings:
    """Check a version, but for fragments that were `seen`, and add those that it did check."""

    def is_new(fragment: Fragment) -> bool:
        entry = fragment.render()
        if entry in seen or entry in fragments:
            return False
        fragments.add(entry)
        return True

    coverage = Coverage(level)
    with snapshot.while_there():
        new = filter(is_new, snapshot.fragments)
        of_files = check_fragments(snapshot, new, level, coverage)
        found = Findings(chain(of_files, check_beside_fragments(snapshot, level)), coverage)
    check_still_there(snapshot, found)
    return found


def _check_transaction(snapshot: Snapshot) -> Iterator[Finding]:
    name = snapshot.manifest.transaction_file
    if not name or snapshot.stored.positions.transaction is not None:
        return
    if not snapshot.location.store.exists(f"{TRANSACTIONS}/{name}"):
        yield Finding(
            Severity.WARNING,
            f"{TRANSACTIONS}/{name}",
            "the file is missing",
            "writers who read an older version have to do their work again",
        )


def check_manifest(snapshot: Snapshot) -> Iterator[Finding]:
    """Yield contradictions within the manifest."""
    path, manifest = snapshot.entry.path, snapshot.manifest
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
