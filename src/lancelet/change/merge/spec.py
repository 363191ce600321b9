"""The specification of a merge, as a frozen value.

The actions depend on where a key exists:

    key in both         KEEP the table row, UPDATE it, DELETE it, or FAIL
    key only in source  insert the row, or ignore it
    key only in table   delete the row, optionally with a condition, or keep it
"""

from __future__ import annotations

from dataclasses import field
from enum import Enum

from lancelet.change.moved_rows import RowFiles
from lancelet.config import MEMORY_LIMIT_BYTES
from lancelet.errors import InvalidInputError
from lancelet.expr.compile import ExpressionLike
from lancelet.format.operation import CompactedSsTable
from lancelet.values import dataclass


class Matched(Enum):
    """The action for rows of the table that match a source row."""

    KEEP = "DoNothing"
    UPDATE = "UpdateAll"
    DELETE = "Delete"
    FAIL = "Fail"


class Duplicates(Enum):
    """The action for source rows with the key of an earlier source row."""

    FAIL = "fail"
    FIRST_SEEN = "first_seen"


class RewriteMode(Enum):
    """The write mode of updates: move rows to new fragments, or rewrite some columns in place."""

    AUTO = "auto"
    ROWS = "rewrite_rows"
    COLUMNS = "rewrite_columns"


@dataclass(frozen=True, slots=True)
class MergeSpec:
    """The specification of a merge.

    Attributes:
        on: The paths of the key columns.
        matched: The action for rows of the table that match a source row.
        update_condition: A predicate over `source.` and `target.` columns that restricts updates.
        inserts: Whether source rows without a match are inserted.
        deletes_unmatched: Whether rows of the table without a match are deleted.
        delete_condition: A predicate that restricts deletions.
        duplicates: The action for source rows with equal keys.
        mode: The write mode of updates.
        uses_index: Whether an index on the key may be used.
        files: The options for new files.
        memory_limit: The approximate memory of a merge in bytes. Source rows and keys that exceed
            their part of it are spilled to temporary files.
        compacted: The generations of shards to record as merged.
        unmerged: Generations of shards that must not be merged yet; the merge does not record
            them.
    """

    on: tuple[str, ...]
    matched: Matched = Matched.KEEP
    update_condition: ExpressionLike | None = None
    inserts: bool = False
    deletes_unmatched: bool = False
    delete_condition: ExpressionLike | None = None
    duplicates: Duplicates = Duplicates.FAIL
    mode: RewriteMode = RewriteMode.AUTO
    uses_index: bool = True
    files: RowFiles = field(default_factory=RowFiles)
    memory_limit: int = MEMORY_LIMIT_BYTES
    compacted: tuple[CompactedSsTable, ...] = ()
    unmerged: tuple[CompactedSsTable, ...] = ()

    def check(self) -> None:
        """Raise if the merge cannot change anything."""
        if not self.on:
            raise InvalidInputError(
                "A merge insert operation requires join keys: specify `on` columns explicitly "
                "or configure a primary key in the dataset schema"
            )
        if self.matched is Matched.KEEP and not self.inserts and not self.deletes_unmatched:
            raise InvalidInputError(
                "The merge insert job is not configured to change the data in any way"
            )


@dataclass(frozen=True, slots=True)
class MergeStatistics:
    """The statistics of a merge.

    `num_attempts` is greater than 1 after conflicts.
    """

    num_inserted_rows: int = 0
    num_updated_rows: int = 0
    num_deleted_rows: int = 0
    num_skipped_duplicates: int = 0
    num_attempts: int = 1
    bytes_written: int = 0
    num_files_written: int = 0
