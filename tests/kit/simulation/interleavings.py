"""Every order in which a few actors can make their requests, with each request failing once.

    A   list  read  put 3          B   list  read  put 3          C   list  delete 1

Executions are run from the start again and again, each with other choices, depth first. Orders
that differ only in requests that do not meet (of different objects, or two that only look) come to
the same states, and one of them is enough: sleep sets leave out the others, and a state that was
seen is not gone on from again. A state is what is stored and what each actor was told so far, so
what is left out was run. The numbers of executions and of states are counts of a complete search.

Of larger scenarios those executions are run in which an actor that could go on is interrupted at
most so many times (`switches_max`), wherever that may be: most defects need one or two. There no
order stands for another, as it may have more interruptions; what was seen is then a state together
with who made it and how many interruptions are left.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from random import Random
from typing import Any, Final, NamedTuple, TypeVar, cast

from lancelet import surroundings
from lancelet.errors import InternalError
from lancelet.format.paths import LATEST_VERSION_HINT
from lancelet.io.memory import MemoryStore
from lancelet.io.store import Listing, ObjectInfo
from lancelet.io.wrapped import Request
from tests.kit.simulation.judge import BUCKET
from tests.kit.simulation.machine import (
    Actor,
    Fate,
    Machine,
    nothing_kept,
)

T = TypeVar("T")

_LISTS: Final = frozenset({"list", "list_delimited"})


class Choice(NamedTuple):
    """Whose request is next, and what becomes of it."""

    actor: int
    fate: Fate


@dataclass(slots=True)
class Counts:
    """How much there was to run."""

    executions: int = 0
    """Runs to the end of all actors."""
    cut_short: int = 0
    """Runs that came to a state that was seen."""
    states: int = 0
    steps: int = 0
    longest: int = 0


@dataclass(slots=True)
class _Frame:
    """A state on the way to the one that is looked at, and what is left to try there."""

    pending: Mapping[int, Request]
    todo: list[Choice]
    current: Choice
    sleeping: set[Choice]


class Cast:
    """The actors of one execution, with what each of them is told at its end."""

    def __init__(self) -> None:
        """Begin without any."""
        self.tasks: list[Callable[[], None]] = []
        self.told: dict[str, object] = {}

    def add(self, name: str, task: Callable[[], object]) -> None:
        """Add an actor; what it returns or raises is what it is told."""

        def run() -> None:
            try:
                self.told[name] = task()
            except Exception as error:  # noqa: BLE001 - judged at the end
                self.told[name] = error

        self.tasks.append(run)


@dataclass(slots=True)
class Explorer:
    """Runs every execution of some actors over a store.

    `cast` makes the actors anew, and what judges them at the end. `fates` are what may become of a
    request besides being done, at most `faults` times in an execution. `switches_max` bounds how
    often an actor that could go on has to wait for another.
    """

    stored: Mapping[str, Any]
    cast: Callable[[], tuple[Cast, Callable[[Cast], None]]]
    fates: Sequence[Fate] = ()
    faults: int = 1
    switches_max: int | None = None
    counts: Counts = field(default_factory=Counts)
    on_execution: Callable[[Cast, Sequence[Event]], None] | None = None
    _stack: list[_Frame] = field(default_factory=list)
    _seen: dict[object, frozenset[Choice]] = field(default_factory=dict)

    def run(self, *, executions_max: int | None = None) -> Counts:
        """Run them all; raise what the first that is wrong raises, with its trace as a note."""
        with nothing_kept():
            while True:
                self._execute()
                if executions_max is not None and self.counts.executions > executions_max:
                    raise InternalError("more executions than expected", most=executions_max)
                while self._stack and not self._stack[-1].todo:
                    self._stack.pop()
                if not self._stack:
                    self.counts.states = len(self._seen)
                    return self.counts
                frame = self._stack[-1]
                frame.sleeping.add(frame.current)
                frame.current = frame.todo.pop(0)

    def _execute(self) -> None:
        MemoryStore.renew(BUCKET)
        bucket = MemoryStore(BUCKET)
        bucket._objects.by_key.update(self.stored)
        course = _Course(self, bucket)
        machine = course.machine = _Telling(course)
        machine.trace = []
        with surroundings.replaced_by(machine):
            cast, judge = self.cast()
            actors = [
                Actor(f"actor {number}", task, Random(number + 1), 0)
                for number, task in enumerate(cast.tasks)
            ]
            try:
                machine.run(actors)
                if course.is_cut_short:
                    self.counts.cut_short += 1
                else:
                    self.counts.executions += 1
                    judge(cast)
                    if self.on_execution is not None:
                        self.on_execution(cast, machine.events)
            except BaseException as error:
                error.add_note("\n".join(machine.trace))
                raise
        self.counts.steps += machine.steps
        self.counts.longest = max(self.counts.longest, machine.steps)


class Event(NamedTuple):
    """A request that was made, and what its actor was told; or what an actor says of itself."""

    actor: str
    operation: str
    path: str
    told: object


class _Telling(Machine):
    """A machine that remembers what each actor was told."""

    def __init__(self, course: _Course) -> None:
        super().__init__(course, lambda _actor, _request: None)
        self.histories: dict[str, int] = {}
        self.events: list[Event] = []

    def sleep(self, seconds: float) -> None:
        """Go on at once: others have their turn at the next request in any case."""

    def request(self, request: Request, action: Callable[[], T]) -> T:
        actor = self.running
        if actor is None or request.path.endswith(LATEST_VERSION_HINT):
            return action()  # what is written for other libraries is never read
        try:
            answer = super().request(request, lambda: _kept(action()))
        except Exception as error:
            self._remember(actor, request, type(error).__name__)
            raise
        self._remember(actor, request, _digest(answer))
        return answer

    def _remember(self, actor: Actor, request: Request, told: object) -> None:
        self.events.append(Event(actor.name, request.operation, request.path, told))
        before = self.histories.get(actor.name, 0)
        self.histories[actor.name] = hash((before, request.operation, request.path, told))


class _Course:
    """Follows the choices that are on the stack, and then the first of each state."""

    def __init__(self, explorer: Explorer, bucket: MemoryStore) -> None:
        self.now_ns = 0
        self.machine: _Telling | None = None
        self.is_cut_short = False
        self._explorer = explorer
        self._bucket = bucket
        self._actors: list[Actor] = []
        self._starting: list[Actor] = []
        self._depth = 0
        self._faults = 0
        self._last: int | None = None
        self._switches = 0

    def begin(self, actors: Sequence[Actor]) -> None:
        self._actors = list(actors)
        self._starting = list(actors)

    def announce(self, actor: Actor, request: Request, delay_ns: int | None) -> None:
        """Nothing is to be noted: the actor has its request."""

    def held_up(self, actor: Actor) -> float:
        """List everything at once."""
        del actor
        return 0.0

    def over(self, actor: Actor) -> None:
        """Nothing is left to do for who has ended."""

    def linger(self, late: Callable[[], None]) -> None:
        raise InternalError("in this search, whoever lingers is held up", late=late)

    def next(self) -> Actor | None:
        if self._starting:
            return self._starting.pop(0)
        pending = {
            number: actor.pending
            for number, actor in enumerate(self._actors)
            if actor.pending is not None and not actor.is_done
        }
        if not pending:
            return None
        stack = self._explorer._stack
        if self._depth == len(stack):
            frame = self._new_frame(pending)
            if frame is None:
                self.is_cut_short = True
                return None
            stack.append(frame)
        choice = stack[self._depth].current
        return self._actors[choice.actor]

    def fate(self, actor: Actor, request: Request) -> Fate:
        del actor, request
        frame = self._explorer._stack[self._depth]
        number, fate = frame.current
        self._depth += 1
        self._faults += fate != "done"
        self._switches += number != self._last and self._last in frame.pending
        self._last = number
        return fate

    def _new_frame(self, pending: dict[int, Request]) -> _Frame | None:
        explorer = self._explorer
        sleeping: set[Choice] = set()
        is_bounded = explorer.switches_max is not None
        if explorer._stack and not is_bounded:
            before = explorer._stack[-1]
            sleeping = {
                each
                for each in before.sleeping
                if _are_independent(before.pending, each, before.current)
            }
        fates: tuple[Fate, ...] = ("done",)
        if self._faults < explorer.faults:
            fates = ("done", *explorer.fates)
        may_go_on = sorted(pending)
        state = self._state(pending)
        if is_bounded:
            state = state, self._last, self._switches
            if self._switches == explorer.switches_max and self._last in pending:
                may_go_on = [self._last]
        enabled = [Choice(number, fate) for number in may_go_on for fate in fates]
        earlier = explorer._seen.get(state)
        if earlier is None:
            explorer._seen[state] = frozenset(sleeping)
            todo = [each for each in enabled if each not in sleeping]
        else:
            todo = [each for each in enabled if each in earlier and each not in sleeping]
            sleeping = sleeping & earlier
            explorer._seen[state] = frozenset(sleeping)
            # What was tried here before is not tried again below either.
            sleeping = {each for each in enabled if each not in todo}
        if not todo:
            return None
        return _Frame(pending, todo, todo.pop(0), sleeping)

    def _state(self, pending: Mapping[int, Request]) -> object:
        assert self.machine is not None
        told = tuple(
            (actor.is_done, self.machine.histories.get(actor.name, 0)) for actor in self._actors
        )
        stored = self._bucket._objects.by_key
        content = frozenset(
            (path, entry[0])
            for path, entry in stored.items()
            if not path.endswith(LATEST_VERSION_HINT)
        )
        return told, tuple(pending), self._faults, hash(content)


def _are_independent(pending: Mapping[int, Request], a: Choice, b: Choice) -> bool:
    """Return whether two choices lead to the same state in either order."""
    if a.actor == b.actor or (a.fate != "done" and b.fate != "done"):
        return False
    first, second = pending[a.actor], pending[b.actor]
    if not first.is_change and not second.is_change:
        return True
    return not (_touches(first, second) or _touches(second, first))


def _touches(change: Request, other: Request) -> bool:
    if not change.is_change:
        return False
    if other.operation in _LISTS:
        return change.path.startswith(other.path)
    if change.operation in {"copy", "rename_if_absent"}:
        return other.path.startswith(change.path)  # a staged manifest is called after its target
    return change.path == other.path


def _kept(answer: T) -> T:
    """Return an answer that can be looked at twice."""
    if isinstance(answer, itertools.chain) or hasattr(answer, "__next__"):
        return cast("T", iter(list(cast("Iterable[Any]", answer))))
    return answer


def _digest(answer: object) -> object:
    """Return what tells an answer from others."""
    match answer:
        case bytes():
            return hash(answer)
        case ObjectInfo(path=path, size=size):
            return path, size
        case Listing(objects, folders):
            return tuple(info.path for info in objects), folders
        case _ if hasattr(answer, "read_tail"):  # the reader of an object in memory, as it is now
            return hash(cast("Any", answer).read_tail(1 << 40).tobytes())
        case _ if hasattr(answer, "__length_hint__"):
            return tuple(map(_digest, cast("Any", answer).__reduce__()[1][0]))
        case _:
            return repr(answer)
