"""Distances against their definition, for every type, metric, dimension and choice of rows."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lancelet.errors import InternalError
from lancelet.index.kernels import (
    native,
    pq_encode,
    quantize_rows,
    reference,
    rotate_rows,
    vector_distances,
)
from lancelet.index.kernels.vectors import Metric

FLOATS = ("f2", "f4", "f8")


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("metric", [Metric.L2, Metric.COSINE, Metric.DOT])
@given(dimension=st.integers(1, 100), count=st.integers(0, 9), seed=st.integers(0, 1000))
def test_distances_are_those_of_the_definition(dtype, metric, dimension, count, seed):
    random = np.random.default_rng(seed)
    vectors = random.normal(size=dimension * count).astype(dtype)
    query = random.normal(size=dimension).astype(dtype)
    expected = reference.vector_distances(vectors, dimension, query, metric)
    found = vector_distances(vectors, dimension, query, metric)
    np.testing.assert_allclose(found, expected, rtol=2e-5, atol=2e-5)
    rows = random.integers(0, count, size=4) if count else np.empty(0, np.int64)
    found = vector_distances(vectors, dimension, query, metric, rows)
    np.testing.assert_allclose(found, expected[rows], rtol=2e-5, atol=2e-5)


@given(dimension=st.integers(1, 40), count=st.integers(0, 9), seed=st.integers(0, 1000))
def test_bits_are_counted(dimension, count, seed):
    random = np.random.default_rng(seed)
    vectors = random.integers(0, 256, dimension * count).astype(np.uint8)
    query = random.integers(0, 256, dimension).astype(np.uint8)
    expected = reference.vector_distances(vectors, dimension, query, Metric.HAMMING)
    found = vector_distances(vectors, dimension, query, Metric.HAMMING)
    assert found.tolist() == expected.tolist()


def test_every_half_float_is_read():
    halves = np.arange(1 << 16, dtype=np.uint16).view(np.float16)
    halves = halves[~np.isnan(halves)]
    found = vector_distances(halves, 1, np.ones(1, np.float32), Metric.DOT)
    assert np.array_equal(found, 1 - halves.astype(np.float32))
    nan = np.array([np.nan], np.float16)
    assert np.isnan(vector_distances(nan, 1, np.ones(1, np.float32), Metric.L2))


def test_distances_to_nan_are_nan():
    vectors = np.array([np.inf, np.nan, 1.0], np.float32)
    found = vector_distances(vectors, 1, np.zeros(1, np.float32), Metric.L2)
    assert np.isinf(found[0])
    assert np.isnan(found[1])
    assert found[2] == 1


@given(
    rows=st.integers(0, 30),
    pieces=st.integers(1, 5),
    size=st.integers(1, 20),
    words=st.sampled_from([16, 48, 64, 256]),
    seed=st.integers(0, 1000),
)
def test_nearest_words_are_those_of_the_definition(rows, pieces, size, words, seed):
    random = np.random.default_rng(seed)
    # Few values, so that words repeat and the first must win.
    vectors = random.integers(-3, 4, (rows, pieces * size)).astype(np.float32)
    book = random.integers(-3, 4, (pieces, words, size)).astype(np.float32)
    codes, apart = pq_encode(vectors, book)
    expected, least = reference.pq_encode(vectors, book)
    np.testing.assert_array_equal(codes, expected)
    np.testing.assert_array_equal(apart, least)


def test_inconsistent_arguments_are_rejected():
    four, two = np.zeros(4, np.float32), np.zeros(2, np.float32)
    with pytest.raises(InternalError):
        vector_distances(four, 3, np.zeros(3, np.float32), Metric.L2)
    with pytest.raises(InternalError):
        vector_distances(four, 2, four, Metric.L2)
    with pytest.raises(InternalError):
        vector_distances(four, 2, two, Metric.HAMMING)
    with pytest.raises(InternalError):
        vector_distances(four, 2, two, Metric.L2, np.array([2]))


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("is_normal", [False, True])
@given(dimension=st.integers(1, 80), count=st.integers(0, 9), seed=st.integers(0, 1000))
def test_rows_are_rounded_to_half_a_step(dtype, is_normal, dimension, count, seed):
    random = np.random.default_rng(seed)
    vectors = random.normal(size=(count, dimension)).astype(dtype)
    center = random.normal(size=dimension).astype(np.float32)
    numbers, squares, steps = quantize_rows(vectors, center, is_normal=is_normal)
    expected = reference.quantize_rows(vectors, center, is_normal=is_normal)
    np.testing.assert_allclose(squares, expected[1], rtol=1e-4)
    np.testing.assert_allclose(steps, expected[2], rtol=1e-4)
    assert (np.abs(numbers.astype(int) - expected[0]) <= 1).all()
    wide = vectors.astype(np.float64)
    if is_normal:
        wide /= np.linalg.norm(wide, axis=1, keepdims=True)
    apart = wide - center - (numbers.astype(np.float64) - 128) * steps[:, None]
    assert (np.abs(apart) <= 0.5001 * steps[:, None] + 1e-6).all()


@pytest.mark.parametrize("module", [native, reference])
def test_rows_that_are_no_numbers_have_no_steps(module):
    vectors = np.array([[np.nan, 1], [np.inf, 1], [1e30, 1], [0, 0], [2, 4]], np.float32)
    numbers, squares, steps = module.quantize_rows(vectors, np.zeros(2, np.float32))
    assert np.isnan(steps).tolist() == np.isnan(squares).tolist() == [True] * 3 + [False] * 2
    assert numbers.tolist() == [[128, 128]] * 4 + [[192, 255]]


@given(
    dimension=st.integers(1, 20).map(lambda each: 8 * each),
    count=st.integers(1, 40),
    seed=st.integers(0, 1000),
)
def test_rows_are_turned_as_the_definition_turns_them(dimension, count, seed):
    random = np.random.default_rng(seed)
    vectors = random.normal(size=(count, dimension)).astype(np.float32)
    signs = random.integers(0, 256, 4 * (dimension // 8)).astype(np.uint8)
    expected = reference.rotate_rows(vectors, signs)
    found = rotate_rows(vectors, signs)
    np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-5)
    lengths = np.linalg.norm(vectors, axis=1)
    np.testing.assert_allclose(np.linalg.norm(found, axis=1), lengths, rtol=1e-4)
