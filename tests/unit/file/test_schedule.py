"""Plans read every row and field exactly once, for all sizes."""

import tracemalloc
from itertools import islice

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lancelet.encodings.base import RowRange
from lancelet.file.schedule import TASK_BYTES, decoded_row_bytes, plan_read, split_rows_min

widths = st.lists(st.floats(0, 5000), min_size=1, max_size=12)


@st.composite
def ranges(draw):
    start = draw(st.integers(0, 1 << 20))
    return RowRange(start, start + draw(st.integers(0, 3 << 20)))


def check_plan(plan, rows, num_fields):
    ends = [rows.start]
    for split in plan.splits():
        assert split.start == ends[-1]
        assert len(split) > 0
        ends.append(split.stop)
    assert ends[-1] == rows.stop
    assert [place for group in plan.groups for place in group] == list(range(num_fields))


@given(ranges(), widths, st.lists(st.integers(0, 4 << 20), max_size=20))
def test_splits_and_groups_cover_everything_once(rows, widths, borders):
    borders = np.unique(np.array(borders, np.int64))
    check_plan(plan_read(rows, widths, page_starts=borders), rows, len(widths))


@given(ranges(), widths, st.integers(1, 1 << 22))
def test_plans_of_batches_cover_everything_once(rows, widths, batch_size):
    plan = plan_read(rows, widths, batch_size=batch_size)
    check_plan(plan, rows, len(widths))
    splits = list(plan.splits())
    step = len(splits[0]) if len(splits) > 1 else batch_size
    assert step % batch_size == 0 or batch_size > step


@given(st.floats(1, 500))
def test_a_task_decodes_about_its_bytes(width):
    rows = RowRange(0, int(40 * TASK_BYTES / width))
    for split in list(plan_read(rows, [width]).splits())[:-1]:
        assert TASK_BYTES / 2 <= len(split) * width <= TASK_BYTES * 1.5 + width


def test_splits_end_at_page_borders_that_are_near():
    target = TASK_BYTES // 4
    near = np.array([0, target + 76_000, 2 * target + 150_000])
    plan = plan_read(RowRange(0, 4 * target), [4.0], page_starts=near)
    stops = [*near[1:].tolist(), near[2] + target, 4 * target]
    assert [split.stop for split in plan.splits()] == stops


def test_splits_of_many_narrow_fields_are_long_and_read_in_groups():
    plan = plan_read(RowRange(0, 10_000_000), [8.0] * 16)
    assert len(next(plan.splits())) * 8.0 >= TASK_BYTES / 4
    assert 1 < len(plan.groups) < 16


def test_wide_rows_are_cut_into_groups_of_fields():
    plan = plan_read(RowRange(0, 100_000), [TASK_BYTES / 2048] * 10)
    assert len(next(plan.splits())) == 4096
    assert [len(group) for group in plan.groups] == [1] * 10


@pytest.mark.parametrize(
    ("data_type", "expected"),
    [
        (pa.int64(), 8.0),
        (pa.bool_(), 0.125),
        (pa.null(), 0.0),
        (pa.list_(pa.float32(), 768), 3072.0),
        (pa.struct([("a", pa.int8()), ("b", pa.list_(pa.int16(), 2))]), 5.0),
        (pa.struct([("a", pa.int8()), ("b", pa.string())]), 24.0),
        (pa.list_(pa.int8()), 24.0),
    ],
)
def test_decoded_bytes_follow_the_type_or_else_the_encoded_bytes(data_type, expected):
    assert decoded_row_bytes(data_type, 10.0) == expected


def test_splits_are_made_as_requested():
    # 216 bytes of a constant page may claim as many rows.
    tracemalloc.start()
    for batch_size in (None, 100):
        plan = plan_read(
            RowRange(0, 1 << 48), [4.0], page_starts=np.array([0]), batch_size=batch_size
        )
        assert len(list(islice(plan.splits(), 2))) == 2
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 1 << 20


@pytest.mark.parametrize("batch_size", [None, 16, 100])
def test_few_rows_of_large_values_are_cut(batch_size):
    widths = [8.0, 2_000_000.0]
    rows_min = split_rows_min(sum(widths), max(widths))
    plan = plan_read(RowRange(0, 2300), widths, batch_size=batch_size, split_rows_min=rows_min)
    check_plan(plan, RowRange(0, 2300), 2)
    assert all(len(split) * sum(widths) <= 32_000_000 for split in plan.splits())
