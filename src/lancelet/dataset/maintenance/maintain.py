"""Maintenance of a dataset by one call: its operations, and its report as a table."""

from __future__ import annotations

from typing import Any, Final

from lancelet import memwal
from lancelet.dataset.show import display
from lancelet.dataset.show.listing import text_table
from lancelet.table.commit import CommitOptions, refresh_snapshot
from lancelet.table.snapshot import Snapshot
from lancelet.upkeep.cleanup.policy import CleanupPolicy
from lancelet.upkeep.cleanup.run import CleanupStats, cleanup_old_versions
from lancelet.upkeep.compact.options import CompactionOptions
from lancelet.upkeep.compact.run import compact_files
from lancelet.upkeep.indexing.optimize import OptimizeIndices, optimize_indices
from lancelet.upkeep.maintain import Maintained, Outcome, StepResult
from lancelet.upkeep.table_statistics import LogSize, TableStatistics
from lancelet.values import dataclass

_STEP_COLUMNS: Final = ("step", "index", "reason", "read", "outcome", "effect")
_COUNT_COLUMNS: Final = ("statistic", "before", "after")


@dataclass(frozen=True, slots=True, repr=False)
class MaintenanceReport:
    """The steps of a maintenance, and the statistics of the table before and after it.

    Attributes:
        steps: The steps with their outcomes.
        before: The statistics before the first step.
        after: The statistics after the last step; with `dry_run`, those before it.
        seconds: The duration.
        is_dry_run: Whether nothing was changed.
    """

    steps: tuple[StepResult, ...]
    before: TableStatistics
    after: TableStatistics
    seconds: float
    is_dry_run: bool

    @staticmethod
    def of(done: Maintained, *, is_dry_run: bool) -> MaintenanceReport:
        """Return the report of a maintenance."""
        return MaintenanceReport(done.steps, done.before, done.after, done.seconds, is_dry_run)

    @property
    def is_complete(self) -> bool:
        """Whether all steps were done."""
        return all(result.outcome is Outcome.DONE for result in self.steps)

    def to_dict(self) -> dict[str, Any]:
        """Return the report as JSON values.

        Returns:
            A dict with the keys `dry_run`, `seconds`, `steps`, `before` and `after`.

        Example:
            ```python
            dataset.maintain(dry_run=True).to_dict()["steps"]
            ```
        """
        steps = [
            {
                "step": result.step.kind.value,
                "index": result.step.index,
                "reason": result.step.reason,
                "bytes": result.step.bytes,
                "outcome": result.outcome.value,
                "effect": result.detail,
                "seconds": round(result.seconds, 3),
            }
            for result in self.steps
        ]
        return {
            "dry_run": self.is_dry_run,
            "seconds": round(self.seconds, 3),
            "steps": steps,
            "before": _counts(self.before),
            "after": _counts(self.after),
        }

    def __repr__(self) -> str:
        """Show the steps and the statistics as tables."""
        steps = text_table(_STEP_COLUMNS, self._step_rows(), len(self.steps))
        if not self.steps:
            steps = "no maintenance required"
        columns, rows = self._count_table()
        return f"{steps}\n\n{text_table(columns, rows, len(rows))}"

    def _repr_html_(self) -> str:
        columns, rows = self._count_table()
        tables = (display.grid(_STEP_COLUMNS, self._step_rows()), display.grid(columns, rows))
        return display.card("Maintenance", {"dry run": self.is_dry_run}, *tables)

    def _step_rows(self) -> list[list[Any]]:
        return [
            [
                result.step.kind.value,
                result.step.index,
                result.step.reason,
                display.size_text(result.step.bytes),
                result.outcome.value,
                result.detail,
            ]
            for result in self.steps
        ]

    def _count_table(self) -> tuple[tuple[str, ...], list[list[Any]]]:
        before, after = _counts(self.before), _counts(self.after)
        rows = [
            [name.replace("_", " "), _text(name, before[name]), _text(name, after[name])]
            for name in before
            if name != "oldest_age_seconds" and (before[name] or after[name])
        ]
        if self.is_dry_run:
            return ("statistic", "value"), [row[:2] for row in rows]
        return _COUNT_COLUMNS, rows


def _counts(statistics: TableStatistics) -> dict[str, Any]:
    return {
        "version": statistics.version,
        "rows": statistics.rows,
        "deleted_rows": statistics.deleted_rows,
        "fragments": statistics.fragments,
        "files": statistics.files,
        "bytes": statistics.bytes,
        "unindexed_rows": statistics.unindexed_rows,
        "index_segments": sum(index.segments for index in statistics.indices),
        "versions": statistics.versions,
        "expired_versions": statistics.expired_versions,
        "oldest_age_seconds": round(statistics.oldest_age_seconds),
        "log_tables": statistics.log.tables,
        "log_rows": statistics.log.rows,
        "log_bytes": statistics.log.bytes,
        "scan_requests": statistics.scan_requests,
    }


def _text(name: str, count: int) -> str:
    return display.size_text(count) if name.endswith("bytes") else f"{count:,}"


class TableOperations:
    """The operations of a table in this process."""

    def __init__(self, snapshot: Snapshot, committing: CommitOptions | None = None) -> None:
        """Maintain the latest version of the table of a snapshot."""
        self._snapshot = snapshot
        self._committing = committing

    def latest(self) -> Snapshot:
        """Return the latest version."""
        self._snapshot = refresh_snapshot(self._snapshot)
        return self._snapshot

    def log_size(self, snapshot: Snapshot) -> LogSize:
        """Return the size of the unmerged part of the write-ahead log."""
        tables = memwal.compact.unmerged_tables(snapshot)
        return LogSize(
            len(tables),
            sum(table.physical_rows for table in tables),
            sum(table.in_memory_bytes for table in tables),
        )

    def merge_log(self) -> str:
        """Merge the flushed tables of the log."""
        _, done = memwal.compact.compact_log(self.latest())
        return f"merged {done.rows:,} rows and {done.deletions:,} deletions"

    def compact(self, options: CompactionOptions) -> str:
        """Compact fragments."""
        done = compact_files(self.latest(), options, self._committing).metrics
        return compaction_text(done.fragments_removed, done.fragments_added)

    def optimize_indices(self, request: OptimizeIndices) -> str:
        """Optimize indices."""
        return f"version {optimize_indices(self.latest(), request, self._committing).version}"

    def cleanup(self, policy: CleanupPolicy) -> CleanupStats:
        """Delete old versions."""
        return cleanup_old_versions(self.latest(), policy)


def compaction_text(removed: int, added: int) -> str:
    """Describe the effect of a compaction.

    >>> compaction_text(12, 1)
    '12 fragments became 1'
    """
    return f"{removed:,} fragments became {added:,}"
