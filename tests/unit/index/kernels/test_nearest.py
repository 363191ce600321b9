"""The nearest vectors against their definition: ties, bounds, nulls, and vectors given up early."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lancelet.buffers import ByteSlices
from lancelet.errors import CorruptDataError
from lancelet.index.kernels import native, reference
from lancelet.index.kernels.vectors import Metric


@pytest.mark.parametrize("metric", [Metric.L2, Metric.COSINE, Metric.DOT])
@given(
    dimension=st.sampled_from([1, 31, 64, 65, 100, 200, 520]),
    rows=st.integers(0, 300),
    count=st.integers(1, 12),
    masked=st.booleans(),
    seed=st.integers(0, 1000),
)
def test_the_nearest_are_those_of_the_definition(metric, dimension, rows, count, masked, seed):
    # Whole numbers are summed up exactly in any order, and many are as far as others.
    random = np.random.default_rng(seed)
    vectors = random.integers(-3, 4, dimension * rows).astype(np.float32)
    if metric is Metric.COSINE:
        vectors = np.where(np.arange(len(vectors)) % dimension == 0, 1, 0).astype(np.float32)
    query = random.integers(-3, 4, dimension).astype(np.float32)
    query[0] = 1
    first = int(random.integers(0, 9))
    valid = random.integers(0, 256, rows // 8 + 2, np.uint8) if masked else None
    bounds = (-np.inf, np.inf) if random.random() < 0.5 else (-1.0, float(dimension))
    own, other = (
        each.nearest_vectors(vectors, dimension, query, metric, count, valid, first, bounds)
        for each in (native, reference)
    )
    assert own[0].tolist() == other[0].tolist()
    np.testing.assert_allclose(own[1], other[1], rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("dtype", ["f2", "f4", "f8"])
def test_vectors_that_are_given_up_are_not_missed(dtype):
    random = np.random.default_rng(2)
    vectors = random.normal(size=(9000, 300)) * random.choice([0.2, 1, 9], size=(9000, 1))
    vectors = vectors.astype(dtype)
    query = (vectors[77] + 0.1).astype(dtype)
    own, other = (
        each.nearest_vectors(vectors.reshape(-1), 300, query, Metric.L2, 20)
        for each in (native, reference)
    )
    np.testing.assert_allclose(own[1], other[1], rtol=1e-4)
    assert own[0][0] == 77
    exact = native.vector_distances(vectors.reshape(-1), 300, query, Metric.L2)
    assert own[1].tolist() == exact[own[0]].tolist(), "the same sum, given up or not"


def test_bits_are_compared():
    random = np.random.default_rng(3)
    vectors = random.integers(0, 256, 16 * 90).astype(np.uint8)
    own, other = (
        each.nearest_vectors(vectors, 16, vectors[:16], Metric.HAMMING, 9)
        for each in (native, reference)
    )
    assert own[0].tolist() == other[0].tolist()
    assert own[1].tolist() == other[1].tolist()


def test_infinitely_far_is_found_and_no_number_is_not():
    vectors = np.array([np.inf, np.nan, 1.0, 3e38], np.float32)
    query = np.zeros(1, np.float32)
    for each in (native, reference):
        with np.errstate(over="ignore"):
            places, scores = each.nearest_vectors(vectors, 1, query, Metric.L2, 9)
            near, _ = each.nearest_vectors(vectors, 1, query, Metric.L2, 9, bounds=(0, 5.0))
        assert places.tolist() == [2, 0, 3]
        assert scores.tolist() == [1, np.inf, np.inf]
        assert near.tolist() == [2]


@pytest.mark.parametrize("dtype", ["f2", "f4", "f8"])
@pytest.mark.parametrize("metric", [Metric.L2, Metric.COSINE, Metric.DOT])
def test_vectors_are_compared_where_they_are(dtype, metric):
    random = np.random.default_rng(5)
    vectors = random.normal(size=(40, 70)).astype(dtype)
    width = vectors.itemsize * 70
    source = np.concatenate([np.zeros(3, np.uint8), vectors.reshape(-1).view(np.uint8)])
    rows = random.permutation(40)[:9]
    slices = ByteSlices(source, 3 + rows * width, np.full(9, width))
    query = vectors[0]
    own, other = (
        each.slice_distances(slices, vectors.dtype, 70, query, metric)
        for each in (native, reference)
    )
    exact = native.vector_distances(vectors.reshape(-1), 70, query, metric, rows)
    assert own.tolist() == exact.tolist()
    np.testing.assert_allclose(own, other, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize(("position", "size"), [(-1, 8), (12, 8), (0, 7), (1 << 62, 8)])
def test_slices_that_hold_no_vector_are_rejected(position, size):
    slices = ByteSlices(np.zeros(16, np.uint8), np.array([position]), np.array([size]))
    with pytest.raises(CorruptDataError):
        native.slice_distances(slices, np.dtype("f4"), 2, np.zeros(2, np.float32), Metric.L2)
