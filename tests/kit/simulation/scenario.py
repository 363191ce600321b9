"""Create a history from a seed, run and check it, and shrink it.

seed 17    4 actors with 3 to 7 operations each, failing requests, paused actors
run        every change of the store is checked; a violation ends the history
shrink     operations, faults and pauses are removed while the violation persists
"""

from __future__ import annotations

import heapq
import itertools
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field, replace
from functools import partial
from random import Random
from typing import Final, Literal, TypeAlias

import lancelet
from lancelet import surroundings
from lancelet.errors import LanceletError
from lancelet.io.memory import MemoryStore
from lancelet.io.wrapped import Request
from tests.kit.simulation import shards
from tests.kit.simulation.drive import DriveWithoutLinks
from tests.kit.simulation.judge import BUCKET, MAIN, Doing, FilesRemovedError, Judge, Rows
from tests.kit.simulation.machine import (
    Actor,
    Fate,
    Killed,
    Machine,
    without_caches,
)
from tests.kit.simulation.operations import (
    CHANGES_ROWS,
    FINE,
    JOBS,
    PUBLISHES,
    SCHEMA,
    WEIGHTS,
    WIDE,
    Step,
    batch_key,
    effect_of,
    look_up,
    lookup_filter,
    open_table,
    pause,
    perform,
    random_step,
    table,
)
from tests.kit.simulation.records import SimulatedRecords

Storage: TypeAlias = Literal["objects", "drive", "drive without links"]

_SECOND: Final = 10**9
_HOUR: Final = 3600 * _SECOND

_HARSH_FROM: Final = 1000
"""From this seed on, every second history has many faults; the others have few."""

_WIDE_FROM: Final = 10_000
"""From this seed on, tasks of jobs run twice, disks fill up, and listings take time."""

_RECORDS_FROM: Final = 40_000
"""From this seed on, every third history has an external manifest store."""

_FINE_FROM: Final = 60_000
"""From this seed on, actors also change columns and fragments, and clocks are wrong by days."""

_DAY_S: Final = 24 * 3600.0
_PAUSES_S: Final = (0.3, 1, 3, 9 * 3600)

_STORAGES: Final[tuple[Storage, ...]] = ("objects", "drive", "drive without links")

_FILLING: Final = frozenset({"put", "put_if_absent", "close_writer", "copy"})

_FIRST_ROWS: Final = 8
_MANY_ROWS: Final = 100
"""Deletion files of many rows are bitmaps."""


@dataclass(frozen=True, slots=True)
class Chances:
    """The probabilities of events at a request."""

    refused: float = 0.0
    lost: float = 0.0
    lingering: float = 0.0
    killed: float = 0.0
    paused: float = 0.0
    held_up: float = 0.0
    """The probability that other actors run between two entries of a listing."""
    full_ns: tuple[int, int] = (0, 0)
    """The start and end of the time when the disk is full."""
    latency_ns: int = 10**7
    pauses_s: tuple[float, ...] = _PAUSES_S


