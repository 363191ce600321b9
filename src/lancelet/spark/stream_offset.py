"""How far a stream of new rows has read: the version that comes next, and the rows done of it.

    {"version": 8, "row": 0}                      all that versions up to 7 inserted
    {"version": 8, "row": 500}                    and the first 500 rows that version 8 inserted
    {"version": 8, "row": 0, "snapshot": true}    nothing yet; begins with all rows of version 8

Rows of a version have an order, so a large version can be read in several batches, and an offset
says exactly where a restarted stream goes on.
"""

from __future__ import annotations

from typing import Any

from lancelet.errors import InvalidInputError, VersionNotFoundError
from lancelet.ops.jobs.table_ref import TableRef
from lancelet.table.snapshot import Snapshot
from lancelet.values import dataclass


@dataclass(frozen=True, slots=True, order=True)
class Offset:
    """A place in the sequence of all new rows."""

    version: int
    row: int = 0
    is_snapshot: bool = False

    @staticmethod
    def parse(form: dict[str, Any]) -> Offset:
        """Return the offset of its form in a checkpoint.

        >>> Offset.parse({"version": 8, "row": 500}).to_dict()
        {'version': 8, 'row': 500}
        """
        try:
            return Offset(int(form["version"]), int(form["row"]), bool(form.get("snapshot")))
        except (KeyError, TypeError, ValueError) as error:
            raise InvalidInputError(
                "the checkpoint has offsets that are not of this source", offset=form
            ) from error

    def to_dict(self) -> dict[str, Any]:
        """Return the form that goes into a checkpoint."""
        form: dict[str, Any] = {"version": self.version, "row": self.row}
        return form | {"snapshot": True} if self.is_snapshot else form


def open_version(table: TableRef, version: int) -> Snapshot:
    """Open a version that a stream is about to read.

    Raises:
        VersionNotFoundError: It was removed before.
    """
    try:
        return table.at(version).open()
    except VersionNotFoundError as error:
        error.add_note(
            "the stream had not read this version when it was removed; start the stream anew, "
            "or clean up later than the stream may fall behind"
        )
        raise
