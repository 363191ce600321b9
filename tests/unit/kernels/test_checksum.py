"""Checksums and hashes: known answers, and both implementations agree."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lancelet.buffers import Slices
from lancelet.errors import CorruptDataError, InvalidInputError

LENGTHS = st.sampled_from([0, 1, 7, 8, 9, 63, 191, 192, 193, 1535, 1536, 1600, 12287, 12288, 14000])


def some_bytes(count, seed=0):
    return np.random.default_rng(seed).integers(0, 256, count, np.uint8)


# From RFC 3720, appendix B.4, and the check value of the catalogue of checksums.
@pytest.mark.parametrize(
    ("data", "expected"),
    [
        (b"123456789", 0xE3069283),
        (bytes(32), 0x8A9136AA),
        (b"\xff" * 32, 0x62A8AB43),
        (bytes(range(32)), 0x46DD794E),
        (bytes(range(31, -1, -1)), 0x113FDB5C),
        (b"", 0),
    ],
)
def test_known_checksums(agree, data, expected):
    assert agree("crc32c", np.frombuffer(data, np.uint8)) == expected


@given(LENGTHS, st.integers(0, 9), st.integers(0, 2**32))
def test_a_checksum_goes_on_from_another(agree, length, skip, seed):
    data = some_bytes(length + skip, seed)[skip:]
    cut = length // 3
    assert agree("crc32c", data[cut:], agree("crc32c", data[:cut])) == agree("crc32c", data)


@given(LENGTHS, st.sampled_from([1, 8, 100, 4096, 13000]))
def test_blocks_have_the_checksums_of_their_bytes(agree, length, block_bytes):
    data = some_bytes(min(length, 200 * block_bytes))
    sums = agree("crc32c_blocks", data, block_bytes)
    starts = range(0, len(data), block_bytes)
    assert sums.tolist() == [agree("crc32c", data[at : at + block_bytes]) for at in starts]


@given(st.lists(st.tuples(st.integers(0, 500), LENGTHS), max_size=12))
def test_slices_have_the_checksums_of_their_bytes(agree, places):
    source = some_bytes(500 + 14000)
    position, size = np.array(places, np.int64).reshape(-1, 2).T
    sums = agree("crc32c_slices", Slices(source, position, size))
    assert sums.tolist() == [agree("crc32c", source[at : at + size]) for at, size in places]


@pytest.mark.parametrize(
    ("position", "size"), [(-1, 2), (0, 9), (9, 0), (3, -1), (1 << 62, 1 << 62)]
)
def test_slices_lie_in_their_source(agree, position, size):
    slices = Slices(some_bytes(8), np.array([0, position]), np.array([1, size]))
    assert agree("crc32c_slices", slices) is CorruptDataError


@given(st.integers(1, 3000), st.data())
def test_one_flipped_bit_changes_the_checksum(agree, length, data):
    before = some_bytes(length)
    after = before.copy()
    after[data.draw(st.integers(0, length - 1))] ^= 1 << data.draw(st.integers(0, 7))
    assert agree("crc32c", before) != agree("crc32c", after)


def test_blocks_have_bytes(agree):
    assert agree("crc32c_blocks", some_bytes(3), 0) is InvalidInputError


# From the specification of xxHash.
@pytest.mark.parametrize(
    ("data", "seed", "expected"),
    [
        (b"", 0, 0xEF46DB3751D8E999),
        (b"", 2654435761, 0xAC75FDA2929B17EF),
        (b"abc", 0, 0x44BC2CF5AD770999),
        (b"Nobody inspects the spammish repetition", 0, 0xFBCEA83C8A378BF1),
    ],
)
def test_known_hashes(agree, data, seed, expected):
    offsets = np.array([0, len(data)], np.int32)
    assert agree("xxh64_many", offsets, np.frombuffer(data, np.uint8), seed).tolist() == [expected]


@given(st.lists(st.binary(max_size=100), max_size=20), st.integers(0, 2**64 - 1))
def test_hashes_agree(agree, values, seed):
    offsets = np.cumsum([0, *map(len, values)])
    data = np.frombuffer(b"".join(values), np.uint8)
    wide = agree("xxh64_many", offsets, data, seed)
    narrow = agree("xxh64_many", offsets.astype(np.int32), data, seed)
    np.testing.assert_array_equal(wide, narrow)


@pytest.mark.parametrize("offsets", [[0, 9], [5, 4], [-1, 4]])
def test_offsets_out_of_bounds_are_corrupt(agree, offsets):
    data = some_bytes(8)
    assert agree("xxh64_many", np.array(offsets, np.int32), data) is CorruptDataError
