"""A fixed sample of histories and searches, for mutants: `python -m tests.kit.simulation.sample`.

Prints the first history or search that finds a violation, or "nothing".
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import suppress
from itertools import chain
from typing import Final

from tests.kit.simulation import casts
from tests.kit.simulation.interleavings import Explorer
from tests.kit.simulation.scenario import Scenario, run
from tests.kit.simulation.shard_casts import ShardStage

SEEDS: Final = (
    *range(8),
    *range(1000, 1012),
    *range(10_000, 10_012),
    *range(40_002, 40_014, 3),
    *range(60_000, 60_024),
)
"""Histories of each kind."""

SEARCHES: Final = (
    ("a_tag_and_a_cleanup", (), None),
    ("an_external_store", ("ab",), 1),
    ("two_commits_and_a_cleanup", (), 1),
    ("a_commit_and_cleanups", (), 1),
)
"""The scenario, its actors and the bound of preemptions."""

_SHARD_SEARCHES: Final = ("mn", "mc", "ac")


def findings() -> Iterator[str]:
    """Yield the histories and searches that find a violation."""
    for seed in SEEDS:
        if run(Scenario.of(seed)).violation is not None:
            yield f"seed {seed}"
    stage = casts.Stage.built()
    for name, more, switches_max in SEARCHES:
        scene = getattr(casts, name)(stage, *more)
        if _is_violated(Explorer(stage.stored, scene, switches_max=switches_max)):
            yield f"search {name}"
    shards = ShardStage.built()
    for who in _SHARD_SEARCHES:
        if _is_violated(Explorer(shards.stored, shards.scene(who))):
            yield f"search of a shard, {who}"


def _is_violated(explorer: Explorer) -> bool:
    with suppress(Exception):
        explorer.run()
        return False
    return True


def main() -> int:
    """Print the first finding."""
    print(next(chain(findings(), ("nothing",))))  # noqa: T201 - a program
    return 0


if __name__ == "__main__":
    sys.exit(main())
