"""A fixed sample of histories and searches, for mutants.

`python -m tests.kit.simulation.sample table/refs.py` prints the first history or search that finds
a violation after a change of that file, or "nothing".
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import partial
from itertools import chain
from typing import Final

from tests.kit.simulation import compared_commits, compared_logs, compared_tables
from tests.kit.simulation.scenario import Scenario, run
from tests.kit.simulation.searches import Search

SEEDS: Final = (
    *range(8),
    *range(1000, 1012),
    *range(10_000, 10_012),
    *range(40_002, 40_014, 3),
    *range(60_000, 60_016),
)
"""Histories of each kind."""

SEARCHES: Final = (
    Search("", "a_tag_and_a_cleanup", switches_max=1),
    Search("", "a_moved_tag_and_a_cleanup", switches_max=1),
    Search("", "a_branch_and_a_cleanup", switches_max=1),
    Search("", "a_reader_and_vanishing_versions", switches_max=1),
    Search("", "an_external_store", "ab", switches_max=1),
    Search("", "two_commits_and_a_cleanup", switches_max=1),
    Search("", "a_commit_and_cleanups", switches_max=1),
    Search("", "a_late_commit_and_joined_records", switches_max=1),
    Search("", "a_tag_and_joined_records", switches_max=1),
    *(Search("", "shard", who, switches_max=1) for who in ("mn", "mc", "ac")),
    Search("", "new shard", "xd", switches_max=1),
    *(Search("", "rows", who, switches_max=1) for who in ("de", "du", "dp", "wd", "st", "mf")),
    *(Search("", "rows with stable ids", who, switches_max=1) for who in ("dc", "wu", "wc", "kd")),
    *(Search("", "threads", who, switches_max=1) for who in ("pq", "pf", "pv", "fv")),
    *(Search("", "buffered threads", who, switches_max=1) for who in ("pq", "pf")),
)


TABLES: Final = 24
LOGS: Final = 16
PAIRS: Final = 1260
"""The number of histories and pairs that are compared with a model."""


def findings(file: str) -> Iterator[str]:
    """Yield the histories and searches that find a violation after a change of a file."""
    is_log = file.startswith("memwal/")
    for seed in () if is_log else range(TABLES):
        if _fails(partial(compared_tables.run, seed)):
            yield f"compared tables {seed}"
    for seed in range(LOGS):
        if is_log and _fails(partial(compared_logs.run, seed)):
            yield f"compared logs {seed}"
    if not is_log and _fails(compared_commits.pairs):
        yield "changes that are made alone"
    for stage, theirs, ours in () if is_log else compared_commits.pairs(PAIRS):
        if _fails(partial(stage.check_pair, theirs, ours)):
            yield f"{ours} after {theirs}"
    for seed in SEEDS:
        if run(Scenario.of(seed)).violation is not None:
            yield f"seed {seed}"
    for search in SEARCHES:
        is_of_log = any(word in search.scenario for word in ("shard", "threads"))
        if is_of_log == is_log and _fails(search.run):
            yield f"search {search.name}"


def _fails(call: Callable[[], object]) -> bool:
    with suppress(Exception):
        call()
        return False
    return True


def main() -> int:
    """Print the first finding for the changed file, an argument."""
    print(next(chain(findings(sys.argv[1]), ("nothing",))))  # noqa: T201 - a program
    return 0


if __name__ == "__main__":
    sys.exit(main())
