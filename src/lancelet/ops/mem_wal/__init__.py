"""Small writes at a high rate: a log and tables in memory before the table on disk."""

# ruff: noqa: TC004 - modules are imported on demand, and here for readers of types only

from typing import TYPE_CHECKING

from lancelet.on_demand import import_on_demand

if TYPE_CHECKING:
    from lancelet.ops.mem_wal import (
        catch_up,
        compact,
        discovery,
        fresh,
        indices,
        ingest,
        lookup,
        merged,
        nearest,
        sharding,
        state,
        upkeep,
        writer,
    )

__all__ = [
    "catch_up",
    "compact",
    "discovery",
    "fresh",
    "indices",
    "ingest",
    "lookup",
    "merged",
    "nearest",
    "sharding",
    "state",
    "upkeep",
    "writer",
]

import_on_demand(__name__, {})
