"""Compaction in steps, under pylance's name for the module."""

from lancelet.dataset.maintenance.compaction import (
    Compaction,
    CompactionOptions,
    CompactionPlan,
    CompactionTask,
    RewriteResult,
)
from lancelet.ops.compact import CompactionMetrics

__all__ = [
    "Compaction",
    "CompactionMetrics",
    "CompactionOptions",
    "CompactionPlan",
    "CompactionTask",
    "RewriteResult",
]
