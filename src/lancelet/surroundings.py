"""Time, randomness and threads: all inputs of a process except storage.

    surroundings.time_ns()          instead of time.time_ns()
    surroundings.new_uuid()         instead of uuid.uuid4()
    surroundings.sleep(0.1)         instead of time.sleep(0.1)

All modules use these functions, so a simulation can replace the machine.
It runs histories of many writers step by step in virtual time, with every choice derived from a
seed (`tests.kit.simulation`). Durations are measured with `time.perf_counter` directly, because
they do not affect results.
"""

from __future__ import annotations

import base64
import random
import threading
import time as _time
import uuid
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Executor, Future, ThreadPoolExecutor
from contextlib import contextmanager
from datetime import UTC, datetime
from functools import partial
from typing import Any, Final, TypeVar

T = TypeVar("T")
R = TypeVar("R")

_CHANCE: Final = random.SystemRandom()

_TOKEN_BYTES: Final = 32

_NO_ROOM: Final = "can't start new thread"
"""Python's message if the system has no more threads; existing pool threads still run the task."""


class Pool(ThreadPoolExecutor):
    """A thread pool that still works during interpreter shutdown: tasks then run on demand.

    Tasks can be submitted at shutdown by threads that outlive the main thread, and by `atexit`.
    """

    def submit(self, task: Callable[..., R], /, *given: Any, **named: Any) -> Future[R]:
        """Submit a task."""
        try:
            return super().submit(task, *given, **named)
        except RuntimeError as error:
            if str(error) == _NO_ROOM:
                raise
            return _DeferredFuture(partial(task, *given, **named))


class _DeferredFuture(Future[R]):
    """Runs a task in the thread that requests its result; a cancelled task never runs."""

    def __init__(self, task: Callable[[], R]) -> None:
        super().__init__()
        self._task = task

    def result(self, timeout: float | None = None) -> R:
        self._run()
        return super().result(timeout)

    def exception(self, timeout: float | None = None) -> BaseException | None:
        self._run()
        return super().exception(timeout)

    def _run(self) -> None:
        if self.done():
            return
        try:
            self.set_result(self._task())
        except Exception as error:  # noqa: BLE001 - raised by `result`
            self.set_exception(error)

    def cancel(self) -> bool:
        # In a pool, a worker notifies waiting threads of the cancellation; here there is none.
        return super().cancel() and not self.set_running_or_notify_cancel()


class Surroundings:
    """The machine; a simulation overrides all methods."""

    def time_ns(self) -> int:
        """Return the time in nanoseconds since 1970."""
        return _time.time_ns()

    def monotonic(self) -> float:
        """Return a monotonic time in seconds."""
        return _time.monotonic()

    def sleep(self, seconds: float) -> None:
        """Wait."""
        _time.sleep(seconds)

    def random_bits(self, count: int) -> int:
        """Return an unpredictable random number of `count` bits."""
        return _CHANCE.getrandbits(count)

    def uniform(self, low: float, high: float) -> float:
        """Return a uniformly distributed random number."""
        return random.uniform(low, high)  # noqa: S311 - not a secret

    def sample(self, items: Sequence[T], count: int) -> list[T]:
        """Return `count` random items; reproducible after `random.seed`, as in pylance."""
        return random.sample(items, count)

    def executor(self, threads: int, name: str) -> Executor:
        """Return a pool of threads."""
        return Pool(threads, thread_name_prefix=name)

    def submit(self, pool: Executor, task: Callable[[T], R], item: T) -> Future[R]:
        """Submit a task to the process-wide pool."""
        return pool.submit(task, item)

    def start_thread(self, task: Callable[[], None], name: str) -> threading.Thread:
        """Start a daemon thread."""
        thread = threading.Thread(target=task, name=name, daemon=True)
        thread.start()
        return thread

    def condition(self) -> threading.Condition:
        """Return a condition variable with a reentrant lock."""
        return threading.Condition()

    def wrap_store(self, store: T) -> T:
        """Return an opened store or version database, or a wrapper of it."""
        return store


_MACHINE = Surroundings()
_current = _MACHINE


@contextmanager
def replaced_by(other: Surroundings) -> Iterator[None]:
    """Replace the machine for the whole process in a `with` block."""
    global _current  # noqa: PLW0603 - the only mutable state
    before, _current = _current, other
    try:
        yield
    finally:
        _current = before


def time_ns() -> int:
    """Return the time in nanoseconds since 1970."""
    return _current.time_ns()


def time() -> float:
    """Return the time in seconds since 1970."""
    return _current.time_ns() / 1e9


def now() -> datetime:
    """Return the current time in UTC."""
    return datetime.fromtimestamp(_current.time_ns() / 1e9, UTC)


def monotonic() -> float:
    """Return a monotonic time in seconds."""
    return _current.monotonic()


def sleep(seconds: float) -> None:
    """Wait."""
    _current.sleep(seconds)


def random_bits(count: int) -> int:
    """Return an unpredictable random number of `count` bits."""
    return _current.random_bits(count)


def new_uuid() -> uuid.UUID:
    """Return a random UUID."""
    return uuid.UUID(int=_current.random_bits(128), version=4)


def new_token() -> str:
    """Return a secret of 256 random bits, in characters of URLs."""
    secret = _current.random_bits(8 * _TOKEN_BYTES).to_bytes(_TOKEN_BYTES, "little")
    return base64.urlsafe_b64encode(secret).decode().rstrip("=")


def uniform(low: float, high: float) -> float:
    """Return a uniformly distributed random number."""
    return _current.uniform(low, high)


def sample(items: Sequence[T], count: int) -> list[T]:
    """Return `count` random items of a sequence."""
    return _current.sample(items, count)


def executor(threads: int, name: str) -> Executor:
    """Return a thread pool, for a `with` statement."""
    return _current.executor(threads, name)


def submit(pool: Executor, task: Callable[[T], R], item: T) -> Future[R]:
    """Submit a task to the process-wide pool."""
    return _current.submit(pool, task, item)


def start_thread(task: Callable[[], None], name: str) -> threading.Thread:
    """Start a daemon thread."""
    return _current.start_thread(task, name)


def condition() -> threading.Condition:
    """Return a condition variable with a reentrant lock."""
    return _current.condition()


def wrap_store(store: T) -> T:
    """Return an opened store, or a wrapper of it."""
    return _current.wrap_store(store)
