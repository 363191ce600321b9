"""Run histories, one seed after the other: `python -m lancelet.testing.simulation --steps 100000`.

Stops at the first violation, shrinks it, prints its trace and fails. With `--record` the counts are
written to a file, as `docs/how_it_is_tested.md` gives them.
"""

from __future__ import annotations

import argparse
import itertools
import json
import sys
import time
from pathlib import Path

from lancelet.testing.simulation.planted import PLANTED, planted
from lancelet.testing.simulation.scenario import Scenario, run, shrink


def main() -> int:
    """Run as many steps as asked for."""
    parser = argparse.ArgumentParser(prog="python -m lancelet.testing.simulation")
    parser.add_argument("--seed", type=int, default=0, help="the first seed")
    parser.add_argument("--steps", type=int, default=100_000, help="requests of the store")
    parser.add_argument("--planted", choices=PLANTED, help="a mend to take back: prints a seed")
    parser.add_argument("--record", type=Path, help="a JSON file for the counts")
    options = parser.parse_args()
    if options.planted is not None:
        with planted(options.planted):
            seeds = itertools.count(options.seed)
            print(next(each for each in seeds if run(Scenario.of(each)).violation))  # noqa: T201
        return 0
    started, seed = time.process_time(), options.seed
    counts = dict.fromkeys(("seeds", "steps", "operations", "acknowledged", "faults"), 0)
    while counts["steps"] < options.steps:
        scenario = Scenario.of(seed)
        report = run(scenario)
        counts["seeds"] += 1
        counts["steps"] += report.steps
        counts["operations"] += report.operations
        counts["acknowledged"] += report.acknowledged
        counts["faults"] += len(report.faults)
        if report.violation is not None:
            _tell(seed, scenario)
            return 1
        seed += 1
        if options.record is not None and not counts["seeds"] % 50:
            _record(options.record, options.seed, counts, started)
    if options.record is not None:
        _record(options.record, options.seed, counts, started)
    print(json.dumps(counts))  # noqa: T201 - a program
    return 0


def _record(file: Path, first: int, counts: dict[str, int], started: float) -> None:
    seconds = round(time.process_time() - started)
    content = {"first_seed": first, **counts, "cpu_seconds": seconds, "violations": 0}
    file.write_text(json.dumps(content, indent=2) + "\n")


def _tell(seed: int, scenario: Scenario) -> None:
    shrunk, report = shrink(scenario)
    print(f"seed {seed} is violated; in its shortest form:", file=sys.stderr)  # noqa: T201
    print("\n".join(report.trace), file=sys.stderr)  # noqa: T201
    print(f"{shrunk}\n{report.violation!r}", file=sys.stderr)  # noqa: T201


if __name__ == "__main__":
    sys.exit(main())
