"""Operations that create new versions of a table, such as writes, deletions and compaction.

Submodules are imported on first access, so that programs load only the operations they use.

    ops.compact.compact_files(...)    imports `lancelet.ops.compact`
"""

# ruff: noqa: TC004 - modules are imported on demand, and here for readers of types only

from typing import TYPE_CHECKING

from lancelet.on_demand import import_on_demand

if TYPE_CHECKING:
    from lancelet.ops import (
        bases,
        blob_input,
        changes,
        check,
        cleanup,
        column_statistics,
        columns,
        compact,
        delete,
        diff,
        dry_run,
        duplicates,
        fragments,
        indexing,
        list_files,
        mem_wal,
        merge_insert,
        migrate_row_ids,
        moved_rows,
        publish,
        rename_manifests,
        repair,
        rows,
        settings,
        update,
        validate,
        write,
        write_table,
    )

__all__ = [
    "bases",
    "blob_input",
    "changes",
    "check",
    "cleanup",
    "column_statistics",
    "columns",
    "compact",
    "delete",
    "diff",
    "dry_run",
    "duplicates",
    "fragments",
    "indexing",
    "list_files",
    "mem_wal",
    "merge_insert",
    "migrate_row_ids",
    "moved_rows",
    "publish",
    "rename_manifests",
    "repair",
    "rows",
    "settings",
    "update",
    "validate",
    "write",
    "write_table",
]

import_on_demand(__name__, {})
