"""Check a transaction against concurrent commits and rebase it on the latest version.

    ours read version 5, latest is 7
    6   Append by another writer     compatible
    7   Delete in our fragment       compare rows
    ours, rebased on 7               its deletion file includes their rows

After a lost race, only newer versions are checked. An intermediate version may be our own if the
response to an earlier attempt was lost.

A rewrite that preserves the row order can be rebased on concurrent deletions and moves, because the
new offset of each row is known:

    read        fragment 1 live 0 1 2       ours: fragment 9, rows 0 1 2
    theirs      fragment 1 deleted {1}      committed first
    ours        fragment 9 deleted {1}      replaces fragment 1

A concurrent update is handled in the same way: it deletes rows and rewrites them with their ids.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final, TypeAlias
from uuid import UUID

import numpy as np

from lancelet.errors import (
    CommitConflictError,
    CommitOutcomeUnknownError,
    ObjectNotFoundError,
    VersionNotFoundError,
)
from lancelet.format.fragment import Fragment
from lancelet.format.manifest import version_identifier
from lancelet.format.operation import CreateIndex, Operation, Overwrite, Rewrite, RewriteGroup
from lancelet.format.transaction import Transaction
from lancelet.rowids.address import UInt64s, addresses_of, group_by_fragment, offsets_of
from lancelet.rowids.deletion import DeletionVector
from lancelet.rowids.moves import RowMoves, Source, Target
from lancelet.table.conflict.rebase import (
    AffectedRows,
    Rebased,
    file_layout,
    rebase_rows,
    with_deletions,
)
from lancelet.table.conflict.rules import judge
from lancelet.table.conflict.verdict import Outcome, Verdict, retry
from lancelet.table.landed import confirm_version
from lancelet.table.removals import Removals
from lancelet.table.snapshot import Snapshot, open_snapshot
from lancelet.values import dataclass, replace

KeysAreNew: TypeAlias = Callable[[Snapshot], bool]
"""Returns whether the rows that a version added have none of the keys that ours inserted."""

FIRST_VERSION: Final = 1
"""The version that creates a table."""


class Resolver:
    """Checks every version committed since a transaction was computed."""

    def __init__(
        self,
        ours: Transaction,
        affected: AffectedRows | None = None,
        *,
        attempts: int,
        preserves_order: bool = False,
        keys_are_new: KeysAreNew | None = None,
    ) -> None:
        """Check `ours`, which changes the rows `affected`, in up to `attempts` attempts.

        With `preserves_order`, a rewrite retains the order of the live rows of its old fragments.
        """
        self._keys_are_new = keys_are_new
        self.ours = ours
        self._affected = affected
        self._attempts = attempts
        self._preserves_order = preserves_order
        self._judged = ours.read_version
        self._disputed: set[int] = set()
        self.num_judged = 0
        self.num_tried = 0
        self._pending: dict[int, Snapshot] = {}
        self._unknown_outcome: CommitOutcomeUnknownError | None = None

    @property
    def unknown_outcome(self) -> CommitOutcomeUnknownError | None:
        """The error of a lost response while the outcome of our commit is unknown, or None."""
        return self._unknown_outcome if self._pending else None

    def add_pending(self, ours: Snapshot, error: CommitOutcomeUnknownError) -> None:
        """Record a version that was put without a response as pending."""
        self._pending[ours.version] = ours
        self._unknown_outcome = error

    def find_own_first(self, latest: Snapshot) -> Snapshot | None:
        """Return the table's first version if we published it and lost the response."""
        first = self._version(FIRST_VERSION, latest)
        return self._if_ours(FIRST_VERSION, first, latest)

    def find_own_version(self, latest: Snapshot) -> Snapshot | None:
        """Check all versions up to the latest; return the one that ours was published as, or None.

        `num_judged` is the number of checked versions.

        Raises:
            CommitConflictError: One of the versions conflicts.
        """
        self.num_judged = 0
        for version in range(self._judged + 1, latest.version + 1):
            theirs = self._version(version, latest)
            published = self._if_ours(version, theirs, latest)
            if published is not None:
                return published
            if theirs is None:
                reason = "an intermediate version was cleaned up and its changes are unknown"
                raise self._conflict(latest, retry(reason), version=version)
            verdict = self._judge(theirs)
            if verdict.if_keys_disjoint is not None and self._keys_are_new is not None:
                verdict = verdict.if_keys_disjoint if self._keys_are_new(theirs) else verdict
            if verdict.outcome is Outcome.REBASE:
                self._disputed |= verdict.fragments
            elif verdict.outcome is not Outcome.COMPATIBLE:
                raise self._conflict(theirs, verdict)
            self._judged = theirs.version
            self.num_judged += 1
        return None

    def rebased(self, latest: Snapshot) -> Transaction:
        """Return the transaction rebased on the latest version, which must have been checked."""
        operation = self.ours.operation
        if self._disputed:
            result = self._rebase(frozenset(self._disputed), latest)
            if isinstance(result, Verdict):
                raise self._conflict(latest, result)
            for path, data in result.deletion_files.items():
                latest.location.store.put(path, data)
            operation = result.operation
        if latest.version > self.ours.read_version:
            existing = {index.uuid for index in latest.indices.indices}
            removed = _changed_segments(operation) - existing
            if removed:
                raise self._conflict(latest, retry("they changed indices that ours changes"))
        return replace(self.ours, operation=operation, read_version=latest.version)

    def _rebase(self, disputed: frozenset[int], latest: Snapshot) -> Rebased | Verdict:
        operation = self.ours.operation
        if isinstance(operation, Rewrite) and self._preserves_order:
            return rebase_rewrite(operation, disputed, latest)
        return rebase_rows(operation, disputed, self._affected, latest)

    def _version(self, version: int, latest: Snapshot) -> Snapshot | None:
        """Return a version up to the latest, or None if it was removed.

        A manifest that was published too late, under the number of a removed version, is ignored.
        """
        if version == latest.version:
            return latest
        try:
            snapshot = open_snapshot(latest.location, version)
            # Read the transaction now: its file may be removed later.
            transaction = snapshot.transaction
        except (VersionNotFoundError, ObjectNotFoundError):
            return None
        identity, file = _identity(version, latest), snapshot.manifest.transaction_file
        if transaction is not None and file and transaction.uuid not in file:
            return None  # A late commit has the name of the version that was removed since.
        return snapshot if not file or identity in {None, version_identifier(file)} else None

    def _if_ours(
        self, version: int, snapshot: Snapshot | None, latest: Snapshot
    ) -> Snapshot | None:
        """Return a version if it is ours; clear its pending state if it is not."""
        if snapshot is not None:
            if snapshot.transaction is not None and snapshot.transaction.uuid == self.ours.uuid:
                if (
                    snapshot is latest
                    or confirm_version(snapshot, None, latest.location.handler) is not None
                ):
                    return snapshot
                return None
            self._pending.pop(version, None)
            return None
        pending = self._pending.get(version)
        identity = None if pending is None else _identity(version, latest)
        if pending is None or identity is None:
            return None
        if identity == version_identifier(pending.manifest.transaction_file):
            return pending
        del self._pending[version]
        return None

    @property
    def _is_strict(self) -> bool:
        """Whether any commit since the version that was read is a conflict."""
        return self._attempts == 0 and isinstance(self.ours.operation, Overwrite)

    def _judge(self, theirs: Snapshot) -> Verdict:
        if self._is_strict:
            return retry("an overwrite without retries must directly follow the version it read")
        if theirs.transaction is None:
            return retry("an intermediate version does not record its changes")
        return judge(self.ours.operation, theirs.transaction.operation)

    def _conflict(
        self, theirs: Snapshot, verdict: Verdict, *, version: int | None = None
    ) -> CommitConflictError:
        ours, other = self.ours, theirs.transaction if version is None else None
        can_win = verdict.outcome is not Outcome.INCOMPATIBLE
        advice = (
            "do the work again from the latest version"
            if can_win
            else "doing the work again would not help"
        )
        kind = "Retryable commit conflict" if can_win else "Commit conflict"
        position = f"for version {theirs.version if version is None else version}"
        return CommitConflictError(
            (f"Commit conflict {position}, {kind}: " if self._is_strict else f"{kind} {position}: ")
            + "it was preempted by another transaction, which was committed first, and "
            f"{verdict.reason}; {advice}",
            retryable=can_win,
            ours=type(ours.operation).__name__,
            ours_uuid=ours.uuid,
            read_version=ours.read_version,
            theirs=None if other is None else type(other.operation).__name__,
            theirs_uuid=None if other is None else other.uuid,
            version=theirs.version if version is None else version,
            fragments=sorted(verdict.fragments),
            fields=sorted(verdict.fields),
            names=sorted(verdict.names),
            attempts=self.num_tried,
        )