@dataclass(frozen=True, slots=True)
class Scenario:
    """A history before it is run.

    `spared` are the omitted faults and pauses, as names of steps with request numbers.
    """

    seed: int
    actors: tuple[tuple[Step, ...], ...]
    chances: Chances
    skews_ns: tuple[int, ...]
    stable_row_ids: bool
    has_shards: bool = False
    storage: Storage = "objects"
    """A drive reads names before sizes and has no delayed requests; other stores list in pages."""
    has_records: bool = False
    """Whether an external manifest store decides commits."""
    num_rows: int = _FIRST_ROWS
    is_wide: bool = False
    """Whether the table has texts and vectors."""
    spared: frozenset[tuple[str, int]] = frozenset()

    @staticmethod
    def of(seed: int) -> Scenario:
        """Return the scenario of a seed."""
        random = Random(seed)
        # With fewer kinds of operations, conflicts between them are more frequent.
        share = random.choice([0.15, 0.3, 0.75])
        has_records = seed >= _RECORDS_FROM and seed % 3 == 0
        all_weights = WEIGHTS | (JOBS if seed >= _WIDE_FROM and not has_records else {})
        is_fine = seed >= _FINE_FROM
        all_weights |= FINE if is_fine else {}
        weights = {kind: n for kind, n in all_weights.items() if random.random() < share}
        weights |= {kind: WEIGHTS[kind] for kind in ("append", "cleanup")}
        stale = random.choice([0.0, 0.0, 0.3, 0.9])
        numbers = itertools.count()
        actors = tuple(
            tuple(
                random_step(random, next(numbers), weights, stale=stale)
                for _ in range(random.randint(2, 8))
            )
            for _ in range(random.randint(2, 5))
        )

        def maybe(chance: float, value: float) -> float:
            return value if random.random() < chance else 0.0

        chances = Chances(
            refused=maybe(0.3, 0.01),
            lost=maybe(0.5, 0.02),
            lingering=maybe(0.3, 0.03),
            killed=maybe(0.3, 0.005),
            paused=maybe(0.8, random.choice([0.01, 0.04, 0.12])),
        )
        if seed >= _HARSH_FROM and seed % 2:
            chances = Chances(
                refused=0.01,
                lost=random.choice([0.05, 0.15]),
                lingering=0.25,
                killed=random.choice([0.0, 0.01]),
                paused=random.choice([0.05, 0.3]),
            )
        storage: Storage = "objects"
        if seed >= _WIDE_FROM:
            full = random.randrange(2 * _SECOND)
            storage = random.choice(_STORAGES)
            chances = replace(
                chances,
                held_up=random.choice([0.0, 0.05, 0.2, 0.5]),
                full_ns=random.choice([(0, 0), (0, 0), (full, full + _SECOND // 4)]),
                lingering=chances.lingering if storage == "objects" else 0.0,
            )
        skewed = maybe(0.3, random.choice([1.0, 240.0]) if is_fine else 1.0)
        if is_fine:
            chances = replace(
                chances, pauses_s=random.choice([_PAUSES_S, (*_PAUSES_S, 10 * _DAY_S)])
            )
        skews = tuple(int(skewed * random.uniform(-_HOUR, _HOUR)) for _ in actors)
        stable = random.random() < 0.5
        if seed % 7 in {2, 6}:
            actors = tuple(shards.random_steps(random, numbers) for _ in actors)
            return Scenario(seed, actors, chances, skews, stable, has_shards=True, storage=storage)
        return Scenario(
            seed,
            actors,
            chances,
            skews,
            stable,
            storage=storage,
            has_records=has_records,
            num_rows=random.choice([_FIRST_ROWS, _MANY_ROWS]) if is_fine else _FIRST_ROWS,
            is_wide=is_fine and random.random() < 0.3,
        )

    @property
    def size(self) -> int:
        """The number of operations."""
        return sum(map(len, self.actors))


@dataclass(slots=True)
class Report:
    """The result of a history."""

    steps: int = 0
    operations: int = 0
    acknowledged: int = 0
    faults: set[tuple[str, int]] = field(default_factory=set)
    trace: list[str] = field(default_factory=list)
    violation: BaseException | None = None


class _Course:
    """Requests take time; the actor whose request ends first is next."""

    def __init__(self, scenario: Scenario, report: Report) -> None:
        self.now_ns = 0
        self._scenario = scenario
        self._report = report
        self._queue: list[tuple[int, int, Actor | Callable[[], None]]] = []
        self._count = itertools.count()
        self._chance: dict[Actor, tuple[str, Random, int]] = {}

    def enter(self, actor: Actor, step: Step) -> None:
        """Start a step, whose random numbers do not depend on earlier steps."""
        self._chance[actor] = (step.name, Random(f"{self._scenario.seed}/{step.name}"), 0)

    def begin(self, actors: Sequence[Actor]) -> None:
        for actor in actors:
            self._wait(actor.random.randrange(10 * self._scenario.chances.latency_ns), actor)

    def announce(self, actor: Actor, request: Request, delay_ns: int | None) -> None:
        del request
        if delay_ns is not None:
            self._wait(delay_ns, actor)
            return
        name, random, count = self._chance[actor]
        self._chance[actor] = (name, random, count + 1)
        chances = self._scenario.chances
        latency = int(random.expovariate(1) * chances.latency_ns)
        if random.random() < chances.paused and self._happens(name, -count - 1):
            latency += int(random.choice(chances.pauses_s) * _SECOND * random.random())
        self._wait(latency, actor)

    def fate(self, actor: Actor, request: Request) -> Fate:
        name, random, count = self._chance[actor]
        chances, drawn = self._scenario.chances, random.random()
        first, last = chances.full_ns
        if first <= self.now_ns < last and request.operation in _FILLING:
            return "full" if self._happens(name, count) else "done"
        is_late = request.operation == "put_if_absent" and "/_versions/" in request.path
        likely: tuple[tuple[Fate, float], ...] = (
            ("refused", chances.refused),
            ("lost", chances.lost),
            ("lingering", chances.lingering if is_late else 0.0),
            ("killed", chances.killed / 2),
            ("done and killed", chances.killed / 2),
        )
        for fate, chance in likely:
            if drawn < chance:
                return fate if self._happens(name, count) else "done"
            drawn -= chance
        return "done"

    def held_up(self, actor: Actor) -> float:
        name, random, number = self._chance[actor]
        chance = self._scenario.chances.held_up
        if not chance or random.random() >= chance:
            return 0.0
        seconds = random.choice([0.01, 0.1, 10]) * random.random()
        return seconds if self._happens(f"{name}, listing", number) else 0.0

    def linger(self, late: Callable[[], None]) -> None:
        delay = Random(self.now_ns).choice([0.05, 1, 3600]) * _SECOND
        heapq.heappush(self._queue, (self.now_ns + int(delay), next(self._count), late))

    def next(self) -> Actor | None:
        while self._queue:
            self.now_ns, _, following = heapq.heappop(self._queue)
            if isinstance(following, Actor):
                return following
            following()
        return None

    def over(self, actor: Actor) -> None:
        """Do nothing, as the actor has ended."""

    def _wait(self, delay_ns: int, actor: Actor) -> None:
        heapq.heappush(self._queue, (self.now_ns + delay_ns, next(self._count), actor))

    def _happens(self, name: str, count: int) -> bool:
        if (name, count) in self._scenario.spared:
            return False
        self._report.faults.add((name, count))
        return True


def run(scenario: Scenario, *, traced: bool = False) -> Report:
    """Run and check a history."""
    report, judge = Report(), Judge()
    course = _Course(scenario, report)
    machine = Machine(course, judge.changed, is_drive=scenario.storage != "objects")
    machine.trace = report.trace if traced else None
    judge.stable_row_ids = scenario.stable_row_ids
    judge.allows_missing_files = scenario.seed >= _FINE_FROM
    judge.machine = machine
    MemoryStore.reset(BUCKET)
    judge.bucket = MemoryStore(BUCKET)
    options = {"manifest_store": "sqlite:simulated"} if scenario.has_records else None
    machine.records = SimulatedRecords(machine)
    mounted: AbstractContextManager[None] = nullcontext()
    if scenario.storage == "drive without links":
        machine.drive = DriveWithoutLinks(machine, BUCKET)
        mounted = machine.drive.mounted()
    with surroundings.replaced_by(machine), without_caches(), mounted:
        session = lancelet.Session(1 << 20, 1 << 20)
        of_shards = shards.ShardJudge() if scenario.has_shards else None
        if of_shards is not None:
            shards.begin(session, stable_row_ids=scenario.stable_row_ids)
            machine.on_change = _nothing
        else:
            _begin(scenario, judge, session, options)
        actors = []
        for number, (steps, skew) in enumerate(
            zip(scenario.actors, scenario.skews_ns, strict=True)
        ):
            random = Random(f"{scenario.seed}/{number}")
            actor = Actor(f"actor {number}", lambda: None, random, skew)
            if of_shards is not None:
                actor.task = shards.ShardLife(
                    machine, course.enter, of_shards, actor, steps, report
                ).run
            else:
                actor.task = _Life(machine, course, judge, actor, steps, report, options).run
            actors.append(actor)
        try:
            machine.run(actors)
            course.now_ns += 8 * 24 * _HOUR
            if of_shards is not None:
                shards.at_the_end(of_shards, session)
            else:
                judge.at_the_end(
                    lambda root, version: open_table(root, session, version, options=options)
                )
        except FilesRemovedError:
            pass  # The history ends.
        except Exception as error:  # noqa: BLE001 - told to the caller
            report.violation = error
    report.steps = machine.steps
    return report


def _nothing(actor: Actor | None, request: Request) -> None:
    """Check nothing before the end."""


def _begin(
    scenario: Scenario,
    judge: Judge,
    session: lancelet.Session,
    options: dict[str, str] | None,
) -> None:
    lancelet.write_dataset(
        table(dict.fromkeys(range(scenario.num_rows), 0), WIDE if scenario.is_wide else SCHEMA),
        f"memory://{BUCKET}/{MAIN}",
        session=session,
        storage_options=options,
        enable_stable_row_ids=scenario.stable_row_ids,
        max_rows_per_file=max(4, scenario.num_rows // 2),
    )
    judge.changed(None, Request("put", _first_manifest(judge)))


@dataclass(slots=True)
class _Life:
    """Run the operations of one actor."""

    machine: Machine
    course: _Course
    judge: Judge
    actor: Actor
    steps: tuple[Step, ...]
    report: Report
    options: dict[str, str] | None

    def run(self) -> None:
        session = lancelet.Session(1 << 20, 1 << 20)
        handles: dict[str, lancelet.LanceDataset] = {}
        for step in self.steps:
            if step.root not in self.judge.histories:
                continue
            self.course.enter(self.actor, step)
            restored: list[Rows] = []
            effect = effect_of(step, partial(_first, restored))
            doing = self.judge.begin(self.actor, step.name, step.root, effect)
            self.machine.note(f"{self.actor.name:10} --- {step}")
            error: BaseException | None = None
            try:
                self._do(step, doing, session, handles, restored)
            except LanceletError as caught:
                error = caught
            if self.actor.is_dead:
                raise Killed
            said = "acknowledged" if error is None else repr(error)[:150]
            self.machine.note(f"{self.actor.name:10} === {step.name}: {said}")
            self.report.operations += 1
            self.report.acknowledged += error is None
            if error is None and step.kind == "stream batch":
                self.judge.check_batch(doing, batch_key(step))
            publishes = PUBLISHES.get(step.kind) if step.kind in CHANGES_ROWS else 0
            self.judge.ended(
                doing, error, publishes=publishes, changes_rows=step.kind in CHANGES_ROWS
            )

    def _do(
        self,
        step: Step,
        doing: Doing,
        session: lancelet.Session,
        handles: dict[str, lancelet.LanceDataset],
        restored: list[Rows],
    ) -> None:
        dataset = handles.get(step.root) if step.is_stale else None
        if dataset is None:
            dataset = handles[step.root] = open_table(step.root, session, options=self.options)
        doing.since = dataset.version
        if step.kind == "read":
            pause(step.amount)
            try:
                found = dataset.to_table()
            except LanceletError as error:
                self.judge.read(doing, dataset.version, error)
            else:
                self.judge.read(doing, dataset.version, found)
        elif step.kind == "look up":
            pause(step.amount % 4)
            try:
                found = look_up(dataset, step)
            except LanceletError as error:
                self.judge.read(doing, dataset.version, error)
            else:
                self.judge.read(doing, dataset.version, found, lookup_filter(step)[1])
        elif step.kind == "restore":
            history = self.judge.histories[step.root]
            number = max(min(history), dataset.version - step.amount % 4)
            old = dataset.checkout_version(number if step.branch is None else (step.branch, number))
            restored.append(history[number].rows)
            old.restore()
        else:
            session = lancelet.Session(1 << 20, 1 << 20)
            perform(
                step,
                dataset,
                restored,
                lambda: open_table(step.root, session, options=self.options),
            )


def _first(found: list[Rows]) -> Rows | None:
    return found[0] if found else None


def _first_manifest(judge: Judge) -> str:
    (info,) = (
        info for info in judge.bucket.list(f"{MAIN}/_versions") if info.path.endswith(".manifest")
    )
    return info.path


def shrink(scenario: Scenario) -> tuple[Scenario, Report]:
    """Remove operations and faults as long as the same violation occurs."""
    report = run(scenario)
    kind = type(report.violation)

    def is_violated(candidate: Scenario) -> bool:
        return type(run(candidate).violation) is kind

    changed = True
    while changed:
        changed = False
        for candidate in _without_steps(scenario):
            if is_violated(candidate):
                scenario, changed = candidate, True
                break
    faults = sorted(run(scenario).faults - scenario.spared)
    size = len(faults)
    while size:
        for start in range(0, len(faults), size):
            candidate = replace(
                scenario, spared=scenario.spared | frozenset(faults[start : start + size])
            )
            if is_violated(candidate):
                scenario = candidate
        faults = sorted(run(scenario).faults - scenario.spared)
        size = min(size // 2, len(faults))
    return scenario, run(scenario, traced=True)


def _without_steps(scenario: Scenario) -> Iterator[Scenario]:
    """Yield scenarios without one actor or one step."""
    for number, steps in enumerate(scenario.actors):
        if steps:
            yield _with(scenario, number, ())
    for number, steps in enumerate(scenario.actors):
        for index in range(len(steps)):
            yield _with(scenario, number, steps[:index] + steps[index + 1 :])


def _with(scenario: Scenario, number: int, steps: tuple[Step, ...]) -> Scenario:
    actors = (*scenario.actors[:number], steps, *scenario.actors[number + 1 :])
    return replace(scenario, actors=actors)
