"""Progress and cancellation of the Spark jobs of a thread, in classic and Connect sessions.

    with running(spark) as control:         all jobs that this thread starts in the block
            frame.collect()                     in another thread, during the call:
                                                control.tasks_done()    control.interrupt()

A classic session uses a job group, a Connect session a progress handler and a tag.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import TYPE_CHECKING, Any, Protocol, cast

from pyspark.sql import SparkSession

from lancelet import surroundings

if TYPE_CHECKING:
    from pyspark.sql.connect.shell.progress import ProgressHandler


class Control(Protocol):
    """Reports progress of running jobs and interrupts them, from any thread."""

    def tasks_done(self) -> int:
        """Return the number of completed tasks."""
        ...

    def interrupt(self) -> None:
        """Cancel the jobs; calls that wait for them raise."""
        ...


def running(spark: SparkSession) -> AbstractContextManager[Control]:
    """Return a context that controls the jobs this thread starts in it."""
    return _running_on_server(spark) if is_connect(spark) else _running_in_process()


def is_connect(spark: SparkSession) -> bool:
    """Return whether a session uses Spark Connect."""
    return type(spark).__module__.startswith("pyspark.sql.connect")


class _ServerControl:
    def __init__(self, spark: SparkSession, tag: str) -> None:
        self._spark = spark
        self._tag = tag
        self._done = 0

    def tasks_done(self) -> int:
        return self._done

    def interrupt(self) -> None:
        self._spark.interruptTag(self._tag)

    # Spark passes `stages`, `inflight_tasks`, `operation_id` and `done` as keywords.
    def update_progress(self, **progress: Any) -> None:
        self._done = sum(stage.num_completed_tasks for stage in progress["stages"] or ())


@contextmanager
def _running_on_server(spark: SparkSession) -> Iterator[Control]:
    tag = f"lancelet-{surroundings.new_uuid()}"
    control = _ServerControl(spark, tag)
    handler = cast("ProgressHandler", control.update_progress)
    spark.addTag(tag)
    spark.registerProgressHandler(handler)
    try:
        yield control
    finally:
        spark.removeProgressHandler(handler)
        spark.removeTag(tag)


class _ProcessControl:
    def __init__(self, context: Any, group: str) -> None:
        self._context = context
        self._tracker = context.statusTracker()
        self._group = group

    def tasks_done(self) -> int:
        jobs = map(self._tracker.getJobInfo, self._tracker.getJobIdsForGroup(self._group))
        numbers = [number for job in jobs if job is not None for number in job.stageIds]
        stages = map(self._tracker.getStageInfo, numbers)
        return sum(stage.numCompletedTasks for stage in stages if stage is not None)

    def interrupt(self) -> None:
        self._context.cancelJobGroup(self._group)


@contextmanager
def _running_in_process() -> Iterator[Control]:
    # Tags of a classic session can only be interrupted by the thread that waits for them, and
    # clients of Connect have no such class.
    from pyspark import SparkContext  # noqa: PLC0415 - see above

    context: Any = SparkContext.getOrCreate()
    names = ("spark.jobGroup.id", "spark.job.description", "spark.job.interruptOnCancel")
    before = {name: context.getLocalProperty(name) for name in names}
    group = f"lancelet-{surroundings.new_uuid()}"
    context.setJobGroup(group, before[names[1]] or "lancelet", interruptOnCancel=True)
    try:
        yield _ProcessControl(context, group)
    finally:
        for name, value in before.items():
            context.setLocalProperty(name, value)
