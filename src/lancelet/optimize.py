"""Compaction in separate steps, as in the pylance module of this name, and maintenance."""

from lancelet.dataset.maintenance.compaction import (
    Compaction,
    CompactionOptions,
    CompactionPlan,
    CompactionTask,
    RewriteResult,
)
from lancelet.dataset.maintenance.maintain import MaintenanceReport
from lancelet.upkeep.compact import CompactionMetrics
from lancelet.upkeep.maintain import MaintenancePolicy, Outcome, Step, StepKind, StepResult
from lancelet.upkeep.table_statistics import (
    IndexCoverage,
    LogSize,
    RewriteCandidate,
    TableStatistics,
)

__all__ = [
    "Compaction",
    "CompactionMetrics",
    "CompactionOptions",
    "CompactionPlan",
    "CompactionTask",
    "IndexCoverage",
    "LogSize",
    "MaintenancePolicy",
    "MaintenanceReport",
    "Outcome",
    "RewriteCandidate",
    "RewriteResult",
    "Step",
    "StepKind",
    "StepResult",
    "TableStatistics",
]
