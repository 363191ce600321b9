"""Operations that change rows or columns: writes, deletions, updates, merges and column changes."""

# ruff: noqa: TC004 - modules are imported lazily; these imports are for type checkers

from typing import TYPE_CHECKING

from lancelet.on_demand import import_on_demand

if TYPE_CHECKING:
    from lancelet.change import (
        bases,
        blob_input,
        columns,
        delete,
        dry_run,
        fragments,
        mem_wal_guard,
        merge,
        moved_rows,
        publish,
        rows,
        settings,
        update,
        write,
        write_table,
    )

__all__ = [
    "bases",
    "blob_input",
    "columns",
    "delete",
    "dry_run",
    "fragments",
    "mem_wal_guard",
    "merge",
    "moved_rows",
    "publish",
    "rows",
    "settings",
    "update",
    "write",
    "write_table",
]

import_on_demand(__name__, {})
