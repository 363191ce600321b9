"""Run histories of consecutive seeds: `python -m tests.kit.simulation --seconds 600`.

Stops at the first violation, shrinks it, prints its trace and fails. A run continues after the last
recorded seed, and adds its counts to the records, which `docs/how_it_is_tested.md` sums up.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from typing import Final

from tests.kit.records import append_record, read_records
from tests.kit.simulation import compared_logs, compared_tables
from tests.kit.simulation.planted import PLANTED, find_seeds, keep_seeds, planted
from tests.kit.simulation.scenario import Scenario, run, shrink

_COUNTED: Final = ("seeds", "steps", "operations", "acknowledged", "faults", "violations")
_COMPARED: Final = 8
"""The number of seeds for each of which a table and a log are compared with a model."""
_FIRST_SEED: Final = 100_000
"""The first seed of runs that are recorded; tests run earlier ones."""


def main() -> int:
    """Run histories until the time is up."""
    parser = argparse.ArgumentParser(prog="python -m tests.kit.simulation")
    parser.add_argument("--seconds", type=float, default=600)
    parser.add_argument("--seed", type=int, help="the first seed; such a run is not recorded")
    parser.add_argument(
        "--find-seeds", action="store_true", help="store a seed for each reintroduced defect"
    )
    options = parser.parse_args()
    if options.find_seeds:
        keep_seeds(find_seeds(PLANTED, _detects))
        return 0
    first = _next_seed() if options.seed is None else options.seed
    counts = dict.fromkeys((*_COUNTED, "compared"), 0)
    started = time.monotonic()
    while not counts["violations"] and time.monotonic() - started < options.seconds:
        seed = first + counts["seeds"]
        report = run(Scenario.of(seed))
        if seed % _COMPARED == 0:
            compared_tables.run(seed // _COMPARED)
            compared_logs.run(seed // _COMPARED)
            counts["compared"] += 2
        counts["seeds"] += 1
        counts["steps"] += report.steps
        counts["operations"] += report.operations
        counts["acknowledged"] += report.acknowledged
        counts["faults"] += len(report.faults)
        counts["violations"] += report.violation is not None
    counts = {"first_seed": first, **counts}
    print(json.dumps(counts))  # noqa: T201 - a program
    if options.seed is None:
        append_record("simulate", time.monotonic() - started, counts)
    if counts["violations"]:
        last = first + counts["seeds"] - 1
        _report(last, Scenario.of(last))
    return bool(counts["violations"])


def _next_seed() -> int:
    recorded = [record.counts for record in read_records("simulate")]
    ends = (each["first_seed"] + each["seeds"] for each in recorded)
    return max(_FIRST_SEED, *map(int, ends))


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
