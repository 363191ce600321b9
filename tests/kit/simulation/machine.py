"""A simulated machine: actors take turns, one request of the store at a time.

    actor 1    opens the table ......... commits ............ paused for hours ... continues
    actor 2          ........ deletes rows ........ killed
    actor 3                         cleans up ..............................

An actor runs the production code in its own thread, but only one thread, the one with the baton,
runs at any time. At each request of the store and each wait, the actor announces its request, and
the `Course` of the history selects the next actor and the outcome of the request: success, failure
without effect, success without a reply, or the death of the actor. Time, ids and random numbers
also come from the machine, so a history is reproducible byte for byte.
"""

from __future__ import annotations

import errno
import threading
import warnings
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Executor, Future
from contextlib import contextmanager, suppress
from functools import partial
from random import Random
from typing import Any, Final, Literal, NoReturn, Protocol, Self, TypeAlias, TypeVar, cast

from lancelet import surroundings
from lancelet.errors import (
    CommitOutcomeUnknownError,
    LanceletError,
    ObjectNotFoundError,
    StorageUnavailableError,
    UnsupportedError,
)
from lancelet.io.cache import CACHE
from lancelet.io.durable import translate_os_error, translating_os_errors
from lancelet.io.memory import MemoryStore
from lancelet.io.store import BytesLike, Listing, ObjectInfo, Store
from lancelet.io.unfinished import link_if_absent
from lancelet.io.wrapped import Request, WrappedStore
from lancelet.surroundings import Surroundings
from lancelet.table.handlers.external import ManifestRecords
from lancelet.table.handlers.sqlite import SqliteRecords
from tests.kit.simulation.drive import DriveWithoutLinks

T = TypeVar("T")
R = TypeVar("R")

Fate: TypeAlias = Literal[
    "done", "refused", "full", "lost", "lingering", "killed", "done and killed"
]
"""The outcome of a request; "linger" executes it later, after its actor stopped waiting."""

EPOCH_NS: Final = 1_700_000_000 * 10**9
"""The start time of every history."""

_CONDITIONAL: Final = frozenset({"put_if_absent", "rename_if_absent"})
_SILENT: Final = frozenset(
    {"write", "open_writer", "read_ranges", "read_tail", "flush", "sweep_temporaries"}
)
"""Requests that other actors cannot observe, or that read immutable objects."""


@contextmanager
def without_caches() -> Iterator[None]:
    """Disable the caches of the process, because each actor represents a separate process."""
    before = CACHE.stats.budget_bytes
    CACHE.resize(0)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of cleanups with injected faults
            yield
    finally:
        CACHE.resize(before)


def _always() -> bool:
    return True


class _Seeded(Surroundings):
    """Time and chance that are the same each time; everything else is that of this machine."""

    def __init__(self) -> None:
        self._random = Random(0)
        self._now_ns = EPOCH_NS

    def time_ns(self) -> int:
        self._now_ns += 10**6
        return self._now_ns

    def random_bits(self, count: int) -> int:
        return self._random.getrandbits(count)


@contextmanager
def seeded() -> Iterator[None]:
    """Create the same files each time within a context."""
    with surroundings.replaced_by(_Seeded()):
        yield


class Killed(BaseException):
    """The simulated process has died."""


class Actor:
    """A process of the history, with its random numbers and clock."""

    def __init__(self, name: str, task: Callable[[], None], random: Random, skew_ns: int) -> None:
        """Create an actor that has not started."""
        self.name = name
        self.task = task
        self.random = random
        self.skew_ns = skew_ns
        self.is_dead = False
        self.is_done = False
        self.requests = 0
        self.about: object = None
        """The current operation, for the judge."""
        self.pending: Request | None = None
        self.is_ready: Callable[[], bool] = _always
        """Whether the pending request can run; a thread may wait for another one."""
        self.baton = threading.Lock()
        self.baton.acquire()


class Course(Protocol):
    """Selects the next actor and the outcome of requests."""

    now_ns: int

    def begin(self, actors: Sequence[Actor]) -> None:
        """Start with ready actors."""

    def next(self) -> Actor | None:
        """Return the next actor, or None at the end or to stop."""

    def announce(self, actor: Actor, request: Request, delay_ns: int | None) -> None:
        """Receive the next request of an actor, or the duration of a wait."""

    def fate(self, actor: Actor, request: Request) -> Fate:
        """Return the outcome of the request of the current actor."""

    def held_up(self, actor: Actor) -> float:
        """Return for how many seconds other actors run between two entries of a listing."""

    def over(self, actor: Actor) -> None:
        """Receive the end of an actor."""

    def linger(self, late: Callable[[], None]) -> None:
        """Schedule a call between two turns."""


