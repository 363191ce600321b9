"""Repetition within groups: both implementations agree, and say what sets and pairs would."""

import itertools

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lancelet.errors import CorruptDataError, InvalidInputError

ROWS = st.sampled_from([1, 2, 7, 64, 100])
MOST = st.sampled_from([0, 1, 5, 1000])


def expected(values, rows, most):
    groups = [values[start : start + rows] for start in range(0, len(values), rows)]
    runs = [len(list(itertools.groupby(group))) for group in groups]
    return runs, [min(len(set(group)), most + 1) for group in groups]


@given(
    st.sampled_from([1, 2, 3, 4, 8, 16]),
    st.sampled_from([0, 1, 63, 200, 300]),
    st.sampled_from([1, 3, 100]),
    ROWS,
    MOST,
    st.integers(0, 2**32),
)
def test_words_repeat_as_a_set_says(agree, width, count, kinds, rows, most, seed):
    rng = np.random.default_rng(seed)
    words = rng.integers(0, 256, (kinds, width), np.uint8)[rng.integers(0, kinds, count)]
    runs, distinct = agree("survey_words", words.reshape(-1), width, rows, most)
    found = expected([word.tobytes() for word in words], rows, most)
    assert (runs.tolist(), distinct.tolist()) == found


TEXT = st.sampled_from([b"", b"a", b"ab", b"\0", b"\0\0", b"eight by", b"eight bytes", b"eight bz"])


@given(st.lists(TEXT, max_size=80), ROWS, MOST, st.booleans())
def test_strings_repeat_as_a_set_says(agree, texts, rows, most, is_large):
    ends = np.cumsum([0, *map(len, texts)]).astype(np.int64 if is_large else np.int32)
    data = np.frombuffer(b"".join(texts), np.uint8)
    runs, distinct = agree("survey_strings", ends, data, rows, most)
    assert (runs.tolist(), distinct.tolist()) == expected(texts, rows, most)


@pytest.mark.parametrize("offsets", [[0, 5], [2, 1], [-1, 1], [0, 3, 2]])
def test_strings_lie_in_their_data(agree, offsets):
    found = agree("survey_strings", np.array(offsets, np.int32), np.zeros(3, np.uint8), 4, 4)
    assert found is CorruptDataError


@pytest.mark.parametrize(("rows", "most"), [(0, 1), (-1, 1), (1 << 31, 1), (1, -1)])
def test_groups_have_rows(agree, rows, most):
    none = np.zeros(1, np.int32)
    assert agree("survey_words", none.view(np.uint8), 4, rows, most) is InvalidInputError
    assert agree("survey_strings", none, none.view(np.uint8), rows, most) is InvalidInputError


def test_values_are_whole(agree):
    assert agree("survey_words", np.zeros(7, np.uint8), 4, 2, 2) is InvalidInputError
