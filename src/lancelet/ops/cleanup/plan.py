"""Working out what a cleanup deletes, and why each file, without deleting anything.

    _versions/..3.manifest   version 3 goes
    data/a.lance             only versions that go mention it
    data/b.lance             no version mentions it, and it is 9 days old
    data/c.lance             no version mentions it, and it is new: stays, somebody may be writing

Only folders and names of the format are looked at; whatever else lies there stays.
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
from lancelet.ops.cleanup.mentions import (
    KnownVersion,
    Mentions,
    branch_locations,
    is_on_no_branch,
    read_versions,
)
from lancelet.ops.cleanup.policy import UNVERIFIED_AGE, CleanupInputError, CleanupPolicy
from lancelet.table.location import TableLocation
from lancelet.table.manifests import ManifestEntry, check_name
from lancelet.table.refs import list_branches, list_tags, main_location
from lancelet.table.removals import Removals, held_versions, is_hold
from lancelet.table.snapshot import Snapshot
from lancelet.values import dataclass

_BLOB_SUFFIX: Final = ".blob"
_DELETION_SUFFIXES: Final = (".arrow", ".bin")


class FileKind(Enum):
    """What a file is; the values are the reference's."""

    MANIFEST = "manifest"
    TEMPORARY_MANIFEST = "temporary_manifest"
    DATA = "data"
    DELETION = "deletion"
    TRANSACTION = "transaction"
    INDEX = "index"


@dataclass(frozen=True, slots=True)
class CleanupCandidateFile:
    """A file that may go, and why; `unverified` if no version ever mentioned it."""

    path: str
    file_kind: FileKind
    size_bytes: int
    unverified: bool
    reason: str

    @property
    def kind(self) -> str:
        """What the file is, as text."""
        return self.file_kind.value


@dataclass(frozen=True, slots=True)
class CleanupReferencedBranch:
    """A branch that needs files of the table, and the version it started from."""

    name: str
    referenced_version: int
    cleanup_candidate: bool


