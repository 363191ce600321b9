"""A machine that is simulated: actors take turns, one request of the store at a time.

    actor 1    opens the table ......... commits ............ paused for hours ... goes on
    actor 2          ........ deletes rows ........ killed
    actor 3                         cleans up ..............................

An actor runs the real code in a thread of its own, but only one thread runs at any time: whoever
has the baton. At each request of the store, and where the code waits, the actor says what it is
about to do, and the `Course` of the history says whose turn it is and what becomes of the request:
it is done, refused, done without a reply, or the actor dies. Time, ids and chance come from here
too, so that the same choices give the same history, byte for byte.
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
from typing import Any, Final, Literal, Protocol, TypeAlias, TypeVar, cast

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
"""What becomes of a request; one that lingers is done later, when nobody waits for it."""

EPOCH_NS: Final = 1_700_000_000 * 10**9
"""When every history begins."""

_CONDITIONAL: Final = frozenset({"put_if_absent", "rename_if_absent"})
_SILENT: Final = frozenset(
    {"write", "open_writer", "read_ranges", "read_tail", "flush", "sweep_temporaries"}
)
"""What others cannot see, or what asks for nothing that was not there before."""


@contextmanager
def nothing_kept() -> Iterator[None]:
    """Keep nothing in the cache of the process, which the actors of a history are not one of."""
    before = CACHE.stats.budget_bytes
    CACHE.resize(0)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of cleanups that failed, as they were made to
            yield
    finally:
        CACHE.resize(before)


class Killed(BaseException):
    """The process is gone: what would follow never runs."""


class Actor:
    """A process of the history, with its chance and its clock."""

    def __init__(self, name: str, task: Callable[[], None], random: Random, skew_ns: int) -> None:
        """Describe an actor that has not begun."""
        self.name = name
        self.task = task
        self.random = random
        self.skew_ns = skew_ns
        self.is_dead = False
        self.is_done = False
        self.requests = 0
        self.about: object = None
        """What it is doing, for who judges that."""
        self.pending: Request | None = None
        self.baton = threading.Lock()
        self.baton.acquire()


class Course(Protocol):
    """Who is next, and what becomes of requests."""

    now_ns: int

    def begin(self, actors: Sequence[Actor]) -> None:
        """Begin with actors that all are ready."""

    def next(self) -> Actor | None:
        """Return whose turn it is; None at the end, or to stop."""

    def announce(self, actor: Actor, request: Request, delay_ns: int | None) -> None:
        """Hear what an actor is about to do; waiting takes a time that is known."""

    def fate(self, actor: Actor, request: Request) -> Fate:
        """Say what becomes of the request of the actor whose turn it is."""

    def held_up(self, actor: Actor) -> float:
        """Say for how many seconds others go on between two entries of a listing."""

    def over(self, actor: Actor) -> None:
        """Hear that an actor has ended."""

    def linger(self, late: Callable[[], None]) -> None:
        """Call something later, between two turns."""


class Machine(Surroundings):
    """The surroundings of all actors, and the store that they share.

    `on_change` is called after each request that changed the store, with the actor and the path.
    """

    def __init__(
        self,
        course: Course,
        on_change: Callable[[Actor | None, Request], None],
        *,
        is_drive: bool = False,
    ) -> None:
        """Make a machine without actors, with a drive or else with objects that pages list."""
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
        self._main = threading.Lock()
        self._main.acquire()
        self._random = Random(0)
        self._in_store = False

    # --- surroundings -------------------------------------------------------------------------

    def time_ns(self) -> int:
        """Return the virtual time, by the clock of who asks."""
        actor = None if self._in_store else self.running
        return EPOCH_NS + self.course.now_ns + (0 if actor is None else actor.skew_ns)

    def monotonic(self) -> float:
        """Return virtual seconds."""
        return self.course.now_ns / 1e9

    def sleep(self, seconds: float) -> None:
        """Let others go on."""
        if self.running is not None:
            self._turn(self.running, Request("sleep", ""), int(seconds * 1e9))

    def random_bits(self, count: int) -> int:
        """Return what follows from the seed."""
        return self._chance().getrandbits(count)

    def uniform(self, low: float, high: float) -> float:
        """Return what follows from the seed."""
        return self._chance().uniform(low, high)

    def executor(self, threads: int, name: str) -> Executor:
        """Return a pool without threads: its tasks run when they are given to it."""
        del threads, name
        return _AtOnce()

    def submit(self, pool: Executor, task: Callable[[T], R], item: T) -> Future[R]:
        """Run a task here and now."""
        del pool
        return _done(task, item)

    def start_thread(self, task: Callable[[], None], name: str) -> None:
        """Refuse: an actor is one thread."""
        del task
        raise UnsupportedError("a simulated process has no other threads", thread=name)

    def watched(self, store: T) -> T:
        """Return a store, or a database of versions, whose requests are steps of the history."""
        if isinstance(store, SqliteRecords):
            return cast("T", self.records)
        if not isinstance(store, MemoryStore):
            raise UnsupportedError("only stores in memory are simulated", store=str(store))
        return cast("T", SimulatedStore(store, self))

    # --- history ------------------------------------------------------------------------------

    def run(self, actors: Sequence[Actor]) -> None:
        """Run actors to their end, and raise what the first of them met that was not expected."""
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
        """Make a request of the store, when its turn has come."""
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
        """Let others go on between two entries of a listing, if the history has it so."""
        seconds = 0.0 if self.running is None else self.course.held_up(self.running)
        if seconds:
            self.sleep(seconds)
        return seconds > 0

    def unobserved(self, look: Callable[[], T]) -> T:
        """Run something that is no part of the history."""
        before, self.running = self.running, None
        try:
            return look()
        finally:
            self.running = before

    def note(self, text: str) -> None:
        """Add a line to the trace, if there is one."""
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
        # Nobody hears of it, and what was judged wrong is kept.
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
        """Wait until it is the turn of an actor again."""
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
        """Let the next one go on, and return it; unless that is the caller, who has to wait."""
        following = None if self._is_stopping else self.course.next()
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
    """A store in memory, each request of which is a step of a history."""

    def __init__(self, inner: MemoryStore, machine: Machine) -> None:
        """Wrap a store."""
        self.machine = machine
        self.prefix = inner.uri.removeprefix("memory://").partition("/")[2]
        super().__init__(inner, self)

    def request(self, request: Request, action: Callable[[], T]) -> T:
        """Make a request by its path from the root of the bucket."""
        path = f"{self.prefix}/{request.path}" if self.prefix else request.path
        return self.machine.request(request._replace(path=path), action)

    def at(self, folder: str) -> SimulatedStore:
        """Return the same store with a folder as its root."""
        return SimulatedStore(cast("MemoryStore", self.inner).at(folder), self.machine)

    def with_deferred_sync(self) -> SimulatedStore:
        """Return the same: nothing is lost with the power here."""
        return self

    def for_commits(self) -> SimulatedStore:
        """Return the same: it can put conditionally."""
        return self

    @property
    def lists_names(self) -> bool:
        """Whether this is a drive, which reads names first and sizes later."""
        return self.machine.is_drive

    def list(self, folder: str = "", start_after: str | None = None) -> Iterator[ObjectInfo]:
        """Yield the objects below a folder; others may change them meanwhile."""
        if self.lists_names:
            return self._walk(folder, start_after or "")
        return self._pages(folder, super().list(folder, start_after))

    def list_delimited(self, folder: str = "") -> Listing:
        """Return what lies directly in a folder; on a drive sizes are read later."""
        if not self.lists_names:
            return super().list_delimited(folder)
        names = self._names(folder)
        found = (self._info_or_none(path) for path in names if not path.endswith("/"))
        folders = (path.removesuffix("/") for path in names if path.endswith("/"))
        return Listing(tuple(filter(None, found)), tuple(folders))

    def put_if_absent(self, path: str, data: BytesLike) -> None:
        """Store an object if the name is free, as the system of the drive can."""
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
        """Return the paths in a folder, those of folders with a slash at the end."""
        here = super().list_delimited(folder)
        files = (info.path for info in here.objects)
        return sorted([*files, *(f"{path}/" for path in here.folders)])

    def _info_or_none(self, path: str) -> ObjectInfo | None:
        self.machine.is_held_up()
        with suppress(ObjectNotFoundError):
            return self.inner.info(path)
        return None

    def delete_many(self, paths: Iterable[str]) -> None:
        """Delete one after the other, as no store does it in one step."""
        for path in paths:
            self.delete(path)

    def delete_folder(self, folder: str) -> None:
        """Delete what is listed, one after the other."""
        Store.delete_folder(self, folder)

    def remove_if_empty(self, folder: str) -> None:
        """Do nothing: folders are but names."""


class _AtOnce(Executor):
    """Runs each task when it is given."""

    def submit(self, fn: Callable[..., R], /, *args: Any, **words: Any) -> Future[R]:
        return _done(lambda _: fn(*args, **words), None)


def _no_reply(request: Request) -> LanceletError:
    if request.operation in _CONDITIONAL:
        return CommitOutcomeUnknownError("this reply was lost", path=request.path)
    return StorageUnavailableError("this reply was lost", path=request.path)


def _done(task: Callable[[T], R], item: T) -> Future[R]:
    future: Future[R] = Future()
    try:
        future.set_result(task(item))
    except Exception as error:  # noqa: BLE001 - raised to who asks for the result
        future.set_exception(error)
    return future
