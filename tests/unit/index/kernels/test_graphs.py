"""Graphs: the native code makes and searches those of the definition, and finds near vectors."""

from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lancelet.index.kernels import Comparison, native, reference


def tops_of(random, count):
    drawn = -np.log(1 - random.random(count)) / np.log(4)
    return np.minimum(drawn, 3).astype(np.uint8)


def whole_vectors(random, count, dimension, comparison):
    """Vectors of small whole numbers, so that sums are the same in any order."""
    dtype = np.uint8 if comparison is Comparison.BYTE_L2 else np.float32
    return random.integers(0, 50, (count, dimension)).astype(dtype)


@settings(max_examples=25)
@given(
    st.integers(1, 60),
    st.integers(1, 40),
    st.sampled_from([Comparison.FLOAT_L2, Comparison.FLOAT_DOT, Comparison.BYTE_L2]),
    st.integers(0, 1 << 30),
)
def test_native_graphs_are_those_of_the_definition(count, dimension, comparison, seed):
    random = np.random.default_rng(seed)
    vectors, tops = whole_vectors(random, count, dimension, comparison), tops_of(random, count)
    built, defined = (
        each.build_graph(vectors, comparison, tops, 4, 10) for each in (native, reference)
    )
    assert built.entry == defined.entry
    for name in ("nodes", "offsets", "neighbors", "level_offsets"):
        np.testing.assert_array_equal(getattr(built, name), getattr(defined, name))
    np.testing.assert_array_equal(
        native.edge_distances(built, vectors, comparison),
        reference.edge_distances(built, vectors, comparison),
    )
    query = vectors[0].astype(vectors.dtype)
    admitted = random.random(count) < 0.7
    for mask in (None, admitted):
        own, other = (
            each.search_graph(built, vectors, comparison, query, 7, mask)
            for each in (native, reference)
        )
        np.testing.assert_array_equal(own[0], other[0])
        np.testing.assert_array_equal(own[1], other[1])
        assert mask is None or mask[own[0]].all()


def test_a_graph_does_not_depend_on_the_number_of_threads():
    random = np.random.default_rng(8)
    vectors, tops = random.normal(size=(2500, 12)).astype(np.float32), tops_of(random, 2500)
    alone = native.build_graph(vectors, Comparison.FLOAT_L2, tops, 8, 40)
    with ThreadPoolExecutor(3) as threads:
        shared = native.build_graph(
            vectors, Comparison.FLOAT_L2, tops, 8, 40, side_by_side=threads.map, parts=5
        )
    assert alone.entry == shared.entry
    for name in ("nodes", "offsets", "neighbors", "level_offsets"):
        np.testing.assert_array_equal(getattr(alone, name), getattr(shared, name))


@pytest.mark.parametrize("comparison", [Comparison.BYTE_DOT, Comparison.TABLE])
def test_codes_are_searched_as_the_definition_does(comparison):
    random = np.random.default_rng(4)
    codes = random.integers(0, 256, (80, 8)).astype(np.uint8)
    graph = native.build_graph(codes, Comparison.BYTE_L2, tops_of(random, 80), 6, 20)
    size = 8 * 256 if comparison is Comparison.TABLE else 8
    query = random.integers(0, 9, size).astype(np.float32)
    own, other = (
        each.search_graph(graph, codes, comparison, query, 12) for each in (native, reference)
    )
    np.testing.assert_array_equal(own[0], other[0])
    np.testing.assert_array_equal(own[1], other[1])


def test_near_vectors_are_found():
    random = np.random.default_rng(6)
    vectors = random.normal(size=(3000, 24)).astype(np.float32)
    graph = native.build_graph(vectors, Comparison.FLOAT_L2, tops_of(random, 3000), 16, 100)
    hits = 0
    for query in random.normal(size=(20, 24)).astype(np.float32):
        exact = np.argsort(((vectors - query) ** 2).sum(axis=1))[:10]
        rows, distances = native.search_graph(graph, vectors, Comparison.FLOAT_L2, query, 60)
        assert (np.diff(distances) >= 0).all()
        hits += len(set(rows[:10].tolist()) & set(exact.tolist()))
    assert hits >= 190


@settings(max_examples=30)
@given(
    st.integers(1, 5), st.sampled_from([16, 48, 256]), st.integers(1, 9), st.integers(0, 1 << 30)
)
def test_the_nearest_words_are_found(pieces, count, size, seed):
    random = np.random.default_rng(seed)
    words = random.integers(-30, 30, (pieces, count, size)).astype(np.float32)
    vectors = random.integers(-30, 30, (23, pieces * size)).astype(np.float32)
    own, other = (each.pq_encode(vectors, words) for each in (native, reference))
    np.testing.assert_array_equal(own[0], other[0])
    np.testing.assert_array_equal(own[1], other[1])


@settings(max_examples=30)
@given(st.integers(1, 6), st.integers(0, 40), st.integers(0, 1 << 30))
def test_rows_are_added_up_by_label(count, rows, seed):
    random = np.random.default_rng(seed)
    vectors = random.normal(size=(rows, 5)).astype(np.float32)
    labels = random.integers(0, count, rows)
    own, other = (each.sum_by_label(vectors, labels, count) for each in (native, reference))
    np.testing.assert_allclose(own, other, rtol=1e-12)
