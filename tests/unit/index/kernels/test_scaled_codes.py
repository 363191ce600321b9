"""Codes that point as vectors do: those of the definition, and better than rounding alone."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lancelet.index.kernels import native, reference


@settings(max_examples=40)
@given(
    st.integers(1, 40),
    st.integers(1, 8),
    st.sampled_from([0, 15, 59, 81]),
    st.integers(0, 6),
    st.integers(0, 1000),
)
def test_codes_are_those_of_the_definition(dimension, bits, percent, rows, seed):
    random = np.random.default_rng(seed)
    vectors = np.abs(random.normal(size=(rows, dimension))).astype(np.float32)
    vectors[:, random.random(dimension) < 0.2] = 0
    own, other = (each.scaled_codes(vectors, bits, percent) for each in (native, reference))
    np.testing.assert_array_equal(own, other)
    assert own.max(initial=0) < 1 << bits


@pytest.mark.parametrize("each", [native, reference])
def test_zero_vectors_have_no_codes(each):
    vectors = np.array([[0, 0], [np.inf, 1], [1, 0]], np.float32)
    codes = each.scaled_codes(vectors, 3, 52)
    assert codes[:2].tolist() == [[0, 0], [0, 0]]
    assert codes[2].tolist() == [7, 0]


def test_codes_point_nearly_as_vectors_do():
    vectors = np.abs(np.random.default_rng(3).normal(size=(50, 64))).astype(np.float32)
    full = native.scaled_codes(vectors, 4, 59) + 0.5
    lengths = np.linalg.norm(vectors, axis=1) * np.linalg.norm(full, axis=1)
    assert ((vectors * full).sum(axis=1) / lengths).min() > 0.995
