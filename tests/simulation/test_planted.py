"""Goal: the judge of histories detects reintroduced defects.

Method: fixes are reverted one at a time. The history of a seed that detects the defect then breaks
a guarantee, and does not with the fix. A change of the requests of an operation changes the
histories; `make seeds` then finds the next seed that detects each defect.
"""

import pytest

from tests.kit.simulation.planted import PLANTED, SEEDS, planted
from tests.kit.simulation.scenario import Scenario, run


@pytest.mark.parametrize("name", SEEDS)
def test_a_reintroduced_defect_is_found(name) -> None:
    with planted(name):
        assert run(Scenario.of(SEEDS[name])).violation is not None, "run `make seeds`"


@pytest.mark.slow
@pytest.mark.parametrize("seed", sorted({*SEEDS.values()}))
def test_the_same_history_holds_without_the_defect(seed) -> None:
    assert run(Scenario.of(seed)).violation is None


def test_every_planted_fault_has_a_seed() -> None:
    assert set(SEEDS) == set(PLANTED)
