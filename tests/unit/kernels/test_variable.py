"""Variable chunks: native kernels agree with their definitions, also on damaged chunks."""

import itertools

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lancelet.buffers import ByteSlices
from lancelet.errors import CorruptDataError, InvalidInputError
from lancelet.kernels import OffsetOverflowError, _native


@st.composite
def variable_chunks(draw):
    """Values cut into chunks; also the values, the counts and the width of the offsets."""
    offset_bytes = draw(st.sampled_from([4, 8]))
    chunks = draw(st.lists(st.lists(st.binary(max_size=40), max_size=12), max_size=6))
    parts, position, size = [], [], []
    at = 0
    for values in chunks:
        starts = np.cumsum([(len(values) + 1) * offset_bytes, *map(len, values)])
        chunk = starts.astype(f"<u{offset_bytes}").tobytes() + b"".join(values)
        gap = draw(st.integers(0, 3))
        parts += [b"\xff" * gap, chunk, b"H" * draw(st.integers(0, 3))]
        position.append(at + gap)
        size.append(len(chunk))
        at += sum(map(len, parts[-3:]))
    slices = ByteSlices(
        np.frombuffer(b"".join(parts), np.uint8),
        np.array(position, np.int64),
        np.array(size, np.int64),
    )
    counts = np.array([len(values) for values in chunks], np.int64)
    return slices, counts, offset_bytes, chunks


def values_of(offsets, data):
    return [data[a:b].tobytes() for a, b in itertools.pairwise(offsets.tolist())]


@given(variable_chunks(), st.sampled_from([32, 64]))
def test_chunks_join_to_their_values(agree, case, out_bits):
    slices, counts, offset_bytes, chunks = case
    joined = agree("concat_variable", slices, counts, offset_bytes, out_bits)
    assert values_of(*joined) == [value for values in chunks for value in values]


@given(variable_chunks(), st.sampled_from([32, 64]), st.data())
def test_picked_values_are_those_of_the_chunk(agree, case, out_bits, data):
    slices, counts, offset_bytes, chunks = case
    which = np.flatnonzero(counts)
    index = [data.draw(st.integers(0, int(counts[k]) - 1)) for k in which.tolist()]
    some = ByteSlices(slices.source, slices.position[which], slices.size[which])
    picked = agree(
        "pick_variable", some, counts[which], np.array(index, np.int64), offset_bytes, out_bits
    )
    expected = [chunks[k][i] for k, i in zip(which.tolist(), index, strict=True)]
    assert values_of(*picked) == expected


@given(variable_chunks(), st.integers(0, 2**32), st.integers(-1, 1), st.sampled_from([4, 8]))
def test_damaged_chunks_never_crash(agree, damage, case, seed, more, offset_bytes):
    slices, counts, _, _ = case
    rng = np.random.default_rng(seed)
    damaged = ByteSlices(damage(rng, slices.source), slices.position, slices.size)
    agree("concat_variable", damaged, counts + more, offset_bytes, 32)
    index = np.maximum(counts - 1, 0)
    agree("pick_variable", damaged, counts + more, index, offset_bytes, 32)


@pytest.mark.parametrize("count", [1, 1 << 31, 1 << 40, 1 << 61, -1])
def test_counts_beyond_the_chunk_are_corrupt(agree, count):
    slices = ByteSlices.whole(np.array([8, 8], "<u4").view(np.uint8)[:7])
    counts = np.array([count])
    assert agree("concat_variable", slices, counts, 4, 32) is CorruptDataError
    assert agree("fsst_decode_chunks", slices, counts, 4, *no_symbols(), 32) is CorruptDataError


@pytest.mark.parametrize(
    "offsets", [[7, 8], [8, 7], [9, 8], [8, 11], [8, 1 << 31], [8, (1 << 32) - 1], [0, 0]]
)
def test_offsets_out_of_order_or_bounds_are_corrupt(agree, offsets):
    data = np.concatenate([np.array(offsets, "<u4").view(np.uint8), np.zeros(2, np.uint8)])
    slices = ByteSlices.whole(data)
    one = np.array([1])
    assert agree("concat_variable", slices, one, 4, 32) is CorruptDataError
    assert agree("pick_variable", slices, one, np.array([0]), 4, 64) is CorruptDataError


def test_counts_above_32_bits_raise(agree):
    # One large value, referred to many times, costs no memory before it is refused.
    source = np.zeros(8 + (1 << 24), np.uint8)
    source[:8] = np.array([8, len(source)], "<u4").view(np.uint8)
    slices = ByteSlices(source, np.zeros(200, np.int64), np.full(200, len(source)))
    ones = np.ones(200, np.int64)
    assert agree("concat_variable", slices, ones, 4, 32) is OffsetOverflowError
    assert agree("pick_variable", slices, ones, ones - 1, 4, 32) is OffsetOverflowError


def no_symbols():
    return np.empty(0, np.uint64), np.empty(0, np.uint8)


STRINGS = st.lists(st.binary(max_size=40), max_size=40)


def arrow_of(strings, dtype, *, before=b""):
    """Return offsets and bytes of strings that follow others."""
    lengths = [len(before), *map(len, strings)]
    return np.cumsum(lengths).astype(dtype), np.frombuffer(before + b"".join(strings), np.uint8)


@given(STRINGS, st.sampled_from([np.int32, np.int64]), st.binary(max_size=9), st.data())
def test_cut_strings_join_again(agree, strings, dtype, before, data):
    offsets, source = arrow_of(strings, dtype, before=before)
    cuts = sorted(data.draw(st.lists(st.integers(0, len(strings)), max_size=5)))
    counts = np.diff([0, *cuts, len(strings)])
    chunks = agree("split_variable", offsets, source, counts, 0xFE)
    assert (chunks.size % offsets.itemsize == 0).all()
    joined = agree("concat_variable", chunks, counts, offsets.itemsize, 64)
    assert values_of(*joined) == strings


@pytest.mark.parametrize(
    ("offsets", "counts", "error"),
    [
        ([0, 4, 2], [1, 1], CorruptDataError),
        ([0, 2, 9], [1, 1], CorruptDataError),
        ([-1, 2, 4], [2], CorruptDataError),
        ([0, 2, 4], [1], InvalidInputError),
        ([0, 2, 4], [3, -1], InvalidInputError),
        ([], [], InvalidInputError),
    ],
)
def test_strings_that_are_none_are_not_cut(agree, offsets, counts, error):
    source = np.zeros(4, np.uint8)
    found = agree("split_variable", np.array(offsets, np.int32), source, np.array(counts), 0)
    assert found is error


def test_the_kernel_trusts_neither_offsets_nor_its_output():
    offsets = np.array([0, 9], np.int32).view(np.uint8)
    source, one, zero = np.zeros(9, np.uint8), np.array([1]), np.array([0])
    for data, room in ((source[:8], 17), (source, 16)):
        status = _native.split_variable(offsets, 4, data, one, zero, 0, np.zeros(room, np.uint8))
        assert status < 0
