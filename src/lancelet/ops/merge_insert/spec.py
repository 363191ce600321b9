"""What a merge of new rows into a table shall do, as one frozen value.

key in both         KEEP the table's row, UPDATE it, DELETE it, or FAIL
key only in source  insert the row, or not
key only in table   delete the row, perhaps only where a condition is true, or not
"""

from __future__ import annotations

from dataclasses import field
from enum import Enum

from lancelet.config import MEMORY_LIMIT_BYTES
from lancelet.errors import InvalidInputError
from lancelet.format.operation import CompactedSsTable
from lancelet.ops.moved_rows import RowFiles
from lancelet.query.compile import ExpressionLike
from lancelet.values import dataclass


class Matched(Enum):
    """What happens to a row of the table whose key the source has."""

    KEEP = "DoNothing"
    UPDATE = "UpdateAll"
    DELETE = "Delete"
    FAIL = "Fail"


class Duplicates(Enum):
    """What happens to source rows that have the key of an earlier one."""

    FAIL = "fail"
    FIRST_SEEN = "first_seen"


class RewriteMode(Enum):
    """How rows are updated: written anew elsewhere, or some columns of them in place."""

    AUTO = "auto"
    ROWS = "rewrite_rows"
    COLUMNS = "rewrite_columns"


@dataclass(frozen=True, slots=True)
class MergeSpec:
    """What a merge does.

    Attributes:
        on: The columns of the key, by path.
        matched: What happens to rows with a key of the source.
        update_condition: Updates only where it is true; it sees `source.` and `target.`.
        inserts: Whether source rows without a match are inserted.
        deletes_unmatched: Whether rows of the table without a match are deleted.
        delete_condition: Deletes only those for which it is true.
        duplicates: What happens to source rows that have one key.
        mode: How rows are updated.
        uses_index: Whether an index on the key may be used.
        files: How new rows are written.
        memory_limit: The bytes that rows and keys of the source may take in memory; what is
            beyond waits in a temporary file.
        compacted: How far shards have been merged with it.
        unmerged: Generations of shards that must not be in the table yet; the merge records
            nothing of them.
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
        """Refuse a merge that could not change anything."""
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
    """What a merge did.

    `num_attempts` is more than 1 where others committed first.
    """

    num_inserted_rows: int = 0
    num_updated_rows: int = 0
    num_deleted_rows: int = 0
    num_skipped_duplicates: int = 0
    num_attempts: int = 1
    bytes_written: int = 0
    num_files_written: int = 0
