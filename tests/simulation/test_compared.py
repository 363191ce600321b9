"""Goal: calls succeed and fail as in a model, and change nothing else.

Method: random histories of one caller are compared with a model after each call: references,
cleanups and commits, and the write-ahead log. Pairs of concurrent commits are compared with the
same changes one after the other. A planted fault in each module is found.
"""

import math

import pytest

from lancelet.format.operation import Project, Update, UpdateConfig
from lancelet.memwal import upkeep, writer
from lancelet.table import commit, refs
from lancelet.table.conflict import rebase, rules
from lancelet.table.conflict.verdict import Outcome, Verdict
from lancelet.upkeep.cleanup import plan
from tests.kit.simulation import compared_commits, compared_logs, compared_tables


def test_references_and_cleanups_are_those_of_the_model() -> None:
    for seed in range(10):
        compared_tables.run(seed)


def test_a_log_is_that_of_the_model() -> None:
    for seed in range(10):
        compared_logs.run(seed)


def test_concurrent_changes_are_those_of_some_order() -> None:
    for stage, theirs, ours in compared_commits.pairs(60, seed=1):
        stage.check_pair(theirs, ours)


@pytest.mark.slow
def test_many_histories_are_those_of_the_model() -> None:
    for seed in range(10, 300):
        compared_tables.run(seed)
        compared_logs.run(seed)


@pytest.mark.slow
def test_all_concurrent_changes_are_those_of_some_order() -> None:
    for stage, theirs, ours in compared_commits.pairs():
        stage.check_pair(theirs, ours)


def run_tables() -> None:
    for seed in range(30):
        compared_tables.run(seed)


def run_logs() -> None:
    for seed in range(30):
        compared_logs.run(seed)


TABLE_FAULTS = {
    "references of newer tables are changed": (refs, "_check_changeable", lambda _: None),
    "the number of retained versions is ignored": (plan, "_first_retained", lambda *_: math.inf),
    "branches without a name are forgotten": (plan, "branch_locations", lambda _: iter(())),
    "a table that was created again is changed": (commit, "check_same_table", lambda *_: None),
}


@pytest.mark.parametrize("name", TABLE_FAULTS)
def test_a_fault_of_references_and_cleanups_is_found(monkeypatch, name) -> None:
    monkeypatch.setattr(*TABLE_FAULTS[name])
    with pytest.raises((AssertionError, KeyError, LookupError)):
        run_tables()


def test_a_fault_of_the_log_is_found(monkeypatch) -> None:
    monkeypatch.setattr(upkeep, "_check_merged", lambda *_: None)
    with pytest.raises(AssertionError):
        run_logs()


def test_a_fault_of_a_writer_is_found(monkeypatch) -> None:
    monkeypatch.setattr(writer.MemWalWriter, "_make_room", lambda *_: None)
    with pytest.raises(AssertionError):
        run_logs()


def test_a_lost_change_of_metadata_is_found(monkeypatch) -> None:
    """A change of columns was computed from the schema before the change of its metadata."""
    monkeypatch.setitem(rules.RULES, (Project, UpdateConfig), rules.COMPATIBLE)
    stage = compared_commits.Stage.built()
    with pytest.raises(AssertionError, match="other settings"):
        stage.check_pair("field metadata a", "drop b")


def test_an_update_that_undoes_a_rewritten_column_is_found(monkeypatch) -> None:
    """It moves rows with the values that it read, and its rebase compares only deletions."""
    monkeypatch.setitem(
        rules.RULES,
        (Update, Update),
        Verdict(Outcome.REBASE, "both change rows", frozenset({0})),
    )
    monkeypatch.setattr(rebase, "file_layout", lambda _: ())
    stage = compared_commits.Stage.built()
    with pytest.raises(AssertionError, match="other rows"):
        stage.check_pair("rewrite a of 2", "update b of 2")
