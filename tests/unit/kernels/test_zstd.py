"""Zstandard: the native decoder agrees with the library on everything that either reads."""

import numpy as np
import pytest
import zstandard
from hypothesis import given, settings
from hypothesis import strategies as st

from lancelet import kernels
from lancelet.buffers import ByteSlices
from lancelet.errors import CorruptDataError, InvalidInputError
from lancelet.kernels import _native, native, reference, select

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


def columns(rng):
    """Return bytes as columns have them: each kind makes the library use another way to code."""
    words = np.array([b"carefully ", b"quick ", b"slyly ", b"final ", b"regular "])
    cents = rng.integers(90_000, 10_500_000, 4000)
    wide = np.zeros((4000, 2), np.int64)
    wide[:, 0] = cents
    return {
        "random": rng.integers(0, 256, 20_000, np.uint8).tobytes(),
        "few bytes": rng.choice(np.frombuffer(b"aabac", np.uint8), 20_000).tobytes(),
        "skewed": rng.geometric(0.02, 30_000).clip(max=255).astype(np.uint8).tobytes(),
        "decimals": wide.tobytes(),
        "floats": (cents / 100).tobytes(),
        "times": np.cumsum(rng.integers(0, 2_000_000, 4000)).tobytes(),
        "text": b"".join(rng.choice(words, 5000)),
        "numbers": b"".join(b"%d," % number for number in rng.integers(0, 1 << 31, 5000)),
        "one byte": bytes(50_000),
        "far apart": (block := rng.integers(0, 256, 70_000, np.uint8).tobytes()) + block,
        "long runs": b"".join(
            bytes([k]) * int(n) for k, n in enumerate(rng.integers(1, 3000, 200))
        ),
        "blocks": rng.geometric(0.1, 400_000).clip(max=255).astype(np.uint8).tobytes(),
    }


@pytest.mark.parametrize("level", [-7, 1, 3, 6, 12, 19])
def test_the_kernel_reads_column_values(instruction_sets, level):
    parts = columns(np.random.default_rng(level + 100))
    compressor = zstandard.ZstdCompressor(level=level)
    frames = slices_of([compressor.compress(part) for part in parts.values()])
    sizes = np.array([len(part) for part in parts.values()], np.int64)
    before = select.backend()
    for instruction_set in instruction_sets:
        select.use_instruction_set(instruction_set)
        # Once with other bytes behind the frames, and once with their last byte the last of all.
        for behind in (100, 0):
            source = np.concatenate([frames.source, np.zeros(behind, np.uint8)])
            out = np.zeros(int(sizes.sum()) + 64, np.uint8)
            status = _native.zstd_decompress_chunks(
                source, frames.position, frames.size, sizes, out
            )
            assert status == sizes.sum(), (instruction_set, divmod(-status, 16))
            assert out[:status].tobytes() == b"".join(parts.values())
    select.use_instruction_set(before)


@settings(max_examples=300)
@given(st.integers(0, 2**32), st.sampled_from([1, 3, 19]))
def test_damaged_frames_have_the_same_result(agree, damage, seed, level):
    rng = np.random.default_rng(seed)
    part = list(columns(rng).values())[rng.integers(10)]
    compressor = zstandard.ZstdCompressor(level=level, write_checksum=bool(seed % 2))
    start = rng.integers(max(len(part) - 3000, 1))
    plain = part[start : start + 3000]
    frame = np.frombuffer(compressor.compress(plain), np.uint8)
    damaged = ByteSlices.whole(damage(rng, frame))
    agree("zstd_decompress_chunks", damaged, np.array([len(plain)]))


@given(CHUNKS, st.integers(0, 2**32), st.booleans())
def test_damaged_sizes_have_the_same_result(agree, damage, chunks, seed, sized):
    packed = kernels.zstd_compress_chunks(slices_of(chunks), level=1, sized=sized)
    damaged = damage(np.random.default_rng(seed), packed.source)
    agree("zstd_decompress_chunks", ByteSlices(damaged, packed.position, packed.size))


@pytest.mark.parametrize("sized", [False, True])
def test_a_slice_outside_behind_a_damaged_frame_is_corrupt(agree, sized):
    packed = kernels.zstd_compress_chunks(slices_of([b"one", b"two"]), level=1, sized=sized)
    source = packed.source[:-1].copy()
    source[8 if sized else 0] ^= 1
    damaged = ByteSlices(source, packed.position, packed.size)
    sizes = None if sized else np.array([3, 3])
    assert agree("zstd_decompress_chunks", damaged, sizes) is CorruptDataError