def _changed_segments(operation: Operation) -> frozenset[UUID]:
    """Return the index segments that an operation replaces or removes."""
    match operation:
        case Rewrite(rewritten_indices=rewritten):
            return frozenset(change.old_id for change in rewritten)
        case CreateIndex(removed_indices=removed):
            return frozenset(index.uuid for index in removed)
        case _:
            return frozenset()


def _identity(version: int, latest: Snapshot) -> bytes | None:
    """Return the identity of an earlier version, including removed ones, or None if unknown."""
    ancestor = latest.manifest.ancestor(version)
    if ancestor is not None:
        return ancestor
    recorded = Removals.load(latest.location.store).transactions.get(version)
    return None if recorded is None else version_identifier(recorded)


def rebase_rewrite(ours: Rewrite, disputed: frozenset[int], latest: Snapshot) -> Rebased | Verdict:
    """Return our rewrite with the concurrently deleted rows deleted from its new fragments.

    The new fragments must contain the live rows of the old ones in order, and have reserved ids.
    """
    alive = set(latest.fragments.ids.tolist())
    changed = {
        fragment.id
        for group in ours.groups
        for fragment in group.old_fragments
        if fragment.id in disputed & alive
        and file_layout(fragment) != file_layout(latest.fragments.by_id(fragment.id))
    }
    if changed:
        return retry("they rewrote files of the same fragments", fragments=frozenset(changed))
    groups: list[RewriteGroup] = []
    files: dict[str, bytes] = {}
    for group in ours.groups:
        if disputed.isdisjoint(fragment.id for fragment in group.old_fragments):
            groups.append(group)
            continue
        rebased = _rebased_group(group, disputed, latest, alive)
        files.update(rebased.files)
        old = tuple(fragment for fragment in group.old_fragments if fragment.id in alive)
        if old or rebased.fragments:
            groups.append(RewriteGroup(old, rebased.fragments))
    return Rebased(replace(ours, groups=tuple(groups)), files)


