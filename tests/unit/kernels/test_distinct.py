"""Run and distinct counts: both implementations agree with sets and pairs."""

import itertools
import math
from collections import Counter

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lancelet.errors import CorruptDataError, InvalidInputError

ROWS = st.sampled_from([1, 2, 7, 64, 100])
MOST = st.sampled_from([0, 1, 5, 1000])


def expected(values, most):
    return len(list(itertools.groupby(values))), min(len(set(values)), most + 1)


@given(
    st.sampled_from([1, 2, 3, 4, 8, 16]),
    st.sampled_from([0, 1, 63, 200, 300]),
    st.sampled_from([1, 3, 100]),
    MOST,
    st.integers(0, 2**32),
)
def test_fixed_width_counts_match_a_set(agree, width, count, kinds, most, seed):
    rng = np.random.default_rng(seed)
    words = rng.integers(0, 256, (kinds, width), np.uint8)[rng.integers(0, kinds, count)]
    found = agree("count_distinct_fixed", words.reshape(-1), width, most)
    assert found == expected([word.tobytes() for word in words], most)


@given(
    st.sampled_from([1, 2, 3, 8, 16]),
    st.sampled_from([1, 3, 100]),
    ROWS,
    st.sampled_from([1, 2, 5, 200]),
    st.integers(0, 2**32),
)
def test_byte_entropy_matches_counts(agree, width, kinds, rows, step, seed):
    rng = np.random.default_rng(seed)
    words = rng.integers(0, 256, (kinds, width), np.uint8)[rng.integers(0, kinds, rows)]
    sums = agree("byte_entropy_sums", words.reshape(-1), width, step)
    planes = words[::step].T
    changes = np.diff(planes, axis=1, prepend=planes[:, :1])
    for kind, total in zip((planes, changes), sums, strict=True):
        times = [n for plane in kind for n in Counter(plane.tolist()).values()]
        assert total == pytest.approx(sum(n * math.log2(n) for n in times))


TEXT = st.sampled_from(
    [
        *(b"", b"a", b"ab", b"\0", b"\0\0", b"abc", b"abcd", b"abde", b"eight by", b"eight bz"),
        *(b"eight bytes", b"eight bytez", b"more than sixteen", b"more than sixteem"),
    ]
)


@given(st.lists(TEXT, max_size=80), MOST, st.booleans())
def test_string_counts_match_a_set(agree, texts, most, is_large):
    ends = np.cumsum([0, *map(len, texts)]).astype(np.int64 if is_large else np.int32)
    data = np.frombuffer(b"".join(texts), np.uint8)
    assert agree("count_distinct_strings", ends, data, most) == expected(texts, most)


def numbered(values, most):
    """Which of the different values each is, and where each comes first."""
    items = list(dict.fromkeys(values))
    if len(items) > most:
        return None
    return [items.index(value) for value in values], [values.index(item) for item in items]


@given(
    st.sampled_from([1, 2, 3, 4, 8, 16, 20]),
    st.sampled_from([0, 1, 63, 200]),
    st.sampled_from([1, 3, 100]),
    st.sampled_from([1, 2, 3, 50, 1000]),
    st.integers(0, 2**32),
)
def test_words_are_numbered_as_they_come(agree, width, count, kinds, most, seed):
    rng = np.random.default_rng(seed)
    words = rng.integers(0, 256, (kinds, width), np.uint8)[rng.integers(0, kinds, count)]
    found = agree("dictionary_encode_fixed", words.reshape(-1), width, most)
    parts = None if found is None else tuple(part.tolist() for part in found)
    assert parts == numbered([word.tobytes() for word in words], most)


@given(st.lists(TEXT, max_size=80), st.sampled_from([1, 2, 3, 8, 100]), st.booleans())
def test_strings_are_numbered_as_they_come(agree, texts, most, is_large):
    ends = np.cumsum([0, *map(len, texts)]).astype(np.int64 if is_large else np.int32)
    data = np.frombuffer(b"".join(texts), np.uint8)
    found = agree("dictionary_encode_strings", ends, data, most)
    parts = None if found is None else tuple(part.tolist() for part in found)
    assert parts == numbered(texts, most)


def test_values_have_numbers(agree):
    none = np.zeros(1, np.int32)
    assert agree("dictionary_encode_fixed", none.view(np.uint8), 4, 0) is InvalidInputError
    assert agree("dictionary_encode_strings", none, none.view(np.uint8), 0) is InvalidInputError


@pytest.mark.parametrize("offsets", [[0, 5], [2, 1], [-1, 1], [0, 3, 2]])
def test_strings_are_within_their_data(agree, offsets):
    texts = np.array(offsets, np.int32), np.zeros(3, np.uint8)
    assert agree("count_distinct_strings", *texts, 4) is CorruptDataError
    assert agree("dictionary_encode_strings", *texts, 4) is CorruptDataError


def test_limits_and_steps_are_checked(agree):
    none = np.zeros(1, np.int32)
    assert agree("count_distinct_fixed", none.view(np.uint8), 4, -1) is InvalidInputError
    assert agree("count_distinct_strings", none, none.view(np.uint8), -1) is InvalidInputError
    assert agree("byte_entropy_sums", none.view(np.uint8), 4, 0) is InvalidInputError
    assert agree("byte_entropy_sums", none[:0].view(np.uint8), 4, 1) is InvalidInputError


def test_values_are_whole(agree):
    assert agree("count_distinct_fixed", np.zeros(7, np.uint8), 4, 2) is InvalidInputError
