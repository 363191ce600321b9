"""Goal: small scenarios hold in every order of their requests, with each of them failing once.

Each search ends by itself: it is complete for its actors, and for at most one request that is
refused or whose reply is lost. What is left out differs only in the order of requests that do not
meet. The counts of the last full run are in `results/interleavings.json`.
"""

import pytest

from lancelet.table import removals
from lancelet.testing.simulation import casts
from lancelet.testing.simulation.interleavings import Explorer

FAULTS = ("refused", "lost")


@pytest.fixture(scope="module")
def stage():
    return casts.Stage.built()


def search(stage, name, fates=(), *more):
    explorer = Explorer(stage.stored, getattr(casts, name)(stage, *more), fates=fates)
    return explorer.run()


def test_a_tag_and_a_cleanup_in_every_order(stage) -> None:
    counts = search(stage, "a_tag_and_a_cleanup")
    assert counts.executions > 100
    assert counts.states > 2_000


def test_two_writers_of_an_external_store_in_every_order(stage) -> None:
    counts = search(stage, "an_external_store", (), "ab")
    assert counts.executions > 50
    assert counts.states > 500


def test_a_writer_and_a_reader_of_an_external_store_with_every_fault(stage) -> None:
    counts = search(stage, "an_external_store", FAULTS, "ar")
    assert counts.executions > 50
    assert counts.states > 200


def test_a_search_finds_what_no_longer_looks_for_records(stage, monkeypatch) -> None:
    monkeypatch.setattr(removals.Removals, "of", staticmethod(lambda *_: removals.Removals()))
    with pytest.raises((AssertionError, LookupError)) as caught:
        search(stage, "a_tag_and_a_cleanup")
    assert "_refs/tags/x.json" in caught.value.__notes__[-1]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "fates", "more"),
    [
        ("a_tag_and_a_cleanup", FAULTS, ()),
        ("a_commit_and_cleanups", (), ()),
        ("a_restore_and_a_cleanup", (), ()),
        ("an_external_store", FAULTS, ("ab",)),
    ],
)
def test_larger_scenarios_in_every_order(stage, name, fates, more) -> None:
    assert search(stage, name, fates, *more).states > 5_000
