"""Merge rows into a table by key: update or delete matching rows, insert other rows.

`spec` defines a merge, `key_index` finds matching rows, `join` matches a whole table, `decide`
selects the action for each row, and `execute` writes and commits the result.
"""

# ruff: noqa: TC004 - modules are imported lazily; these imports are for type checkers only

from typing import TYPE_CHECKING

from lancelet.on_demand import import_on_demand

if TYPE_CHECKING:
    from lancelet.change.merge import execute, explain, spec

__all__ = ["execute", "explain", "spec"]

import_on_demand(__name__, {})
