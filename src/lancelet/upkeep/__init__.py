"""Maintenance of tables: compaction, cleanup, checks, repairs, indices and change feeds."""

# ruff: noqa: TC004 - modules are imported lazily; these imports are for type checkers

from typing import TYPE_CHECKING

from lancelet.on_demand import import_on_demand

if TYPE_CHECKING:
    from lancelet.upkeep import (
        changes,
        check,
        cleanup,
        column_statistics,
        compact,
        diff,
        duplicates,
        indexing,
        list_files,
        maintain,
        migrate_row_ids,
        rename_manifests,
        repair,
        table_statistics,
        validate,
    )

__all__ = [
    "changes",
    "check",
    "cleanup",
    "column_statistics",
    "compact",
    "diff",
    "duplicates",
    "indexing",
    "list_files",
    "maintain",
    "migrate_row_ids",
    "rename_manifests",
    "repair",
    "table_statistics",
    "validate",
]

import_on_demand(__name__, {})
