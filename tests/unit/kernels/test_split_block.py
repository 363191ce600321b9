"""Bloom filters: native code agrees with the definition, and added values are found."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lancelet.errors import CorruptDataError, InvalidInputError

HASHES = st.lists(st.integers(0, 2**64 - 1), max_size=40)


def as_hashes(values):
    return np.array(values, np.uint64)


@given(zones=st.lists(HASHES, max_size=4), blocks=st.integers(1, 5), sought=HASHES)
def test_filters_contain_added_hashes(agree, zones, blocks, sought):
    hashes = as_hashes([each for zone in zones for each in zone])
    stops = np.cumsum([len(zone) for zone in zones], dtype=np.int64)
    size = 32 * blocks
    data = agree("build_filters", hashes, stops, size)
    starts = np.arange(len(zones), dtype=np.int64) * size
    sizes = np.full(len(zones), size, np.int64)
    found = agree("probe_filters", data, starts, sizes, as_hashes([*sought, *hashes]))
    for place, zone in enumerate(zones):
        assert all(found[place, number] for number, each in enumerate(sought) if each in zone)
        # Each value sets eight bits at most.
        assert np.bitwise_count(data[place * size : (place + 1) * size]).sum() <= 8 * len(zone)


def test_a_value_sets_one_bit_of_each_word_of_its_block(agree):
    data = agree("build_filters", as_hashes([1 << 63 | 1]), np.array([1]), 64)
    assert not data[:32].any()
    words = data[32:].view("<u4")
    assert np.bitwise_count(words).tolist() == [1] * 8
    assert int(words[0]) == 1 << (0x47B6137B >> 27)


@pytest.mark.parametrize("stops", [[2, 1, 3], [-1, 3], [4], [2], []])
def test_stops_that_are_not_those_of_the_values_are_rejected(agree, stops):
    hashes = as_hashes([1, 2, 3])
    assert agree("build_filters", hashes, np.array(stops, np.int64), 32) is CorruptDataError


@pytest.mark.parametrize("size", [0, 16, 33, -32])
def test_filters_have_whole_blocks(agree, size):
    assert agree("build_filters", as_hashes([]), np.array([0]), size) is InvalidInputError
    data = np.zeros(64, np.uint8)
    places = np.array([0]), np.array([size])
    assert agree("probe_filters", data, *places, as_hashes([1])) is InvalidInputError


@pytest.mark.parametrize("start", [-1, 33, 2**62])
def test_filters_outside_of_their_data_are_corrupt(agree, start):
    places = np.array([start]), np.array([32])
    assert (
        agree("probe_filters", np.zeros(64, np.uint8), *places, as_hashes([1])) is CorruptDataError
    )


def test_each_filter_has_a_place_and_a_size(agree):
    data, places = np.zeros(64, np.uint8), np.array([0, 32])
    assert agree("probe_filters", data, places, places[1:], as_hashes([1])) is InvalidInputError
