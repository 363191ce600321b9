"""The thread pools of the process: one for decoding and a larger one for network requests.

`map_ordered` runs a window of tasks and yields their results in order. Memory is bounded by the
window, independent of the input:

    items     0 1 2 3 4 5 ...
    running   [2 3 4 5]           window of 4: item 6 starts when the result of 2 is consumed
    yielded    0 1

Tasks never wait for other tasks of the pool: nested calls of `map_ordered` run in the thread of
the task. This prevents deadlocks.
"""

from __future__ import annotations

import os
import threading
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, wait
from contextlib import contextmanager
from itertools import islice
from typing import Final, TypeVar

from lancelet import surroundings
from lancelet.config import CPU_THREADS, IO_THREADS
from lancelet.surroundings import Pool

T = TypeVar("T")
R = TypeVar("R")

PARALLEL_TASKS_MIN: Final = 4
"""Fewer tasks than this run in the calling thread, because starting threads costs more."""

PARALLEL_LONG_TASKS_MIN: Final = 2
"""The same threshold for tasks that take milliseconds."""

_worker = threading.local()


class _Pools:
    """The thread pools of this process, created on first use."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._pools: dict[str, Pool] = {}

    def get(self, name: str, threads: int) -> Pool:
        with self._lock:
            pool = self._pools.get(name)
            if pool is None:
                pool = Pool(
                    threads, thread_name_prefix=f"lancelet-{name}", initializer=_enter_worker
                )
                self._pools[name] = pool
            return pool

    def reset(self) -> None:
        """Drop the pools in a forked child, where their threads do not exist."""
        self._lock = threading.Lock()
        self._pools = {}


_POOLS: Final = _Pools()
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_POOLS.reset)


def map_ordered(
    task: Callable[[T], R],
    items: Iterable[T],
    *,
    waits: bool = False,
    window: int | None = None,
    few: int = PARALLEL_TASKS_MIN,
    is_short: Callable[[T], bool] | None = None,
) -> Iterator[R]:
    """Yield `task(item)` for each item, in order, working ahead by `window` items.

    Args:
        task: The function to call. Its exceptions are raised in the order of the results.
        items: The arguments, consumed as the window advances.
        waits: Whether tasks mostly wait for the network; these use the larger pool.
        window: The maximum number of tasks started before the first result is consumed.
        few: Fewer tasks than this run in the calling thread; at least 2.
        is_short: Returns whether a task takes less time than its start in another thread. These
            run in the calling thread unless other tasks are running.

    >>> list(map_ordered(abs, range(-5, 0)))
    [5, 4, 3, 2, 1]
    """
    threads = IO_THREADS if waits else CPU_THREADS
    ahead = window or 2 * threads
    source = iter(items)
    first = list(islice(source, 1 if waits else few - 1))
    following = list(islice(source, 1))
    if is_worker() or threads == 1 or not following or (not waits and _is_inline()):
        yield from map(task, first)
        yield from map(task, following)
        yield from map(task, source)
        return
    pool = _POOLS.get("wait" if waits else "work", threads)
    running: deque[Future[R]] = deque()
    try:
        for item in _chained(first, following, source):
            if is_short is not None and not running and is_short(item):
                yield task(item)
                continue
            running.append(surroundings.submit(pool, task, item))
            if len(running) >= ahead:
                yield running.popleft().result()
        while running:
            yield running.popleft().result()
    finally:
        # The caller may close the file next, so no task may still be reading it.
        for future in running:
            future.cancel()
        wait(running)


def tasks_ahead(num_tasks: int, *, waits: bool) -> int:
    """Return how many tasks `map_ordered` starts before it needs their results."""
    if CPU_THREADS == 1 or num_tasks < (2 if waits else PARALLEL_TASKS_MIN):
        return 0
    return min(num_tasks, 2 * (IO_THREADS if waits else CPU_THREADS))


def submit(task: Callable[[], R]) -> Future[R]:
    """Submit a task to the decoding pool, or run it immediately in a worker thread."""
    if CPU_THREADS > 1 and not is_worker():
        pool = _POOLS.get("work", CPU_THREADS)
        return surroundings.submit(pool, lambda _: task(), None)
    future: Future[R] = Future()
    future.set_result(task())
    return future


@contextmanager
def decoding_inline() -> Iterator[None]:
    """Decode in this thread; for callers that read in several threads themselves."""
    before = _is_inline()
    _worker.is_inline = True
    try:
        yield
    finally:
        _worker.is_inline = before


def _is_inline() -> bool:
    return getattr(_worker, "is_inline", False)


def is_worker() -> bool:
    """Return whether the calling thread belongs to a pool, and must not wait for its tasks."""
    return getattr(_worker, "entered", False)


def _enter_worker() -> None:
    _worker.entered = True


def _chained(*parts: Iterable[T]) -> Iterator[T]:
    for part in parts:
        yield from part
