"""What was committed between two versions, and whether rows can be followed through it.

    version   operation          by stable row ids   by addresses
    2         Append             yes                 yes
    3         Delete             yes                 yes
    4         Update             yes                 no: rows moved, and which went where is not
    5         Rewrite            yes                 no  recorded
    6         DataReplacement    no: values changed and rows do not say so

A version that was cleaned up may have been any of these, so it counts as the worst of them.
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

_KEEP_ADDRESSES: Final = (
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
_KEEP_IDS: Final = (*_KEEP_ADDRESSES, ops.Update, ops.Rewrite, ops.Restore)

_BY_KEY: Final = "compare the rows by key columns instead, with `on=`"


class RowsNotTrackedError(UnsupportedError, InvalidInputError):
    """The table does not record which rows are the same in two versions, or which changed."""


@dataclass(frozen=True, slots=True)
class Commit:
    """A version, and what was committed as it; None where that is not known any more."""

    version: int
    transaction: Transaction | None


def check_order(begin: int, end: int) -> None:
    """Raise unless one version is not behind another."""
    if begin < 0:
        raise InvalidInputError("versions are counted from 1", begin_version=begin)
    if begin > end:
        raise InvalidInputError(
            "the first version is newer than the last", begin_version=begin, end_version=end
        )


def commits_between(location: TableLocation, begin: int, end: int) -> Iterator[Commit]:
    """Yield the commits after `begin` up to `end`, oldest first.

    Raises:
        VersionNotFoundError: One of them was never made or was cleaned up.
    """
    return map_ordered(partial(_commit, location), range(begin + 1, end + 1), waits=True)


def check_followed(begin: Snapshot, end: Snapshot) -> None:
    """Raise if rows cannot be followed from one version to another."""
    by_ids = end.manifest.uses_stable_row_ids
    if by_ids and not begin.manifest.uses_stable_row_ids:
        raise RowsNotTrackedError(
            f"the table got stable row ids only after the first version; {_BY_KEY}",
            uri=end.location.uri,
            begin_version=begin.version,
            end_version=end.version,
        )
    for commit in _known_commits(begin, end):
        transaction = commit.transaction
        operation = None if transaction is None else transaction.operation
        kept = isinstance(operation, _KEEP_IDS if by_ids else _KEEP_ADDRESSES)
        if not (kept or _only_adds_fields(operation, begin)):
            raise _not_followed(end, commit, by_ids=by_ids)


def _commit(location: TableLocation, version: int) -> Commit:
    return Commit(version, open_snapshot(location, version).transaction)


def _known_commits(begin: Snapshot, end: Snapshot) -> Iterator[Commit]:
    try:
        yield from commits_between(end.location, begin.version, end.version)
    except VersionNotFoundError as error:
        error.add_note(f"What it changed cannot be told without it; {_BY_KEY}.")
        raise


def _only_adds_fields(operation: ops.Operation | None, begin: Snapshot) -> bool:
    """Return whether an operation gives values only to fields that were not there before."""
    known = {int(field.id) for field in begin.schema.walk()}
    match operation:
        case ops.DataReplacement(replacements):
            return all(known.isdisjoint(each.new_file.fields) for each in replacements)
        case ops.AddOverlays(groups):
            files = (overlay.data_file for group in groups for overlay in group.overlays)
            return all(known.isdisjoint(file.fields) for file in files)
    return False


def _not_followed(end: Snapshot, commit: Commit, *, by_ids: bool) -> RowsNotTrackedError:
    transaction = commit.transaction
    reason = (
        "a version changed values, and rows do not say that they changed"
        if by_ids
        else "a version moved rows, and without stable row ids they are not known again"
    )
    return RowsNotTrackedError(
        f"{reason}; {_BY_KEY}",
        uri=end.location.uri,
        version=commit.version,
        operation="unknown" if transaction is None else type(transaction.operation).__name__,
    )
