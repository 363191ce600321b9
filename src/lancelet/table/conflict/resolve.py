"""Making a transaction fit the latest version: judge what came between, rebase, or say why not.

    ours was computed from 5, latest is 7
    6   Append by another            compatible
    7   Delete in our fragment       look at the rows
    ours, rebased on 7               its deletion file has their rows too

What was judged once is not judged again when the race for a version is lost and only newer
versions are new. A version in between may turn out to be our own, when the reply to an earlier
attempt was lost.

Rewriting fragments in which others deleted or moved rows meanwhile.

A rewrite that keeps the order of its rows knows where each went, so rows that are gone since then
are deleted where they are now:

    read        fragment 1 live 0 1 2       ours: fragment 9, rows 0 1 2
    theirs      fragment 1 deleted {1}      committed first
    ours        fragment 9 deleted {1}      in place of fragment 1

An update of rows is the same: it deletes them here and writes them elsewhere, with their ids.
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
from lancelet.format.manifest import id_of
from lancelet.format.operation import CreateIndex, Operation, Overwrite, Rewrite, RewriteGroup
from lancelet.format.transaction import Transaction
from lancelet.rowids.address import UInt64s, addresses_of, group_by_fragment, offsets_of
from lancelet.rowids.deletion import DeletionVector
from lancelet.rowids.moves import RowMoves, Source, Target
from lancelet.table.conflict.rebase import (
    AffectedRows,
    Rebased,
    files_of,
    rebase_rows,
    with_deletions,
)
from lancelet.table.conflict.rules import judge
from lancelet.table.conflict.verdict import Outcome, Verdict, retry
from lancelet.table.landed import landed_in
from lancelet.table.removals import Removals
from lancelet.table.snapshot import Snapshot, open_snapshot
from lancelet.values import dataclass, replace

KeysAreNew: TypeAlias = Callable[[Snapshot], bool]
"""Says whether the rows that a version added have none of the keys that ours inserted."""

FIRST_VERSION: Final = 1
"""The version that creates a table."""


class Resolver:
    """Judges, for one transaction, every version that was committed since it was computed."""

    def __init__(
        self,
        ours: Transaction,
        affected: AffectedRows | None = None,
        *,
        attempts: int,
        keeps_order: bool = False,
        keys_are_new: KeysAreNew | None = None,
    ) -> None:
        """Judge for `ours`, which changes the rows `affected`; it may be tried `attempts` times.

        A rewrite that `keeps_order` has the live rows of its old fragments in their order.
        """
        self._keys_are_new = keys_are_new
        self.ours = ours
        self._affected = affected
        self._attempts = attempts
        self._keeps_order = keeps_order
        self._judged = ours.read_version
        self._disputed: set[int] = set()
        self.num_judged = 0
        self.num_tried = 0
        self._unsettled: dict[int, Snapshot] = {}
        self._lost: CommitOutcomeUnknownError | None = None

    @property
    def lost(self) -> CommitOutcomeUnknownError | None:
        """Why nobody knows whether ours is a version, if nobody does."""
        return self._lost if self._unsettled else None

    def lose(self, ours: Snapshot, error: CommitOutcomeUnknownError) -> None:
        """Remember a version that was put without a reply, until somebody sees whose it is."""
        self._unsettled[ours.version] = ours
        self._lost = error

    def own_first(self, latest: Snapshot) -> Snapshot | None:
        """Return the table's first version if it is ours, which a lost reply did not say."""
        first = self._version(FIRST_VERSION, latest)
        return self._if_ours(FIRST_VERSION, first, latest)

    def own_version(self, latest: Snapshot) -> Snapshot | None:
        """Judge up to the latest version, and return the one that is ours already, if one is.

        `num_judged` says how many there were.

        Raises:
            CommitConflictError: One of the versions cannot be followed.
        """
        self.num_judged = 0
        for version in range(self._judged + 1, latest.version + 1):
            theirs = self._version(version, latest)
            own = self._if_ours(version, theirs, latest)
            if own is not None:
                return own
            if theirs is None:
                reason = "a version since then was cleaned up, so nobody knows what it changed"
                raise self._conflict(latest, retry(reason), version=version)
            verdict = self._judge(theirs)
            if verdict.unless_same_keys is not None and self._keys_are_new is not None:
                verdict = verdict.unless_same_keys if self._keys_are_new(theirs) else verdict
            if verdict.outcome is Outcome.REBASE:
                self._disputed |= verdict.fragments
            elif verdict.outcome is not Outcome.COMPATIBLE:
                raise self._conflict(theirs, verdict)
            self._judged = theirs.version
            self.num_judged += 1
        return None

    def rebased(self, latest: Snapshot) -> Transaction:
        """Return the transaction as it must be to follow the latest version, which was judged."""
        operation = self.ours.operation
        if self._disputed:
            result = self._rebase(frozenset(self._disputed), latest)
            if isinstance(result, Verdict):
                raise self._conflict(latest, result)
            for path, data in result.deletion_files.items():
                latest.location.store.put(path, data)
            operation = result.operation
        if latest.version > self.ours.read_version:
            there = {index.uuid for index in latest.indices.indices}
            gone = _changed_segments(operation) - there
            if gone:
                raise self._conflict(latest, retry("they changed indices that ours changes"))
        return replace(self.ours, operation=operation, read_version=latest.version)

    def _rebase(self, disputed: frozenset[int], latest: Snapshot) -> Rebased | Verdict:
        operation = self.ours.operation
        if isinstance(operation, Rewrite) and self._keeps_order:
            return rebase_rewrite(operation, disputed, latest)
        return rebase_rows(operation, disputed, self._affected, latest)

    def _version(self, version: int, latest: Snapshot) -> Snapshot | None:
        """Return a version up to the latest, or None if it was removed.

        A manifest may be there all the same: of one who came too late for a number that was used.
        """
        if version == latest.version:
            return latest
        try:
            found = open_snapshot(latest.location, version)
            told = found.transaction  # in the same file, which may be gone when it is wanted
        except (VersionNotFoundError, ObjectNotFoundError):
            return None
        identity, file = _identity(version, latest), found.manifest.transaction_file
        if told is not None and file and told.uuid not in file:
            return None  # it was removed between the two reads, and one who is late has its name
        return found if not file or identity in {None, id_of(file)} else None

    def _if_ours(self, version: int, found: Snapshot | None, latest: Snapshot) -> Snapshot | None:
        """Return a version if it is ours, and forget that it may be if it is another's."""
        if found is not None:
            if found.transaction is not None and found.transaction.uuid == self.ours.uuid:
                if found is latest or landed_in(found, None, latest.location.handler) is not None:
                    return found
                return None
            self._unsettled.pop(version, None)
            return None
        unsettled = self._unsettled.get(version)
        identity = None if unsettled is None else _identity(version, latest)
        if unsettled is None or identity is None:
            return None
        if identity == id_of(unsettled.manifest.transaction_file):
            return unsettled
        del self._unsettled[version]
        return None

    @property
    def _is_strict(self) -> bool:
        """Whether nothing may have been committed since the version that was read."""
        return self._attempts == 0 and isinstance(self.ours.operation, Overwrite)

    def _judge(self, theirs: Snapshot) -> Verdict:
        if self._is_strict:
            return retry("an overwrite without retries follows no version but the one it read")
        if theirs.transaction is None:
            return retry("a version since then does not say what it changed")
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
        place = f"for version {theirs.version if version is None else version}"
        return CommitConflictError(
            (f"Commit conflict {place}, {kind}: " if self._is_strict else f"{kind} {place}: ")
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
    """Return the segments of indices that an operation puts others in place of, or removes."""
    match operation:
        case Rewrite(rewritten_indices=rewritten):
            return frozenset(change.old_id for change in rewritten)
        case CreateIndex(removed_indices=removed):
            return frozenset(index.uuid for index in removed)
        case _:
            return frozenset()


def _identity(version: int, latest: Snapshot) -> bytes | None:
    """Return what identifies a version before the latest, also one that was removed, if known."""
    ancestor = latest.manifest.ancestor(version)
    if ancestor is not None:
        return ancestor
    recorded = Removals.of(latest.location.store).transactions.get(version)
    return None if recorded is None else id_of(recorded)


def rebase_rewrite(ours: Rewrite, disputed: frozenset[int], latest: Snapshot) -> Rebased | Verdict:
    """Return our rewrite with the rows deleted that are gone from its fragments since then.

    Its new fragments must have the live rows of the old ones in their order, and reserved ids.
    """
    alive = set(latest.fragments.ids.tolist())
    changed = {
        fragment.id
        for group in ours.groups
        for fragment in group.old_fragments
        if fragment.id in disputed & alive
        and files_of(fragment) != files_of(latest.fragments.by_id(fragment.id))
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
    gone = [
        _gone_since(fragment, latest, alive)
        for fragment in group.old_fragments
        if fragment.id in disputed
    ]
    landed = moves.translate(np.concatenate(gone))
    by_fragment = {
        fragment_id: DeletionVector.of(offsets_of(landed[places]))
        for fragment_id, places in group_by_fragment(landed).items()
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


def _gone_since(fragment: Fragment, latest: Snapshot, alive: set[int]) -> UInt64s:
    """Return the addresses of the rows that were live when we read, and are not any more."""
    before = latest.deletions(fragment)
    if fragment.id not in alive:
        return addresses_of(fragment.id, before.live_offsets(fragment.physical_rows))
    now = latest.deletions(latest.fragments.by_id(fragment.id))
    return addresses_of(fragment.id, np.setdiff1d(now.to_array(), before.to_array()))
