"""FSST: decoding undoes encoding, and both implementations agree, also on damaged codes."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lancelet.buffers import ByteSlices
from lancelet.errors import CorruptDataError

# Few letters, so that symbols match; 255 and 0, which the coding treats with care.
LETTERS = st.sampled_from([b"a", b"b", b"ab", b"aba", b"http://", b"www.", b"\xff", b"\x00", b"z"])
STRINGS = st.lists(st.lists(LETTERS, max_size=20).map(b"".join), max_size=20)


@st.composite
def tables(draw):
    """Symbols of one to eight bytes, some of them equal or each other's beginnings."""
    symbols = draw(st.lists(st.lists(LETTERS, min_size=1, max_size=4).map(b"".join), max_size=40))
    symbols = [symbol[:8] for symbol in symbols]
    words = [int.from_bytes(symbol.ljust(8, b"\0"), "little") for symbol in symbols]
    lengths = [len(symbol) for symbol in symbols]
    return np.array(words, np.uint64), np.array(lengths, np.uint8)


def arrow(strings, dtype=np.int32):
    offsets = np.cumsum([0, *map(len, strings)]).astype(dtype)
    return offsets, np.frombuffer(b"".join(strings), np.uint8)


def chunked(offsets, data, rows_per_chunk, offset_bytes):
    """The strings as variable chunks."""
    parts, sizes, counts = [], [], []
    for first in range(0, len(offsets) - 1, rows_per_chunk):
        own = offsets[first : first + rows_per_chunk + 1].astype(np.int64)
        start = len(own) * offset_bytes
        parts.append((own - own[0] + start).astype(f"<u{offset_bytes}").tobytes())
        parts.append(data[own[0] : own[-1]].tobytes())
        sizes.append(len(parts[-1]) + len(parts[-2]))
        counts.append(len(own) - 1)
    size = np.array(sizes, np.int64)
    source = np.frombuffer(b"".join(parts), np.uint8)
    return ByteSlices(source, np.cumsum(size) - size, size), np.array(counts, np.int64)


@given(STRINGS, tables(), st.sampled_from([np.int32, np.int64]), st.sampled_from([32, 64]))
def test_decoding_undoes_encoding(agree, strings, table, dtype, out_bits):
    offsets, data = arrow(strings, dtype)
    code_offsets, codes = agree("fsst_encode", offsets, data, *table)
    out_offsets, out = agree("fsst_decode", code_offsets, codes, *table, out_bits)
    assert out.tobytes() == data.tobytes()
    assert out_offsets.tolist() == offsets.tolist()


@given(STRINGS, tables(), st.integers(1, 7), st.sampled_from([4, 8]), st.sampled_from([32, 64]))
def test_chunks_decode_in_one_pass(agree, strings, table, rows_per_chunk, offset_bytes, out_bits):
    offsets, data = arrow(strings)
    encoded = agree("fsst_encode", offsets, data, *table)
    slices, counts = chunked(*encoded, rows_per_chunk, offset_bytes)
    found = agree("fsst_decode_chunks", slices, counts, offset_bytes, *table, out_bits)
    assert found[1].tobytes() == data.tobytes()
    assert found[0].tolist() == offsets.tolist()
    last = agree("pick_fsst", slices, counts, counts - 1, offset_bytes, *table, out_bits)
    ends = np.cumsum(counts)
    expected = [strings[end - 1] for end in ends.tolist()]
    assert last[1].tobytes() == b"".join(expected)
    assert np.diff(last[0]).tolist() == [len(value) for value in expected]


def whole(*tables):
    """Consecutive tables, each with all 256 codes."""
    symbols = np.zeros((len(tables), 256), np.uint64)
    lengths = np.zeros((len(tables), 256), np.uint8)
    for place, (own_symbols, own_lengths) in enumerate(tables):
        symbols[place, : len(own_symbols)] = own_symbols
        lengths[place, : len(own_lengths)] = own_lengths
    return symbols.reshape(-1), lengths.reshape(-1)


@given(
    st.lists(st.tuples(STRINGS, st.integers(0, 2)), max_size=8),
    st.lists(tables(), min_size=3, max_size=3),
)
def test_each_chunk_may_have_a_table_of_its_own(agree, chunks, own):
    parts = [
        chunked(*agree("fsst_encode", *arrow(strings), *own[which]), len(strings) or 1, 4)
        for strings, which in chunks
        if strings
    ]
    chunks = [(strings, which) for strings, which in chunks if strings]
    counts = np.array([len(strings) for strings, _ in chunks], np.int64)
    size = np.array([slices.source.nbytes for slices, _ in parts], np.int64)
    source = np.concatenate([np.empty(0, np.uint8), *(slices.source for slices, _ in parts)])
    slices = ByteSlices(source, np.cumsum(size) - size, size)
    which = np.array([which for _, which in chunks], np.int64)
    found = agree("fsst_decode_chunks", slices, counts, 4, *whole(*own), 32, which)
    assert found[1].tobytes() == b"".join(value for strings, _ in chunks for value in strings)
    last = agree("pick_fsst", slices, counts, counts - 1, 4, *whole(*own), 32, which)
    assert last[1].tobytes() == b"".join(strings[-1] for strings, _ in chunks)


@pytest.mark.parametrize("which", [[-1], [1], [0, 0], []])
def test_a_table_that_is_not_there_is_corrupt(agree, which):
    slices, counts = chunked(*arrow([b"\0"]), 1, 4)
    one = whole((np.zeros(1, np.uint64), np.ones(1, np.uint8)))
    which = np.array(which, np.int64)
    assert agree("fsst_decode_chunks", slices, counts, 4, *one, 32, which) is CorruptDataError
    assert agree("pick_fsst", slices, counts, counts - 1, 4, *one, 32, which) is CorruptDataError


