"""A whole compaction: plan, run the tasks side by side, commit."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from functools import partial

from lancelet.config import CPU_THREADS
from lancelet.ops.compact.commit import Compacted, commit_results
from lancelet.ops.compact.options import CompactionOptions
from lancelet.ops.compact.plan import CompactionPlan, plan_compaction
from lancelet.ops.compact.rewrite import CompactionMetrics, RewriteResult, execute_task
from lancelet.table.commit import CommitOptions
from lancelet.table.snapshot import Snapshot


def compact_files(
    snapshot: Snapshot, options: CompactionOptions, committing: CommitOptions | None = None
) -> Compacted:
    """Join small fragments and drop deleted rows; without anything to do there is no version."""
    plan = plan_compaction(snapshot, options)
    if not plan.tasks:
        return Compacted(snapshot, CompactionMetrics())
    return commit_results(snapshot, run_tasks(snapshot, plan), options, committing)


def run_tasks(snapshot: Snapshot, plan: CompactionPlan) -> list[RewriteResult]:
    """Return the results of all tasks of a plan, in its order."""
    threads = min(plan.options.num_threads or CPU_THREADS, len(plan.tasks))
    run = partial(execute_task, snapshot)
    if threads <= 1:
        return list(map(run, plan.tasks))
    with ThreadPoolExecutor(threads, thread_name_prefix="lancelet-compact") as pool:
        return list(pool.map(run, plan.tasks))
