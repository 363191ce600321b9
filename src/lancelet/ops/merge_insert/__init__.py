"""Merging new rows into a table by key: update what matches, insert what does not, delete.

`spec` says what to do, `key_index` finds which rows match, `join` does it for a whole table,
`changes` decides what happens to each row, `execute` writes and commits it.
"""

# ruff: noqa: TC004 - modules are imported on demand, and here for readers of types only

from typing import TYPE_CHECKING

from lancelet.on_demand import import_on_demand

if TYPE_CHECKING:
    from lancelet.ops.merge_insert import execute, explain, spec

__all__ = ["execute", "explain", "spec"]

import_on_demand(__name__, {})