class Machine(Surroundings):
    """The environment of all actors and their shared store.

    `on_change` is called with the actor and the path after each request that changed the store.
    """

    def __init__(
        self,
        course: Course,
        on_change: Callable[[Actor | None, Request], None],
        *,
        is_drive: bool = False,
    ) -> None:
        """Create a machine without actors, with a drive or an object store."""
        self.course = course
        self.on_change = on_change
        self.is_drive = is_drive
        self.drive: DriveWithoutLinks | None = None
        self.records: ManifestRecords | None = None
        self.running: Actor | None = None
        self.failure: BaseException | None = None
        self.steps = 0
        self.trace: list[str] | None = None
        self._is_stopping = self._is_over = False
        self.actors: Sequence[Actor] = ()
        self._main = threading.Lock()
        self._main.acquire()
        self._random = Random(0)
        self._in_store = False

    # --- environment --------------------------------------------------------------------------

    def time_ns(self) -> int:
        """Return the virtual time by the clock of the current actor."""
        actor = None if self._in_store else self.running
        return EPOCH_NS + self.course.now_ns + (0 if actor is None else actor.skew_ns)

    def monotonic(self) -> float:
        """Return virtual seconds."""
        return self.course.now_ns / 1e9

    def sleep(self, seconds: float) -> None:
        """Let other actors run."""
        if self.running is not None:
            self._turn(self.running, Request("sleep", ""), int(seconds * 1e9))

    def random_bits(self, count: int) -> int:
        """Return a value derived from the seed."""
        return self._chance().getrandbits(count)

    def uniform(self, low: float, high: float) -> float:
        """Return a value derived from the seed."""
        return self._chance().uniform(low, high)

    def sample(self, items: Sequence[T], count: int) -> list[T]:
        """Return items derived from the seed."""
        return self._chance().sample(items, count)

    def executor(self, threads: int, name: str) -> Executor:
        """Return a pool without threads that runs tasks when they are submitted."""
        del threads, name
        return _AtOnce()

    def submit(self, pool: Executor, task: Callable[[T], R], item: T) -> Future[R]:
        """Run a task immediately."""
        del pool
        return _done(task, item)

    def start_thread(self, task: Callable[[], None], name: str) -> NoReturn:
        """Raise, as an actor is one thread."""
        del task
        raise UnsupportedError("a simulated process has no other threads", thread=name)

    def wrap_store(self, store: T) -> T:
        """Return a store or external manifest store whose requests are steps of the history."""
        if isinstance(store, SqliteRecords):
            return cast("T", self.records)
        if not isinstance(store, MemoryStore):
            raise UnsupportedError("only stores in memory are simulated", store=str(store))
        return cast("T", SimulatedStore(store, self))

    # --- history ------------------------------------------------------------------------------

    def run(self, actors: Sequence[Actor]) -> None:
        """Run actors to their end and raise the first unexpected error."""
        self.actors = actors
        threads = [threading.Thread(target=self._live, args=(actor,)) for actor in actors]
        for thread in threads:
            thread.start()
        self.course.begin(actors)
        self._hand_on()
        self._main.acquire()
        self._is_over = self._is_stopping = True
        for actor, thread in zip(actors, threads, strict=True):
            if not actor.is_done:
                actor.baton.release()
            thread.join()
        self.running = None
        if self.failure is not None:
            raise self.failure

    def request(self, request: Request, action: Callable[[], T]) -> T:
        """Run a request of the store at the next turn of its actor."""
        actor = self.running
        if actor is None:
            return action()
        if actor.is_dead or self._is_stopping:
            raise Killed
        if request.operation not in _SILENT:
            self._turn(actor, request, None)
            fate = self.course.fate(actor, request)
            self.steps += 1
            actor.requests += 1
        else:
            fate = "done"
        self._note(actor, request, fate)
        if fate == "refused":
            raise StorageUnavailableError("this request was made to fail", path=request.path)
        if fate == "full":
            raise translate_os_error(OSError(errno.ENOSPC, "no space left on device"), request.path)
        if fate == "killed":
            actor.is_dead = True
            raise Killed
        if fate == "lingering":
            self.course.linger(partial(self._linger, actor, actor.about, request, action))
            raise _no_reply(request)
        answer = self._carry_out(actor, request, action)
        if fate == "done and killed":
            actor.is_dead = True
            raise Killed
        if fate == "lost":
            raise _no_reply(request)
        return answer

    def is_held_up(self) -> bool:
        """Let other actors run between two entries of a listing, if the history does so."""
        seconds = 0.0 if self.running is None else self.course.held_up(self.running)
        if seconds:
            self.sleep(seconds)
        return seconds > 0

    def unobserved(self, action: Callable[[], T]) -> T:
        """Run an action outside of the history."""
        before, self.running = self.running, None
        try:
            return action()
        finally:
            self.running = before

    def note(self, text: str) -> None:
        """Add a line to the trace, if enabled."""
        if self.trace is not None:
            self.trace.append(f"{self.course.now_ns / 1e9:12.3f}s  {text}")

    def _note(self, actor: Actor, request: Request, fate: Fate) -> None:
        if self.trace is not None and request.operation not in _SILENT:
            marked = "" if fate == "done" else f"  [{fate}]"
            self.note(f"{actor.name:10} {request.operation} {request.path}{marked}")

    def _carry_out(self, actor: Actor, request: Request, action: Callable[[], T]) -> T:
        self._in_store = True
        try:
            answer = action()
        finally:
            self._in_store = False
        if request.is_change:
            try:
                self.unobserved(lambda: self.on_change(actor, request))
            except BaseException as error:
                self._fail(error)
                raise Killed from error
        return answer

    def _linger(
        self, actor: Actor, about: object, request: Request, action: Callable[[], object]
    ) -> None:
        self.note(f"{actor.name:10} {request.operation} {request.path}  [arrives]")
        # The actor gets no reply, and a violation is recorded.
        now, actor.about = actor.about, about
        with suppress(Killed, LanceletError):
            self._carry_out(actor, request, action)
        actor.about = now

    def _fail(self, error: BaseException) -> None:
        if self.failure is None:
            self.failure = error
        self._is_stopping = True

    def _chance(self) -> Random:
        return self._random if self.running is None else self.running.random

    def _turn(self, actor: Actor, request: Request, delay_ns: int | None) -> None:
        """Wait until the next turn of an actor."""
        if actor.is_dead or self._is_stopping:
            raise Killed
        actor.pending = request
        self.course.announce(actor, request, delay_ns)
        if self._hand_on() is not actor:
            actor.baton.acquire()
            self.running = actor
        actor.pending = None
        if self._is_stopping:
            raise Killed

    def _hand_on(self) -> Actor | None:
        """Resume the next actor and return it, unless it is the caller."""
        following = None
        if not self._is_stopping:
            try:
                following = self.course.next()
            except BaseException as error:  # noqa: BLE001 - raised by `run`
                self._fail(error)
        before = self.running
        if following is not None and following is before:
            return following
        if following is None:
            self._main.release()
        else:
            self.running = following
            following.baton.release()
        return following

    def _live(self, actor: Actor) -> None:
        actor.baton.acquire()
        try:
            if not self._is_stopping:
                self.running = actor
                actor.task()
        except Killed:
            pass
        except BaseException as error:  # noqa: BLE001 - raised by `run`
            self._fail(error)
        actor.is_done = True
        if not self._is_over:
            self.course.over(actor)
            self.running = None
            self._hand_on()


