"""Maps from words to numbers: both implementations write and read the same nodes."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lancelet.errors import CorruptDataError
from lancelet.index.kernels.fst import HEADER_BYTES

WORDS = st.binary(max_size=4) | st.text("abt", max_size=6).map(str.encode)
MAPS = st.dictionaries(WORDS, st.integers(0, (1 << 40) - 1), max_size=60)


def arguments_of(words):
    ordered = sorted(words.items())
    ends = np.cumsum([0, *(len(word) for word, _ in ordered)], dtype=np.int64)
    data = np.frombuffer(b"".join(word for word, _ in ordered), np.uint8)
    return ends, data, np.array([number for _, number in ordered], np.int64)


def words_of(text, ends, numbers):
    starts, data = [0, *ends.tolist()], text.tobytes()
    words = (data[start:end] for start, end in zip(starts, ends.tolist(), strict=False))
    return list(zip(words, numbers.tolist(), strict=True))


def written(agree, words):
    nodes, root = agree("write_fst", *arguments_of(words))
    assert not nodes[:HEADER_BYTES].any()
    return nodes, root


@given(MAPS)
def test_words_are_read_as_they_were_written(agree, words):
    nodes, root = written(agree, words)
    found = agree("read_fst", nodes, root, len(words))
    assert words_of(*found) == sorted(words.items())


@pytest.mark.parametrize("count", [1, 32, 33, 63, 64, 255, 256])
def test_nodes_have_as_many_ways_as_there_are_bytes(agree, count):
    words = {bytes([first, second]): first for first in range(count) for second in (0, first)}
    nodes, root = written(agree, words)
    found = agree("read_fst", nodes, root, len(words))
    assert words_of(*found) == sorted(words.items())


def test_more_words_than_expected_are_rejected(agree):
    nodes, root = written(agree, {b"a": 1, b"b": 2})
    assert agree("read_fst", nodes, root, 1) is CorruptDataError


@pytest.mark.parametrize("words", [[b"b", b"a"], [b"a", b"a"], [b"ab", b"a"]])
def test_words_out_of_order_are_rejected(agree, words):
    ends = np.cumsum([0, *map(len, words)], dtype=np.int64)
    data = np.frombuffer(b"".join(words), np.uint8)
    assert agree("write_fst", ends, data, np.zeros(2, np.int64)) is CorruptDataError


@pytest.mark.parametrize("offsets", [[0, 3], [0, -1], [2, 1], [-1, 1]])
def test_words_are_within_their_data(agree, offsets):
    data = np.frombuffer(b"ab", np.uint8)
    found = agree("write_fst", np.array(offsets, np.int64), data, np.zeros(1, np.int64))
    assert found is CorruptDataError


@given(MAPS.filter(len), st.data())
def test_damaged_maps_are_read_identically(agree, words, data):
    nodes, root = written(agree, words)
    damaged = nodes.copy()
    for _ in range(data.draw(st.integers(1, 3))):
        damaged[data.draw(st.integers(0, len(nodes) - 1))] = data.draw(st.integers(0, 255))
    start = data.draw(st.sampled_from([root, root, 0, -1, len(nodes), len(nodes) - 1, 1 << 60]))
    agree("read_fst", damaged, start, 2 * len(words))


@pytest.mark.parametrize("size", [8, 9, 15])
def test_numbers_of_a_damaged_map_are_read_as_64_bits(agree, size):
    nodes, root = written(agree, {b"ab": 1 << 62, b"ac": 3 << 61, b"ad": 5 << 60})
    sizes = np.flatnonzero(nodes == 8)
    damaged = nodes.copy()
    damaged[sizes - 1] = 255
    damaged[sizes] = size
    agree("read_fst", damaged, root, 10)


def test_a_way_that_leads_to_no_word_ends(agree):
    """A node that is read by two ways of one above would double the ways with each level."""
    nodes, root = written(agree, {b"": 5})
    nodes = nodes.copy()
    nodes[root] = 0x00  # ends no word, and says below that it has no ways
    above = [0, 0, *b"ba", 0x10, 0x02]
    above[:2] = [len(nodes) - root] * 2
    found = np.concatenate([nodes, np.array(above, np.uint8)])
    assert agree("read_fst", found, len(found) - 1, 100) is CorruptDataError
