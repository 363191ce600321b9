"""Words and posting lists: the native code against the definition, and encoding undone."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lancelet.buffers import ByteSlices
from lancelet.errors import CorruptDataError
from lancelet.index.kernels import native, reference
from lancelet.index.kernels.tokens import TokenTable
from lancelet.index.text.characters import letters_and_digits, non_whitespace_mask

TEXTS = st.lists(st.text(alphabet="ab é日-_ \t😀", max_size=12), max_size=6)
COUNTS = st.lists(st.integers(1, 600), min_size=1, max_size=5)


def joined(texts):
    parts = [text.encode() for text in texts]
    offsets = np.cumsum([0, *map(len, parts)]).astype(np.int64)
    return offsets, np.frombuffer(b"".join(parts), np.uint8)


def words_of(slices):
    ends = slices.position + slices.size
    return [
        slices.source[start:end].tobytes().decode()
        for start, end in zip(slices.position, ends, strict=True)
    ]


def random_lists(counts, seed):
    rng = np.random.default_rng(seed)
    docs = [np.sort(rng.choice(2**31, count, replace=False)) for count in counts]
    freqs = rng.zipf(1.3, sum(counts)).clip(1, 2**32 - 1).astype(np.uint32)
    return np.concatenate(docs).astype(np.uint32), freqs, np.array(counts, np.int64)


def blocks_of(counts, block_docs):
    sizes = []
    for count in counts.tolist():
        sizes += [block_docs] * (count // block_docs)
        if count % block_docs:
            sizes.append(count % block_docs)
    return np.array(sizes, np.int64)


@given(texts=TEXTS)
def test_words_are_runs_of_letters(agree, texts):
    slices, counts = agree("find_tokens", *joined(texts), letters_and_digits())
    expected = ["".join(c if c.isalnum() else " " for c in text).split() for text in texts]
    assert words_of(slices) == [word for words in expected for word in words]
    assert counts.tolist() == [len(words) for words in expected]


@given(data=st.binary(max_size=20))
def test_bytes_that_are_no_text_are_cut_identically(agree, data):
    offsets = np.array([0, len(data)], np.int64)
    agree("find_tokens", offsets, np.frombuffer(data, np.uint8), non_whitespace_mask())


def test_offsets_that_leave_their_bytes_are_rejected(agree):
    data = np.zeros(4, np.uint8)
    for offsets in ([0, 5], [3, 1], [-1, 2]):
        assert (
            agree("find_tokens", np.array(offsets, np.int64), data, non_whitespace_mask())
            is CorruptDataError
        )


def slices_of(words):
    sizes = np.array([len(word) for word in words], np.int64)
    return ByteSlices(np.frombuffer(b"".join(words), np.uint8), np.cumsum(sizes) - sizes, sizes)


def numbered(kernels, batches):
    """Return the numbers of words of batches, and the words, by one implementation."""
    table = TokenTable()
    ids = [kernels.assign_token_ids(slices_of(words), table).tolist() for words in batches]
    return ids, table.tokens(0)


@pytest.mark.parametrize("kernels", [native, reference], ids=["native", "reference"])
@given(batches=st.lists(st.lists(st.binary(max_size=10), max_size=40), max_size=5))
def test_words_keep_the_numbers_they_were_given(kernels, batches):
    ids, known = numbered(kernels, batches)
    assert known == list(dict.fromkeys(word for words in batches for word in words))
    assert [[known[number] for number in own] for own in ids] == batches


@pytest.mark.parametrize("kernels", [native, reference], ids=["native", "reference"])
def test_a_table_grows_with_its_words(kernels):
    words = [b"%d" % (number % 3000) for number in range(9000)]
    long = [b"x" * 5000, b"", b"y" * 100_000]
    ids, known = numbered(kernels, [words[:100], long, words])
    assert known == [*words[:100], *long, *words[100:3000]]
    assert ids[2] == [known.index(word) for word in words]


def test_words_outside_of_their_bytes_are_rejected():
    outside = ByteSlices(np.zeros(3, np.uint8), np.array([0, 2]), np.array([1, 2]))
    for kernels in (native, reference):
        with pytest.raises(CorruptDataError):
            kernels.assign_token_ids(outside, TokenTable())


@given(keys=st.lists(st.integers(0, 9), max_size=50))
def test_keys_are_ordered_and_stay_in_turn(agree, keys):
    order = agree("counting_order", np.array(keys, np.uint32), 10)
    assert order.tolist() == sorted(range(len(keys)), key=lambda place: keys[place])


def test_keys_beyond_their_number_are_rejected(agree):
    assert agree("counting_order", np.array([1, 7], np.uint32), 7) is CorruptDataError


@pytest.mark.parametrize("block_docs", [128, 256])
@pytest.mark.parametrize("is_varint", [True, False])
@given(counts=COUNTS, seed=st.integers(0, 2**32))
def test_postings_are_read_as_they_were_written(agree, block_docs, is_varint, counts, seed):
    docs, freqs, counts = random_lists(counts, seed)
    sizes = blocks_of(counts, block_docs)
    codec = {"block_docs": block_docs, "is_varint": is_varint}
    scores = np.arange(len(sizes), dtype=np.float32)
    data, ends = agree("encode_postings", docs, freqs, counts, scores, **codec)
    starts = np.concatenate([[0], ends[:-1]])
    blocks = ByteSlices(data, starts, ends - starts)
    found = agree("decode_postings", blocks, sizes, **codec)
    np.testing.assert_array_equal(found[0], docs)
    np.testing.assert_array_equal(found[1], freqs)


@given(counts=COUNTS, seed=st.integers(0, 2**32))
def test_damaged_postings_have_the_same_result(agree, damage, counts, seed):
    docs, freqs, counts = random_lists(counts, seed)
    rng = np.random.default_rng(seed)
    for block_docs in (128, 256):
        sizes = blocks_of(counts, block_docs)
        scores = np.zeros(len(sizes), np.float32)
        data, ends = agree(
            "encode_postings", docs, freqs, counts, scores, block_docs=block_docs, is_varint=True
        )
        starts = np.concatenate([[0], ends[:-1]])
        blocks = ByteSlices(damage(rng, data), starts, ends - starts)
        agree("decode_postings", blocks, sizes, block_docs=block_docs, is_varint=True)


@given(counts=COUNTS, seed=st.integers(0, 2**32))
def test_streams_are_read_as_they_were_written(agree, counts, seed):
    _, values, counts = random_lists(counts, seed)
    data, ends = agree("encode_streams", values, counts)
    starts = np.concatenate([[0], ends[:-1]])
    found = agree("decode_streams", ByteSlices(data, starts, ends - starts), counts)
    np.testing.assert_array_equal(found, values)
