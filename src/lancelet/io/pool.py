"""The threads that wait for storage: made when first needed, anew in every forked child.

They never wait for one another, so any task may wait for them: what a request asks for in turn
runs in its own thread. Work on values does not belong here; it has its own, narrower pool.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from typing import TypeVar

from lancelet.config import IO_THREADS
from lancelet.errors import LanceletError
from lancelet.io.fork import renew_after_fork
from lancelet.surroundings import Pool, submit

T = TypeVar("T")


class _Threads:
    """The pool of this process."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.pool: Pool | None = None
        renew_after_fork(self, _Threads.forget)

    def forget(self) -> None:
        """Start over: a forked child has the pool but none of its threads."""
        self.lock = threading.Lock()
        self.pool = None

    def get(self) -> Pool:
        """Return the pool, made on the first call."""
        with self.lock:
            if self.pool is None:
                self.pool = Pool(IO_THREADS, thread_name_prefix="lancelet-io")
            return self.pool


_THREADS = _Threads()
_HERE = threading.local()
"""Whether this thread runs a request now."""


def run_requests(requests: Sequence[Callable[[], T]]) -> list[T]:
    """Run requests side by side and return their results in order; one alone stays in this thread.

    All have ended when this returns or raises, so buffers they fill are left alone afterwards.

    >>> run_requests([lambda: 1, lambda: 2])
    [1, 2]
    """
    if len(requests) <= 1 or getattr(_HERE, "is_request", False):
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
    """Start something; who needs to know how it ended asks what is returned.

    From within a request it is done at once.
    """
    if getattr(_HERE, "is_request", False):
        return _done(request)
    return submit(_THREADS.get(), _call, request)


def _done(request: Callable[[], T]) -> Future[T]:
    """Run a request here and now, and return how it ended."""
    ended = Future[T]()
    try:
        ended.set_result(request())
    except (OSError, LanceletError) as error:  # what disks and stores meet
        ended.set_exception(error)
    return ended


def _call(request: Callable[[], T]) -> T:
    _HERE.is_request = True
    try:
        return request()
    finally:
        _HERE.is_request = False
