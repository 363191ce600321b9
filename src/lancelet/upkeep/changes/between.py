"""The commits between two versions, and whether they allow row tracking.

    version   operation          by stable row ids   by row addresses
    2         Append             yes                 yes
    3         Delete             yes                 yes
    4         Update             yes                 no: the row moves are not recorded
    5         Rewrite            yes                 no: the row moves are not recorded
    6         DataReplacement    no: values change without new row versions
    7         Restore of 5       no: it undoes version 6

A version that was cleaned up may have been any of these, so that rows cannot be tracked across it.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import Final

from lancelet.errors import InvalidInputError, UnsupportedError, VersionNotFoundError
from lancelet.file.pool import map_ordered
from lancelet.format import operation as ops
from lancelet.format.transaction import Transaction
from lancelet.table.location import TableLocation
from lancelet.table.snapshot import Snapshot, open_snapshot
from lancelet.values import dataclass

_PRESERVES_ADDRESSES: Final = (
    ops.Append,
    ops.Delete,
    ops.Overwrite,
    ops.CreateIndex,
    ops.Merge,
    ops.ReserveFragments,
    ops.Project,
    ops.UpdateConfig,
    ops.UpdateMemWalState,
    ops.UpdateBases,
)
_PRESERVES_IDS: Final = (*_PRESERVES_ADDRESSES, ops.Update, ops.Rewrite, ops.Restore)

_BY_KEY: Final = "compare the rows by key columns instead, with `on=`"


class RowsNotTrackedError(UnsupportedError, InvalidInputError):
    """The table does not record which rows are identical in two versions, or which rows changed."""


@dataclass(frozen=True, slots=True)
class Commit:
    """A version and its transaction; None if the transaction is not available."""

    version: int
    transaction: Transaction | None


def check_order(begin: int, end: int) -> None:
    """Raise if `begin` is after `end`, or negative."""
    if begin < 0:
        raise InvalidInputError("version numbers start at 1", begin_version=begin)
    if begin > end:
        raise InvalidInputError(
            "the first version must not be newer than the last",
            begin_version=begin,
            end_version=end,
        )


def commits_between(location: TableLocation, begin: int, end: int) -> Iterator[Commit]:
    """Yield the commits after `begin` up to `end`, oldest first.

    Raises:
        VersionNotFoundError: One of the versions was cleaned up or never existed.
    """
    return map_ordered(partial(_commit, location), range(begin + 1, end + 1), waits=True)


def check_trackable(begin: Snapshot, end: Snapshot) -> None:
    """Raise if rows cannot be tracked from one version to another."""
    by_ids = end.manifest.uses_stable_row_ids
    if by_ids and not begin.manifest.uses_stable_row_ids:
        raise RowsNotTrackedError(
            f"stable row ids were enabled after the first version; {_BY_KEY}",
            uri=end.location.uri,
            begin_version=begin.version,
            end_version=end.version,
        )
    first, last = begin.version, end.version
    while first < last:
        oldest = first
        for commit in _available_commits(end.location, first, last):
            operation = None if commit.transaction is None else commit.transaction.operation
            is_preserved = isinstance(operation, _PRESERVES_IDS if by_ids else _PRESERVES_ADDRESSES)
            if not (is_preserved or _only_adds_fields(operation, begin)):
                raise _not_tracked_error(end, commit, by_ids=by_ids)
            if by_ids and isinstance(operation, ops.Update):
                _check_row_versions(end, commit, operation)
            if isinstance(operation, ops.Restore):
                oldest = min(oldest, operation.version)
        # A restored version may be older than the first one; it undoes the commits in between.
        first, last = oldest, first


def _commit(location: TableLocation, version: int) -> Commit:
    return Commit(version, open_snapshot(location, version).transaction)


def _available_commits(location: TableLocation, begin: int, end: int) -> Iterator[Commit]:
    try:
        yield from commits_between(location, begin, end)
    except VersionNotFoundError as error:
        error.add_note(f"Row changes cannot be determined without this version; {_BY_KEY}.")
        raise


def _check_row_versions(end: Snapshot, commit: Commit, update: ops.Update) -> None:
    """Raise if an update replaced columns of fragments, and no row has a new version."""
    if not update.fields_modified:
        return
    before, after = (
        open_snapshot(end.location, version).fragments
        for version in (commit.version - 1, commit.version)
    )
    for number in {each.id for each in update.updated_fragments} & set(before.ids.tolist()):
        old, new = before.by_id(number), after.by_id(number)
        is_same = old.last_updated_at_versions == new.last_updated_at_versions
        if is_same and any(
            old.find_file(field) != new.find_file(field) for field in update.fields_modified
        ):
            raise _not_tracked_error(end, commit, by_ids=True)


def _only_adds_fields(operation: ops.Operation | None, begin: Snapshot) -> bool:
    """Return whether an operation only writes values of fields that are new since `begin`."""
    existing = {int(field.id) for field in begin.schema.walk()}
    match operation:
        case ops.DataReplacement(replacements):
            return all(
                existing.isdisjoint(replacement.new_file.fields) for replacement in replacements
            )
        case ops.AddOverlays(groups):
            files = (overlay.data_file for group in groups for overlay in group.overlays)
            return all(existing.isdisjoint(file.fields) for file in files)
    return False


def _not_tracked_error(end: Snapshot, commit: Commit, *, by_ids: bool) -> RowsNotTrackedError:
    transaction = commit.transaction
    reason = (
        "a version changed values without recording the changed rows"
        if by_ids
        else "a version moved rows, which cannot be tracked without stable row ids"
    )
    return RowsNotTrackedError(
        f"{reason}; {_BY_KEY}",
        uri=end.location.uri,
        version=commit.version,
        operation="unknown" if transaction is None else type(transaction.operation).__name__,
    )
