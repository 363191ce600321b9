"""Compact fragments: merge small fragments and remove deleted rows."""

from lancelet.upkeep.compact.commit import Compacted, commit_results
from lancelet.upkeep.compact.options import CompactionMode, CompactionOptions
from lancelet.upkeep.compact.plan import CompactionPlan, CompactionTask, plan_compaction
from lancelet.upkeep.compact.rewrite import CompactionMetrics, RewriteResult, execute_task
from lancelet.upkeep.compact.run import compact_files, report_compaction, report_results

__all__ = [
    "Compacted",
    "CompactionMetrics",
    "CompactionMode",
    "CompactionOptions",
    "CompactionPlan",
    "CompactionTask",
    "RewriteResult",
    "commit_results",
    "compact_files",
    "execute_task",
    "plan_compaction",
    "report_compaction",
    "report_results",
]
