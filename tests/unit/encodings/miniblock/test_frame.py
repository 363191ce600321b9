"""Chunks round trip, and damaged ones are rejected."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lancelet.buffers import ByteSlices
from lancelet.encodings.codecs.base import CHUNK_VALUES_MAX
from lancelet.encodings.miniblock.frame import (
    PAD_BYTE,
    ChunkParts,
    FrameShape,
    build_chunk_table,
    join_chunks,
    split_chunks,
)
from lancelet.errors import CorruptDataError
from lancelet.kernels import locate_chunks


def slices_of(sizes, rng):
    sizes = np.array(sizes, np.int64)
    source = rng.integers(0, 256, int(sizes.sum()), dtype=np.uint8)
    return ByteSlices(source, np.cumsum(sizes) - sizes, sizes)


def pieces(slices):
    return [slices.slice_bytes(index).tobytes() for index in range(len(slices))]


@settings(deadline=None, max_examples=30)
@given(
    data=st.data(), is_large=st.booleans(), num_buffers=st.integers(0, 3), seed=st.integers(0, 9)
)
def test_splitting_undoes_joining(data, is_large, num_buffers, seed):
    rng = np.random.default_rng(seed)
    chunks = data.draw(st.integers(1, 5))
    has_repetition, has_definition = data.draw(st.booleans()), data.draw(st.booleans())

    def column():
        return slices_of(
            data.draw(st.lists(st.integers(0, 40), min_size=chunks, max_size=chunks)), rng
        )

    parts = ChunkParts(
        rng.integers(0, 1000, chunks),
        column() if has_repetition else None,
        column() if has_definition else None,
        tuple(column() for _ in range(num_buffers)),
    )
    joined, chunk_bytes = join_chunks(parts, has_large_chunks=is_large)
    assert not (chunk_bytes % 8).any()
    assert int(chunk_bytes.sum()) == len(joined)
    shape = FrameShape(has_repetition, has_definition, num_buffers, is_large)
    found = split_chunks(
        ByteSlices(joined, np.cumsum(chunk_bytes) - chunk_bytes, chunk_bytes), shape
    )
    np.testing.assert_array_equal(found.num_levels, parts.num_levels)
    for one, other in zip(
        [found.repetition, found.definition, *found.buffers],
        [parts.repetition, parts.definition, *parts.buffers],
        strict=True,
    ):
        assert (one is None) == (other is None)
        if one is not None:
            assert pieces(one) == pieces(other)


def test_a_chunk_is_laid_out_as_specified():
    def part(data):
        return ByteSlices.whole(np.frombuffer(data, np.uint8))

    parts = ChunkParts(np.array([4]), None, part(b"\0\0\1\0"), (part(b"abcde"),))
    joined, chunk_bytes = join_chunks(parts, has_large_chunks=True)
    pad = bytes([PAD_BYTE])
    assert joined.tobytes() == (b"\4\0\4\0\5\0\0\0" + b"\0\0\1\0" + 4 * pad + b"abcde" + 3 * pad)
    assert chunk_bytes.tolist() == [24]


def place(words, *, num_values, data_bytes, has_large_chunks):
    numbers = [np.array([number]) for number in (num_values, 0, data_bytes)]
    width = 4 if has_large_chunks else 2
    return locate_chunks(ByteSlices.whole(words), width, *numbers, count_max=CHUNK_VALUES_MAX)


@settings(deadline=None, max_examples=30)
@given(
    logarithm=st.integers(0, 12), chunks=st.integers(1, 6), rest=st.integers(1, 4096),
    is_large=st.booleans(), words=st.integers(1, 4096),
)  # fmt: skip
def test_words_contain_positions_and_values(logarithm, chunks, rest, is_large, words):
    counts = np.full(chunks, 1 << logarithm, np.int64)
    counts[-1] = rest
    chunk_bytes = np.full(chunks, 8 * words, np.int64)
    position, size, found = place(
        build_chunk_table(chunk_bytes, counts, has_large_chunks=is_large),
        num_values=int(counts.sum()),
        data_bytes=int(chunk_bytes.sum()),
        has_large_chunks=is_large,
    )
    assert position.tolist() == (np.cumsum(chunk_bytes) - chunk_bytes).tolist()
    assert size.tolist() == chunk_bytes.tolist()
    assert found.tolist() == counts.tolist()


@pytest.mark.parametrize(
    ("words", "num_values", "data_bytes"),
    [
        ([0x0A, 0x00], 1024, 16),  # the last chunk would hold nothing
        ([0x0A, 0x00], 1024 + 32769, 16),  # or more than any chunk may
        ([0x0A], 5, 7),  # eight bytes are more than there are
        ([], 1, 0),
        ([0x00], 0, 8),
    ],
)
def test_words_that_cannot_be_are_corrupt(words, num_values, data_bytes):
    data = np.array(words, "<u2").view(np.uint8)
    with pytest.raises(CorruptDataError):
        place(data, num_values=num_values, data_bytes=data_bytes, has_large_chunks=False)


def test_half_a_word_is_corrupt():
    with pytest.raises(CorruptDataError, match="short"):
        place(np.zeros(3, np.uint8), num_values=1, data_bytes=8, has_large_chunks=False)


@pytest.mark.parametrize("size", [0, 7, 8, 15])
def test_parts_that_exceed_their_chunk_are_corrupt(size):
    source = np.array([0, 0, 8, 0, 0, 0, 0, 0] + 8 * [1], np.uint8)
    chunk = ByteSlices(source, np.array([0]), np.array([size]))
    with pytest.raises(CorruptDataError):
        split_chunks(chunk, FrameShape(False, False, 1, has_large_chunks=True))
