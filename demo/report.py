"""What the demo found: a line for each step, one for each version, and the sizes."""

from __future__ import annotations

import resource
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple

from lancelet.io.metered import PROCESS_METER

if TYPE_CHECKING:
    from lancelet.jobs.engine import JobReport
    from lancelet.spark import Finished


@dataclass
class Step:
    """What a step took; requests and bytes are those of its tasks, or else of the driver."""

    name: str
    seconds: float = 0.0
    rows: int = 0
    requests: int = 0
    bytes: int = 0
    version: int | None = None
    note: str = ""

    def job(self, done: Finished) -> None:
        """Take what a job tells of itself."""
        self.job_report(done.version, done.num_rows, done.report)

    def job_report(self, version: int, rows: int, report: JobReport) -> None:
        """Take the parts of what a job tells."""
        work = report.work
        self.version, self.rows = version, rows
        self.requests += work.requests
        self.bytes += work.read_bytes + work.written_bytes


class Version(NamedTuple):
    """A version of the table, before cleaning up."""

    number: int
    operation: str
    rows: int
    fragments: int
    bytes: int


@dataclass
class Report:
    """Everything that is told at the end.

    `found` are the orders that searches for `looked_for` found, each with its comment and its
    score; `memory` is the most that the driver's Python had, in bytes.
    """

    rows: int
    steps: list[Step] = field(default_factory=list)
    sizes: dict[str, int] = field(default_factory=dict)
    versions: list[Version] = field(default_factory=list)
    similar: list[list[list[float]]] = field(default_factory=list)
    looked_for: str = ""
    found: dict[str, list[tuple[int, str, float]]] = field(default_factory=dict)
    statements: dict[str, str] = field(default_factory=dict)
    memory: int = 0

    @contextmanager
    def step(self, name: str) -> Iterator[Step]:
        """Time a step, and count what this process asks of storage meanwhile."""
        step = Step(name)
        print(f"{name} ...", flush=True)
        before, started = PROCESS_METER.counts, time.perf_counter()
        yield step
        step.seconds = time.perf_counter() - started
        after = PROCESS_METER.counts
        step.requests += after.read_iops + after.write_iops - before.read_iops - before.write_iops
        step.bytes += after.read_bytes + after.written_bytes
        step.bytes -= before.read_bytes + before.written_bytes
        self.steps.append(step)

    @property
    def seconds(self) -> float:
        """What all steps took."""
        return sum(step.seconds for step in self.steps)


def print_report(report: Report) -> None:
    """Print the report for a terminal."""
    head = f"{'step':<26}{'version':>8}{'rows':>12}{'requests':>10}{'MB':>9}{'seconds':>9}"
    print(f"\n{head}\n{'-' * len(head)}")
    for step in report.steps:
        version = "" if step.version is None else step.version
        print(
            f"{step.name:<26}{version:>8}{step.rows:>12,}{step.requests:>10,}"
            f"{step.bytes / 1e6:>9.1f}{step.seconds:>9.2f}  {step.note}"
        )
    print(f"{'all':<65}{report.seconds:>9.2f}")
    print(f"\n{report.rows:,} orders as they were loaded:")
    for name, size in report.sizes.items():
        print(f"{name:<18}{size:>14,} bytes{size / report.rows:>9.2f} per row")
    print(f"\n{'version':>7}  {'operation':<14}{'rows':>12}{'fragments':>11}{'MB':>9}")
    for version in report.versions:
        print(
            f"{version.number:>7}  {version.operation:<14}{version.rows:>12,}"
            f"{version.fragments:>11}{version.bytes / 1e6:>9.1f}"
        )
    print(f"\nlooked for: {report.looked_for}")
    for name, rows in report.found.items():
        print(f"\nfound {name}:")
        for number, comment, score in rows:
            print(f"{number:>10}  {comment:<36}{score:>9.4f}")
    print("\nthe statements of SQL, without a JAR:")
    for name, text in report.statements.items():
        shown = text.replace("\n", f"\n{'':<20}")
        print(f"{name:<20}{shown}")
    print(f"\nmemory of the driver's Python: {report.memory / 1e6:,.0f} MB at most")


def peak_memory() -> int:
    """Return the most memory that this process has had, in bytes."""
    unit = 1 if sys.platform == "darwin" else 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit
