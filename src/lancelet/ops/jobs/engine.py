"""Running a job: planned as plain values, done in tasks anywhere, committed once.

    plan     on the driver: a list of tasks, which are small values that pickle
    run      each task writes files under names of its own and returns what it wrote
    commit   on the driver: everything that came back becomes one version

    job = Job(LocalEngine())
    done = job.run("write", write_part, tasks)      in the order of the tasks
    job.report                                      rows, bytes, requests and seconds by phase

An engine decides where tasks run: in this process, in processes beside it, or on a cluster. It
may run a task again after a failure, or twice at once, and takes the result of one attempt; files
of the others are orphans, which cleaning up finds by their age. So a task never changes what
another task or a reader can see.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import field, replace
from typing import Any, Generic, Protocol, TypeVar

from lancelet.errors import CancelledError, LanceletError, StorageError
from lancelet.io.mapped import forget_mapped_pages
from lancelet.io.metered import PROCESS_METER, IoCounts
from lancelet.values import dataclass

T = TypeVar("T")
R = TypeVar("R")


@dataclass(frozen=True, slots=True)
class Done(Generic[R]):
    """What a task returns: its result, and how many rows it worked on."""

    value: R
    rows: int = 0


TaskFunction = Callable[[T], Done[R]]


@dataclass(frozen=True, slots=True)
class Work:
    """What tasks took; the seconds are those of all tasks together."""

    rows: int = 0
    read_bytes: int = 0
    written_bytes: int = 0
    requests: int = 0
    seconds: float = 0.0

    def __add__(self, other: Work) -> Work:
        """Return both together."""
        return Work(
            self.rows + other.rows,
            self.read_bytes + other.read_bytes,
            self.written_bytes + other.written_bytes,
            self.requests + other.requests,
            self.seconds + other.seconds,
        )


@dataclass(frozen=True, slots=True)
class Outcome:
    """What came back of a task: a result, or an error that trying again would not mend."""

    value: Any
    work: Work
    error: LanceletError | None = None


@dataclass(frozen=True, slots=True)
class Progress:
    """How far a phase of a job is; a total of 0 means that it is not known yet."""

    phase: str
    done: int
    total: int


ProgressCallback = Callable[[Progress], None]


@dataclass(frozen=True, slots=True)
class PhaseReport:
    """What a phase took: `seconds` by the clock, the rest summed over its tasks."""

    name: str
    tasks: int
    seconds: float
    work: Work


@dataclass(frozen=True, slots=True)
class JobReport:
    """What a job took, phase by phase."""

    phases: tuple[PhaseReport, ...]

    @property
    def work(self) -> Work:
        """What all phases took together."""
        return sum((phase.work for phase in self.phases), Work())

    def __str__(self) -> str:
        """Return a table of the phases.

        >>> print(JobReport((PhaseReport("write", 2, 1.5, Work(10, 0, 2048, 3, 2.5)),)))
        phase       tasks        rows     read MB  written MB  requests   seconds
        write           2          10         0.0         0.0         3       1.5
        """
        head = f"{'phase':10}{'tasks':>7}{'rows':>12}{'read MB':>12}{'written MB':>12}"
        lines = [f"{head}{'requests':>10}{'seconds':>10}"]
        for phase in self.phases:
            work = phase.work
            lines.append(
                f"{phase.name:10}{phase.tasks:7}{work.rows:12}{work.read_bytes / 1e6:12.1f}"
                f"{work.written_bytes / 1e6:12.1f}{work.requests:10}{phase.seconds:10.1f}"
            )
        return "\n".join(lines)


@dataclass(frozen=True, slots=True)
class Watch:
    """Who is told how far a phase is, and who may stop it.

    `stop` is set by the caller, from any thread, to end the job without a commit.
    """

    phase: str
    total: int
    progress: ProgressCallback | None = None
    stop: threading.Event | None = None

    def tell(self, done: int) -> None:
        """Say how many tasks are done."""
        if self.progress is not None:
            self.progress(Progress(self.phase, done, self.total))

    @property
    def is_stopped(self) -> bool:
        """Whether the caller asked for the job to end."""
        return self.stop is not None and self.stop.is_set()

    def check(self) -> None:
        """Raise if the caller asked for the job to end."""
        if self.is_stopped:
            raise CancelledError("the job was stopped; nothing was committed", phase=self.phase)


class Engine(Protocol):
    """Where tasks run."""

    def run(
        self, function: TaskFunction[T, R], tasks: Sequence[T], watch: Watch
    ) -> Iterable[Outcome]:
        """Run a function over tasks and return one outcome each, in the order of the tasks."""
        ...


@dataclass(slots=True)
class Job:
    """Phases that run on one engine and are reported together."""

    engine: Engine
    progress: ProgressCallback | None = None
    stop: threading.Event | None = None
    _phases: list[PhaseReport] = field(default_factory=list)

    @property
    def report(self) -> JobReport:
        """What the job took so far."""
        return JobReport(tuple(self._phases))

    def run(self, phase: str, function: TaskFunction[T, R], tasks: Sequence[T]) -> list[R]:
        """Run a phase and return the results of its tasks in their order.

        Raises:
            CancelledError: The caller stopped the job.
            LanceletError: A task failed in a way that trying again would not mend.
        """

        def outcomes(watch: Watch) -> Iterable[Outcome]:
            return self.engine.run(function, tasks, watch) if tasks else ()

        return self.collect(phase, outcomes, total=len(tasks))

    def collect(
        self, phase: str, outcomes: Callable[[Watch], Iterable[Outcome]], *, total: int = 0
    ) -> list[Any]:
        """Run a phase whose tasks the caller starts, and return their results; see `run`."""
        watch = Watch(phase, total, self.progress, self.stop)
        watch.check()
        started = time.monotonic()
        watch.tell(0)
        found = list(outcomes(watch))
        watch = replace(watch, total=len(found))
        watch.tell(len(found))
        work = sum((outcome.work for outcome in found), Work())
        seconds = time.monotonic() - started
        self._phases.append(PhaseReport(phase, len(found), seconds, work))
        for outcome in found:
            if outcome.error is not None:
                raise outcome.error
        return [outcome.value for outcome in found]


def run_task(function: TaskFunction[T, R], task: T) -> Outcome:
    """Run a task in this process and say what it took.

    Errors of ours are returned, since they would come again, but for those of storage: these are
    raised like any other, so that the engine tries again.
    """
    before, started = PROCESS_METER.counts, time.monotonic()
    try:
        done = function(task)
    except StorageError:
        raise
    except LanceletError as error:
        return Outcome(None, _work(before, started, 0), error)
    finally:
        forget_mapped_pages()
    return Outcome(done.value, _work(before, started, done.rows))


def _work(before: IoCounts, started: float, rows: int) -> Work:
    after = PROCESS_METER.counts
    return Work(
        rows,
        after.read_bytes - before.read_bytes,
        after.written_bytes - before.written_bytes,
        after.read_iops + after.write_iops - before.read_iops - before.write_iops,
        time.monotonic() - started,
    )
