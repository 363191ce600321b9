"""Job execution: plan plain values, run tasks anywhere, commit once.

    plan     on the driver: a list of tasks, which are small picklable values
    run      each task writes files with unique names and returns its result
    commit   on the driver: all results become one version

    job = Job(LocalEngine())
    done = job.run("write", write_part, tasks)      in the order of the tasks
    job.report                                      rows, bytes, requests and seconds by phase

The engine selects where tasks run: in this process, in local worker processes, or on a cluster. It
may repeat a task after a failure or run it twice concurrently, and uses the result of one attempt.
Files of other attempts are orphans, which cleanup deletes by age. Therefore, a task never changes
anything that other tasks or readers can see.
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
    """The result of a task and the number of processed rows."""

    value: R
    rows: int = 0


TaskFunction = Callable[[T], Done[R]]


@dataclass(frozen=True, slots=True)
class Work:
    """The resources used by tasks; seconds are summed over tasks."""

    rows: int = 0
    read_bytes: int = 0
    written_bytes: int = 0
    requests: int = 0
    seconds: float = 0.0

    def __add__(self, other: Work) -> Work:
        """Return the sum."""
        return Work(
            self.rows + other.rows,
            self.read_bytes + other.read_bytes,
            self.written_bytes + other.written_bytes,
            self.requests + other.requests,
            self.seconds + other.seconds,
        )


@dataclass(frozen=True, slots=True)
class Outcome:
    """The outcome of a task: a result, or an error that a retry cannot fix."""

    value: Any
    work: Work
    error: LanceletError | None = None


@dataclass(frozen=True, slots=True)
class Progress:
    """The progress of a phase; a total of 0 means that it is unknown."""

    phase: str
    done: int
    total: int


ProgressCallback = Callable[[Progress], None]


@dataclass(frozen=True, slots=True)
class PhaseReport:
    """The resources used by a phase: wall-clock seconds, and the sum over its tasks."""

    name: str
    tasks: int
    seconds: float
    work: Work


@dataclass(frozen=True, slots=True)
class JobReport:
    """The resources used by the phases of a job."""

    phases: tuple[PhaseReport, ...]

    @property
    def work(self) -> Work:
        """The total of all phases."""
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
class PhaseControl:
    """Receives the progress of a phase and may cancel it.

    `stop` is set by the caller, from any thread, to end the job without a commit.
    """

    phase: str
    total: int
    progress: ProgressCallback | None = None
    stop: threading.Event | None = None

    def report(self, done: int) -> None:
        """Report the number of completed tasks."""
        if self.progress is not None:
            self.progress(Progress(self.phase, done, self.total))

    @property
    def is_stopped(self) -> bool:
        """Whether the caller has cancelled the job."""
        return self.stop is not None and self.stop.is_set()

    def check(self) -> None:
        """Raise if the caller has cancelled the job."""
        if self.is_stopped:
            raise CancelledError("the job was cancelled; nothing was committed", phase=self.phase)


class Engine(Protocol):
    """Runs tasks."""

    def run(
        self, function: TaskFunction[T, R], tasks: Sequence[T], control: PhaseControl
    ) -> Iterable[Outcome]:
        """Run a function over tasks and return one outcome per task, in order."""
        ...


@dataclass(slots=True)
class Job:
    """Phases that run on one engine and share a report."""

    engine: Engine
    progress: ProgressCallback | None = None
    stop: threading.Event | None = None
    _phases: list[PhaseReport] = field(default_factory=list)

    @property
    def report(self) -> JobReport:
        """The resources used so far."""
        return JobReport(tuple(self._phases))

    def run(self, phase: str, function: TaskFunction[T, R], tasks: Sequence[T]) -> list[R]:
        """Run a phase and return the results of its tasks in order.

        Raises:
            CancelledError: The caller cancelled the job.
            LanceletError: A task failed with an error that a retry cannot fix.
        """

        def outcomes(control: PhaseControl) -> Iterable[Outcome]:
            return self.engine.run(function, tasks, control) if tasks else ()

        return self.collect(phase, outcomes, total=len(tasks))

    def collect(
        self, phase: str, outcomes: Callable[[PhaseControl], Iterable[Outcome]], *, total: int = 0
    ) -> list[Any]:
        """Run a phase whose tasks the caller starts, and return their results; see `run`."""
        control = PhaseControl(phase, total, self.progress, self.stop)
        control.check()
        started = time.perf_counter()
        control.report(0)
        finished = list(outcomes(control))
        control = replace(control, total=len(finished))
        control.report(len(finished))
        work = sum((outcome.work for outcome in finished), Work())
        seconds = time.perf_counter() - started
        self._phases.append(PhaseReport(phase, len(finished), seconds, work))
        for outcome in finished:
            if outcome.error is not None:
                raise outcome.error
        return [outcome.value for outcome in finished]


def run_task(function: TaskFunction[T, R], task: T) -> Outcome:
    """Run a task in this process and measure its resources.

    Storage errors are raised, so that the engine retries the task. Other errors of lancelet are
    returned, since a retry cannot fix them.
    """
    before, started = PROCESS_METER.counts, time.perf_counter()
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
        time.perf_counter() - started,
    )
