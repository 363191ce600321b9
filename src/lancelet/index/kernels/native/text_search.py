"""Top-k search in posting lists by `native/index/text_search.cpp`; see the reference."""

from __future__ import annotations

from typing import Any, Final

import numpy as np

from lancelet.buffers import Int64s
from lancelet.index.kernels.postings import (
    NO_STREAMS,
    Float32s,
    PostingLists,
    Ranking,
    UInt32s,
)
from lancelet.kernels import _native
from lancelet.kernels.arguments import as_int64s, slice_arrays
from lancelet.kernels.faults import checked

_NO_PHRASE: Final = (*slice_arrays(NO_STREAMS), np.empty(0, np.int64), 0)


def search_postings(
    lists: PostingLists, ranking: Ranking, *, needs_all: bool = False
) -> tuple[UInt32s, Float32s]:
    """Return the top documents with any or all tokens, ascending, and their scores."""
    return _search(lists, ranking, needs_all, _NO_PHRASE)


def search_phrase(
    lists: PostingLists, ranking: Ranking, phrase_offsets: Int64s, *, slop: int = 0
) -> tuple[UInt32s, Float32s]:
    """Return the top documents with tokens at these offsets of a phrase, ascending."""
    return _search(
        lists, ranking, True, (*lists.stream_arrays, as_int64s(phrase_offsets), int(slop))
    )


def _search(
    lists: PostingLists, ranking: Ranking, needs_all: bool, phrase: tuple[Any, ...]
) -> tuple[UInt32s, Float32s]:
    docs, scores = _room(ranking, len(lists.counts))
    found = _native.search_postings(
        lists.arrays,
        ranking.idf,
        ranking.norms,
        ranking.hidden,
        (lists.block_docs, int(lists.is_varint), int(needs_all)),
        phrase,
        docs,
        scores,
    )
    return _ranked(docs, scores, checked(found, kernel="search_postings"))


def _room(ranking: Ranking, num_lists: int) -> tuple[UInt32s, Float32s]:
    count = min(ranking.limit, len(ranking.norms)) if num_lists else 0
    return np.empty(count, np.uint32), np.empty(count, np.float32)


def _ranked(docs: UInt32s, scores: Float32s, found: int) -> tuple[UInt32s, Float32s]:
    if found < len(docs):
        # Documents are ordered unless some were evicted.
        return docs[:found], scores[:found]
    order = np.argsort(docs)
    return docs[order], scores[order]
