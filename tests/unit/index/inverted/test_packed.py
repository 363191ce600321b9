"""Buffered postings, in memory or a file, round-trip by token."""

from unittest import mock

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lancelet.index.inverted import packed
from lancelet.index.inverted.packed import PackedPostings, PostingBuffer
from lancelet.index.inverted.postings import Postings, join

NUM_TOKENS = 6
FREQS = st.integers(1, 3) | st.just(300)
POSITIONS = st.integers(0, 9) | st.integers(250, 70_000)


@st.composite
def batches(draw: st.DrawFn) -> list[Postings]:
    """Draw batches whose documents follow one another, all with positions or none."""
    with_position = draw(st.booleans())
    found = []
    first = draw(st.integers(0, 70_000))
    for _ in range(draw(st.integers(1, 4))):
        pairs = sorted(draw(st.sets(st.tuples(st.integers(0, NUM_TOKENS - 1), st.integers(0, 5)))))
        freqs = np.array([draw(FREQS) for _ in pairs], np.uint32)
        total = int(freqs.sum())
        positions = np.resize(np.array([draw(POSITIONS), 7], np.uint32), total)
        tokens, docs = np.array(pairs, np.uint32).reshape(-1, 2).T
        found.append(
            Postings(
                tokens.copy(), docs + np.uint32(first), freqs, positions if with_position else None
            )
        )
        first += draw(st.integers(6, 70_000))
    return found


def as_lists(postings: Postings) -> list[list[int] | None]:
    arrays = (postings.tokens, postings.docs, postings.freqs, postings.positions)
    return [None if each is None else each.tolist() for each in arrays]


@given(
    batches(), st.sampled_from([0, 20, 1 << 20]), st.integers(1, 30), st.sampled_from([1, 3, 99])
)
def test_postings_come_back_token_by_token(
    parts: list[Postings], bytes_max: int, together: int, ahead: int
) -> None:
    with mock.patch.object(packed, "_TOKENS_PER_READ", ahead):
        check_that_postings_come_back(parts, PostingBuffer(bytes_max), together)


def check_that_postings_come_back(
    parts: list[Postings], waiting: PostingBuffer, together: int
) -> None:
    for part in parts:
        waiting.add(part)
    first, found = 0, []
    for count, postings in waiting.by_tokens(NUM_TOKENS, together):
        tokens = postings.tokens + np.uint32(first)
        found.append(Postings(tokens, postings.docs, postings.freqs, postings.positions))
        first += count
    waiting.close()
    assert first == NUM_TOKENS
    assert as_lists(join(found, NUM_TOKENS)) == as_lists(join(parts, NUM_TOKENS))


@pytest.mark.parametrize(("most", "size"), [(255, 1), (256, 2), (65_536, 4)])
def test_numbers_take_as_few_bytes_as_they_can(most: int, size: int) -> None:
    one = np.ones(1, np.uint32)
    packed = PackedPostings.pack(Postings(one, one * 9, one, one * most))
    assert isinstance(packed.positions, np.ndarray)
    assert packed.positions.dtype.itemsize == size
    assert packed.first_doc == 9
