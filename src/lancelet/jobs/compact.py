"""Compact in tasks: each rewrites some fragments, and the driver commits the results."""

from __future__ import annotations

from functools import partial

from lancelet.jobs.engine import Done, Job
from lancelet.jobs.table_ref import TableRef
from lancelet.table.snapshot import Snapshot
from lancelet.upkeep.compact.commit import Compacted
from lancelet.upkeep.compact.options import CompactionOptions
from lancelet.upkeep.compact.plan import CompactionPlan, CompactionTask
from lancelet.upkeep.compact.rewrite import RewriteResult, execute_task
from lancelet.upkeep.compact.run import compact_files


def compact(job: Job, table: TableRef, options: CompactionOptions) -> Compacted:
    """Merge small fragments and remove deleted rows, in tasks."""

    def run(snapshot: Snapshot, plan: CompactionPlan) -> list[RewriteResult]:
        return job.run("compact", partial(rewrite, table.pinned(snapshot)), plan.tasks)

    return compact_files(table.at(None).open(), options, run=run)


def rewrite(table: TableRef, task: CompactionTask) -> Done[RewriteResult]:
    """Run a compaction task."""
    return Done(execute_task(table.open(), task), task.num_rows)
