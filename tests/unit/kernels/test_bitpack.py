"""Bit packing: native kernels agree with the definition on whatever bytes they are given."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lancelet.buffers import ByteSlices
from lancelet.errors import CorruptDataError, InvalidInputError

WORDS = st.sampled_from([8, 16, 32, 64])


@st.composite
def inline_chunks(draw):
    """Well-formed inline blocks at odd positions, in any order, with random packed bytes."""
    word_bits = draw(WORDS)
    widths = draw(st.lists(st.integers(0, word_bits), max_size=5))
    counts = [draw(st.sampled_from([0, 1, 7, 1023, 1024])) for _ in widths]
    rng = np.random.default_rng(draw(st.integers(0, 2**32)))
    parts, position, size = [], [], []
    at = 0
    for width in widths:
        gap = int(rng.integers(0, 9))
        head = np.array([width], f"u{word_bits // 8}").view(np.uint8)
        body = rng.integers(0, 256, 128 * width, dtype=np.uint8)
        parts += [np.full(gap, 255, np.uint8), head, body]
        position.append(at + gap)
        size.append(len(head) + len(body) + int(rng.integers(0, 3)))
        at += gap + len(head) + len(body)
    source = np.concatenate([*parts, np.zeros(2, np.uint8)])
    slices = ByteSlices(source, np.array(position, np.int64), np.array(size, np.int64))
    return slices, np.array(counts, np.int64), word_bits, rng


@given(inline_chunks())
def test_inline_blocks_unpack_identically(agree, case):
    slices, counts, word_bits, _ = case
    assert len(agree("unpack_chunks", slices, counts, word_bits)) == counts.sum()


@pytest.mark.parametrize("word_bits", [8, 16, 32, 64])
@pytest.mark.parametrize(("megabytes", "odd"), [(1, None), (4, None), (4, 5), (4, 300)])
def test_data_larger_than_a_cache_is_unpacked_correctly(agree, word_bits, megabytes, odd):
    """Large results are copied, the largest bypass the caches; also after an incomplete chunk."""
    rng = np.random.default_rng(word_bits)
    words = np.dtype(f"u{word_bits // 8}")
    values = rng.integers(0, 1 << 7, (megabytes << 20) // words.itemsize + 5000).astype(words)
    source, position, size = agree("pack_chunks", values)
    counts = np.full(len(position), 1024, np.int64)
    counts[-1] = len(values) - 1024 * (len(counts) - 1)
    if odd is not None:
        counts[odd // words.itemsize] = 1023
    found = agree("unpack_chunks", ByteSlices(source, position, size), counts, word_bits)
    assert found.nbytes > megabytes << 20
    starts = np.arange(len(counts)) * 1024
    expected = [values[start : start + count] for start, count in zip(starts, counts, strict=True)]
    np.testing.assert_array_equal(found, np.concatenate(expected))
    packed = agree("pack_blocks", values, 7)
    np.testing.assert_array_equal(agree("unpack_blocks", packed, 7, len(values), word_bits), values)


@given(inline_chunks())
def test_damaged_inline_blocks_never_crash(agree, damage, case):
    slices, counts, word_bits, rng = case
    damaged = ByteSlices(damage(rng, slices.source), slices.position, slices.size)
    agree("unpack_chunks", damaged, counts, word_bits)


@pytest.mark.parametrize(
    ("position", "size", "count"),
    [
        (-1, 4, 1),
        (0, -1, 1),
        (1 << 62, 1 << 62, 1),
        (0, 1 << 62, 1),
        (5, 4, 1),
        (0, 3, 0),
        (0, 8, 1025),
        (0, 8, -1),
    ],
)
def test_lying_slices_are_corrupt(agree, position, size, count):
    slices = ByteSlices(np.zeros(8, np.uint8), np.array([position]), np.array([size]))
    assert agree("unpack_chunks", slices, np.array([count]), 32) is CorruptDataError


def test_a_width_beyond_the_word_is_corrupt(agree):
    source = np.zeros(8192, np.uint8)
    source[0] = 33
    slices = ByteSlices.whole(source)
    assert agree("unpack_chunks", slices, np.array([1024]), 32) is CorruptDataError


@st.composite
def packable(draw):
    """Values of a width, of a count around the size of a block."""
    word_bits = draw(WORDS)
    width = draw(st.integers(0, word_bits))
    count = draw(
        st.sampled_from([0, 1, 2, 511, 512, 513, 1000, 1023, 1024, 1025, 1536, 2048, 3000])
    )
    rng = np.random.default_rng(draw(st.integers(0, 2**32)))
    values = rng.integers(0, 1 << 64, count, dtype=np.uint64) & np.uint64((1 << width) - 1)
    return values.astype(f"u{word_bits // 8}"), width, word_bits, rng


@given(packable(), st.sampled_from([1, 100, 1000, 1024]))
def test_unpacking_undoes_inline_packing(agree, case, chunk):
    values, _, word_bits, _ = case
    data, position, size = agree("pack_chunks", values, chunk)
    counts = np.minimum(chunk, len(values) - chunk * np.arange(len(position)))
    slices = ByteSlices(data, position, size)
    np.testing.assert_array_equal(agree("unpack_chunks", slices, counts, word_bits), values)
    agree("bit_widths", values, chunk)
    index = counts - 1
    picked = agree("pick_packed", slices, index, word_bits)
    np.testing.assert_array_equal(picked, values[np.arange(len(index)) * chunk + index])


@given(packable())
def test_unpacking_undoes_out_of_line_packing(agree, case):
    values, width, word_bits, _ = case
    data = agree("pack_blocks", values, width)
    np.testing.assert_array_equal(
        agree("unpack_blocks", data, width, len(values), word_bits), values
    )


@given(packable(), st.integers(-1, 66), st.integers(-1, 4000))
def test_lying_out_of_line_blocks_never_crash(agree, case, width, count):
    values, _, word_bits, _ = case
    agree("unpack_blocks", values.view(np.uint8), width, count, word_bits)


@given(inline_chunks(), st.integers(-2, 1030))
def test_picks_from_any_block_agree(agree, damage, case, index):
    slices, _, word_bits, rng = case
    damaged = ByteSlices(damage(rng, slices.source), slices.position, slices.size)
    agree("pick_packed", damaged, np.full(len(slices), index), word_bits)


@pytest.mark.parametrize("chunk", [0, -1, 1025])
def test_a_chunk_holds_at_most_a_block(agree, chunk):
    assert agree("pack_chunks", np.zeros(3, np.uint32), chunk) is InvalidInputError


def test_values_must_fit_the_width(agree):
    assert agree("pack_blocks", np.array([4], np.uint32), 2) is InvalidInputError


@given(inline_chunks(), st.data())
def test_values_are_compared_with_a_range_while_they_are_unpacked(agree, case, data):
    slices, counts, word_bits, _ = case
    values = agree("unpack_chunks", slices, counts, word_bits)
    most = (1 << word_bits) - 1
    known = [int(value) for value in values[:8]] or [0]
    low = st.integers(0, most) | st.sampled_from(known)
    span = st.integers(0, most) | st.sampled_from([0, 1, most])
    pairs = data.draw(st.lists(st.tuples(low, span), min_size=1, max_size=3))
    ranges = np.array(pairs, np.uint64).reshape(-1)
    found = agree("match_packed", slices, counts, word_bits, ranges, is_float=False)
    assert found.tolist() == [
        any((int(value) - low) % (1 << word_bits) <= span for low, span in pairs)
        for value in values
    ]
    agree("match_packed", slices, counts, word_bits, ranges, is_float=True)
    rows, selected = agree("select_packed", slices, counts, word_bits, ranges, is_float=False)
    assert rows.tolist() == np.flatnonzero(found).tolist()
    assert selected.tolist() == values[found].tolist()
    agree("select_packed", slices, counts, word_bits, ranges, is_float=True)


def test_a_damaged_block_is_not_compared(agree):
    slices = ByteSlices(np.full(8, 255, np.uint8), np.zeros(1, np.int64), np.full(1, 8))
    ranges = np.array([0, 1], np.uint64)
    for kernel in ("match_packed", "select_packed"):
        assert agree(kernel, slices, np.array([5]), 32, ranges, is_float=False) is CorruptDataError
        assert (
            agree(kernel, slices, np.array([5]), 32, ranges[:1], is_float=False)
            is InvalidInputError
        )
