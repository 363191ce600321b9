"""Time, chance and threads: all that a process gets from outside besides what is stored.

    surroundings.time_ns()          instead of time.time_ns()
    surroundings.new_uuid()         instead of uuid.uuid4()
    surroundings.sleep(0.1)         instead of time.sleep(0.1)

What reads, writes and changes tables asks here, and nowhere else, so a simulation can take the
place of the machine: then a whole history of many writers runs one step at a time, in virtual
time, and each of its choices follows from a seed (`tests.kit.simulation`). How long
something took is measured with `time.perf_counter` as everywhere: nothing is decided by that.
"""

from __future__ import annotations

import random
import threading
import time as _time
import uuid
from collections.abc import Callable, Iterator
from concurrent.futures import Executor, Future, ThreadPoolExecutor
from contextlib import contextmanager
from datetime import UTC, datetime
from functools import partial
from typing import Any, Final, TypeVar

T = TypeVar("T")
R = TypeVar("R")

_CHANCE: Final = random.SystemRandom()

_NO_ROOM: Final = "can't start new thread"
"""What Python says where the system has no more threads; others of a pool still run the task."""


class Pool(ThreadPoolExecutor):
    """Threads; once the interpreter starts none any more, a task runs when it is asked for.

    That is so in threads that go on after the main one has ended, and in what `atexit` calls.
    """

    def submit(self, task: Callable[..., R], /, *given: Any, **named: Any) -> Future[R]:
        """Start a task."""
        try:
            return super().submit(task, *given, **named)
        except RuntimeError as error:
            if str(error) == _NO_ROOM:
                raise
            return _WhenAsked(partial(task, *given, **named))


class _WhenAsked(Future[R]):
    """Runs a task in the thread that asks for its result; cancelled, it never runs."""

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
        except Exception as error:  # noqa: BLE001 - it is raised where the result is asked for
            self.set_exception(error)

    def cancel(self) -> bool:
        # A pool tells those who wait; here nobody else would.
        return super().cancel() and not self.set_running_or_notify_cancel()


class Surroundings:
    """The machine itself; a simulation overrides all of it."""

    def time_ns(self) -> int:
        """Return the time of day in nanoseconds since 1970."""
        return _time.time_ns()

    def monotonic(self) -> float:
        """Return seconds since some moment; they never go back."""
        return _time.monotonic()

    def sleep(self, seconds: float) -> None:
        """Wait."""
        _time.sleep(seconds)

    def random_bits(self, count: int) -> int:
        """Return a number of so many bits that nobody can guess."""
        return _CHANCE.getrandbits(count)

    def uniform(self, low: float, high: float) -> float:
        """Return a number between two."""
        return random.uniform(low, high)  # noqa: S311 - not a secret

    def executor(self, threads: int, name: str) -> Executor:
        """Return a pool of threads."""
        return Pool(threads, thread_name_prefix=name)

    def submit(self, pool: Executor, task: Callable[[T], R], item: T) -> Future[R]:
        """Start a task in a pool that the whole process has."""
        return pool.submit(task, item)

    def start_thread(self, task: Callable[[], None], name: str) -> None:
        """Start a thread that does not keep the process alive."""
        threading.Thread(target=task, name=name, daemon=True).start()

    def watched(self, store: T) -> T:
        """Return a store or a database of versions that was opened, or one around it."""
        return store


_MACHINE = Surroundings()
_current = _MACHINE


@contextmanager
def replaced_by(other: Surroundings) -> Iterator[None]:
    """Let others than the machine be the surroundings of the whole process for a while."""
    global _current  # noqa: PLW0603 - the one thing that is replaced
    before, _current = _current, other
    try:
        yield
    finally:
        _current = before


def time_ns() -> int:
    """Return the time of day in nanoseconds since 1970."""
    return _current.time_ns()


def time() -> float:
    """Return the time of day in seconds since 1970."""
    return _current.time_ns() / 1e9


def now() -> datetime:
    """Return the time of day."""
    return datetime.fromtimestamp(_current.time_ns() / 1e9, UTC)


def monotonic() -> float:
    """Return seconds since some moment; they never go back."""
    return _current.monotonic()


def sleep(seconds: float) -> None:
    """Wait."""
    _current.sleep(seconds)


def random_bits(count: int) -> int:
    """Return a number of so many bits that nobody can guess."""
    return _current.random_bits(count)


def new_uuid() -> uuid.UUID:
    """Return an id that nobody else has."""
    return uuid.UUID(int=_current.random_bits(128), version=4)


def uniform(low: float, high: float) -> float:
    """Return a number between two."""
    return _current.uniform(low, high)


def executor(threads: int, name: str) -> Executor:
    """Return a pool of threads, for a `with` statement."""
    return _current.executor(threads, name)


def submit(pool: Executor, task: Callable[[T], R], item: T) -> Future[R]:
    """Start a task in a pool that the whole process has."""
    return _current.submit(pool, task, item)


def start_thread(task: Callable[[], None], name: str) -> None:
    """Start a thread that does not keep the process alive."""
    _current.start_thread(task, name)


def watched(store: T) -> T:
    """Return a store that was opened, or one around it."""
    return _current.watched(store)
