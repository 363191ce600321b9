"""Run all interleavings of the requests of a few actors, with each request failing once.

    A   list  read  put 3          B   list  read  put 3          C   list  delete 1

Each execution starts from the beginning, with other choices, in depth-first order. Interleavings
that differ only in independent requests (of different objects, or two reads) reach the same state,
so one of them suffices: sleep sets omit the others, and a visited state is not continued again. A
state consists of the stored objects and the replies each actor received, so omitted executions are
equivalent to executed ones. The numbers of executions and states are those of a complete search.

In larger scenarios, only executions with at most `switches_max` preemptions run: most defects need
one or two. Interleavings are then not equivalent, as their numbers of preemptions may differ; a
visited state includes the last actor and the remaining preemptions.
"""

from __future__ import annotations

import itertools
import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from random import Random
from typing import Any, Final, NamedTuple, TypeVar, cast

import numpy as np

from lancelet import surroundings
from lancelet.buffers import ByteSlices
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
    SimulatedCondition,
    without_caches,
)

T = TypeVar("T")

_LISTS: Final = frozenset({"list", "list_delimited"})


_OF_THREADS: Final = frozenset({"acquire", "release", "wait"})
"""Operations of condition variables, which do not fail."""


class DeadlockError(AssertionError):
    """No actor can continue."""


class Choice(NamedTuple):
    """The actor of the next request, and the outcome of the request."""

    actor: int
    fate: Fate


@dataclass(slots=True)
class Counts:
    """The size of the search."""

    executions: int = 0
    """Complete executions."""
    cut_short: int = 0
    """Executions that reached a visited state."""
    states: int = 0
    steps: int = 0
    longest: int = 0


@dataclass(slots=True)
class _Frame:
    """A state on the path to the current one, with the choices that remain there."""

    pending: Mapping[int, Request]
    todo: list[Choice]
    current: Choice
    sleeping: set[Choice]


class Cast:
    """The actors of one execution and their outcomes."""

    def __init__(self) -> None:
        """Start without actors."""
        self.tasks: list[Callable[[], None]] = []
        self.outcomes: dict[str, object] = {}

    def add(self, name: str, task: Callable[[], object]) -> None:
        """Add an actor; its outcome is what the task returns or raises."""

        def run() -> None:
            try:
                self.outcomes[name] = task()
            except Exception as error:  # noqa: BLE001 - judged at the end
                self.outcomes[name] = error

        self.tasks.append(run)


@dataclass(slots=True)
class Explorer:
    """Runs every execution of some actors over a store.

    `cast` creates the actors and the final checks. `fates` are the outcomes of a request other than
    success, at most `faults` times per execution. `switches_max` limits the preemptions of actors.
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
        """Run all executions; raise the error of the first that fails, with its trace as a note."""
        with without_caches():
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
        MemoryStore.reset(BUCKET)
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
    """A request with its outcome, or an event reported by an actor."""

    actor: str
    operation: str
    path: str
    outcome: object


class _Telling(Machine):
    """A machine that records the replies to each actor."""

    def __init__(self, course: _Course) -> None:
        super().__init__(course, lambda _actor, _request: None)
        self.histories: dict[str, int] = {}
        self.events: list[Event] = []
        self._num_conditions = 0

    def condition(self) -> threading.Condition:
        """Return a condition variable whose operations are steps of the search."""
        self._num_conditions += 1
        return cast("threading.Condition", SimulatedCondition(self, self._num_conditions))

    def sleep(self, seconds: float) -> None:
        """Continue; other actors run at the next request."""

    def request(self, request: Request, action: Callable[[], T]) -> T:
        actor = self.running
        if actor is None or request.path.endswith(LATEST_VERSION_HINT):
            return action()  # files written for other libraries are never read
        try:
            answer = super().request(request, lambda: _replayable(action()))
        except Exception as error:
            self._remember(actor, request, type(error).__name__)
            raise
        self._remember(actor, request, _digest(answer))
        return answer

    def _remember(self, actor: Actor, request: Request, outcome: object) -> None:
        self.events.append(Event(actor.name, request.operation, request.path, outcome))
        before = self.histories.get(actor.name, 0)
        self.histories[actor.name] = hash((before, request.operation, request.path, outcome))


class _Course:
    """Follows the choices on the stack, and then the first choice of each state."""

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
        """Do nothing, as the actor has its request."""

    def held_up(self, actor: Actor) -> float:
        """List everything in one step."""
        del actor
        return 0.0

    def over(self, actor: Actor) -> None:
        """Do nothing, as the actor has ended."""

    def linger(self, late: Callable[[], None]) -> None:
        raise InternalError("delayed requests are not supported in this search", late=late)

    def next(self) -> Actor | None:
        if self._starting:
            return self._starting.pop(0)
        pending = {
            number: actor.pending
            for number, actor in enumerate(self._actors)
            if actor.pending is not None and not actor.is_done and actor.is_ready()
        }
        if not pending:
            blocked = [actor.name for actor in self._actors if not actor.is_done]
            if blocked:
                raise DeadlockError(f"these actors wait for each other: {blocked}")
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
        enabled = [
            Choice(number, fate)
            for number in may_go_on
            for fate in (("done",) if pending[number].operation in _OF_THREADS else fates)
        ]
        earlier = explorer._seen.get(state)
        if earlier is None:
            explorer._seen[state] = frozenset(sleeping)
            todo = [each for each in enabled if each not in sleeping]
        else:
            todo = [each for each in enabled if each in earlier and each not in sleeping]
            sleeping = sleeping & earlier
            explorer._seen[state] = frozenset(sleeping)
            # Choices executed here are not repeated in later states.
            sleeping = {each for each in enabled if each not in todo}
        if not todo:
            return None
        return _Frame(pending, todo, todo.pop(0), sleeping)

    def _state(self, pending: Mapping[int, Request]) -> object:
        assert self.machine is not None
        outcome = tuple(
            (actor.is_done, self.machine.histories.get(actor.name, 0)) for actor in self._actors
        )
        stored = self._bucket._objects.by_key
        content = frozenset(
            (path, entry[0])
            for path, entry in stored.items()
            if not path.endswith(LATEST_VERSION_HINT)
        )
        return outcome, tuple(pending), self._faults, hash(content)


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
        return other.path.startswith(
            change.path
        )  # the name of a staged manifest starts with its target
    return change.path == other.path


def _replayable(answer: T) -> T:
    """Return an answer that can be iterated twice."""
    if isinstance(answer, itertools.chain) or hasattr(answer, "__next__"):
        return cast("T", iter(list(cast("Iterable[Any]", answer))))
    return answer


def _digest(answer: object) -> object:
    """Return a value that identifies an answer."""
    match answer:
        case bytes():
            return hash(answer)
        case ObjectInfo(path=path, size=size):
            return path, size
        case Listing(objects, folders):
            return tuple(info.path for info in objects), folders
        case np.ndarray():
            return hash(answer.tobytes())
        case ByteSlices():
            return hash(answer.source.tobytes())
        case _ if hasattr(answer, "write") and hasattr(answer, "close"):
            return "a writer"
        case _ if hasattr(answer, "read_tail"):  # the current content of an object in memory
            return hash(cast("Any", answer).read_tail(1 << 40).tobytes())
        case _ if hasattr(answer, "__length_hint__"):
            return tuple(map(_digest, cast("Any", answer).__reduce__()[1][0]))
        case _:
            return repr(answer)
