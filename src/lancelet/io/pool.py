"""The thread pool for storage requests: created on first use, and again in every forked child.

Requests never wait for one another, so any task may wait for them: nested requests run in the
thread of their parent. CPU-bound work uses a separate, smaller pool.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from typing import TypeVar

from lancelet.config import IO_THREADS
from lancelet.errors import LanceletError
from lancelet.io.fork import reset_after_fork
from lancelet.surroundings import Pool, submit

T = TypeVar("T")


class _Threads:
    """The pool of this process."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.pool: Pool | None = None
        reset_after_fork(self, _Threads.reset)

    def reset(self) -> None:
        """Reset the pool in a forked child, which has none of its threads."""
        self.lock = threading.Lock()
        self.pool = None

    def get(self) -> Pool:
        """Return the pool, creating it on the first call."""
        with self.lock:
            if self.pool is None:
                self.pool = Pool(IO_THREADS, thread_name_prefix="lancelet-io")
            return self.pool


_THREADS = _Threads()
_THREAD_STATE = threading.local()
"""Records whether the current thread is running a request."""


def run_requests(requests: Sequence[Callable[[], T]]) -> list[T]:
    """Run requests concurrently and return their results in order; run one request inline.

    All requests have ended when this returns or raises, so buffers they fill are no longer used.

    >>> run_requests([lambda: 1, lambda: 2])
    [1, 2]
    """
    if len(requests) <= 1 or getattr(_THREAD_STATE, "is_request", False):
        return [request() for request in requests]
    pool = _THREADS.get()
    futures = [submit(pool, _call, request) for request in requests]
    try:
        return [future.result() for future in futures]
    finally:
        for future in futures:
            if not future.cancel():
                future.exception()


def run_in_background(request: Callable[[], T]) -> Future[T]:
    """Start a request in the background and return its future.

    Within another request it runs synchronously.
    """
    if getattr(_THREAD_STATE, "is_request", False):
        return _run_inline(request)
    return submit(_THREADS.get(), _call, request)


def _run_inline(request: Callable[[], T]) -> Future[T]:
    """Run a request synchronously and return a completed future."""
    future = Future[T]()
    try:
        future.set_result(request())
    except (OSError, LanceletError) as error:  # Errors of disks and stores.
        future.set_exception(error)
    return future


def _call(request: Callable[[], T]) -> T:
    _THREAD_STATE.is_request = True
    try:
        return request()
    finally:
        _THREAD_STATE.is_request = False
