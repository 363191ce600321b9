"""Chunks: the native walks agree with the definitions, on sound bytes and on any others."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lancelet.buffers import ByteSlices
from lancelet.errors import CorruptDataError
from lancelet.kernels import reference

EXAMPLES = settings(deadline=None, max_examples=40)


@EXAMPLES
@given(
    counts=st.lists(st.integers(0, 9), min_size=1, max_size=40),
    data=st.data(),
    first=st.integers(0, 3),
)
def test_locating_rows_agrees(agree, counts, data, first):
    bounds = first + np.cumsum([0, *counts])
    rows = np.array(
        sorted(data.draw(st.lists(st.integers(first, first + sum(counts)), max_size=30))), np.int64
    )
    agree("locate_rows", bounds, rows)
    inside = rows[rows < bounds[-1]]
    parts, which, within = agree("locate_rows", bounds, inside)
    np.testing.assert_array_equal(bounds[parts[which]] + within, inside)
    assert len(set(parts.tolist())) == len(parts) == len(set(which.tolist()))


@pytest.mark.parametrize("rows", [[-1], [9], [3, 2], [0, 10**18]])
def test_rows_outside_of_all_parts_or_out_of_order_are_rejected(agree, rows):
    assert agree("locate_rows", np.array([0, 4, 9]), np.array(rows)) is CorruptDataError


def test_no_part_holds_any_row(agree):
    assert agree("locate_rows", np.zeros(1, np.int64), np.zeros(1, np.int64)) is CorruptDataError


@EXAMPLES
@given(
    word_bytes=st.sampled_from([2, 4]),
    pages=st.lists(st.integers(0, 5), max_size=4),
    seed=st.integers(0, 99),
    is_damaged=st.booleans(),
)
def test_placing_chunks_agrees(agree, word_bytes, pages, seed, is_damaged):
    rng = np.random.default_rng(seed)
    words = rng.integers(0, 1 << 8, sum(pages)).astype(f"<u{word_bytes}")
    stops = np.cumsum(pages, dtype=np.int64)
    starts = stops - np.array(pages, np.int64)
    full = [
        1 << (words[a:b][:-1].astype(np.int64) & 15) for a, b in zip(starts, stops, strict=True)
    ]
    num_values = np.array(
        [page.sum() + (7 if chunks else 0) for page, chunks in zip(full, pages, strict=True)],
        np.int64,
    )
    if is_damaged:
        num_values = num_values + rng.integers(-9, 40_000, len(pages))
    slices = ByteSlices(
        words.view(np.uint8), starts * word_bytes, np.array(pages, np.int64) * word_bytes
    )
    data_position = rng.integers(0, 99, len(pages))
    data_bytes = np.full(len(pages), 5000 if is_damaged else 1 << 20, np.int64)
    arguments = (slices, word_bytes, num_values, data_position, data_bytes)
    found = agree("locate_chunks", *arguments, count_max=32768)
    if not is_damaged:
        assert int(found[2].sum()) == int(num_values.sum())


@pytest.mark.parametrize(
    ("size", "word_bytes"),
    [(3, 2), (6, 4), (9, 2), (4, 3)],
    ids=["odd", "half", "outside", "width"],
)
def test_words_cut_short_are_corrupt(agree, size, word_bytes):
    words = ByteSlices(np.zeros(8, np.uint8), np.zeros(1, np.int64), np.array([size]))
    one = np.ones(1, np.int64)
    found = agree("locate_chunks", words, word_bytes, one, one, one * 99, count_max=4096)
    assert found is CorruptDataError


@EXAMPLES
@given(
    num_levels=st.integers(1, 3),
    num_buffers=st.integers(0, 3),
    size_bytes=st.sampled_from([2, 4]),
    chunks=st.integers(0, 4),
    seed=st.integers(0, 99),
    most=st.sampled_from([2, 30, 255]),
)
def test_splitting_chunks_agrees(agree, num_levels, num_buffers, size_bytes, chunks, seed, most):
    rng = np.random.default_rng(seed)
    source = rng.integers(0, most, 400, dtype=np.uint8)
    source[1::2] = 0  # so that numbers are small and some chunks sound
    slices = ByteSlices(source, rng.integers(0, 200, chunks), rng.integers(0, 200, chunks))
    agree("split_chunks", slices, num_levels, num_buffers, size_bytes)


def test_the_parts_of_a_chunk_follow_each_other(agree):
    head = np.array([5, 3, 9], "<u2").view(np.uint8)
    chunk = np.concatenate([head, np.zeros(2 + 8 + 16, np.uint8)])
    found = agree("split_chunks", ByteSlices.whole(chunk), 2, 1, 2)
    assert [column.tolist() for column in found] == [[5], [8], [3], [16], [9]]
    assert agree("split_chunks", ByteSlices.whole(chunk[:-1]), 2, 1, 2) is CorruptDataError


@pytest.mark.parametrize("shape", [(0, 1, 2), (4, 1, 2), (1, 1, 3)])
def test_shapes_that_no_chunk_has_are_rejected(shape):
    with pytest.raises(CorruptDataError):
        reference.split_chunks(ByteSlices.whole(np.zeros(64, np.uint8)), *shape)