class SimulatedStore(WrappedStore):
    """A store in memory whose requests are steps of a history."""

    def __init__(self, inner: MemoryStore, machine: Machine) -> None:
        """Wrap a store."""
        self.machine = machine
        self.prefix = inner.uri.removeprefix("memory://").partition("/")[2]
        super().__init__(inner, self)

    def request(self, request: Request, action: Callable[[], T]) -> T:
        """Run a request with its path from the root of the bucket."""
        path = f"{self.prefix}/{request.path}" if self.prefix else request.path
        return self.machine.request(request._replace(path=path), action)

    def at(self, folder: str) -> SimulatedStore:
        """Return the store with a folder as its root."""
        return SimulatedStore(cast("MemoryStore", self.inner).at(folder), self.machine)

    def with_deferred_sync(self) -> SimulatedStore:
        """Return the store, as power failures are not simulated."""
        return self

    def for_commits(self) -> SimulatedStore:
        """Return the store, as it supports conditional puts."""
        return self

    @property
    def lists_names(self) -> bool:
        """Whether this is a drive, whose listings read names before sizes."""
        return self.machine.is_drive

    def list(self, folder: str = "", start_after: str | None = None) -> Iterator[ObjectInfo]:
        """Yield the objects below a folder; other actors may change them during the listing."""
        if self.lists_names:
            return self._walk(folder, start_after or "")
        return self._pages(folder, super().list(folder, start_after))

    def list_delimited(self, folder: str = "") -> Listing:
        """Return the direct children of a folder; on a drive, sizes are read later."""
        if not self.lists_names:
            return super().list_delimited(folder)
        names = self._names(folder)
        found = (self._info_or_none(path) for path in names if not path.endswith("/"))
        folders = (path.removesuffix("/") for path in names if path.endswith("/"))
        return Listing(tuple(filter(None, found)), tuple(folders))

    def put_if_absent(self, path: str, data: BytesLike) -> None:
        """Store an object unless the name exists, as drives support it."""
        drive = self.machine.drive
        if drive is None:
            super().put_if_absent(path, data)
            return
        native = f"{self.prefix}/{path}".removeprefix("/")
        with translating_os_errors(path):
            link_if_absent(drive.temporary(data), native)

    def _pages(self, folder: str, page: Iterator[ObjectInfo]) -> Iterator[ObjectInfo]:
        for info in page:
            yield info
            if self.machine.is_held_up():
                yield from self._pages(folder, super().list(folder, info.path))
                return

    def _walk(self, folder: str, start_after: str) -> Iterator[ObjectInfo]:
        for path in self._names(folder):
            if path.endswith("/"):
                yield from self._walk(path.removesuffix("/"), start_after)
            elif path > start_after and (info := self._info_or_none(path)) is not None:
                yield info

    def _names(self, folder: str) -> Sequence[str]:
        """Return the paths in a folder; paths of folders end with a slash."""
        here = super().list_delimited(folder)
        files = (info.path for info in here.objects)
        return sorted([*files, *(f"{path}/" for path in here.folders)])

    def _info_or_none(self, path: str) -> ObjectInfo | None:
        self.machine.is_held_up()
        with suppress(ObjectNotFoundError):
            return self.inner.info(path)
        return None

    def delete_many(self, paths: Iterable[str]) -> None:
        """Delete objects one at a time, as stores do."""
        for path in paths:
            self.delete(path)

    def delete_folder(self, folder: str) -> None:
        """Delete the listed objects one at a time."""
        Store.delete_folder(self, folder)

    def remove_if_empty(self, folder: str) -> None:
        """Do nothing, as folders are only prefixes of names."""


