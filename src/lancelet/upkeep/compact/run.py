"""Run a compaction: plan it, run its tasks in parallel, commit, and retry conflicting tasks.

For example:

    attempt 1    10 tasks, 9 committed; another writer rewrote a column of one fragment
    attempt 2    the remaining task
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from dataclasses import replace
from functools import partial
from typing import Final

import numpy as np

from lancelet import surroundings
from lancelet.change.dry_run import ChangeReport, DryRun
from lancelet.change.progress import counted
from lancelet.config import CPU_THREADS
from lancelet.errors import CommitConflictError
from lancelet.format.operation import Rewrite
from lancelet.table.commit import CommitOptions, check_table_exists, refresh_snapshot
from lancelet.table.snapshot import Snapshot
from lancelet.upkeep.compact.commit import Compacted, commit_compatible, discard, number_groups
from lancelet.upkeep.compact.options import CompactionOptions
from lancelet.upkeep.compact.plan import CompactionPlan, plan_compaction
from lancelet.upkeep.compact.remap import change_indices, check_deferrable
from lancelet.upkeep.compact.rewrite import CompactionMetrics, RewriteResult, execute_task

ATTEMPTS_MAX: Final = 5

TaskRunner = Callable[[Snapshot, CompactionPlan], list[RewriteResult]]
"""Returns the results of the tasks of a plan, in order."""


def compact_files(
    snapshot: Snapshot,
    options: CompactionOptions,
    committing: CommitOptions | None = None,
    *,
    run: TaskRunner | None = None,
) -> Compacted:
    """Merge small fragments and remove deleted rows; creates no version if nothing changes.

    `run` runs the tasks of a plan, by default in local threads.

    Raises:
        CommitConflictError: All rewritten fragments were changed concurrently in every attempt.
    """
    check_deferrable(snapshot, options)
    check_table_exists(snapshot)
    metrics = CompactionMetrics()
    for attempt in itertools.count(1):
        plan = plan_compaction(snapshot, options)
        if not plan.tasks:
            break
        results = (run or run_tasks)(snapshot, plan)
        try:
            done = commit_compatible(snapshot, results, options, committing)
        except CommitConflictError as error:
            if attempt >= ATTEMPTS_MAX or not error.retryable:
                raise
            snapshot = refresh_snapshot(snapshot)
            continue
        snapshot, metrics = done.snapshot, metrics + done.metrics
        if not done.left_out or attempt >= ATTEMPTS_MAX:
            break
        options = _restrict_to(options, snapshot, done.left_out)
    return Compacted(snapshot, metrics)


def report_compaction(snapshot: Snapshot, options: CompactionOptions) -> ChangeReport:
    """Return the effect of a compaction, using a store that discards writes."""
    check_deferrable(snapshot, options)
    dry_run = DryRun.of(snapshot)
    results = run_tasks(dry_run.snapshot, plan_compaction(snapshot, options))
    return _report(dry_run, results, options)


def report_results(
    snapshot: Snapshot, results: Sequence[RewriteResult], options: CompactionOptions
) -> ChangeReport:
    """Return the effect of committing the results of tasks, whose files exist already."""
    check_deferrable(snapshot, options)
    return _report(DryRun.of(snapshot), results, options)


def _report(
    dry_run: DryRun, results: Sequence[RewriteResult], options: CompactionOptions
) -> ChangeReport:
    if not results:
        return dry_run.report(Rewrite(()), 0)
    highest = dry_run.snapshot.manifest.max_fragment_id
    groups = number_groups(results, 0 if highest is None else highest + 1)
    rows = sum(fragment.physical_rows for group in groups for fragment in group.new_fragments)
    indices = change_indices(dry_run.snapshot, groups, options)
    return dry_run.report(Rewrite(groups, indices.rewritten, indices.moves), rows)


def run_tasks(
    snapshot: Snapshot, plan: CompactionPlan, on_done: Callable[[], object] = lambda: None
) -> list[RewriteResult]:
    """Return the results of all tasks in order; on failure, delete all new files.

    `on_done` is called after each task, in the thread of the caller and in order.
    """
    if not plan.tasks:
        return []
    threads = max(1, min(plan.options.num_threads or CPU_THREADS, len(plan.tasks)))
    run = partial(execute_task, snapshot)
    running: list[Future[RewriteResult]] = []
    with surroundings.executor(threads, "lancelet-compact") as pool:
        try:
            running += [pool.submit(run, task) for task in plan.tasks]
            for future in counted("compact fragments", running, len(running)):
                future.result()
                on_done()
        except BaseException:
            for future in running:
                future.cancel()
            pool.shutdown(wait=True)
            discard(snapshot, _finished(running))
            raise
        return [future.result() for future in running]


def _finished(running: list[Future[RewriteResult]]) -> list[RewriteResult]:
    return [
        future.result()
        for future in running
        if not future.cancelled() and future.exception() is None
    ]


def _restrict_to(
    options: CompactionOptions, snapshot: Snapshot, left_out: tuple[RewriteResult, ...]
) -> CompactionOptions:
    """Return options that restrict a compaction to the skipped results."""
    retried = [fragment.id for result in left_out for fragment in result.original_fragments]
    others = np.setdiff1d(snapshot.fragments.ids, retried)
    excluded = {*options.excluded_fragment_ids, *others.tolist()}
    return replace(options, excluded_fragment_ids=tuple(sorted(excluded)))
