"""The commits between two versions, and whether they allow row tracking.

    version   operation          by stable row ids   by row addresses
    2         Append             yes                 yes
    3         Delete             yes                 yes
    4         Update             yes                 no: the row moves are not recorded
    5         Rewrite            yes                 no: the row moves are not recorded
    6         DataReplacement    no: values change without new row versions

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
    for commit in _available_commits(begin, end):
        transaction = commit.transaction
        operation = None if transaction is None else transaction.operation
        is_preserved = isinstance(operation, _PRESERVES_IDS if by_ids else _PRESERVES_ADDRESSES)
        if not (is_preserved or _only_adds_fields(operation, begin)):
            raise _not_tracked_error(end, commit, by_ids=by_ids)


def _commit(location: TableLocation, version: int) -> Commit:
    return Commit(version, open_snapshot(location, version).transaction)


def _available_commits(begin: Snapshot, end: Snapshot) -> Iterator[Commit]:
    try:
        yield from commits_between(end.location, begin.version, end.version)
    except VersionNotFoundError as error:
        error.add_note(f"Row changes cannot be determined without this version; {_BY_KEY}.")
        raise


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
