"""Two implementations on the same work, in turn, in one process.

Machines are shared and noisy, so only ratios within one run are worth quoting. Each case runs
ours and theirs alternately; the figure is the ratio of the medians, in wall time and in CPU
time of the whole process (native threads included). A ratio above 1 means that lancelet is
faster.
"""

from __future__ import annotations

import gc
import json
import os
import platform
import statistics
import subprocess
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path


@dataclass(frozen=True)
class Timing:
    """Medians of one side of a comparison, in milliseconds."""

    wall_ms: float
    cpu_ms: float


@dataclass(frozen=True)
class Comparison:
    """Both sides of one case."""

    name: str
    ours: Timing
    theirs: Timing

    @property
    def wall_ratio(self) -> float:
        return self.theirs.wall_ms / self.ours.wall_ms

    @property
    def cpu_ratio(self) -> float:
        return self.theirs.cpu_ms / self.ours.cpu_ms

    def row(self) -> str:
        return (
            f"{self.name:<44} {self.ours.wall_ms:>10.2f} {self.theirs.wall_ms:>10.2f} "
            f"{self.wall_ratio:>7.2f}x {self.ours.cpu_ms:>10.2f} {self.theirs.cpu_ms:>10.2f} "
            f"{self.cpu_ratio:>7.2f}x"
        )


HEADER = (
    f"{'case':<44} {'ours ms':>10} {'theirs ms':>10} {'wall':>8} "
    f"{'ours cpu':>10} {'theirs cpu':>10} {'cpu':>8}"
)


def measure(work: Callable[[], object]) -> Timing:
    """Run once and return the time and memory."""
    gc.collect()
    cpu, wall = time.process_time(), time.perf_counter()
    result = work()
    wall, cpu = time.perf_counter() - wall, time.process_time() - cpu
    del result
    return Timing(wall * 1e3, max(cpu, 1e-6) * 1e3)


def compare(
    name: str,
    ours: Callable[[], object],
    theirs: Callable[[], object],
    *,
    rounds: int = 5,
    prepare: Callable[[], object] | None = None,
    repeat: int = 1,
) -> Comparison:
    """Alternate both sides `rounds` times after a warm-up, each run being `repeat` calls."""

    def repeated(work: Callable[[], object]) -> Callable[[], object]:
        def calls() -> object:
            result = None
            for _ in range(repeat):
                result = work()
            return result

        return calls

    sides = (repeated(ours), repeated(theirs))
    samples: tuple[list[Timing], list[Timing]] = ([], [])
    for round_number in range(rounds + 1):
        for work, timings in zip(sides, samples, strict=True):
            if prepare is not None:
                prepare()
            timing = measure(work)
            if round_number:
                timings.append(Timing(timing.wall_ms / repeat, timing.cpu_ms / repeat))
    medians = [
        Timing(
            statistics.median(t.wall_ms for t in timings),
            statistics.median(t.cpu_ms for t in timings),
        )
        for timings in samples
    ]
    result = Comparison(name, *medians)
    print(result.row(), flush=True)
    return result


def drop_from_page_cache(path: Path) -> None:
    """Drop the pages of a file or of a folder of files from the page cache."""
    for file in [path] if path.is_file() else sorted(path.rglob("*")):
        if file.is_file():
            descriptor = os.open(file, os.O_RDONLY)
            try:
                os.fsync(descriptor)
                os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
            finally:
                os.close(descriptor)


def machine() -> dict[str, object]:
    """Return the machine of a run and its load."""
    return {
        "processor": platform.processor() or platform.machine(),
        "cpus": os.cpu_count(),
        "python": platform.python_version(),
        "load_average": os.getloadavg(),
    }


def commit() -> str:
    """Return the commit of the working tree."""
    command = ["git", "-C", str(Path(__file__).parent), "rev-parse", "--short=8", "HEAD"]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()


def save(suite: str, comparisons: list[Comparison], extra: dict[str, object], folder: Path) -> Path:
    """Write a run to `results/`, with the machine it ran on."""
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{suite}.json"
    cases = [
        {**asdict(c), "wall_ratio": round(c.wall_ratio, 3), "cpu_ratio": round(c.cpu_ratio, 3)}
        for c in comparisons
    ]
    path.write_text(json.dumps({"machine": machine(), "cases": cases, **extra}, indent=2) + "\n")
    return path
