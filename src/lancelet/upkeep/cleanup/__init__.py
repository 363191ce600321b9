"""Delete old versions and unreferenced files."""

from lancelet.upkeep.cleanup.auto import CleanupWarning, auto_cleanup, parse_duration
from lancelet.upkeep.cleanup.plan import (
    CleanupCandidateFile,
    CleanupPlan,
    CleanupReferencedBranch,
    FileKind,
    plan_cleanup,
)
from lancelet.upkeep.cleanup.policy import CleanupInputError, CleanupPolicy, ago
from lancelet.upkeep.cleanup.run import (
    CleanupStats,
    cleanup_old_versions,
    report_cleanup,
    run_cleanup,
)

__all__ = [
    "CleanupCandidateFile",
    "CleanupInputError",
    "CleanupPlan",
    "CleanupPolicy",
    "CleanupReferencedBranch",
    "CleanupStats",
    "CleanupWarning",
    "FileKind",
    "ago",
    "auto_cleanup",
    "cleanup_old_versions",
    "parse_duration",
    "plan_cleanup",
    "report_cleanup",
    "run_cleanup",
]