class SimulatedCondition:
    """A condition variable: others may run at each acquisition, wait and release.

    Actors that use the same variable are threads of one process.
    """

    def __init__(self, machine: Machine, number: int) -> None:
        """Create a free condition variable."""
        self._machine = machine
        self._path = f"condition/{number}"
        self._owner: Actor | None = None
        self._depth = 0
        self._tickets = 0
        self._notified: set[Actor] = set()

    def __enter__(self) -> Self:
        actor = self._machine.running
        if actor is not None:
            if self._owner is not actor:
                self._acquire(actor, "acquire", lambda: self._owner is None)
            self._depth += 1
        return self

    def __exit__(self, *_: object) -> None:
        actor = self._machine.running
        if actor is None or self._owner is not actor:
            return  # after the end of the history
        self._depth -= 1
        if not self._depth:
            self._owner = None
            self._request(actor, "release", _always)

    def wait(self, timeout: float | None = None) -> bool:
        """Wait until another actor notifies this one."""
        del timeout
        actor, depth = self._machine.running, self._depth
        assert actor is not None
        assert self._owner is actor
        self._owner, self._depth = None, 0
        self._notified.discard(actor)
        self._acquire(actor, "wait", lambda: actor in self._notified and self._owner is None)
        self._depth = depth
        return True

    def notify_all(self) -> None:
        """Wake all waiting actors; those that do not wait ignore it."""
        self._notified.update(self._machine.actors)

    def _acquire(self, actor: Actor, operation: str, is_ready: Callable[[], bool]) -> None:
        self._request(actor, operation, is_ready)
        self._owner = actor

    def _request(self, actor: Actor, operation: str, is_ready: Callable[[], bool]) -> None:
        def take_ticket() -> int:
            # The order of acquisitions is part of the state of a search.
            self._tickets += 1
            return self._tickets

        actor.is_ready = is_ready
        try:
            self._machine.request(Request(operation, self._path), take_ticket)
        finally:
            actor.is_ready = _always


class _AtOnce(Executor):
    """Runs each task when it is submitted."""

    def submit(self, fn: Callable[..., R], /, *args: Any, **kwargs: Any) -> Future[R]:
        return _done(lambda _: fn(*args, **kwargs), None)


def _no_reply(request: Request) -> LanceletError:
    if request.operation in _CONDITIONAL:
        return CommitOutcomeUnknownError("this reply was lost", path=request.path)
    return StorageUnavailableError("this reply was lost", path=request.path)


def _done(task: Callable[[T], R], item: T) -> Future[R]:
    future: Future[R] = Future()
    try:
        future.set_result(task(item))
    except Exception as error:  # noqa: BLE001 - raised by `result`
        future.set_exception(error)
    return future
