"""Refresh computed columns in distributed tasks; see `lancelet.change.columns.refresh`.

    plan     the fragments with rows that are out of date, in tasks of about the same number of rows
    tasks    a file with the new values for each fragment, not committed; results in the checkpoint
    commit   the files of one round of tasks; files of concurrently changed fragments are unused

With a checkpoint, other tasks compute fragments with many rows before, in slices, so that a table
with one large fragment uses all workers:

    compute   fragment 3, rows 0 to 8192      results in the checkpoint
    compute   fragment 3, rows 8192 to 9000   results in the checkpoint
    refresh   fragment 3                      one file from these results

A job that stops loses the tasks of its last round. With a checkpoint, it loses one batch per task.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial
from typing import Final

from lancelet import surroundings
from lancelet.change.columns.computed import Functions
from lancelet.change.columns.refresh import (
    Computing,
    Deadline,
    RefreshedFragment,
    RefreshedRows,
    RefreshOptions,
    StaleQueue,
    check_functions,
    compute_fragment,
    compute_rows,
    publish_refreshed,
    with_current_inputs,
)
from lancelet.change.columns.saved_results import SavedResults
from lancelet.change.columns.sources import BATCH_ROWS
from lancelet.change.publish import CommitProperties
from lancelet.errors import ColumnFunctionError, LanceletError, StorageError
from lancelet.jobs.engine import Done, Job
from lancelet.jobs.table_ref import TableRef
from lancelet.table.computed_columns import UpToDate, num_stale_rows
from lancelet.table.snapshot import Snapshot
from lancelet.values import dataclass

_FRAGMENTS_PER_TASK: Final = 16


@dataclass(frozen=True, slots=True)
class TaskOptions:
    """The rows per task, the tasks per commit, and the properties of the commits."""

    rows_per_task: int = BATCH_ROWS
    tasks_per_commit: int = 256
    properties: CommitProperties = CommitProperties()


@dataclass(frozen=True, slots=True)
class RefreshTask:
    """Fragments of a version, and the range of stale rows to compute in each."""

    table: TableRef
    fragments: tuple[tuple[int, int, int], ...]


@dataclass(frozen=True, slots=True)
class TaskResult:
    """The fragments that a task wrote; the error that ended it, if any."""

    parts: tuple[RefreshedFragment, ...]
    is_out_of_time: bool
    error: LanceletError | None


def refresh_columns(
    job: Job,
    table: TableRef,
    functions: Functions,
    options: RefreshOptions | None = None,
    tasks: TaskOptions | None = None,
) -> tuple[Snapshot, RefreshedRows]:
    """Compute the values that are out of date in tasks; each round of tasks is committed once."""
    chosen, sizes = options or RefreshOptions(), tasks or TaskOptions()
    current = with_current_inputs(table.at(None).open())
    check_functions(current.schema, functions)
    saved = SavedResults.of(current, chosen.checkpoint)
    stop_ns = None
    if chosen.max_seconds is not None:
        stop_ns = surroundings.time_ns() + int(chosen.max_seconds * 1e9)
    queue = StaleQueue(current, chosen.max_rows)
    while not _deadline(stop_ns).is_over:
        planned = list(_plan(table.pinned(current), queue, current, sizes.rows_per_task))
        if not planned:
            break
        round_, is_last = planned[: sizes.tasks_per_commit], len(planned) <= sizes.tasks_per_commit
        slices = [] if chosen.checkpoint is None else _slices(round_, sizes.rows_per_task)
        save = partial(save_task, functions, chosen, stop_ns)
        results = job.run("compute", save, slices) if slices else []
        if any(each.error is not None or each.is_out_of_time for each in results):
            stop_ns = 0  # only write the results
        results += job.run("refresh", partial(compute_task, functions, chosen, stop_ns), round_)
        parts = [part for result in results for part in result.parts]
        error = next((each.error for each in results if each.error is not None), None)
        is_out_of_time = any(each.is_out_of_time for each in results)
        current, done = publish_refreshed(
            current,
            parts,
            is_last=is_last and error is None and not is_out_of_time,
            properties=sizes.properties,
            checks_files=True,
        )
        if error is not None:
            raise error
        queue.finish([part.fragment_id for part in parts], done)
        for fragment_id in done:
            saved.forget(fragment_id)
        if is_out_of_time:
            break
    remaining = num_stale_rows(current)
    if not remaining:
        saved.clear()
    return current, RefreshedRows(queue.num_done, remaining)


def compute_task(
    functions: Functions, options: RefreshOptions, stop_ns: int | None, task: RefreshTask
) -> Done[TaskResult]:
    """Compute stale rows of some fragments, and write them to files."""
    snapshot, deadline = task.table.open(), _deadline(stop_ns)
    saved = SavedResults.of(snapshot, options.checkpoint)
    how = Computing(functions, options.batch_rows, deadline, saved)
    state, parts, rows = UpToDate.of(snapshot), list[RefreshedFragment](), 0
    for number, start, stop in task.fragments:
        fragment = snapshot.fragments.by_id(number)
        offsets = state.stale_rows(snapshot, fragment).offsets[start:stop]
        part, raised = compute_fragment(snapshot, fragment, offsets, how)
        saved.release(number)
        error = _reported(raised)
        if part is not None:
            parts.append(part)
            rows += len(part.offsets)
        if error is not None:
            return Done(TaskResult(tuple(parts), False, error), rows)
        if part is None or len(part.offsets) < len(offsets):
            return Done(TaskResult(tuple(parts), True, None), rows)
    return Done(TaskResult(tuple(parts), False, None), rows)


def save_task(
    functions: Functions, options: RefreshOptions, stop_ns: int | None, task: RefreshTask
) -> Done[TaskResult]:
    """Compute a slice of a fragment, and save the results in the checkpoint."""
    snapshot, deadline = task.table.open(), _deadline(stop_ns)
    how = Computing(
        functions, options.batch_rows, deadline, SavedResults.of(snapshot, options.checkpoint)
    )
    ((number, start, stop),) = task.fragments
    fragment = snapshot.fragments.by_id(number)
    offsets = UpToDate.of(snapshot).stale_rows(snapshot, fragment).offsets[start:stop]
    computed, _, raised = compute_rows(snapshot, fragment, offsets, how)
    error = _reported(raised)
    return Done(TaskResult((), error is None and len(computed) < len(offsets), error))


def _slices(tasks: Sequence[RefreshTask], rows_per_task: int) -> list[RefreshTask]:
    """Return tasks for the slices of fragments that are larger than a task."""
    return [
        RefreshTask(task.table, ((number, start, min(start + rows_per_task, stop)),))
        for task in tasks
        for number, _, stop in task.fragments
        if stop > rows_per_task
        for start in range(0, stop, rows_per_task)
    ]


def _plan(
    table: TableRef, queue: StaleQueue, snapshot: Snapshot, rows_per_task: int
) -> Iterator[RefreshTask]:
    group: list[tuple[int, int, int]] = []
    num_rows = 0
    for fragment, offsets in queue.fragments(snapshot):
        is_full = num_rows + len(offsets) > rows_per_task or len(group) == _FRAGMENTS_PER_TASK
        if group and is_full:
            yield RefreshTask(table, tuple(group))
            group, num_rows = [], 0
        group.append((int(fragment.id), 0, len(offsets)))
        num_rows += len(offsets)
    if group:
        yield RefreshTask(table, tuple(group))


def _deadline(stop_ns: int | None) -> Deadline:
    """Return a deadline of this process at a time of day."""
    if stop_ns is None:
        return Deadline(None)
    return Deadline.after((stop_ns - surroundings.time_ns()) / 1e9)


def _reported(error: BaseException | None) -> LanceletError | None:
    """Return an error for the driver; raise errors after which the engine repeats the task."""
    if isinstance(error, StorageError) or not isinstance(error, Exception | None):
        raise error
    if isinstance(error, LanceletError | None):
        return error
    return ColumnFunctionError(
        f"the function of a computed column failed: {type(error).__name__}: {error}"
    )
