"""Run tasks on this machine, in this process or in worker processes.

    one task or one worker      in this process
    otherwise                   worker processes, which take the next task when idle

A worker is a separate interpreter that receives pickled functions and tasks. It never imports the
caller's script, so that the script needs no `__main__` guard. A worker that dies is replaced and
its task retried, as on a cluster.
"""

from __future__ import annotations

import pickle
from collections.abc import Callable, Sequence
from concurrent.futures import FIRST_EXCEPTION, wait
from typing import Any, Final, TypeVar

from lancelet import surroundings
from lancelet.config import CPU_THREADS
from lancelet.errors import InvalidInputError
from lancelet.jobs.engine import Outcome, PhaseControl, TaskFunction, run_task
from lancelet.jobs.worker import Workers

T = TypeVar("T")
R = TypeVar("R")

_POLL_SECONDS: Final = 0.1


class LocalEngine:
    """Runs tasks on this machine."""

    def __init__(
        self, workers: int | None = None, *, dumps: Callable[[Any], bytes] = pickle.dumps
    ) -> None:
        """Use `workers` processes, by default one per available CPU.

        `dumps` pickles functions and tasks; the default supports module-level functions only.
        """
        if workers is not None and workers < 1:
            raise InvalidInputError("an engine requires at least one worker", workers=workers)
        self._workers = workers or CPU_THREADS
        self._dumps = dumps

    def run(
        self, function: TaskFunction[T, R], tasks: Sequence[T], control: PhaseControl
    ) -> list[Outcome]:
        """Run a function over tasks; see `Engine`."""
        count = min(self._workers, len(tasks))
        if count <= 1:
            return _run_in_process(function, tasks, control)
        pickled = [self._dumps(task) for task in tasks]
        return _run_in_workers(self._dumps(function), pickled, control, count)


def _run_in_process(
    function: TaskFunction[T, R], tasks: Sequence[T], control: PhaseControl
) -> list[Outcome]:
    outcomes = []
    for task in tasks:
        control.check()
        outcomes.append(run_task(function, task))
        control.report(len(outcomes))
    return outcomes


def _run_in_workers(
    code: bytes, tasks: Sequence[bytes], control: PhaseControl, count: int
) -> list[Outcome]:
    """Run tasks in worker processes, until one fails or the caller cancels the job."""
    workers = Workers()
    pool = surroundings.executor(count, "lancelet-job")
    futures = [pool.submit(workers.run, code, task) for task in tasks]
    try:
        pending = set(futures)
        while pending:
            control.check()
            done, pending = wait(pending, timeout=_POLL_SECONDS, return_when=FIRST_EXCEPTION)
            for future in done:
                future.result()
            control.report(len(futures) - len(pending))
        return [future.result() for future in futures]
    finally:
        pool.shutdown(wait=False, cancel_futures=True)
        workers.close()
        pool.shutdown()
