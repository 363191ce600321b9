"""A whole compaction: plan, run the tasks side by side, commit, and again what was left out.

round 1    10 tasks, 9 committed: others rewrote a column of the fragments of one
round 2    that one
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
from lancelet.config import CPU_THREADS
from lancelet.errors import CommitConflictError
from lancelet.format.operation import Rewrite
from lancelet.ops.compact.commit import (
    Compacted,
    commit_what_fits,
    discard,
    numbered_groups,
)
from lancelet.ops.compact.options import CompactionOptions
from lancelet.ops.compact.plan import CompactionPlan, plan_compaction
from lancelet.ops.compact.remap import change_indices, check_deferrable
from lancelet.ops.compact.rewrite import CompactionMetrics, RewriteResult, execute_task
from lancelet.ops.dry_run import ChangeReport, Rehearsal
from lancelet.ops.progress import counted
from lancelet.table.commit import CommitOptions, check_table_exists, refresh_snapshot
from lancelet.table.snapshot import Snapshot

ROUNDS: Final = 5

TaskRunner = Callable[[Snapshot, CompactionPlan], list[RewriteResult]]
"""Returns the results of the tasks of a plan, in their order."""


def compact_files(
    snapshot: Snapshot,
    options: CompactionOptions,
    committing: CommitOptions | None = None,
    *,
    run: TaskRunner | None = None,
) -> Compacted:
    """Join small fragments and drop deleted rows; without anything to do there is no version.

    `run` carries out the tasks of a plan, by default here.

    Raises:
        CommitConflictError: In every round, others changed all fragments that were rewritten.
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
            done = commit_what_fits(snapshot, results, options, committing)
        except CommitConflictError as error:
            if attempt >= ROUNDS or not error.retryable:
                raise
            snapshot = refresh_snapshot(snapshot)
            continue
        snapshot, metrics = done.snapshot, metrics + done.metrics
        if not done.left_out or attempt >= ROUNDS:
            break
        options = _only(options, snapshot, done.left_out)
    return Compacted(snapshot, metrics)


def report_compaction(snapshot: Snapshot, options: CompactionOptions) -> ChangeReport:
    """Return what a compaction would do, after doing the work on a store that keeps nothing."""
    check_deferrable(snapshot, options)
    rehearsal = Rehearsal.of(snapshot)
    results = run_tasks(rehearsal.snapshot, plan_compaction(snapshot, options))
    return _report(rehearsal, results, options)


def report_results(
    snapshot: Snapshot, results: Sequence[RewriteResult], options: CompactionOptions
) -> ChangeReport:
    """Return what committing what tasks made would do; their files are there already."""
    check_deferrable(snapshot, options)
    return _report(Rehearsal.of(snapshot), results, options)


def _report(
    rehearsal: Rehearsal, results: Sequence[RewriteResult], options: CompactionOptions
) -> ChangeReport:
    if not results:
        return rehearsal.report(Rewrite(()), 0)
    highest = rehearsal.snapshot.manifest.max_fragment_id
    groups = numbered_groups(results, 0 if highest is None else highest + 1)
    rows = sum(fragment.physical_rows for group in groups for fragment in group.new_fragments)
    indices = change_indices(rehearsal.snapshot, groups, options)
    return rehearsal.report(Rewrite(groups, indices.rewritten, indices.moves), rows)


def run_tasks(
    snapshot: Snapshot, plan: CompactionPlan, on_done: Callable[[], object] = lambda: None
) -> list[RewriteResult]:
    """Return the results of all tasks of a plan, in its order, or leave no files behind.

    `on_done` is called after each task, by the caller's thread and in the order of the plan.
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


def _only(
    options: CompactionOptions, snapshot: Snapshot, left_out: tuple[RewriteResult, ...]
) -> CompactionOptions:
    """Return options under which only what was left out is looked at again."""
    wanted = [fragment.id for result in left_out for fragment in result.original_fragments]
    others = np.setdiff1d(snapshot.fragments.ids, wanted)
    excluded = {*options.excluded_fragment_ids, *others.tolist()}
    return replace(options, excluded_fragment_ids=tuple(sorted(excluded)))
