"""Deletes, updates, compaction and other maintenance in parallel tasks.

The tasks run on the given Spark session, or in local processes without one. Each function commits
at most one version; compaction commits another one before it, which reserves fragment ids.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from datetime import timedelta
from typing import Any, Final, Unpack

from lancelet.change.publish import CommitProperties
from lancelet.dataset.maintenance.maintain import (
    MaintenanceReport,
    TableOperations,
    compaction_text,
)
from lancelet.format.version import FileVersion
from lancelet.jobs import build_index, change_rows
from lancelet.jobs.check import check as check_in_tasks
from lancelet.jobs.compact import compact as compact_in_tasks
from lancelet.jobs.engine import Job, JobReport
from lancelet.jobs.migrate import migrate as migrate_in_tasks
from lancelet.jobs.table_ref import TableRef
from lancelet.spark.running import Finished, Running, begin
from lancelet.upkeep.check.finding import Findings, Level
from lancelet.upkeep.cleanup.policy import CleanupPolicy, ago
from lancelet.upkeep.cleanup.run import CleanupStats, cleanup_old_versions
from lancelet.upkeep.compact.options import CompactionOptions
from lancelet.upkeep.compact.rewrite import CompactionMetrics
from lancelet.upkeep.indexing.optimize import OptimizeIndices
from lancelet.upkeep.maintain import MaintenancePolicy, report_maintenance
from lancelet.upkeep.maintain import maintain as maintain_table
from lancelet.values import dataclass

_OLDER_THAN: Final = timedelta(days=14)


@dataclass(frozen=True, slots=True)
class Compacted:
    """The result of a compaction and the new version."""

    version: int
    metrics: CompactionMetrics
    report: JobReport


def delete(uri: str | os.PathLike[str], where: str, **running: Unpack[Running]) -> Finished:
    """Delete the rows that match an SQL condition."""
    job, table = begin(uri, running)
    done = change_rows.delete_rows(job, table, where)
    return Finished(done.version, done.num_rows, job.report)


def update(
    uri: str | os.PathLike[str],
    updates: Mapping[str, str],
    where: str | None = None,
    **running: Unpack[Running],
) -> Finished:
    """Set columns to SQL expressions in the rows that match an SQL condition."""
    job, table = begin(uri, running)
    done = change_rows.update_rows(job, table, updates, where)
    return Finished(done.version, done.num_rows, job.report)


def compact(
    uri: str | os.PathLike[str],
    *,
    options: Mapping[str, Any] | None = None,
    **running: Unpack[Running],
) -> Compacted:
    """Merge small fragments and drop deleted rows.

    `options` are those of `dataset.optimize.compact_files`, such as `target_rows_per_fragment`. The
    table config has the values of the others.
    """
    job, table = begin(uri, running)
    config = table.at(None).open().manifest.config
    done = compact_in_tasks(job, table, CompactionOptions.parse(options or {}, config))
    return Compacted(done.snapshot.version, done.metrics, job.report)


def cleanup(
    uri: str | os.PathLike[str],
    *,
    older_than: timedelta | None = None,
    retain_versions: int | None = None,
    delete_unverified: bool = False,
    error_if_tagged_old_versions: bool = True,
    **running: Unpack[Running],
) -> CleanupStats:
    """Delete old versions (by default older than 14 days) and the files of failed tasks.

    Unreferenced files are deleted when they are older than 7 days, because a running task may still
    commit them. See `dataset.cleanup_old_versions`.
    """
    _, table = begin(uri, running)
    snapshot = table.at(None).open()
    if older_than is None and retain_versions is None:
        older_than = _OLDER_THAN
    policy = CleanupPolicy(
        before=ago(older_than),
        retain_versions=retain_versions,
        delete_unverified=delete_unverified,
        error_if_tagged_old_versions=error_if_tagged_old_versions,
    )
    return cleanup_old_versions(snapshot, policy)


class TaskOperations(TableOperations):
    """The operations of a table; compactions and index updates run in tasks."""

    def __init__(self, job: Job, table: TableRef) -> None:
        """Maintain the latest version of a table."""
        super().__init__(table.at(None).open())
        self._job = job
        self._table = table

    def compact(self, options: CompactionOptions) -> str:
        """Compact fragments."""
        done = compact_in_tasks(self._job, self._table, options).metrics
        return compaction_text(done.fragments_removed, done.fragments_added)

    def optimize_indices(self, request: OptimizeIndices) -> str:
        """Optimize indices."""
        done = build_index.optimize_indices(self._job, self._table, request)
        return f"version {done.version}"


def maintain(
    uri: str | os.PathLike[str],
    policy: MaintenancePolicy | None = None,
    *,
    dry_run: bool = False,
    **running: Unpack[Running],
) -> MaintenanceReport:
    """Compact files, optimize indices, merge the log and delete old versions, as required.

    Compactions and index updates run in tasks; see `dataset.maintain`.
    """
    operations = TaskOperations(*begin(uri, running))
    run = report_maintenance if dry_run else maintain_table
    return MaintenanceReport.of(run(operations, policy or MaintenancePolicy()), is_dry_run=dry_run)


def check(
    uri: str | os.PathLike[str],
    level: str | int | Level = Level.DECODE,
    *,
    version: int | None = None,
    **running: Unpack[Running],
) -> Findings:
    """Return the problems of a version, by default the latest; see `dataset.check`.

    Fragments without live rows are not checked.
    """
    job, table = begin(uri, running)
    pinned = table.pinned(table.at(version).open())
    return check_in_tasks(job, pinned, Level.parse(level))


def migrate(
    uri: str | os.PathLike[str],
    data_storage_version: str,
    *,
    message: str | None = None,
    **running: Unpack[Running],
) -> Finished:
    """Rewrite a table in another file version, as its next version.

    Rows get new ids and indices are dropped. Older versions are unchanged.
    """
    job, table = begin(uri, running)
    version = FileVersion.parse(data_storage_version)
    published = migrate_in_tasks(job, table, version, CommitProperties(message))
    return Finished(published.version, job.report.work.rows, job.report)
