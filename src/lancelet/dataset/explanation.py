"""What a cleanup would do, as pylance shows it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from lancelet import ops
from lancelet.values import dataclass

if TYPE_CHECKING:
    from lancelet.ops.cleanup import (
        CleanupCandidateFile,
        CleanupPlan,
        CleanupReferencedBranch,
        CleanupStats,
    )


@dataclass(frozen=True, slots=True)
class CleanupExplanation:
    """What a cleanup would delete, seen from a version; nothing was deleted.

    `stats` counts every file, `candidate_files` names as many as were asked for.
    """

    read_version: int
    stats: CleanupStats
    candidate_files: list[CleanupCandidateFile]
    candidate_files_truncated: bool
    candidate_file_limit: int
    referenced_branches: list[CleanupReferencedBranch]
    warnings: list[str]


def explanation_of(plan: CleanupPlan, *, include_files: bool, max_files: int) -> CleanupExplanation:
    """Return the explanation of a plan."""
    files = plan.candidates
    shown = list(files[:max_files]) if include_files else []
    return CleanupExplanation(
        read_version=plan.read_version,
        stats=ops.cleanup.CleanupStats.of(files),
        candidate_files=shown,
        candidate_files_truncated=include_files and len(files) > max_files,
        candidate_file_limit=max_files,
        referenced_branches=list(plan.branches),
        warnings=[
            f"branch {branch.name} started from version {branch.referenced_version}, which goes; "
            "its files stay"
            for branch in plan.branches
            if branch.cleanup_candidate
        ],
    )
