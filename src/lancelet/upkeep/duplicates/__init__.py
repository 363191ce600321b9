"""Find near-duplicate rows by hashes with a small Hamming distance, or by close vectors."""

# ruff: noqa: TC004 - modules are imported on demand, and here for readers of types only

from typing import TYPE_CHECKING

from lancelet.on_demand import import_on_demand

if TYPE_CHECKING:
    from lancelet.upkeep.duplicates import hashes, pairs

__all__ = ["hashes", "pairs"]

import_on_demand(__name__, {})
