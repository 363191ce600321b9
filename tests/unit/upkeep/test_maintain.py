"""Goal: the plan of a maintenance follows from statistics, thresholds and the budget alone."""

from dataclasses import replace
from datetime import timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lancelet.errors import InvalidInputError
from lancelet.upkeep.maintain import (
    MaintenancePolicy,
    StepKind,
    plan_maintenance,
    split_rounds,
)
from lancelet.upkeep.table_statistics import (
    IndexCoverage,
    LogSize,
    RewriteCandidate,
    TableStatistics,
)

COUNTS = st.integers(0, 10**6)


@st.composite
def candidates(draw):
    sizes = draw(st.lists(st.integers(1, 20), max_size=6))
    found, first = [], 0
    for size in sizes:
        rows = draw(st.integers(1, 10**6))
        deleted = draw(st.integers(0, rows))
        ids = tuple(range(first, first + size))
        found.append(RewriteCandidate(ids, rows, deleted, draw(COUNTS), draw(st.booleans())))
        first += size
    return tuple(found)


@st.composite
def tables(draw):
    indices = draw(
        st.lists(
            st.builds(IndexCoverage, st.uuids().map(str), st.integers(1, 20), COUNTS, COUNTS),
            max_size=4,
        )
    )
    return TableStatistics(
        version=draw(COUNTS),
        rows=draw(COUNTS),
        deleted_rows=draw(COUNTS),
        fragments=draw(COUNTS),
        files=draw(COUNTS),
        bytes=draw(COUNTS),
        candidates=draw(candidates()),
        indices=tuple(indices),
        versions=draw(st.integers(1, 1000)),
        expired_versions=draw(st.integers(0, 1000)),
        log=LogSize(draw(st.integers(0, 10)), draw(COUNTS), draw(st.integers(0, 1 << 28))),
    )


@st.composite
def policies(draw):
    return MaintenancePolicy(
        min_fragments=draw(st.integers(2, 20)),
        max_deleted_share=draw(st.floats(0, 1)),
        max_unindexed_rows=draw(COUNTS),
        max_unindexed_share=draw(st.floats(0, 1)),
        max_index_segments=draw(st.integers(1, 20)),
        max_log_tables=draw(st.integers(0, 10)),
        max_log_bytes=draw(st.integers(0, 1 << 28)),
        max_bytes=draw(st.none() | st.integers(0, 5 * 10**6)),
    )


def needs(candidate, policy):
    return (
        len(candidate.fragments) >= policy.min_fragments
        or candidate.deleted_rows > policy.max_deleted_share * candidate.rows
        or candidate.has_many_overlays
    )


@given(tables(), policies())
def test_steps_are_ordered_and_their_bytes_are_within_the_budget(table, policy):
    steps = plan_maintenance(table, policy)
    kinds = list(StepKind)
    order = [kinds.index(step.kind) for step in steps]
    assert order == sorted(order)
    if policy.max_bytes is None:
        assert all(step.is_within_budget for step in steps)
    else:
        assert sum(step.bytes for step in steps if step.is_within_budget) <= policy.max_bytes


@given(tables(), policies())
def test_exactly_the_fragments_beyond_a_threshold_are_compacted_once(table, policy):
    steps = plan_maintenance(table, policy)
    planned = [each for step in steps for each in step.candidates]
    expected = [each for each in table.candidates if needs(each, policy)]
    assert sorted(planned, key=lambda each: each.fragments) == expected


@given(tables(), policies())
def test_exactly_the_indices_beyond_a_threshold_are_optimized(table, policy):
    planned = {
        step.index
        for step in plan_maintenance(table, policy)
        if step.kind is StepKind.OPTIMIZE_INDEX
    }
    for index in table.indices:
        total = index.indexed_rows + index.unindexed_rows
        is_over = (
            index.segments > policy.max_index_segments
            or index.unindexed_rows > policy.max_unindexed_rows
            or index.unindexed_rows > policy.max_unindexed_share * total
        )
        assert (index.name in planned) == is_over


@given(tables(), policies())
def test_the_log_and_versions_follow_their_thresholds(table, policy):
    kinds = {step.kind for step in plan_maintenance(table, policy)}
    is_large = table.log.tables > policy.max_log_tables or table.log.bytes > policy.max_log_bytes
    assert (StepKind.MERGE_LOG in kinds) == is_large
    assert (StepKind.CLEANUP in kinds) == (table.expired_versions > 0)


@given(tables())
def test_a_table_below_all_thresholds_needs_nothing(table):
    small = tuple(
        replace(each, fragments=each.fragments[:2], deleted_rows=0, has_many_overlays=False)
        for each in table.candidates
    )
    indices = tuple(replace(each, segments=1, unindexed_rows=0) for each in table.indices)
    tidy = replace(table, candidates=small, indices=indices, expired_versions=0, log=LogSize())
    assert plan_maintenance(tidy, MaintenancePolicy()) == ()


@given(candidates(), st.none() | st.integers(1, 10**6))
def test_rounds_contain_all_candidates_and_exceed_the_limit_only_alone(found, limit):
    rounds = list(split_rounds(found, limit))
    assert [each for part in rounds for each in part] == list(found)
    if limit is not None:
        for part in rounds:
            assert part
            assert len(part) == 1 or sum(each.bytes for each in part) <= limit


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("min_fragments", 1),
        ("max_deleted_share", 1.5),
        ("max_unindexed_share", -0.1),
        ("retain_versions", 0),
        ("max_bytes", -1),
        ("max_seconds", -1),
    ],
)
def test_values_out_of_range_are_refused(name, value):
    with pytest.raises(InvalidInputError, match=name):
        MaintenancePolicy(**{name: value})


@pytest.mark.parametrize(
    ("name", "value"),
    [("max_bytes", "1"), ("max_bytes", 2.5), ("max_seconds", True), ("older_than", 5)],
)
def test_values_of_other_types_are_rejected(name, value):
    with pytest.raises(TypeError, match=name):
        MaintenancePolicy(**{name: value})


def test_nan_is_no_limit():
    with pytest.raises(InvalidInputError, match="max_seconds"):
        MaintenancePolicy(max_seconds=float("nan"))


@pytest.mark.parametrize("values", [{"clones": "/tmp/clone"}, {"older_than": timedelta(days=-1)}])
def test_policies_that_would_delete_too_much_are_rejected(values):
    with pytest.raises(InvalidInputError):
        MaintenancePolicy(**values)
