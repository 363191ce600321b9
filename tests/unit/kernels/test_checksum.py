"""Checksums and hashes: known answers, and both implementations agree."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lancelet.buffers import ByteSlices
from lancelet.errors import CorruptDataError, InvalidInputError
from lancelet.kernels import native, reference, select

LENGTHS = st.sampled_from(
    [0, 1, 7, 8, 9, 63, 191, 192, 193, 1023, 1024, 1025, 1279, 1280, 1535, 1536, 1600, 12287, 14000]
)


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
def test_a_checksum_continues_from_another(agree, length, skip, seed):
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
    sums = agree("crc32c_slices", ByteSlices(source, position, size))
    assert sums.tolist() == [agree("crc32c", source[at : at + size]) for at, size in places]


@pytest.mark.parametrize(
    ("position", "size"), [(-1, 2), (0, 9), (9, 0), (3, -1), (1 << 62, 1 << 62)]
)
def test_slices_are_within_their_source(agree, position, size):
    slices = ByteSlices(some_bytes(8), np.array([0, position]), np.array([1, size]))
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


@pytest.mark.parametrize("dtype", ["u1", "i2", "f4", "u8"])
@given(data=st.binary(max_size=80), seed=st.integers(0, 2**64 - 1))
def test_hashes_of_numbers_are_those_of_their_bytes(agree, dtype, data, seed):
    values = np.frombuffer(data[: len(data) // 8 * 8], dtype)
    offsets = np.arange(len(values) + 1) * values.itemsize
    expected = agree("xxh64_many", offsets, values.view(np.uint8), seed)
    np.testing.assert_array_equal(agree("xxh64_fixed", values, seed), expected)


@pytest.mark.parametrize("values", [np.zeros(2, "c16"), np.zeros(2, ">i4"), np.zeros(2, "U1")])
def test_hashes_are_of_numbers(agree, values):
    assert agree("xxh64_fixed", values) is InvalidInputError


@pytest.mark.parametrize("offsets", [[0, 9], [5, 4], [-1, 4]])
def test_offsets_out_of_bounds_are_corrupt(agree, offsets):
    data = some_bytes(8)
    assert agree("xxh64_many", np.array(offsets, np.int32), data) is CorruptDataError


@given(
    st.integers(1, 40_000),
    st.lists(st.tuples(st.integers(0, 40_000), st.integers(0, 9_000)), max_size=6),
    st.tuples(st.integers(0, 40_000), st.integers(0, 3_000)),
    st.integers(0, 40_000),
    st.sampled_from([512, 4096]),
)
def test_ranges_are_verified_by_their_blocks(
    instruction_sets, size, places, own, damaged, block_bytes
):
    data = some_bytes(size)
    without = data.copy()
    without[own[0] : sum(own)] = 0
    sums = reference.crc32c_blocks(without, block_bytes)
    data[damaged % size] ^= 1
    places = [(at % size, min(count, size - at % size)) for at, count in places]
    position, sizes = np.array(places, np.int64).reshape(-1, 2).T
    ranges = ByteSlices(data, position.copy(), sizes.copy())
    counts = not own[0] <= damaged % size < sum(own)
    wrong = damaged % size // block_bytes if counts else None
    touched = set()
    for at, count in places:
        touched |= {*range(at // block_bytes, -(-(at + count) // block_bytes))} if count else set()
    marks = []
    for codec in kernels_of(instruction_sets):
        verified = np.zeros(len(sums), np.uint8)
        found = codec.crc32c_verify(ranges, block_bytes, own, sums, verified)
        assert found == (wrong if wrong in touched else None)
        if found is None:
            assert set(np.flatnonzero(verified)) == touched
            # Verified blocks are not read again.
            changed = ByteSlices(~data, ranges.position, ranges.size)
            assert codec.crc32c_verify(changed, block_bytes, own, sums, verified) is None
        marks.append(verified.tolist())
    assert all(mark == marks[0] for mark in marks)


def kernels_of(instruction_sets):
    for instruction_set in instruction_sets:
        select.use_instruction_set(instruction_set)
        yield native
    yield reference


@pytest.mark.parametrize(("at", "count"), [(-1, 2), (0, 101), (101, 0), (50, -1), (1 << 62, 1)])
def test_only_ranges_of_the_file_are_verified(agree, at, count):
    data = some_bytes(100)
    ranges = ByteSlices(data, np.array([at]), np.array([count]))
    sums, verified = np.zeros(1, np.uint32), np.zeros(1, np.uint8)
    assert agree("crc32c_verify", ranges, 512, (0, 0), sums, verified) is CorruptDataError


def test_every_block_of_the_file_has_a_sum(agree):
    ranges = ByteSlices.whole(some_bytes(100))
    none = np.zeros(0, np.uint32)
    assert agree("crc32c_verify", ranges, 512, (0, 0), none, np.zeros(0, np.uint8)) is (
        CorruptDataError
    )