@dataclass(frozen=True, slots=True, eq=False)
class CleanupPlan:
    """What a cleanup deletes: the manifests of versions, oldest first, then other files.

    `removed` has the names of the transaction files of the versions that go. `main` is where the
    tags and branches are, and `seen` the manifests of other tables that were read.
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
    """When files that no version mentions were written, by the clock of the store."""

    def may_go(self, file: CleanupCandidateFile, store_time: datetime) -> bool:
        """Return whether a file is also old enough by the clock of the store.

        The clock of this machine may be wrong by days.
        """
        if not file.unverified or self.policy.delete_unverified or file.path not in self.modified:
            return True
        return store_time - self.modified[file.path] >= UNVERIFIED_AGE

    @property
    def candidates(self) -> tuple[CleanupCandidateFile, ...]:
        """Every file that goes."""
        return (*self.manifests, *self.files)


@dataclass(slots=True)
class _Versions:
    """The versions of a table, sorted into those that go and those that stay."""

    known: Mentions
    needed: Mentions
    going: list[ManifestEntry] = field(default_factory=list)
    late: list[ManifestEntry] = field(default_factory=list)
    removed: dict[int, str] = field(default_factory=dict)
    kept_by_tags: set[int] = field(default_factory=set)
    newest: int = 0


def plan_cleanup(snapshot: Snapshot, policy: CleanupPolicy) -> CleanupPlan:
    """Return what a cleanup of the table deletes, as seen from a version of it.

    Raises:
        CleanupInputError: A tag keeps a version that would go, and that was to be an error.
        CorruptDataError: A version cannot be read, so nobody knows what it needs.
    """
    location, main = snapshot.location, main_location(snapshot)
    branch = snapshot.manifest.branch
    branches = list_branches(main)
    _check_apart(branches, branch)
    started = {each.parent_version for each in branches.values() if each.parent_branch == branch}
    tags = _tags_here(main, branch)
    listed, read = read_versions(location, _number(snapshot))
    versions = _sort_versions(snapshot, read, policy, tags, started)
    if versions.kept_by_tags and policy.error_if_tagged_old_versions:
        kept = {name: version for name, version in tags.items() if version in versions.kept_by_tags}
        raise CleanupInputError(
            f"Cleanup error: {len(kept)} tagged version(s) have been marked for cleanup. Either "
            "set `error_if_tagged_old_versions=false` or delete the following tag(s) to enable "
            f"cleanup: {kept}"
        )
    seen: set[tuple[str, str]] = set()
    for other in _others(location, main, policy):
        for version in read_versions(other, _latest_number(other))[1]:
            versions.needed.add(version)
            seen.add((other.store.uri, version.entry.path))
    versions.going.sort(key=lambda entry: entry.version)
    gone = {entry.version for entry in versions.going}
    modified: dict[str, datetime] = {}
    return CleanupPlan(
        location=location,
        main=main,
        branch=branch,
        policy=policy,
        read_version=snapshot.version,
        versions=tuple(entry.version for entry in versions.going),
        manifests=tuple(_manifests(versions)),
        files=tuple(_files(location, listed, versions, policy, modified)),
        branches=tuple(_branches(snapshot, branches, gone)),
        newest_version=versions.newest,
        removed=versions.removed,
        seen=frozenset(seen),
        modified=modified,
    )


def referred_since(plan: CleanupPlan) -> set[int]:
    """Return the versions of a plan that a tag has, or that somebody is about to refer to."""
    # Who refers to a version lets go of it afterwards, so tags must be looked at last.
    held = held_versions(plan.location.store)
    tagged = set(_tags_here(plan.main, plan.branch).values())
    return (held | tagged) & set(plan.versions)


def mentioned_since(plan: CleanupPlan, kept: Iterable[int] = ()) -> Mentions:
    """Return what versions mention that were committed after the plan, or stayed against it.

    Other tables that need files of this one, such as branches, may have come since.
    """
    wanted = set(kept)
    mentions = Mentions()
    for other in _others(plan.location, plan.main, plan.policy):

        def is_new(entry: ManifestEntry, uri: str = other.store.uri) -> bool:
            return (uri, entry.path) not in plan.seen

        for version in read_versions(other, _latest_number(other), wants=is_new)[1]:
            mentions.add(version)

    def may_need(entry: ManifestEntry) -> bool:
        return entry.version in wanted or entry.version > plan.newest_version

    for version in read_versions(plan.location, plan.newest_version, wants=may_need)[1]:
        mentions.add(version)
    return mentions


def newest_version(plan: CleanupPlan) -> int:
    """Return the newest version of the table that a plan is for, as it is now."""
    return _latest_number(plan.location)


def _latest_number(location: TableLocation) -> int:
    latest = location.handler.find_latest(location.store)
    return 0 if latest is None else latest.version


def _number(snapshot: Snapshot) -> int:
    """Return the number of a version, or 0 for one on no branch."""
    return 0 if is_detached(snapshot.version) else snapshot.version


def _tags_here(main: TableLocation, branch: str | None) -> dict[str, int]:
    return {name: tag.version for name, tag in list_tags(main).items() if tag.branch == branch}


def _check_apart(branches: Iterable[str], branch: str | None) -> None:
    """Refuse to clean up a branch among whose files another branch lies."""
    within = sorted(name for name in branches if branch and is_inside_table_directory(name, branch))
    if within:
        raise CleanupInputError(
            "other branches lie among the files of this one; delete them first, or copy them",
            branch=branch,
            within=within,
        )


def _sort_versions(
    snapshot: Snapshot,
    read: Collection[KnownVersion],
    policy: CleanupPolicy,
    tags: dict[str, int],
    started: Collection[int],
) -> _Versions:
    """Sort the versions; one that a branch started from stays, as whoever compares needs it."""
    tagged = set(tags.values())
    known = Mentions()
    numbers = [version.version for version in read if not is_on_no_branch(version.entry)]
    newest = max([_number(snapshot), *numbers])
    sorted_ = _Versions(known=known, needed=Mentions(known.known), newest=newest)
    limit = _number(snapshot) or newest
    # What is recorded by now says of each manifest that was read whether it is the version.
    removals = Removals.of(snapshot.location.store).transactions
    versions: list[KnownVersion] = []
    for version in read:
        file = version.outline.transaction_file
        if removals.get(version.version, file) == file:
            check_name(version.entry, version.outline.version, uri=snapshot.location.uri)
            versions.append(version)
        else:
            # Whoever put it comes back to its files with another number.
            sorted_.late.append(version.entry)
    first_retained = _first_retained(versions, policy)
    for version in versions:
        number = version.version
        may_go = number < limit and number not in started and not is_on_no_branch(version.entry)
        may_go = may_go and number < first_retained
        may_go = may_go and policy.selects(number, version.outline.timestamp)
        if may_go and number in tagged:
            sorted_.kept_by_tags.add(number)
        if may_go and number not in tagged:
            sorted_.going.append(version.entry)
            sorted_.removed[number] = version.outline.transaction_file
            sorted_.known.add(version)
        else:
            sorted_.needed.add(version)
    return sorted_


def _first_retained(versions: Iterable[KnownVersion], policy: CleanupPolicy) -> float:
    """Return the first of the newest versions that stay because they are so many."""
    if policy.retain_versions is None:
        return math.inf
    numbers = {version.version for version in versions if not is_on_no_branch(version.entry)}
    return min(sorted(numbers)[-policy.retain_versions :], default=0)


def _others(
    location: TableLocation, main: TableLocation, policy: CleanupPolicy
) -> Iterator[TableLocation]:
    """Yield other tables that may need files of this one."""
    for other in (main, *branch_locations(main)):
        if other.store.uri != location.store.uri:
            yield other
    for uri in policy.clones:
        yield TableLocation.open(uri, location.storage_options, location.base_options)


def _branches(
    snapshot: Snapshot, branches: Mapping[str, Branch], gone: Collection[int]
) -> Iterator[CleanupReferencedBranch]:
    for name, branch in sorted(branches.items()):
        if branch.parent_branch == snapshot.manifest.branch:
            is_gone = branch.parent_version in gone
            yield CleanupReferencedBranch(name, branch.parent_version, is_gone)


def _manifests(versions: _Versions) -> Iterator[CleanupCandidateFile]:
    for entry in versions.going:
        reason = f"version {entry.version} goes"
        yield CleanupCandidateFile(entry.path, FileKind.MANIFEST, entry.size, False, reason)


def _files(
    location: TableLocation,
    listed: Iterable[ObjectInfo],
    versions: _Versions,
    policy: CleanupPolicy,
    modified: dict[str, datetime],
) -> Iterator[CleanupCandidateFile]:
    """Yield the files that may go, in the folder of versions those that were `listed` there.

    The times of files that no version mentions are added to `modified`.
    """
    needed, known = versions.needed, versions.known
    own: dict[str, bool] = {}

    def is_own(path: str) -> bool:
        # What a link leads to may be the files of another table.
        folder = parent(path)
        if folder not in own:
            own[folder] = location.store.is_own(path)
        return own[folder]

    now = surroundings.now()
    for entry in versions.late:
        temporary, reason = FileKind.TEMPORARY_MANIFEST, "it came too late to be a version"
        yield CleanupCandidateFile(entry.path, temporary, entry.size, True, reason)
    for folder in (VERSIONS, DATA, DELETIONS, TRANSACTIONS, INDICES):
        for info in listed if folder == VERSIONS else location.store.list(folder):
            kind = _kind_of(location, folder, info)
            if kind is None or info.path in needed or not is_own(info.path):
                continue
            age, is_known = now - info.modified, info.path in known
            if is_known:
                reason = "only versions that go mention it"
            elif policy.delete_unverified:
                reason = "no version mentions it, and nobody is said to be writing"
            elif age >= UNVERIFIED_AGE:
                reason = f"no version mentions it, and it is {age.days} days old"
            else:
                continue
            if not is_known:
                modified[info.path] = info.modified
            yield CleanupCandidateFile(info.path, kind, info.size, not is_known, reason)


def _kind_of(location: TableLocation, folder: str, info: ObjectInfo) -> FileKind | None:
    """Return what a file is if it is one of the format's, else None."""
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
        case "_versions" if _is_left_over(location, path):
            return FileKind.TEMPORARY_MANIFEST
        case _:
            return None


def _is_left_over(location: TableLocation, path: str) -> bool:
    """Return whether a file is what an unfinished commit left beside the manifests."""
    if path == LATEST_VERSION_HINT:
        return False
    found = parse_manifest_name(last_part(path))
    if found is None:
        return last_part(path).startswith(".tmp") or is_hold(last_part(path))
    if found.staging_id is None:
        return False
    # Until it is copied to its final name, a staged manifest may be the version itself.
    final = path[: path.index(MANIFEST_SUFFIX) + len(MANIFEST_SUFFIX)]
    return location.store.exists(final)


def _is_uuid(text: str) -> bool:
    try:
        uuid.UUID(text)
    except ValueError:
        return False
    return True
