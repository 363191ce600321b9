"""Checking a version, or all of them, to a level.

    present     one request per file
    footers     reads the end of each
    checksums   reads every byte
    decode      and decodes it
    indices     and compares ids, counts and indices with the rows

A fragment that several versions share as it is is checked once.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from lancelet.errors import LanceletError, ObjectNotFoundError
from lancelet.file.pool import map_ordered
from lancelet.format.fragment import Fragment
from lancelet.format.paths import TRANSACTIONS
from lancelet.ops.check.files import FragmentCheck
from lancelet.ops.check.finding import Coverage, Finding, Findings, Level, Severity
from lancelet.ops.check.ids import check_ids, check_manifest
from lancelet.ops.check.indices import check_indices
from lancelet.ops.progress import counted
from lancelet.query.nodes.source import waits_for_storage
from lancelet.table.snapshot import Snapshot, open_entry


def check(
    snapshot: Snapshot, level: Level = Level.DECODE, *, all_versions: bool = False
) -> Findings:
    """Return what is wrong with a version, or with every version of the table."""
    coverage = Coverage(level)
    found = iter_findings(snapshot, level, all_versions=all_versions, coverage=coverage)
    return Findings(found, coverage)


def iter_findings(
    snapshot: Snapshot,
    level: Level,
    *,
    all_versions: bool = False,
    coverage: Coverage | None = None,
) -> Iterator[Finding]:
    """Yield what is wrong as it is found; `coverage` counts what was looked at."""
    coverage = coverage or Coverage(level)
    seen: set[bytes] = set()
    if not all_versions:
        yield from _check_version(snapshot, level, seen, coverage)
        return
    location = snapshot.location
    for entry in location.handler.list_versions(location.store):
        try:
            version = open_entry(location, entry)
        except ObjectNotFoundError:
            continue  # cleaned up since it was listed
        except LanceletError as error:
            advice = "restore the manifest from a copy; other versions can be read"
            yield Finding(Severity.ERROR, entry.path, str(error), advice)
            continue
        yield from _check_version(version, level, seen, coverage)


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
    snapshot: Snapshot, level: Level, seen: set[bytes], coverage: Coverage
) -> Iterator[Finding]:
    fragments = (fragment for fragment in snapshot.fragments if _is_new(fragment, seen))
    yield from check_fragments(snapshot, fragments, level, coverage)
    yield from check_beside_fragments(snapshot, level)


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


def _is_new(fragment: Fragment, seen: set[bytes]) -> bool:
    entry = fragment.render()
    if entry in seen:
        return False
    seen.add(entry)
    return True
