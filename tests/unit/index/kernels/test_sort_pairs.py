"""Sorting numbers: the native code against the definition, and equal ones stay as they stand."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lancelet.errors import CorruptDataError

WORDS = st.one_of(
    st.lists(st.integers(0, 2**64 - 1), max_size=60),
    st.lists(st.integers(0, 3), max_size=60),
    st.lists(st.sampled_from([0, 1 << 63, 2**64 - 1, 255, 256]), max_size=60),
)


@given(words=WORDS, shift=st.integers(0, 63))
def test_words_are_sorted_with_their_numbers(agree, words, shift):
    found = np.array([word << shift & 2**64 - 1 for word in words], np.uint64)
    ordered, places = agree("sort_pairs", found, np.arange(len(found), dtype=np.uint64))
    expected = sorted(range(len(found)), key=lambda place: int(found[place]))
    assert places.tolist() == expected
    assert ordered.tolist() == sorted(found.tolist())


@pytest.mark.parametrize("bits", [1, 8, 9, 40, 64])
def test_many_words_are_sorted(agree, bits):
    rng = np.random.default_rng(bits)
    words = rng.integers(0, 2**bits - 1, 5000, np.uint64, endpoint=True)
    ordered, places = agree("sort_pairs", words, np.arange(5000, dtype=np.uint64))
    assert (words[places] == ordered).all()
    assert (np.diff(ordered.astype(object)) >= 0).all()


def test_words_without_numbers_are_rejected(agree):
    assert agree("sort_pairs", np.zeros(3, np.uint64), np.zeros(2, np.uint64)) is CorruptDataError
