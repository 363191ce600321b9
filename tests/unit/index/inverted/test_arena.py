"""Cached posting lists of an arena are those of the requested tokens."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from lancelet.index.inverted.arena import ListArena
from lancelet.index.inverted.postings import Postings
from lancelet.index.inverted.tokens import TokenList
from lancelet.index.kernels import search_postings
from lancelet.index.kernels.postings import Ranking

DOCS = 40


def _list_of(token: int, with_position: bool) -> TokenList:
    """Token t is in every document with a number divisible by t + 1."""
    docs = np.arange(0, DOCS, token + 1, dtype=np.uint32)
    freqs = np.full(len(docs), token % 3 + 1, np.uint32)
    assert not with_position
    return TokenList.encode(Postings(np.zeros(len(docs), np.uint32), docs, freqs, None), 128)


def _arena() -> ListArena:
    return ListArena(block_docs=128, is_varint=True)


@given(st.lists(st.lists(st.integers(0, 12), min_size=1, max_size=3), min_size=1, max_size=12))
def test_results_do_not_depend_on_earlier_queries(queries: list[list[int]]) -> None:
    norms = np.full(DOCS, 0.7, np.float32)
    shared = _arena()
    for tokens in queries:
        idf = np.full(len(tokens), 1.5, np.float32)
        ranking = Ranking(idf, norms, 5, np.empty(0, np.uint8))
        found = search_postings(shared.lists(tokens, norms, _list_of), ranking)
        alone = search_postings(_arena().lists(tokens, norms, _list_of), ranking)
        for ours, theirs in zip(found, alone, strict=True):
            np.testing.assert_array_equal(ours, theirs)


def test_lists_are_put_together_once_as_long_as_the_norms_are_the_same() -> None:
    arena, norms = _arena(), np.full(DOCS, 0.7, np.float32)
    first = arena.lists([1, 2], norms, _list_of)
    assert arena.lists([1, 2], norms, _list_of) is first
    assert arena.lists([2, 1], norms, _list_of) is not first
    other = norms * 2
    weighed = arena.lists([1, 2], other, _list_of)
    assert weighed is not first
    assert weighed.block_max[0] < first.block_max[0]
