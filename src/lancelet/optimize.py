"""Compaction in separate steps. Mirrors the pylance module of this name."""

from lancelet.dataset.maintenance.compaction import (
    Compaction,
    CompactionOptions,
    CompactionPlan,
    CompactionTask,
    RewriteResult,
)
from lancelet.upkeep.compact import CompactionMetrics

__all__ = [
    "Compaction",
    "CompactionMetrics",
    "CompactionOptions",
    "CompactionPlan",
    "CompactionTask",
    "RewriteResult",
]
