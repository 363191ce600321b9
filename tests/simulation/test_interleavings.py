"""Goal: small scenarios hold in every order of their requests, with each of them failing once.

The counts are those of a complete search: what is left out differs only in the order of requests
that do not meet. They change with the requests that an operation makes.
"""

import pytest

from lancelet.testing.simulation import casts
from lancelet.testing.simulation.interleavings import Explorer


@pytest.fixture(scope="module")
def stage():
    return casts.Stage.built()


def test_a_tag_and_a_cleanup(stage) -> None:
    counts = Explorer(stage.stored, casts.a_tag_and_a_cleanup(stage)).run()
    assert counts.executions > 100
    assert counts.states > 2_000
