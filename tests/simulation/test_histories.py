"""Goal: no history of writers, readers and cleanups violates a guarantee of the table.

Method: histories that follow from seeds are run in virtual time over a store whose requests fail,
lose their replies or arrive late, by actors that are paused for hours or killed. After each change
of the store a plain model is asked whether it may be so (`tests.kit.simulation.judge`).
"""

from dataclasses import replace

import pytest

from tests.kit.simulation.scenario import Scenario, run, shrink


def check(seeds) -> None:
    for seed in seeds:
        report = run(Scenario.of(seed))
        if report.violation is not None:
            _, report = shrink(Scenario.of(seed))
            pytest.fail(f"seed {seed}:\n" + "\n".join(report.trace) + f"\n{report.violation!r}")


def test_no_history_breaks_a_promise() -> None:
    check(range(25))


def test_histories_of_fixed_defects_have_no_violations() -> None:
    """1111: a version was removed between reads of its manifest and of its transaction, and ours,
    which came late under its number, was taken for a version.

    1121: of two puts without a reply the first arrived, and the handle was of the second.

    1148: a tag was deleted between the listing of tags and the look at it, and a cleanup failed.
    2016: two compactions remapped one index, and the second failed as if it were called wrongly.
    2213: a tag of a version that a cleanup was about to remove failed as if there were none.
    """
    check([1111, 1121, 1148, 2016, 2213])


def test_no_history_with_a_database_of_versions_breaks_a_promise() -> None:
    """50088: a writer that was held up took the records of versions that were cleaned up meanwhile

    for those of a table that was dropped, and recorded a version a second time.
    """
    check([40_002, 40_005, 40_008, 40_017, 40_020, 50_088])


def test_no_history_of_columns_fragments_and_days_breaks_a_promise() -> None:
    check(range(60_000, 60_020))


@pytest.mark.slow
def test_no_history_of_many_breaks_a_promise() -> None:
    check(range(25, 1025))


def test_a_seed_gives_the_same_history_each_time() -> None:
    scenario = Scenario.of(7)
    first, second = (run(scenario, traced=True) for _ in range(2))
    assert first.trace == second.trace
    assert len(first.trace) > 100
    spared = replace(scenario, spared=frozenset(first.faults))
    assert not run(spared).faults & first.faults