@dataclass(frozen=True, slots=True)
class _RebasedGroup:
    fragments: tuple[Fragment, ...]
    files: Mapping[str, bytes]


def _rebased_group(
    group: RewriteGroup, disputed: frozenset[int], latest: Snapshot, alive: set[int]
) -> _RebasedGroup:
    moves = RowMoves.of(
        (Source(f.id, f.physical_rows, latest.deletions(f)) for f in group.old_fragments),
        (Target(f.id, f.physical_rows) for f in group.new_fragments),
    )
    removed = [
        _removed_since(fragment, latest, alive)
        for fragment in group.old_fragments
        if fragment.id in disputed
    ]
    new_addresses = moves.translate(np.concatenate(removed))
    by_fragment = {
        fragment_id: DeletionVector.of(offsets_of(new_addresses[positions]))
        for fragment_id, positions in group_by_fragment(new_addresses).items()
    }
    fragments: list[Fragment] = []
    files: dict[str, bytes] = {}
    for fragment in group.new_fragments:
        deleted = by_fragment.get(fragment.id)
        if deleted is None:
            fragments.append(fragment)
        elif len(deleted) < fragment.physical_rows:
            rebased = with_deletions(fragment, deleted, read_version=latest.version)
            assert rebased.deletion_file is not None
            path = rebased.deletion_file.path(fragment.id)
            files[path] = deleted.render(path)
            fragments.append(rebased)
    return _RebasedGroup(tuple(fragments), files)


def _removed_since(fragment: Fragment, latest: Snapshot, alive: set[int]) -> UInt64s:
    """Return the addresses of rows that were live in the version read and are deleted now."""
    before = latest.deletions(fragment)
    if fragment.id not in alive:
        return addresses_of(fragment.id, before.live_offsets(fragment.physical_rows))
    now = latest.deletions(latest.fragments.by_id(fragment.id))
    return addresses_of(fragment.id, np.setdiff1d(now.to_array(), before.to_array()))
