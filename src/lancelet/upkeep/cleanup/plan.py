"""Plan a cleanup: select the files to delete, with a reason for each.

    _versions/..3.manifest   version 3 is removed
    data/a.lance             only removed versions refer to it
    data/b.lance             no version refers to it, and it is 9 days old
    data/c.lance             no version refers to it, but it is new: retained, a writer may need it

Only the folders and file names of the format are examined; other files are retained.
"""

from __future__ import annotations

import math
import uuid
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import field
from datetime import datetime
from enum import Enum
from typing import Final

from lancelet import surroundings
from lancelet.format.paths import (
    DATA,
    DATA_SUFFIX,
    DELETIONS,
    INDICES,
    LATEST_VERSION_HINT,
    MANIFEST_SUFFIX,
    TRANSACTION_SUFFIX,
    TRANSACTIONS,
    VERSIONS,
    is_detached,
    is_inside_table_directory,
    parse_manifest_name,
)
from lancelet.format.refs import Branch
from lancelet.io.store import ObjectInfo
from lancelet.io.uri import name as last_part
from lancelet.io.uri import parent
from lancelet.table.location import TableLocation
from lancelet.table.manifests import ManifestEntry, check_name, find_latest
from lancelet.table.refs import list_branches, list_tags, main_location
from lancelet.table.removals import UNVERIFIED_AGE, Removals, held_versions, is_hold
from lancelet.table.snapshot import Snapshot
from lancelet.upkeep.cleanup.mentions import (
    Mentions,
    VersionOutline,
    branch_locations,
    is_detached_entry,
    read_versions,
)
from lancelet.upkeep.cleanup.policy import CleanupInputError, CleanupPolicy
from lancelet.values import dataclass

_BLOB_SUFFIX: Final = ".blob"
_DELETION_SUFFIXES: Final = (".arrow", ".bin")


class FileKind(Enum):
    """The kind of a file, with the values of the reference."""

    MANIFEST = "manifest"
    TEMPORARY_MANIFEST = "temporary_manifest"
    DATA = "data"
    DELETION = "deletion"
    TRANSACTION = "transaction"
    INDEX = "index"


@dataclass(frozen=True, slots=True)
class CleanupCandidateFile:
    """A file to delete, with the reason; `unverified` if no version has referred to it."""

    path: str
    file_kind: FileKind
    size_bytes: int
    unverified: bool
    reason: str

    @property
    def kind(self) -> str:
        """The kind of the file as text."""
        return self.file_kind.value


@dataclass(frozen=True, slots=True)
class CleanupReferencedBranch:
    """A branch that refers to files of the table, and the version it was created from."""

    name: str
    referenced_version: int
    cleanup_candidate: bool


@dataclass(frozen=True, slots=True, eq=False)
class CleanupPlan:
    """The files that a cleanup deletes: manifests from the oldest version on, then other files.

    `removed` has the names of the transaction files of removed versions. `main` is the location of
    tags and branches, and `seen` has the manifests of other tables that were read.
    """

    location: TableLocation
    main: TableLocation
    branch: str | None
    policy: CleanupPolicy
    read_version: int
    versions: tuple[int, ...]
    manifests: tuple[CleanupCandidateFile, ...]
    files: tuple[CleanupCandidateFile, ...]
    branches: tuple[CleanupReferencedBranch, ...]
    newest_version: int
    removed: Mapping[int, str]
    seen: frozenset[tuple[str, str]]
    modified: Mapping[str, datetime]
    """Modification times of unreferenced files, by the clock of the store."""

    def may_go(self, file: CleanupCandidateFile, store_time: datetime) -> bool:
        """Return whether a file is old enough to be deleted.

        The local clock may be off by days, so the store's clock is used.
        """
        if not file.unverified or self.policy.delete_unverified or file.path not in self.modified:
            return True
        return store_time - self.modified[file.path] >= UNVERIFIED_AGE

    @property
    def candidates(self) -> tuple[CleanupCandidateFile, ...]:
        """All files to delete."""
        return (*self.manifests, *self.files)


@dataclass(slots=True)
class _Versions:
    """The versions of a table, classified as removed or retained."""

    removed_references: Mentions
    retained_references: Mentions
    removed_entries: list[ManifestEntry] = field(default_factory=list)
    late: list[ManifestEntry] = field(default_factory=list)
    removed: dict[int, str] = field(default_factory=dict)
    tagged: set[int] = field(default_factory=set)
    newest: int = 0


