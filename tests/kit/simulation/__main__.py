"""Run histories of consecutive seeds: `python -m tests.kit.simulation --steps 100000`.

Stops at the first violation, shrinks it, prints its trace and fails. With `--record`, it continues
to the end and writes the counts of `docs/how_it_is_tested.md` to a file. An interrupted run
resumes from that file.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from pathlib import Path

from tests.kit.simulation.planted import PLANTED, find_seeds, keep_seeds, planted
from tests.kit.simulation.scenario import Scenario, run, shrink

_COUNTED = (
    "first_seed",
    "seeds",
    "steps",
    "operations",
    "acknowledged",
    "faults",
    "cpu_seconds",
    "violations",
)


def main() -> int:
    """Run the requested number of steps."""
    parser = argparse.ArgumentParser(prog="python -m tests.kit.simulation")
    parser.add_argument("--seed", type=int, default=0, help="the first seed")
    parser.add_argument("--steps", type=int, default=100_000, help="requests of the store")
    parser.add_argument(
        "--find-seeds", action="store_true", help="store a seed for each reintroduced defect"
    )
    parser.add_argument("--record", type=Path, help="a JSON file for the counts")
    options = parser.parse_args()
    if options.find_seeds:
        keep_seeds(find_seeds(PLANTED, _detects))
        return 0
    counts = dict.fromkeys(_COUNTED, 0)
    counts["first_seed"] = options.seed
    if options.record is not None and options.record.exists():
        counts = json.loads(options.record.read_text())  # resumes an interrupted run
    seed = counts["first_seed"] + counts["seeds"]
    started, spent = time.process_time(), counts["cpu_seconds"]
    violated = []
    while counts["steps"] < options.steps:
        report = run(Scenario.of(seed))
        counts["seeds"] += 1
        counts["steps"] += report.steps
        counts["operations"] += report.operations
        counts["acknowledged"] += report.acknowledged
        counts["faults"] += len(report.faults)
        counts["cpu_seconds"] = spent + round(time.process_time() - started)
        if report.violation is not None:
            counts["violations"] += 1
            violated.append(seed)
            print(f"seed {seed}: {report.violation!r}", file=sys.stderr, flush=True)  # noqa: T201
            if options.record is None:
                break
        seed += 1
        if options.record is not None and (not seed % 50 or counts["steps"] >= options.steps):
            options.record.write_text(json.dumps(counts, indent=2) + "\n")
    print(json.dumps(counts))  # noqa: T201 - a program
    if violated:
        _report(violated[0], Scenario.of(violated[0]))
    return bool(violated)


def _detects(name: str, seed: int) -> bool:
    scenario = Scenario.of(seed)
    with planted(name):
        is_found = run(scenario).violation is not None
    return is_found and run(scenario).violation is None


def _report(seed: int, scenario: Scenario) -> None:
    shrunk, report = shrink(scenario)
    print(f"seed {seed} is violated; in its shortest form:", file=sys.stderr)  # noqa: T201
    print("\n".join(report.trace), file=sys.stderr)  # noqa: T201
    print(f"{shrunk}\n{report.violation!r}", file=sys.stderr)  # noqa: T201


if __name__ == "__main__":
    sys.exit(main())
