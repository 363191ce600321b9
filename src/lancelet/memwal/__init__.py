"""Frequent small writes: a write-ahead log and in-memory tables for each shard."""

# ruff: noqa: TC004 - modules are imported lazily; these imports are for type checkers only

from typing import TYPE_CHECKING

from lancelet.on_demand import import_on_demand

if TYPE_CHECKING:
    from lancelet.memwal import (
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