def plan_cleanup(snapshot: Snapshot, policy: CleanupPolicy) -> CleanupPlan:
    """Return the files that a cleanup of the table deletes.

    Raises:
        CleanupInputError: A version to remove is tagged, and the policy forbids that.
        CorruptDataError: A version cannot be read, so that its files are unknown.
    """
    location, main = snapshot.location, main_location(snapshot)
    branch = snapshot.manifest.branch
    branches = list_branches(main)
    _check_no_nested_branches(branches, branch)
    branch_points = {
        info.parent_version for info in branches.values() if info.parent_branch == branch
    }
    tags = _branch_tags(main, branch)
    listed, read = read_versions(location, _number(snapshot))
    versions = _classify_versions(snapshot, read, policy, tags, branch_points)
    if versions.tagged and policy.error_if_tagged_old_versions:
        tagged = {name: version for name, version in tags.items() if version in versions.tagged}
        raise CleanupInputError(
            f"Cleanup error: {len(tagged)} tagged version(s) have been marked for cleanup. Either "
            "set `error_if_tagged_old_versions=false` or delete the following tag(s) to enable "
            f"cleanup: {tagged}"
        )
    seen: set[tuple[str, str]] = set()
    for table in _other_tables(location, main, policy):
        for version in read_versions(table, _latest_number(table))[1]:
            versions.retained_references.add(version)
            seen.add((table.store.uri, version.entry.path))
    versions.removed_entries.sort(key=lambda entry: entry.version)
    removed = {entry.version for entry in versions.removed_entries}
    modified: dict[str, datetime] = {}
    return CleanupPlan(
        location=location,
        main=main,
        branch=branch,
        policy=policy,
        read_version=snapshot.version,
        versions=tuple(entry.version for entry in versions.removed_entries),
        manifests=tuple(_manifests(versions)),
        files=tuple(_files(location, listed, versions, policy, modified)),
        branches=tuple(_branches(snapshot, branches, removed)),
        newest_version=versions.newest,
        removed=versions.removed,
        seen=frozenset(seen),
        modified=modified,
    )


def referred_since(plan: CleanupPlan) -> set[int]:
    """Return the planned versions that have a tag or a hold now."""
    # Holds are released after tags are created, so that tags must be read last.
    held = held_versions(plan.location.store)
    tagged = set(_branch_tags(plan.main, plan.branch).values())
    return (held | tagged) & set(plan.versions)


def mentioned_since(plan: CleanupPlan, retained: Iterable[int] = ()) -> Mentions:
    """Return the references of versions that are newer than the plan or were retained after all.

    Other tables that refer to files of this one, such as branches, may be new too.
    """
    retained_versions = set(retained)
    mentions = Mentions()
    for other in _other_tables(plan.location, plan.main, plan.policy):

        def is_new(entry: ManifestEntry, uri: str = other.store.uri) -> bool:
            return (uri, entry.path) not in plan.seen

        for version in read_versions(other, _latest_number(other), selects=is_new)[1]:
            mentions.add(version)

    def may_need(entry: ManifestEntry) -> bool:
        return entry.version in retained_versions or entry.version > plan.newest_version

    for version in read_versions(plan.location, plan.newest_version, selects=may_need)[1]:
        mentions.add(version)
    return mentions


def newest_version(plan: CleanupPlan) -> int:
    """Return the current newest version of the table of a plan."""
    return _latest_number(plan.location)


def _latest_number(location: TableLocation) -> int:
    latest = location.handler.find_latest(location.store)
    return 0 if latest is None else latest.version


def _number(snapshot: Snapshot) -> int:
    """Return the version number, or 0 for a detached version."""
    return 0 if is_detached(snapshot.version) else snapshot.version


def _branch_tags(main: TableLocation, branch: str | None) -> dict[str, int]:
    return {name: tag.version for name, tag in list_tags(main).items() if tag.branch == branch}


def _check_no_nested_branches(branches: Iterable[str], branch: str | None) -> None:
    """Raise if other branches are stored inside the folder of a branch."""
    nested = sorted(name for name in branches if branch and is_inside_table_directory(name, branch))
    if nested:
        raise CleanupInputError(
            "other branches are stored inside the folder of this branch; delete or copy them first",
            branch=branch,
            within=nested,
        )


def _classify_versions(
    snapshot: Snapshot,
    read: Collection[VersionOutline],
    policy: CleanupPolicy,
    tags: dict[str, int],
    branch_points: Collection[int],
) -> _Versions:
    """Classify the versions. Branch points are retained because comparisons need them."""
    tagged = set(tags.values())
    removed_references = Mentions()
    numbers = [version.version for version in read if not is_detached_entry(version.entry)]
    newest = max([_number(snapshot), *numbers])
    classified = _Versions(
        removed_references=removed_references,
        retained_references=Mentions(removed_references.parsed),
        newest=newest,
    )
    limit = _number(snapshot) or newest
    # The removal records tell whether a manifest that was read is the published version.
    removals = Removals.load(snapshot.location.store).transactions
    versions: list[VersionOutline] = []
    for version in read:
        file = version.outline.transaction_file
        if removals.get(version.version, file) == file:
            check_name(version.entry, version.outline.version, uri=snapshot.location.uri)
            versions.append(version)
        else:
            # Its writer retries with another version number, and still needs the files.
            classified.late.append(version.entry)
    first_retained = _first_retained(versions, policy)
    for version in versions:
        number = version.version
        may_go = (
            number < limit and number not in branch_points and not is_detached_entry(version.entry)
        )
        may_go = may_go and number < first_retained
        may_go = may_go and policy.selects(number, version.outline.timestamp)
        if may_go and number in tagged:
            classified.tagged.add(number)
        if may_go and number not in tagged:
            classified.removed_entries.append(version.entry)
            classified.removed[number] = version.outline.transaction_file
            classified.removed_references.add(version)
        else:
            classified.retained_references.add(version)
    return classified


