"""The matrix of conflicts decides every pair, and unknown operations conflict with everything."""

import itertools

import pytest

from lancelet.format.base_paths import BasePath
from lancelet.format.operation import (
    Append,
    Overwrite,
    Project,
    UnknownOperation,
    UpdateBases,
    UpdateConfig,
    UpdateMap,
)
from lancelet.table.conflict.rules import KINDS, RULES, judge
from lancelet.table.conflict.verdict import Outcome
from tests.kit.tables import SIMPLE_SCHEMA


def test_every_pair_of_operations_is_decided():
    assert set(RULES) == set(itertools.product(KINDS, KINDS))


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.__name__)
def test_an_unknown_operation_conflicts_with_everything(kind):
    assert RULES[UnknownOperation, kind].outcome is Outcome.INCOMPATIBLE
    assert RULES[kind, UnknownOperation].outcome is Outcome.INCOMPATIBLE


def test_appends_follow_appends_and_not_overwrites():
    overwrite = Overwrite((), SIMPLE_SCHEMA)
    assert judge(Append(()), Append(())).outcome is Outcome.COMPATIBLE
    assert judge(Append(()), overwrite).outcome is Outcome.INCOMPATIBLE
    assert judge(overwrite, overwrite).outcome is Outcome.RETRY


@pytest.mark.parametrize(
    ("ours", "theirs", "outcome"),
    [
        (BasePath(0, "/a", name="x"), BasePath(0, "/b", name="x"), Outcome.INCOMPATIBLE),
        (BasePath(0, "/a"), BasePath(0, "/a"), Outcome.INCOMPATIBLE),
        (BasePath(3, "/a"), BasePath(3, "/b"), Outcome.INCOMPATIBLE),
        (BasePath(0, "/a"), BasePath(0, "/b"), Outcome.COMPATIBLE),
        (BasePath(3, "/a", name="x"), BasePath(4, "/b", name="y"), Outcome.COMPATIBLE),
    ],
)
def test_bases_with_the_same_name_path_or_id_conflict(ours, theirs, outcome):
    assert judge(UpdateBases((ours,)), UpdateBases((theirs,))).outcome is outcome


def test_a_change_of_columns_is_repeated_after_a_change_of_their_metadata():
    """It has the schema before that change, and would undo it."""
    ours = Project(SIMPLE_SCHEMA, preserves_nullability=True)
    for theirs in (
        UpdateConfig(schema_metadata=UpdateMap({"s": "1"})),
        UpdateConfig(field_metadata={0: UpdateMap({"f": "1"})}),
    ):
        assert judge(ours, theirs).outcome is Outcome.RETRY
    assert judge(ours, UpdateConfig(config=UpdateMap({"c": "1"}))).outcome is Outcome.COMPATIBLE