def test_symbols_of_whole_tables_have_at_most_eight_bytes(agree):
    slices, counts = chunked(*arrow([b"\0"]), 1, 4)
    long = whole((np.zeros(1, np.uint64), np.array([9], np.uint8)))
    none = np.zeros(1, np.int64)
    assert agree("fsst_decode_chunks", slices, counts, 4, *long, 32, none) is CorruptDataError


@given(STRINGS, tables(), st.integers(0, 2**32))
def test_damaged_codes_never_crash(agree, damage, strings, table, seed):
    rng = np.random.default_rng(seed)
    slices, counts = chunked(*agree("fsst_encode", *arrow(strings), *table), 5, 4)
    damaged = ByteSlices(damage(rng, slices.source), slices.position, slices.size)
    agree("fsst_decode_chunks", damaged, counts, 4, *table, 32)
    agree("pick_fsst", damaged, counts, counts - 1, 4, *table, 32)


@given(st.lists(st.binary(max_size=30), max_size=10), tables())
def test_any_bytes_have_the_same_result(agree, strings, table):
    agree("fsst_decode", *arrow(strings), *table, 32)


def test_an_escape_does_not_reach_into_the_next_string(agree):
    offsets, codes = np.array([0, 1, 2], np.int32), np.array([255, 65], np.uint8)
    none = (np.empty(0, np.uint64), np.empty(0, np.uint8))
    assert agree("fsst_decode", offsets, codes, *none, 32) is CorruptDataError


@pytest.mark.parametrize("length", [0, 9, 255])
def test_a_symbol_has_one_to_eight_bytes(agree, length):
    table = (np.zeros(1, np.uint64), np.array([length], np.uint8))
    assert agree("fsst_decode", *arrow([b"\0"]), *table, 32) is CorruptDataError


@pytest.mark.parametrize("offsets", [[0, 3], [2, 1], [-1, 1], [0, 2, 1]])
def test_offsets_out_of_order_or_bounds_are_corrupt(agree, offsets):
    table = (np.zeros(1, np.uint64), np.ones(1, np.uint8))
    arguments = (np.array(offsets, np.int32), np.zeros(2, np.uint8), *table)
    assert agree("fsst_decode", *arguments, 32) is CorruptDataError
    assert agree("fsst_encode", *arguments) is CorruptDataError


def test_long_strings_and_growing_output_agree(agree):
    """Strings beyond a window of the decoder, and more output than it starts with."""
    rng = np.random.default_rng(7)
    words = [b"http://", b"www.", b"example", b".com", b"\xff", b"q"]
    strings = [
        b"".join(words[k] for k in rng.integers(0, len(words), size))
        for size in (0, 1, 3000, 3, 9000, 0, 1)
    ]
    strings += [b"wwwwwwww" * 12, b"", b"www.example.com"] * 3000
    table = agree("fsst_train", *arrow(strings))
    code_offsets, codes = agree("fsst_encode", *arrow(strings), *table)
    decoded = agree("fsst_decode", code_offsets, codes, *table, 32)
    assert decoded[1].tobytes() == b"".join(strings)


@given(STRINGS)
def test_training_gives_symbols_of_the_strings(agree, strings):
    symbols, lengths = agree("fsst_train", *arrow(strings))
    assert len(symbols) == len(lengths) <= 255
    whole = b"\n".join(strings)
    for symbol, length in zip(symbols.tolist(), lengths.tolist(), strict=True):
        assert 1 <= length <= 8
        assert symbol.to_bytes(8, "little")[:length] in whole


def test_training_compresses_repeated_strings(agree):
    strings = [b"https://www.example.com/articles/%d?page=%d" % (k * 7, k % 9) for k in range(5000)]
    offsets, data = arrow(strings)
    table = agree("fsst_train", offsets, data)
    _, codes = agree("fsst_encode", offsets, data, *table)
    assert len(data) > 3 * len(codes)


@pytest.mark.parametrize("dtype", [np.int32, np.int64])
@pytest.mark.parametrize("kind", ["words", "noise", "gaps"])
def test_many_bytes_are_coded_like_few(agree, kind, dtype):
    """Long inputs are coded in runs side by side, with a memory if that helps."""
    random = np.random.default_rng(3)
    letters = random.choice([b"pending", b"packages", b"among", b"the", b" ", b"\xff"], 90_000)
    if kind == "noise":
        strings = [random.bytes(size) for size in random.integers(0, 40, 16_000).tolist()]
    elif kind == "gaps":
        # All bytes in the last of the runs, and strings that are empty everywhere.
        strings = [b""] * 9_000 + [b"".join(letters[:8])] * 9_000 + [b""] * 5
    else:
        strings = [b"".join(part) for part in np.array_split(letters, 9_000)]
    offsets, data = arrow(strings, dtype)
    assert len(data) > 256 * 1024
    words = [b"pending", b"packages", b"pac", b"the", b" ", b"en", b"p", b"e"]
    table = (
        np.array([int.from_bytes(word, "little") for word in words], np.uint64),
        np.array([len(word) for word in words], np.uint8),
    )
    code_offsets, codes = agree("fsst_encode", offsets, data, *table)
    parts = [slice(first, first + 3000) for first in range(0, len(strings), 3000)]
    apart = [agree("fsst_encode", *arrow(strings[part], dtype), *table) for part in parts]
    assert codes.tobytes() == b"".join(part.tobytes() for _, part in apart)
    assert np.diff(code_offsets).tolist() == [n for o, _ in apart for n in np.diff(o).tolist()]
