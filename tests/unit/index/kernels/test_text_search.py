"""Searching posting lists: skipped blocks never change the result.

Goal: the best documents by the definition, which scores every one of them. Method: random lists
of every block size and tail, with and without document weights, searched for a few and for all
documents; damaged bytes.
"""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lancelet.buffers import ByteSlices
from lancelet.errors import CorruptDataError
from lancelet.index.kernels import (
    PostingLists,
    encode_postings,
    encode_streams,
    search_phrase,
    search_postings,
)
from lancelet.index.kernels.postings import Ranking, quantize_weights

FORMATS = ((128, True), (128, False), (256, True))


def random_list(chance, num_docs, share):
    docs = np.flatnonzero(chance.random(num_docs) < share).astype(np.uint32)
    if not len(docs):
        docs = np.array([chance.integers(num_docs)], np.uint32)
    freqs = np.minimum(chance.geometric(0.6, len(docs)), 300).astype(np.uint32)
    freqs[chance.random(len(docs)) < 0.002] = 200_000 if num_docs < 50 else 150
    steps = [np.minimum(chance.geometric(0.3, freq), 9).astype(np.uint32) for freq in freqs]
    return docs, freqs, np.concatenate(steps)


def corpus(seed, shares, num_docs, form):
    """Return lists with positions, half of them with document weights, and the ranking."""
    chance = np.random.default_rng(seed)
    block_docs, is_varint = form
    norms = (0.3 + chance.random(num_docs) * 3).astype(np.float32)
    found = [random_list(chance, num_docs, share) for share in shares]
    counts = np.array([len(docs) for docs, _, _ in found], np.int64)
    docs, freqs, steps = (np.concatenate(parts) for parts in zip(*found, strict=True))
    blocks = -(-counts // block_docs)
    first = np.concatenate([[0], np.cumsum(blocks)]).astype(np.int64)
    sizes = np.full(first[-1], block_docs)
    sizes[first[1:] - 1] = counts - (blocks - 1) * block_docs
    starts = np.cumsum(sizes) - sizes
    often = freqs.astype(np.float32)
    weights = np.float32(2.2) * often / (often + norms[docs])
    best = np.maximum.reduceat(weights, starts)
    data, ends = encode_postings(
        docs, freqs, counts, best, block_docs=block_docs, is_varint=is_varint
    )
    position, position_ends = encode_streams(steps, np.add.reduceat(freqs.astype(np.int64), starts))
    has_weights = chance.random(len(found)) < 0.5 if chance.random() < 0.7 else [True] * len(found)
    own = np.split(weights, np.cumsum(counts)[:-1])
    doc_weights = [
        quantize_weights(num_docs, each[0], one) for each, one in zip(found, own, strict=True)
    ]
    lists = PostingLists(
        slices(data, ends),
        docs[starts + sizes - 1],
        best,
        first[:-1].copy(),
        first[1:].copy(),
        counts,
        block_docs,
        is_varint,
        slices(position, position_ends),
        np.concatenate(doc_weights),
        np.where(has_weights, np.arange(len(found)) * num_docs, -1),
    )
    idf = (0.1 + chance.random(len(shares)) * 5).astype(np.float32)
    hidden = (chance.random(num_docs) < 0.1).astype(np.uint8)
    hidden = hidden if chance.random() < 0.5 else np.empty(0, np.uint8)
    return lists, Ranking(idf, norms, 10, hidden)


def slices(data, ends):
    starts = np.concatenate([[0], ends[:-1]]).astype(np.int64)
    return ByteSlices(data, starts, ends - starts)


def limited(ranking, count):
    return Ranking(ranking.idf, ranking.norms, count, ranking.hidden)


CASES = {
    "seed": st.integers(0, 2**32),
    "shares": st.lists(st.sampled_from([0.0005, 0.01, 0.1, 0.6, 1.0]), min_size=1, max_size=5),
    "num_docs": st.sampled_from([1, 40, 700, 9000]),
    "form": st.sampled_from(FORMATS),
    "count": st.sampled_from([0, 1, 10, 100, 10_000]),
}


@given(**CASES, needs_all=st.booleans())
def test_the_best_documents_are_found(agree, seed, shares, num_docs, form, count, needs_all):
    lists, ranking = corpus(seed, shares, num_docs, form)
    docs, scores = agree("search_postings", lists, limited(ranking, count), needs_all=needs_all)
    assert len(docs) <= count
    assert len(scores) == len(docs)
    assert np.all(docs[1:] > docs[:-1])


@given(**CASES, slop=st.sampled_from([0, 1, 5]))
def test_phrases_are_found(agree, seed, shares, num_docs, form, count, slop):
    lists, ranking = corpus(seed, shares, num_docs, form)
    places = np.arange(len(shares), dtype=np.int64) * 2
    agree("search_phrase", lists, limited(ranking, count), places, slop=slop)


def test_inconsistent_lists_are_rejected(agree):
    lists, ranking = corpus(1, [0.5, 0.1], 9000, (128, True))
    short = ByteSlices(lists.blocks.source, lists.blocks.position, lists.blocks.size // 2)
    few_bytes = ByteSlices(lists.blocks.source[:100], lists.blocks.position, lists.blocks.size)
    for wrong in (
        replace(lists, blocks=short),
        replace(lists, blocks=few_bytes),
        replace(lists, first=lists.stop),
        replace(lists, stop=lists.stop + 100),
        replace(lists, counts=lists.counts * 2),
    ):
        assert issubclass(agree("search_postings", wrong, ranking), CorruptDataError)
    few = Ranking(ranking.idf, ranking.norms[:100], 10, ranking.hidden[:100])
    assert issubclass(agree("search_postings", lists, few), CorruptDataError)
    streams = lists.streams
    cut = replace(lists, streams=ByteSlices(streams.source, streams.position, streams.size * 0))
    places = np.array([0, 1])
    assert issubclass(agree("search_phrase", cut, ranking, places), CorruptDataError)


def test_wrong_document_weights_are_rejected():
    lists, ranking = corpus(1, [0.5, 0.1], 9000, (128, True))
    for wrong in (np.array([0, 9001]), np.array([1 << 62, -1])):
        with pytest.raises(CorruptDataError):
            search_postings(replace(lists, weights_start=wrong), ranking)
    empty = replace(lists, doc_weights=lists.doc_weights * 0, weights_start=np.array([0, 9000]))
    assert not len(search_postings(empty, ranking)[0])


@given(seed=st.integers(0, 2**32), needs_all=st.booleans())
def test_damaged_bytes_never_do_more_than_raise(agree, seed, needs_all):
    chance = np.random.default_rng(seed)
    lists, ranking = corpus(seed, [0.3, 0.05], 3000, (128, True))
    damaged = lists.blocks.source.copy()
    damaged[chance.integers(0, len(damaged), 5)] ^= chance.integers(1, 255, 5).astype(np.uint8)
    wrong = replace(lists, blocks=ByteSlices(damaged, lists.blocks.position, lists.blocks.size))
    for search in (
        lambda: search_postings(wrong, ranking, needs_all=needs_all),
        lambda: search_phrase(wrong, ranking, np.array([0, 1])),
    ):
        try:
            docs, _ = search()
        except CorruptDataError:
            continue
        assert np.all(docs < 3000)


def test_blocks_that_cannot_win_are_not_decoded():
    """A block of garbage is not looked at if its best weight is below the threshold."""
    lists, ranking = corpus(3, [1.0], 9000, (128, True))
    garbage = lists.blocks.source.copy()
    for block in range(5, len(lists.blocks)):
        start = int(lists.blocks.position[block])
        garbage[start : start + int(lists.blocks.size[block])] = 0xFF
    best = lists.block_max.copy()
    best[5:] = 0
    blocks = ByteSlices(garbage, lists.blocks.position, lists.blocks.size)
    spoiled = replace(lists, blocks=blocks, block_max=best)
    docs, _ = search_postings(spoiled, limited(ranking, 10))
    assert len(docs) == 10
    with pytest.raises(CorruptDataError):
        search_postings(spoiled, limited(ranking, 9000))


@given(**{name: CASES[name] for name in ("seed", "num_docs", "shares")})
def test_impacts_bound_the_scores(agree, seed, num_docs, shares):
    chance = np.random.default_rng(seed)
    found = [random_list(chance, num_docs, share) for share in shares]
    counts = np.array([len(docs) for docs, _, _ in found], np.int64)
    docs, freqs = (np.concatenate([each[part] for each in found]) for part in (0, 1))
    codes = chance.integers(0, 90, num_docs).astype(np.uint8)
    _, ends = agree("encode_impacts", docs, freqs, counts, codes)
    blocks = -(-counts // 128)
    assert len(ends) == int((blocks + -(-blocks // 32)).sum())
    assert issubclass(agree("encode_impacts", docs, freqs, counts, codes[:0]), CorruptDataError)
    assert issubclass(agree("encode_impacts", docs, freqs, counts * 2, codes), CorruptDataError)


def test_impacts_by_hand(agree):
    """Twice in a short document beats once in a shorter one only where that is longer."""
    docs, freqs = np.array([3, 5, 9], np.uint32), np.array([1, 2, 2], np.uint32)
    codes = np.array([0, 0, 0, 4, 0, 5, 0, 0, 0, 7], np.uint8)
    data, _ = agree("encode_impacts", docs, freqs, np.array([3]), codes)
    entry = [9, 2, (1 - 1) << 1 | 1, 4, (2 - 1 - 1) << 1]
    assert data.tolist() == entry * 2


@pytest.mark.parametrize(("block_docs", "is_varint"), FORMATS)
def test_a_word_of_every_text_has_the_narrowest_blocks(agree, block_docs, is_varint):
    docs, freqs = np.arange(600, dtype=np.uint32), np.ones(600, np.uint32)
    best = np.zeros(-(-600 // block_docs), np.float32)
    how = {"block_docs": block_docs, "is_varint": is_varint}
    data, ends = agree("encode_postings", docs, freqs, np.array([600]), best, **how)
    assert len(data) == ends[-1] < 4 * 600
