"""Run lengths and byte planes: decoding undoes encoding, chunk by chunk."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lancelet.buffers import ByteSlices
from lancelet.errors import CorruptDataError, InvalidInputError

WIDTHS = st.sampled_from([1, 2, 3, 4, 8, 16])


@st.composite
def chunked_values(draw):
    """Values with runs, some longer than the maximum of one byte, in chunks."""
    width = draw(WIDTHS)
    rng = np.random.default_rng(draw(st.integers(0, 2**32)))
    runs = draw(st.lists(st.sampled_from([1, 2, 3, 254, 255, 256, 511, 700]), max_size=12))
    rows = np.repeat(rng.integers(0, 3, (len(runs), width), np.uint8), runs, axis=0)
    cuts = np.sort(rng.integers(0, len(rows) + 1, draw(st.integers(0, 5))))
    counts = np.diff([0, *cuts, len(rows)])
    return rows.reshape(-1), width, counts.astype(np.int64), rng


def run_slices(values, lengths, runs, width):
    start = np.cumsum(runs) - runs
    return ByteSlices(values, start * width, runs * width), ByteSlices(lengths, start, runs)


@given(chunked_values())
def test_decoding_undoes_run_lengths(agree, case):
    values, width, counts, _ = case
    stored, lengths, runs = agree("rle_encode_chunks", values, width, counts)
    assert lengths.all()
    slices = run_slices(stored, lengths, runs, width)
    decoded = agree("rle_decode_chunks", *slices, counts, width)
    np.testing.assert_array_equal(decoded, values)


@given(chunked_values(), st.sampled_from([1, 2, 4]), st.integers(-1, 1))
def test_damaged_run_lengths_never_crash(agree, damage, case, length_bytes, more):
    values, width, counts, rng = case
    slices = run_slices(*agree("rle_encode_chunks", values, width, counts), width)
    damaged = [ByteSlices(damage(rng, part.source), part.position, part.size) for part in slices]
    agree("rle_decode_chunks", *damaged, counts + more, width, length_bytes)


@pytest.mark.parametrize("lengths", [[3], [1, 1], [1, 3], [0, 0], [255, 255]])
def test_lengths_must_add_up(agree, lengths):
    stored = ByteSlices.whole(np.zeros(len(lengths) * 4, np.uint8))
    run = ByteSlices.whole(np.array(lengths, np.uint8))
    assert agree("rle_decode_chunks", stored, run, np.array([5]), 4) is CorruptDataError


def test_a_count_beyond_all_runs_costs_no_memory(agree):
    stored, run = ByteSlices.whole(np.zeros(8, np.uint8)), ByteSlices.whole(np.ones(1, np.uint8))
    assert agree("rle_decode_chunks", stored, run, np.array([1 << 60]), 8) is CorruptDataError


@given(chunked_values())
def test_joining_undoes_splitting(agree, case):
    values, width, counts, _ = case
    planes = agree("split_bytes_chunks", values, width, counts)
    start = np.cumsum(counts) - counts
    slices = ByteSlices(planes, start * width, counts * width)
    np.testing.assert_array_equal(agree("join_bytes_chunks", slices, counts, width), values)
    if width > 1 and counts.max(initial=0) > 1:
        chunk = int(counts.argmax())
        first = slices.slice_bytes(chunk)[: counts[chunk]]
        rows = values.reshape(-1, width)[start[chunk] : start[chunk] + counts[chunk]]
        np.testing.assert_array_equal(first, rows[:, 0])


@pytest.mark.parametrize("count", [2, 1 << 61, -1])
def test_planes_beyond_the_chunk_are_corrupt(agree, count):
    slices = ByteSlices.whole(np.zeros(15, np.uint8))
    assert agree("join_bytes_chunks", slices, np.array([count]), 8) is CorruptDataError


@pytest.mark.parametrize("kernel", ["rle_encode_chunks", "split_bytes_chunks"])
@pytest.mark.parametrize(("width", "counts"), [(4, [1]), (3, [2]), (0, []), (4, [3, -1]), (4, [3])])
def test_chunks_must_be_all_values(agree, kernel, width, counts):
    values = np.zeros(8, np.uint8)
    assert agree(kernel, values, width, np.array(counts, np.int64)) is InvalidInputError