@given(st.binary(max_size=60), st.integers(0, 300))
def test_any_bytes_after_the_magic_have_the_same_result(agree, data, size):
    frame = np.frombuffer(b"\x28\xb5\x2f\xfd" + data, np.uint8)
    agree("zstd_decompress_chunks", ByteSlices.whole(frame), np.array([size]))


@pytest.mark.parametrize("window", [0, 136, 137, 145, 255])
def test_windows_have_the_limit_of_the_library(agree, window):
    frame = np.frombuffer(b"\x28\xb5\x2f\xfd\x00" + bytes([window]) + b"\x09\x00\x00a", np.uint8)
    found = agree("zstd_decompress_chunks", ByteSlices.whole(frame), np.array([1]))
    assert (found is CorruptDataError) == (window > 136)


def test_frames_that_pages_never_hold_are_left_to_the_library(agree):
    text = b"the quick brown fox " * 50
    one = zstandard.ZstdCompressor(write_checksum=True).compress(text)
    sizes = np.array([len(text)])
    assert parts_of(agree("zstd_decompress_chunks", slices_of([one]), sizes)) == [text]


@given(CHUNKS, st.booleans(), st.sampled_from([-5, 1, 3, 9, 19]))
def test_zstd_comes_back(agree, chunks, sized, level):
    packed = kernels.zstd_compress_chunks(slices_of(chunks), level=level, sized=sized)
    assert parts_of(agree("zstd_decompress_chunks", packed)) == chunks


@pytest.mark.parametrize("size", [1 << 40, -1, 0, 3])
def test_a_lying_zstd_size_is_corrupt(agree, size):
    packed = kernels.zstd_compress_chunks(slices_of([b"four"]), level=1, sized=False)
    assert agree("zstd_decompress_chunks", packed, np.array([size])) is CorruptDataError


def test_a_size_in_front_of_no_frame_is_corrupt(agree):
    sizes = slices_of([(7).to_bytes(8, "little")])
    assert agree("zstd_decompress_chunks", sizes) is CorruptDataError


@given(CHUNKS)
def test_zstd_frames_need_not_state_their_size(agree, chunks):
    compressor = zstandard.ZstdCompressor(write_content_size=False)
    frames = slices_of([compressor.compress(chunk) for chunk in chunks])
    plain = slices_of(chunks)
    assert parts_of(agree("zstd_decompress_chunks", frames)) == chunks
    assert parts_of(agree("zstd_decompress_chunks", frames, plain.size)) == chunks


def test_a_zstd_frame_that_states_an_absurd_size_is_corrupt(agree):
    head = b"\x28\xb5\x2f\xfd\xe0" + b"\xff" * 8 + b"\x01\x00\x00"
    assert agree("zstd_decompress_chunks", slices_of([head])) is CorruptDataError


def chunk_of(strings):
    """Return strings in the layout of a chunk, and the number of bytes of offsets."""
    lengths = np.array([len(string) for string in strings], np.int64)
    ends = 4 * (len(strings) + 1) + np.concatenate([np.zeros(1, np.int64), np.cumsum(lengths)])
    return ends.astype("<u4").tobytes() + b"".join(strings), 4 * len(ends)


def string_chunks(rng):
    skewed = rng.geometric(0.2, 70_000).clip(max=255).astype(np.uint8).tobytes()
    words = [b"a", b"bc", b"def", b"", b"some longer words here"]
    return [
        chunk_of([]),
        chunk_of([b"x"]),
        chunk_of([words[k] for k in rng.integers(0, 5, 700)]),
        chunk_of([rng.bytes(int(n)) for n in rng.integers(0, 12, 1000)]),
        chunk_of([bytes([int(k)]) for k in rng.integers(0, 2, 3000)]),
        chunk_of([b"12345678"] * 500),
        chunk_of([b""] * 100),
        chunk_of([skewed[k : k + 300] for k in range(0, 60_000, 300)]),
        chunk_of([skewed]),
        chunk_of([bytes(int(n)) for n in rng.integers(0, 3000, 60)]),
        chunk_of([b"y"] * 20_000),
        (skewed[:5000], 0),
        (rng.bytes(4000), 0),
        (b"ab" * 3000, 0),
        (bytes(range(256)) * 40, 0),
        (b"\0" * 400 + rng.bytes(100), 500),
    ]


@settings(max_examples=50)
@given(st.integers(0, 2**32), st.booleans())
def test_literal_only_frames_are_valid_zstd(instruction_sets, seed, sized):
    chunks = string_chunks(np.random.default_rng(seed))
    plain = slices_of([chunk for chunk, _ in chunks])
    offset_bytes = np.array([count for _, count in chunks])
    before = select.backend()
    for instruction_set in instruction_sets:
        select.use_instruction_set(instruction_set)
        packed = native.zstd_encode_prefixes(plain, offset_bytes, word_bytes=4, sized=sized)
        assert (packed.size <= plain.size + 50).all()
        for codec in (native, reference):
            sizes = None if sized else plain.size
            found = codec.zstd_decompress_chunks(packed, sizes)
            assert parts_of(found) == [chunk for chunk, _ in chunks]
    select.use_instruction_set(before)


