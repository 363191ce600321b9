"""After any sequence of operations, both implementations read the rows of the model."""

import lance
import pytest
from hypothesis import Phase, settings
from hypothesis.stateful import run_state_machine_as_test

import lancelet
from tests.kit.dataset_machine import DatasetMachine

CASES = [
    (version, stable)
    for version in ("0.1", "2.0", "2.1", "2.2", "2.3")
    for stable in (False, True)
    if (version, stable) != ("0.1", True)
]
WITHOUT_SHRINKING = (Phase.explicit, Phase.reuse, Phase.generate)
"""A failure is printed at once: making its steps fewer takes minutes, and is for the long run."""


class Ours(DatasetMachine):
    """Each step is done here; the reference only reads."""

    implementations = (lancelet,)
    readers = (lance,)


class Both(DatasetMachine):
    """The reference does half of the steps."""

    implementations = (lancelet, lance)
    readers = (lance,)


@pytest.mark.parametrize("machine", [Ours, Both])
@pytest.mark.parametrize(("version", "stable"), CASES)
def test_any_sequence_matches_the_model(machine, version, stable):
    run_state_machine_as_test(
        lambda: machine(version, stable=stable),
        settings=settings(max_examples=3, stateful_step_count=12, phases=WITHOUT_SHRINKING),
    )


@pytest.mark.slow
@pytest.mark.parametrize("machine", [Ours, Both])
@pytest.mark.parametrize(("version", "stable"), CASES)
def test_any_long_sequence_matches_the_model(machine, version, stable):
    run_state_machine_as_test(
        lambda: machine(version, stable=stable),
        settings=settings(max_examples=100, stateful_step_count=40),
    )
