"""LZ4: decompressing undoes compressing, and hostile blocks are refused."""

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lancelet.buffers import ByteSlices
from lancelet.errors import CorruptDataError
from lancelet.kernels import native, reference, select

TEXTS = st.lists(
    st.one_of(
        st.binary(max_size=40),
        st.builds(lambda piece, times: piece * times, st.binary(max_size=9), st.integers(0, 90)),
    ),
    max_size=8,
).map(b"".join)
CHUNKS = st.lists(TEXTS, max_size=6)


def slices_of(parts):
    size = np.array([len(part) for part in parts], np.int64)
    return ByteSlices(np.frombuffer(b"".join(parts), np.uint8), np.cumsum(size) - size, size)


def parts_of(slices):
    return [slices.slice_bytes(index).tobytes() for index in range(len(slices))]


def lz4_codecs(instruction_sets):
    for instruction_set in instruction_sets:
        select.use_instruction_set(instruction_set)
        yield native
    yield reference


@given(CHUNKS, st.booleans())
def test_lz4_comes_back(agree, instruction_sets, chunks, sized):
    plain = slices_of(chunks)
    for codec in lz4_codecs(instruction_sets):
        packed = codec.lz4_compress_chunks(plain, sized=sized)
        sizes = None if sized else plain.size
        assert parts_of(agree("lz4_decompress_chunks", packed, sizes)) == chunks


@given(TEXTS)
def test_our_lz4_is_everyones_lz4(instruction_sets, data):
    theirs = pa.Codec("lz4_raw")
    plain = np.frombuffer(data, np.uint8)
    for codec in lz4_codecs(instruction_sets):
        packed = codec.lz4_compress_chunks(ByteSlices.whole(plain), sized=False).source
        assert len(packed) <= len(data) + len(data) // 255 + 16
        if data:
            size = len(data)
            assert theirs.decompress(packed.tobytes(), size, asbytes=True) == data


@given(CHUNKS, st.integers(0, 2**32), st.integers(-2, 2))
def test_damaged_lz4_never_crashes(agree, damage, chunks, seed, more):
    rng = np.random.default_rng(seed)
    plain = slices_of(chunks)
    for sized in (True, False):
        packed = reference.lz4_compress_chunks(plain, sized=sized)
        damaged = ByteSlices(damage(rng, packed.source), packed.position, packed.size)
        agree("lz4_decompress_chunks", damaged, None if sized else plain.size + more)


@given(st.binary(max_size=60), st.integers(0, 300))
def test_any_bytes_have_the_same_result_as_lz4(agree, data, size):
    block = ByteSlices.whole(np.frombuffer(data, np.uint8))
    agree("lz4_decompress_chunks", block, np.array([size]))
    agree("lz4_decompress_chunks", block)


@pytest.mark.parametrize(
    ("block", "size"),
    [
        (b"", 1),  # nothing cannot hold something
        (b"\x10", 1),  # literals are missing
        (b"\x10a", 2),  # holds less
        (b"\x20ab", 1),  # holds more
        (b"\x10a\x00\x00", 6),  # copies from 0 back
        (b"\x10a\x02\x00\x00", 5),  # copies from before the start
        (b"\x10a\x01\x00", 5),  # ends with a copy
        (b"\x1fa\x01\x00" + b"\xff" * 50, 1 << 14),  # a length that never ends
        (b"\xf0" + b"\xff" * 50, 1 << 14),
        (b"\x10a", 1 << 40),  # a claim that no block could meet
        (b"\x10a", -1),
    ],
)
def test_malformed_lz4_is_corrupt(agree, block, size):
    slices = ByteSlices.whole(np.frombuffer(block, np.uint8))
    assert agree("lz4_decompress_chunks", slices, np.array([size])) is CorruptDataError


def test_lz4_finds_matches_across_chunks_of_one_call(instruction_sets):
    text = b"the quick brown fox jumps over the lazy dog, again and again; " * 100
    plain = slices_of([text, text, b"", text])
    for codec in lz4_codecs(instruction_sets):
        packed = codec.lz4_compress_chunks(plain, sized=True)
        assert packed.size[0] < len(text) / 10
        assert packed.size[1] == packed.size[3] == packed.size[0]
