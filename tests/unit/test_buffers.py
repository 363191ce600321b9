"""Decoders that run side by side share rounds of reading."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from lancelet.buffers import NO_RANGES, ByteRanges, ByteSlices, run, run_together

DATA = np.arange(200, dtype=np.uint8)


def counting_fetch(log):
    def fetch(ranges):
        log.append(len(ranges))
        return ByteSlices(DATA, ranges.position, ranges.size)

    return fetch


def chain(position, depth):
    """Follow `depth` dependent reads, each at the value that the last one found."""
    for _ in range(depth):
        slices = yield ByteRanges.of((position, 1), (position + 1, 1))
        position = int(slices.slice_bytes(1)[0])
    return position


@given(st.lists(st.tuples(st.integers(0, 50), st.integers(0, 5)), max_size=6))
def test_running_together_equals_running_alone_in_as_many_rounds_as_the_longest(jobs):
    log = []
    together = run_together([chain(p, d) for p, d in jobs], counting_fetch(log))
    assert together == [run(chain(p, d), counting_fetch([])) for p, d in jobs]
    assert len(log) == max((d for _, d in jobs), default=0)


def test_a_decoder_may_request_no_bytes():
    def nothing():
        slices = yield NO_RANGES
        return len(slices)

    assert run(nothing(), counting_fetch([])) == 0
