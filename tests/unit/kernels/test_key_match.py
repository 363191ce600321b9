"""Finding keys by hash, by definition and natively."""

import itertools

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lancelet.errors import CorruptDataError, InvalidInputError

SEEDS = st.integers(0, 2**64 - 1)
WORDS = st.lists(st.integers(0, 2**64 - 1), max_size=200)


@given(words=WORDS, seed=SEEDS)
def test_mixing_keeps_different_words_different(agree, words, seed) -> None:
    mixed = agree("mix_integers", np.array(words, np.uint64), seed)
    assert len(set(mixed.tolist())) == len(set(words))


def test_mixed_neighbours_fall_into_all_buckets(agree) -> None:
    mixed = agree("mix_integers", np.arange(4096, dtype=np.uint64), 3)
    starts, _ = agree("bucket_rows", mixed, 4)
    assert np.diff(starts).min() > 200


@given(words=st.lists(st.integers(0, 40), max_size=100), bits=st.integers(1, 8))
def test_rows_of_a_bucket_are_together_and_in_order(agree, words, bits) -> None:
    hashes = agree("mix_integers", np.array(words, np.uint64), 0)
    starts, rows = agree("bucket_rows", hashes, bits)
    buckets = (hashes >> np.uint64(64 - bits)).tolist()
    expected = [sorted(r for r in range(len(words)) if buckets[r] == b) for b in range(1 << bits)]
    assert [rows[a:b].tolist() for a, b in itertools.pairwise(starts)] == expected


@given(
    known=st.lists(st.integers(0, 60), max_size=60),
    wanted=st.lists(st.integers(0, 60), max_size=150),
    bits=st.integers(1, 8),
)
def test_the_first_row_of_each_word_is_found(agree, known, wanted, bits) -> None:
    hashes = agree("mix_integers", np.array(known, np.uint64), 9)
    starts, rows = agree("bucket_rows", hashes, bits)
    keys = agree("mix_integers", np.array(wanted, np.uint64), 9)
    places = agree("match_hashes", starts, hashes[rows], keys)
    found = [int(rows[place]) if place >= 0 else None for place in places]
    assert found == [known.index(word) if word in known else None for word in wanted]


@pytest.mark.parametrize("starts", [[0, 2, 1], [1, 1, 2], [0, 1, 3], [0, -1, 2]])
def test_buckets_that_leave_their_rows_are_rejected(agree, starts) -> None:
    ordered, wanted = np.zeros(2, np.uint64), np.arange(3, dtype=np.uint64)
    found = agree("match_hashes", np.array(starts, np.int32), ordered, wanted)
    assert found is CorruptDataError


@pytest.mark.parametrize("starts", [[0], [0, 1], [0, 0, 0, 1]])
def test_a_number_of_buckets_that_is_no_power_of_two_is_rejected(agree, starts) -> None:
    found = agree(
        "match_hashes", np.array(starts, np.int32), np.zeros(1, np.uint64), np.zeros(1, np.uint64)
    )
    assert found is InvalidInputError


@pytest.mark.parametrize("bits", [0, 32, -1])
def test_impossible_numbers_of_bits_are_rejected(agree, bits) -> None:
    assert agree("bucket_rows", np.zeros(1, np.uint64), bits) is InvalidInputError
