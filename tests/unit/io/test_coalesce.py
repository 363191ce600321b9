import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from lancelet.buffers import ByteRanges
from lancelet.io.ranged import plan_fetch

FILE = np.random.default_rng(3).integers(0, 256, 2000, np.uint8)

ranges = st.lists(st.tuples(st.integers(0, 1900), st.integers(0, 100)), max_size=30).map(
    lambda pairs: ByteRanges.of(*pairs)
)


def fetched(plan) -> np.ndarray:
    """Carry a plan out on a file in memory."""
    buffer = np.zeros(plan.buffer_bytes, np.uint8)
    for position, size, target in zip(
        plan.requests.position, plan.requests.size, plan.target, strict=True
    ):
        buffer[target : target + size] = FILE[position : position + size]
    return buffer


@given(ranges, st.integers(0, 200), st.integers(1, 300))
def test_slices_of_the_answers_are_the_ranges(wanted, gap, request):
    plan = plan_fetch(wanted, gap_bytes=gap, request_bytes=request)
    buffer = fetched(plan)
    for position, size, at in zip(wanted.position, wanted.size, plan.slice_position, strict=True):
        assert 0 <= at <= at + size <= len(buffer) or size == 0
        assert bytes(buffer[at : at + size]) == bytes(FILE[position : position + size])


@given(ranges, st.integers(0, 200), st.integers(1, 300))
def test_requests_are_few_small_and_disjoint(wanted, gap, request):
    plan = plan_fetch(wanted, gap_bytes=gap, request_bytes=request)
    start, size = plan.requests.position, plan.requests.size
    assert (size > 0).all()
    assert (size <= request).all()
    assert (start[1:] >= start[:-1] + size[:-1]).all()
    # Two requests are apart by more than the gap, or are pieces of one block.
    apart = start[1:] - (start[:-1] + size[:-1])
    assert ((apart == 0) | (apart > gap)).all()
    assert (size[:-1][apart == 0] == request).all()
    assert plan.buffer_bytes == size.sum()


@given(ranges, st.integers(0, 200))
def test_unneeded_fetched_bytes_are_at_most_the_gaps(wanted, gap):
    plan = plan_fetch(wanted, gap_bytes=gap, request_bytes=10_000)
    needed = np.zeros(len(FILE), np.bool_)
    for position, size in zip(wanted.position, wanted.size, strict=True):
        needed[position : position + size] = True
    in_vain = plan.buffer_bytes - needed.sum()
    assert 0 <= in_vain <= gap * max(0, (wanted.size > 0).sum() - 1)


def test_a_request_as_large_as_the_limit_is_not_split():
    plan = plan_fetch(ByteRanges.of((5, 16), (100, 17)), gap_bytes=0, request_bytes=16)
    assert plan.requests.position.tolist() == [5, 100, 116]
    assert plan.requests.size.tolist() == [16, 16, 1]
