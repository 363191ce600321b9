"""Goal: the judge of histories detects reintroduced defects.

Method: mends are taken back one at a time. The history of a seed that found the defect then breaks
a promise, and does not with the mend. Where an operation makes other requests than it did, other
histories follow: then one of the next seeds finds it, and is to be noted in place of the old one.
"""

import pytest

from tests.kit.simulation.planted import PLANTED, SEEDS, planted
from tests.kit.simulation.scenario import Scenario, run

MORE = 150
"""So many seeds are tried after the one that is known."""


@pytest.mark.parametrize("name", SEEDS)
def test_a_reintroduced_defect_is_found(name) -> None:
    for seed in range(SEEDS[name], SEEDS[name] + MORE):
        scenario = Scenario.of(seed)
        with planted(name):
            is_found = run(scenario).violation is not None
        if is_found:
            assert run(scenario).violation is None
            return
    pytest.fail(f"none of {MORE} seeds from {SEEDS[name]} on finds it")


def test_every_planted_fault_has_a_seed() -> None:
    assert set(SEEDS) == set(PLANTED)
