"""Running tasks on this machine: in this process, or in worker processes beside it.

    one task, or one worker     here
    otherwise                   worker processes, each of which takes the next task when it is free

A worker is an interpreter of its own, to which functions and tasks are pickled. It never imports
the caller's script, so the script needs no guard around its main part. A worker that dies is
replaced and its task tried again, as a cluster would.
"""

from __future__ import annotations

import pickle
from collections.abc import Callable, Sequence
from concurrent.futures import FIRST_EXCEPTION, ThreadPoolExecutor, wait
from typing import Any, Final, TypeVar

from lancelet.config import CPU_THREADS
from lancelet.errors import InvalidInputError
from lancelet.ops.jobs.engine import Outcome, TaskFunction, Watch, run_task
from lancelet.ops.jobs.worker import Workers

T = TypeVar("T")
R = TypeVar("R")

_POLL_SECONDS: Final = 0.1


class LocalEngine:
    """Runs tasks on this machine."""

    def __init__(
        self, workers: int | None = None, *, dumps: Callable[[Any], bytes] = pickle.dumps
    ) -> None:
        """Use so many processes, by default as many as there are processors for us.

        `dumps` pickles functions and tasks; that of the standard library only knows functions
        that modules have.
        """
        if workers is not None and workers < 1:
            raise InvalidInputError("an engine needs a worker", workers=workers)
        self._workers = workers or CPU_THREADS
        self._dumps = dumps

    def run(self, function: TaskFunction[T, R], tasks: Sequence[T], watch: Watch) -> list[Outcome]:
        """Run a function over tasks; see `Engine`."""
        count = min(self._workers, len(tasks))
        if count <= 1:
            return _run_here(function, tasks, watch)
        pickled = [self._dumps(task) for task in tasks]
        return _run_beside(self._dumps(function), pickled, watch, count)


def _run_here(function: TaskFunction[T, R], tasks: Sequence[T], watch: Watch) -> list[Outcome]:
    outcomes = []
    for task in tasks:
        watch.check()
        outcomes.append(run_task(function, task))
        watch.tell(len(outcomes))
    return outcomes


def _run_beside(code: bytes, tasks: Sequence[bytes], watch: Watch, count: int) -> list[Outcome]:
    """Run tasks in worker processes; all of them end when one fails or the caller says so."""
    workers = Workers()
    pool = ThreadPoolExecutor(count, thread_name_prefix="lancelet-job")
    futures = [pool.submit(workers.run, code, task) for task in tasks]
    try:
        left = set(futures)
        while left:
            watch.check()
            done, left = wait(left, timeout=_POLL_SECONDS, return_when=FIRST_EXCEPTION)
            for future in done:
                future.result()
            watch.tell(len(futures) - len(left))
        return [future.result() for future in futures]
    finally:
        pool.shutdown(wait=False, cancel_futures=True)
        workers.close()
        pool.shutdown()
