"""Goal: what judges histories would see the defects that were mended.

Method: mends are taken back one at a time. The history of a seed that found the defect then breaks
a promise, and does not with the mend. A seed is of the code as it is: where a change moves the
requests of an operation, `python -m lancelet.testing.simulation --planted NAME` looks for another.
"""

import pytest

from lancelet.testing.simulation.planted import PLANTED, SEEDS, planted
from lancelet.testing.simulation.scenario import Scenario, run


@pytest.mark.parametrize("name", SEEDS)
def test_a_mend_that_is_taken_back_is_found(name) -> None:
    scenario = Scenario.of(SEEDS[name])
    assert run(scenario).violation is None
    with planted(name):
        assert run(scenario).violation is not None


def test_every_planted_fault_has_a_seed() -> None:
    assert set(SEEDS) == set(PLANTED)
