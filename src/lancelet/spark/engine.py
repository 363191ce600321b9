"""Runs the tasks of a job on Spark, in classic and Connect sessions.

    task_frame(run)     a partition for each task, which yields one small row
      .collect()        the outcomes of all tasks

Spark retries failed tasks. While the driver waits, a thread reports progress and handles
cancellation.
"""

from __future__ import annotations

import pickle
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Final, TypeVar

import pyarrow as pa
from pyspark.sql import SparkSession

from lancelet import surroundings
from lancelet.jobs.engine import Outcome, PhaseControl, TaskFunction, run_task
from lancelet.spark.arrow_tasks import task_frame
from lancelet.spark.control import Control, running

T = TypeVar("T")
R = TypeVar("R")

_POLL_SECONDS: Final = 0.2
_RESULT: Final = "task long, outcome binary"
_RESULT_SCHEMA: Final = pa.schema([("task", pa.int64()), ("outcome", pa.binary())])


class SparkEngine:
    """Runs tasks on the executors of a session."""

    def __init__(self, spark: SparkSession) -> None:
        """Run in a session."""
        self._spark = spark

    def run(
        self, function: TaskFunction[T, R], tasks: Sequence[T], watch: PhaseControl
    ) -> list[Outcome]:
        """Run a function over tasks; see `Engine`."""
        frame = task_frame(self._spark, partial(_on_worker, function), tasks, _RESULT)
        with running(self._spark) as control, watching(control, watch):
            rows = frame.collect()
        outcomes = {row.task: pickle.loads(row.outcome) for row in rows}  # noqa: S301 - our own workers wrote it
        return [outcomes[number] for number in range(len(tasks))]


def _on_worker(function: TaskFunction[T, R], number: int, task: T) -> Iterator[pa.RecordBatch]:
    outcome = pickle.dumps(run_task(function, task))
    columns = [pa.array([number], pa.int64()), pa.array([outcome], pa.binary())]
    yield pa.RecordBatch.from_arrays(columns, schema=_RESULT_SCHEMA)


@contextmanager
def watching(control: Control, watch: PhaseControl) -> Iterator[None]:
    """Report progress and handle cancellation while the caller waits for Spark."""
    is_over = threading.Event()

    def poll() -> None:
        reported = 0
        while not is_over.wait(_POLL_SECONDS):
            if watch.is_stopped:
                control.interrupt()
            done = control.tasks_done()
            if watch.total:
                done = min(done, watch.total)
            if done > reported:
                reported = done
                watch.report(done)

    if watch.progress is None and watch.stop is None:
        yield
        return
    thread = surroundings.start_thread(poll, "lancelet-job-watch")
    try:
        yield
    finally:
        is_over.set()
        thread.join()
        watch.check()  # raises the reason of the interruption instead of Spark's many errors
