"""RQ: packing round trips, rotations preserve lengths, and estimates are accurate."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lancelet.index.kernels import Metric
from lancelet.index.vector.quantizers import rq
from lancelet.index.vector.quantizers.rotation import FastRotation
from lancelet.index.vector.quantizers.rq import RotatedCodes, nearest_directions


@given(st.integers(0, 100), st.integers(1, 9), st.integers(0, 1 << 30))
def test_unpacking_undoes_packing_of_signs(rows, width, seed):
    signs = np.random.default_rng(seed).integers(0, 256, (rows, width)).astype(np.uint8)
    np.testing.assert_array_equal(rq.unpack_signs(rq.pack_signs(signs)), signs)


@given(st.integers(0, 20), st.integers(1, 8), st.integers(1, 25), st.integers(0, 1 << 30))
def test_unpacking_undoes_packing_of_further_bits(rows, width, eighths, seed):
    shape = (rows, 8 * eighths)
    codes = np.random.default_rng(seed).integers(0, 1 << width, shape).astype(np.uint8)
    packed = rq.pack_extra(codes, width)
    assert packed.shape == (rows, -(-shape[1] // 64) * 8 * width)
    np.testing.assert_array_equal(rq.unpack_extra(packed, width, shape[1]), codes)


def test_four_bits_lie_as_the_format_says():
    codes = np.zeros((1, 64), np.uint8)
    codes[0, 17], codes[0, 25] = 0xA, 0x5
    packed = rq.pack_extra(codes, 4)
    assert packed[0, 9] == 0x5A


@pytest.mark.parametrize("dimension", [8, 24, 64, 96, 120])
def test_rotations_keep_lengths(dimension):
    random = np.random.default_rng(1)
    signs = random.integers(0, 256, 4 * (dimension // 8)).astype(np.uint8)
    vectors = random.normal(size=(20, dimension)).astype(np.float32)
    turned = FastRotation(dimension, signs).rotate(vectors)
    np.testing.assert_allclose(
        np.linalg.norm(turned, axis=1), np.linalg.norm(vectors, axis=1), rtol=1e-5
    )


@pytest.mark.parametrize(("extra", "least"), [(1, 0.92), (4, 0.997), (8, 0.99999)])
def test_directions_are_nearer_the_more_bits_they_have(extra, least):
    sizes = np.abs(np.random.default_rng(2).normal(size=(50, 64))).astype(np.float32)
    full = nearest_directions(sizes, extra) + 0.5
    assert full.max() < 1 << extra
    cosine = (sizes * full).sum(1) / np.linalg.norm(sizes, axis=1) / np.linalg.norm(full, axis=1)
    assert cosine.min() > least


@pytest.mark.parametrize(("bits", "least"), [(1, 0.7), (5, 0.998), (8, 0.9999), (9, 0.9999)])
@pytest.mark.parametrize("metric", [Metric.L2, Metric.DOT])
def test_estimates_are_near_distances(bits, least, metric):
    random = np.random.default_rng(3)
    vectors = random.normal(size=(200, 64)).astype(np.float32)
    centers = random.normal(size=(2, 64)).astype(np.float32) * 0.1
    labels = np.zeros(200, np.int64)
    codec = RotatedCodes.train(64, metric, bits=bits, seed=5)
    codes = codec.encode(vectors, labels, centers)
    loaded = codec.load(codec.store(codes))
    for key, own in codes.items():
        np.testing.assert_array_equal(loaded[key], own)
    query = random.normal(size=64).astype(np.float32)
    packed = codec.pack_codes(loaded, np.zeros(0, np.float32))
    asked = codec.code_query(query)
    near = -(query @ centers[0]) if metric is Metric.DOT else ((query - centers[0]) ** 2).sum()
    values = packed.values.reshape(200, 64).astype(np.float32)
    found = near + packed.add + packed.scale * (values @ asked.query + asked.base)
    exact = 1 - vectors @ query if metric is Metric.DOT else ((vectors - query) ** 2).sum(axis=1)
    assert np.corrcoef(found, exact)[0, 1] > least
    assert abs((found - exact).mean()) < 0.25 * exact.std()
