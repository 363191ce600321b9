"""Refresh materialised views in tasks.

    refresh_view(uri, spark=spark)

    tasks     each computes a part of the changed rows, or of all rows, and writes files of the view
              or returns the aggregates of groups
    commit    one version of the view, with the versions of the source and of the joined tables

A refresh of a few rows is computed in the driver. Tasks that fail are repeated by Spark; the result
of one attempt of each task is used.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, Final, TypeVar

from pyspark import cloudpickle
from pyspark.sql import SparkSession

from lancelet.dataset.dataset import open_view
from lancelet.jobs.engine import Done, Job, ProgressCallback
from lancelet.jobs.local import LocalEngine
from lancelet.jobs.split import plan_splits
from lancelet.jobs.table_ref import TableRef
from lancelet.spark.engine import SparkEngine
from lancelet.table.location import TableLocation
from lancelet.table.refs import main_location
from lancelet.table.snapshot import Snapshot
from lancelet.values import dataclass
from lancelet.views.refresh import RefreshPlan
from lancelet.views.tasks import Target, Version

T = TypeVar("T")
R = TypeVar("R")

ROWS_PER_TASK: Final = 1 << 17


def refresh_view(
    uri: str | os.PathLike[str],
    *,
    functions: Mapping[str, Callable[..., Any]] | None = None,
    full: bool = False,
    rows_per_task: int = ROWS_PER_TASK,
    bytes_per_task: int | None = None,
    spark: SparkSession | None = None,
    progress: ProgressCallback | None = None,
    stop: threading.Event | None = None,
    storage_options: Mapping[str, str] | None = None,
    source_options: Mapping[str, str] | None = None,
) -> RefreshPlan:
    """Show the latest version of the source in a view; see `MaterializedView.refresh`.

    Args:
        uri: The view.
        functions: The Python functions of the query, by name.
        full: Whether to compute all rows.
        rows_per_task: The number of changed rows per task.
        bytes_per_task: The approximate size of the input of a task that computes all rows.
        spark: The session that runs the tasks; without one, local processes run them.
        progress: Receives the progress.
        stop: An event that cancels the refresh without a commit, from any thread.
        storage_options: The storage options of the view.
        source_options: The storage options of the source and of joined tables, by default those of
            the view.

    Returns:
        The plan that was executed.
    """
    view = open_view(uri, storage_options=storage_options, source_options=source_options)
    engine = LocalEngine(dumps=cloudpickle.dumps) if spark is None else SparkEngine(spark)
    job = Job(engine, progress, stop)
    runner = TaskRunner(job, rows_per_task, bytes_per_task)
    return view.refresh_in_tasks(runner, functions or {}, full=full)


@dataclass(frozen=True, slots=True)
class TaskRunner:
    """Runs the tasks of a refresh on the engine of a job; a single task runs in this process."""

    job: Job
    task_rows: int = ROWS_PER_TASK
    task_bytes: int | None = None

    @property
    def is_remote(self) -> bool:
        """Whether tasks may run in other processes."""
        return True

    def run(self, phase: str, function: Callable[[T], R], tasks: Sequence[T]) -> list[R]:
        """Run tasks, and return their results in order."""
        if len(tasks) == 1:
            return [function(tasks[0])]
        return self.job.run(phase, partial(_run, function), tasks)

    def parts_of(self, source: Snapshot) -> Sequence[tuple[int, ...] | None]:
        """Return the fragments that each task reads to read all rows; None for all."""
        splits = plan_splits(source, split_bytes=self.task_bytes, can_cut=False)
        return [each.fragments for each in splits] if len(splits) > 1 else [None]

    def version(self, snapshot: Snapshot) -> Version:
        """Return a version as part of a task."""
        return _reference(snapshot)

    def target(self, location: TableLocation, latest: Snapshot | None) -> Target:
        """Return the table of a view as part of a task."""
        if latest is None:
            return _NewTable(TableRef.of(location.uri, location.storage_options))
        return _ViewTable(_reference(latest))

    def deferred(self, location: TableLocation) -> TableLocation:
        """Return the location; tasks flush their files."""
        return location


@dataclass(frozen=True, slots=True)
class _NewTable:
    """The location of a table that does not exist."""

    table: TableRef

    def locate(self) -> TableLocation:
        """Return the location."""
        return self.table.locate()

    def latest(self) -> Snapshot | None:
        """Return None."""
        return None


@dataclass(frozen=True, slots=True)
class _ViewTable:
    """The version of a view that a refresh changes."""

    table: TableRef

    def locate(self) -> TableLocation:
        """Return the location."""
        return self.table.locate()

    def latest(self) -> Snapshot | None:
        """Return the version."""
        return self.table.open()


def _reference(snapshot: Snapshot) -> TableRef:
    main = main_location(snapshot)
    table = TableRef.of(main.uri, main.storage_options)
    branch = snapshot.manifest.branch
    return (table if branch is None else table.on_branch(branch)).pinned(snapshot)


def _run(function: Callable[[T], R], task: T) -> Done[R]:
    return Done(function(task))