@given(st.lists(st.integers(0, 60), min_size=40, max_size=400), st.binary(min_size=1, max_size=9))
def test_any_strings_come_back_from_their_codes(lengths, piece):
    chunk, count = chunk_of([(piece * 60)[:length] for length in lengths])
    packed = native.zstd_encode_prefixes(
        slices_of([chunk]), np.array([count]), word_bytes=4, sized=True
    )
    assert parts_of(reference.zstd_decompress_chunks(packed)) == [chunk]
    assert packed.size[0] < len(chunk) - len(lengths)


def word_chunks(rng, word_bytes):
    """Return chunks of words whose high bytes change never, now and then, in bursts, or always."""

    def words(numbers, size=word_bytes):
        whole = np.zeros((len(numbers), size), np.uint8)
        low = np.ascontiguousarray(numbers.astype("<i8")).view(np.uint8).reshape(len(numbers), 8)
        whole[:, : min(size, 8)] = low[:, : min(size, 8)]
        whole[:, 8:] = (numbers < 0).astype(np.uint8)[:, None] * 255
        return whole.tobytes()

    burst = rng.integers(0, 200, 1500)
    burst[300:700] = rng.integers(-(2**62), 2**62, 400)
    return [
        words(rng.integers(0, 90, 1000)),
        words(rng.integers(0, 1 << 24, 1000)),
        words(np.cumsum(rng.integers(0, 2_000_000, 2000)) + (1 << 50)),
        words(-np.cumsum(rng.integers(0, 300, 2000))),
        words(rng.integers(-3, 3, 700)),
        words(burst),
        words(np.full(900, 1 << 40)),
        words(rng.integers(-(2**62), 2**62, 100)),
        words(rng.integers(0, 9, int(rng.integers(0, 40)))),
        words(rng.integers(0, 200, 65_536 // word_bytes)),
        words(rng.integers(0, 200, 65_536 // word_bytes + 1)),
    ]


@settings(max_examples=25)
@given(st.integers(0, 2**32), st.sampled_from([4, 8, 16, 32]))
def test_words_coded_without_a_search_are_everyones_zstd(instruction_sets, seed, word_bytes):
    chunks = word_chunks(np.random.default_rng(seed), word_bytes)
    plain = slices_of(chunks)
    before = select.backend()
    for instruction_set in instruction_sets:
        select.use_instruction_set(instruction_set)
        packed = native.zstd_encode_prefixes(plain, plain.size, word_bytes=word_bytes, sized=True)
        assert (packed.size <= plain.size + 50).all()
        # Below 90 only one byte of each word is stored.
        assert packed.size[0] < 1000 + 80
        out = np.zeros(int(plain.size.sum()) + 64, np.uint8)
        whole = packed.size > 0
        status = _native.zstd_decompress_chunks(
            packed.source,
            packed.position[whole] + 8,
            packed.size[whole] - 8,
            plain.size[whole],
            out,
        )
        assert out[:status].tobytes() == b"".join(chunks)
        assert parts_of(reference.zstd_decompress_chunks(packed)) == chunks
    select.use_instruction_set(before)


@settings(max_examples=200)
@given(st.integers(0, 2**32), st.sampled_from([4, 8, 16, 32]))
def test_damaged_frames_of_words_have_the_same_result(agree, damage, seed, word_bytes):
    rng = np.random.default_rng(seed)
    plain = slices_of([word_chunks(rng, word_bytes)[rng.integers(7)]])
    packed = native.zstd_encode_prefixes(plain, plain.size, word_bytes=word_bytes, sized=False)
    agree("zstd_decompress_chunks", ByteSlices.whole(damage(rng, packed.source)), plain.size)


def test_only_words_of_some_sizes_are_coded(agree):
    chunk = slices_of([bytes(12)])
    assert agree("zstd_encode_prefixes", chunk, np.array([12]), word_bytes=6, sized=False) is (
        InvalidInputError
    )


@pytest.mark.parametrize("offset_bytes", [-4, 3, 12])
def test_offsets_are_within_their_chunk(agree, offset_bytes):
    chunk = slices_of([b"12345678"])
    found = agree(
        "zstd_encode_prefixes", chunk, np.array([offset_bytes]), word_bytes=4, sized=False
    )
    assert found is CorruptDataError


def test_zstd_levels_are_checked():
    with pytest.raises(InvalidInputError):
        kernels.zstd_compress_chunks(slices_of([b"a"]), level=99, sized=True)