def _first_retained(versions: Iterable[VersionOutline], policy: CleanupPolicy) -> float:
    """Return the first version that `retain_versions` retains."""
    if policy.retain_versions is None:
        return math.inf
    numbers = {version.version for version in versions if not is_detached_entry(version.entry)}
    return min(sorted(numbers)[-policy.retain_versions :], default=0)


def _other_tables(
    location: TableLocation, main: TableLocation, policy: CleanupPolicy
) -> Iterator[TableLocation]:
    """Yield other tables that may refer to files of this one."""
    for other in (main, *branch_locations(main)):
        if other.store.uri != location.store.uri:
            yield other
    for uri in policy.clones:
        clone = TableLocation.open(uri, location.storage_options, location.base_options)
        if find_latest(clone.store) is None:
            raise CleanupInputError(
                "a clone has no table; correct its URI, or omit it if it was deleted", clone=uri
            )
        yield clone


def _branches(
    snapshot: Snapshot, branches: Mapping[str, Branch], removed: Collection[int]
) -> Iterator[CleanupReferencedBranch]:
    for name, branch in sorted(branches.items()):
        if branch.parent_branch == snapshot.manifest.branch:
            is_removed = branch.parent_version in removed
            yield CleanupReferencedBranch(name, branch.parent_version, is_removed)


def _manifests(versions: _Versions) -> Iterator[CleanupCandidateFile]:
    for entry in versions.removed_entries:
        reason = f"version {entry.version} is removed"
        yield CleanupCandidateFile(entry.path, FileKind.MANIFEST, entry.size, False, reason)


def _files(
    location: TableLocation,
    listed: Iterable[ObjectInfo],
    versions: _Versions,
    policy: CleanupPolicy,
    modified: dict[str, datetime],
) -> Iterator[CleanupCandidateFile]:
    """Yield the files to delete; files in the version folder are those of `listed`.

    The modification times of unreferenced files are added to `modified`.
    """
    retained_references, removed_references = (
        versions.retained_references,
        versions.removed_references,
    )
    owned_folders: dict[str, bool] = {}

    def is_owned(path: str) -> bool:
        # A symbolic link may lead to the files of another table.
        folder = parent(path)
        if folder not in owned_folders:
            owned_folders[folder] = location.store.is_own(path)
        return owned_folders[folder]

    now = surroundings.now()
    for entry in versions.late:
        temporary, reason = (
            FileKind.TEMPORARY_MANIFEST,
            "the manifest was written too late to become a version",
        )
        yield CleanupCandidateFile(entry.path, temporary, entry.size, True, reason)
    for folder in (VERSIONS, DATA, DELETIONS, TRANSACTIONS, INDICES):
        for info in listed if folder == VERSIONS else location.store.list(folder):
            kind = _file_kind(location, folder, info)
            if kind is None or info.path in retained_references or not is_owned(info.path):
                continue
            age, is_referenced = now - info.modified, info.path in removed_references
            if is_referenced:
                reason = "only removed versions refer to it"
            elif policy.delete_unverified:
                reason = "no version refers to it, and delete_unverified is set"
            elif age >= UNVERIFIED_AGE:
                reason = f"no version refers to it, and it is {age.days} days old"
            else:
                continue
            if not is_referenced:
                modified[info.path] = info.modified
            yield CleanupCandidateFile(info.path, kind, info.size, not is_referenced, reason)


def _file_kind(location: TableLocation, folder: str, info: ObjectInfo) -> FileKind | None:
    """Return the kind of a file of the format, or None."""
    path = info.path
    match folder:
        case "data" if path.endswith((DATA_SUFFIX, _BLOB_SUFFIX)):
            return FileKind.DATA
        case "_deletions" if path.endswith(_DELETION_SUFFIXES):
            return FileKind.DELETION
        case "_transactions" if path.endswith(TRANSACTION_SUFFIX):
            return FileKind.TRANSACTION
        case "_indices" if _is_uuid(path.split("/")[1]):
            return FileKind.INDEX
        case "_versions" if _is_temporary(location, path):
            return FileKind.TEMPORARY_MANIFEST
        case _:
            return None


def _is_temporary(location: TableLocation, path: str) -> bool:
    """Return whether a file was left by an unfinished commit."""
    if path == LATEST_VERSION_HINT:
        return False
    parsed = parse_manifest_name(last_part(path))
    if parsed is None:
        return last_part(path).startswith(".tmp") or is_hold(last_part(path))
    if parsed.staging_id is None:
        return False
    # A staged manifest may be the version itself until it is copied to its final name.
    final = path[: path.index(MANIFEST_SUFFIX) + len(MANIFEST_SUFFIX)]
    return location.store.exists(final)


def _is_uuid(text: str) -> bool:
    try:
        uuid.UUID(text)
    except ValueError:
        return False
    return True
