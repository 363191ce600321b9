"""Offsets of a stream of new rows: the next version, and the number of its rows already read.

    {"version": 8, "row": 0}                      all rows inserted by versions up to 7
    {"version": 8, "row": 500}                    and the first 500 rows inserted by version 8
    {"version": 8, "row": 0, "snapshot": true}    no rows; the first batch reads all of version 8

The rows of a version are ordered, so a large version can be read in several batches, and a
restarted stream continues exactly after the last row that it read.
"""

from __future__ import annotations

from typing import Any

from lancelet.errors import InvalidInputError, VersionNotFoundError
from lancelet.jobs.table_ref import TableRef
from lancelet.table.snapshot import Snapshot
from lancelet.values import dataclass


@dataclass(frozen=True, slots=True, order=True)
class Offset:
    """A position in the sequence of all new rows."""

    version: int
    row: int = 0
    is_snapshot: bool = False

    @staticmethod
    def parse(form: dict[str, Any]) -> Offset:
        """Parse an offset in the form of a checkpoint.

        >>> Offset.parse({"version": 8, "row": 500}).to_dict()
        {'version': 8, 'row': 500}
        """
        try:
            return Offset(int(form["version"]), int(form["row"]), bool(form.get("snapshot")))
        except (KeyError, TypeError, ValueError) as error:
            raise InvalidInputError(
                "the checkpoint has offsets of another source", offset=form
            ) from error

    def to_dict(self) -> dict[str, Any]:
        """Return the offset in the form of a checkpoint."""
        form: dict[str, Any] = {"version": self.version, "row": self.row}
        return form | {"snapshot": True} if self.is_snapshot else form


def open_version(table: TableRef, version: int) -> Snapshot:
    """Open the next version of a stream.

    Raises:
        VersionNotFoundError: The version was removed.
    """
    try:
        return table.at(version).open()
    except VersionNotFoundError as error:
        error.add_note(
            "the version was removed before the stream read it; restart the stream with a new "
            "checkpoint, and retain versions for longer"
        )
        raise
