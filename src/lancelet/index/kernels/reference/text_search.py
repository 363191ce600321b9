"""Top-k search in posting lists, by decoding all lists and scoring all documents.

    score    sum over the lists of idf * 2.2 f / (f + norm), f the frequency in the document

    red   {0: 2, 3: 1}    idf 1.1          any of red and fox    3, 0, 5
    fox   {3: 1, 5: 1}    idf 0.9          all of them           3

A document contains a phrase if each token has a position whose distance from a matched position of
the previous token is that in the phrase, plus at most `slop`.
"""

from __future__ import annotations

from functools import reduce

import numpy as np
import numpy.typing as npt

from lancelet.buffers import ByteSlices, Int64s
from lancelet.index.kernels.postings import Float32s, PostingLists, Ranking, UInt32s
from lancelet.index.kernels.reference.postings import decode_postings, decode_streams
from lancelet.kernels.faults import Fault, corrupt


def search_postings(
    lists: PostingLists, ranking: Ranking, *, needs_all: bool = False
) -> tuple[UInt32s, Float32s]:
    """Return the top documents with any or all tokens, ascending, and their scores.

    Ties are resolved in favor of the first document. The order of the lists does not matter.
    """
    found = _decoded(lists, ranking, "search_postings")
    if not found:
        return np.empty(0, np.uint32), np.empty(0, np.float32)
    join = np.intersect1d if needs_all else np.union1d
    return _ranked(reduce(join, (docs for docs, _ in found)), found, ranking)


def search_phrase(
    lists: PostingLists, ranking: Ranking, phrase_offsets: Int64s, *, slop: int = 0
) -> tuple[UInt32s, Float32s]:
    """Return the top documents with tokens at these offsets of a phrase, ascending.

    At most `slop` tokens may be between two tokens of the phrase.
    """
    found = _decoded(lists, ranking, "search_phrase")
    if not found:
        return np.empty(0, np.uint32), np.empty(0, np.float32)
    positions = [_positions(lists, index, freqs) for index, (_, freqs) in enumerate(found)]
    shared = reduce(np.intersect1d, (docs for docs, _ in found))
    has = [
        _has_phrase(
            [
                own[int(np.searchsorted(docs, doc))]
                for own, (docs, _) in zip(positions, found, strict=True)
            ],
            phrase_offsets,
            slop,
        )
        for doc in shared
    ]
    return _ranked(shared[np.array(has, np.bool_)], found, ranking)


def _decoded(lists: PostingLists, ranking: Ranking, kernel: str) -> list[tuple[UInt32s, UInt32s]]:
    """Return the documents and frequencies of each list."""
    found = []
    for index, count in enumerate(lists.counts.tolist()):
        start, stop = int(lists.first[index]), int(lists.stop[index])
        if not 0 <= start < stop <= len(lists.blocks):
            raise corrupt(Fault.BAD_OFFSETS, kernel=kernel, index=index)
        if not (stop - start - 1) * lists.block_docs < count <= (stop - start) * lists.block_docs:
            raise corrupt(Fault.BAD_COUNT, kernel=kernel, index=index)
        own = ByteSlices(
            lists.blocks.source,
            lists.blocks.position[start:stop],
            lists.blocks.size[start:stop],
        )
        docs, freqs = decode_postings(
            own, _sizes(lists, index), block_docs=lists.block_docs, is_varint=lists.is_varint
        )
        if np.any(docs[1:] <= docs[:-1]) or int(docs[-1]) >= len(ranking.norms):
            raise corrupt(Fault.BAD_INDEX, kernel=kernel, index=start)
        found.append((docs, freqs))
    return found


def _sizes(lists: PostingLists, index: int) -> Int64s:
    count = int(lists.counts[index])
    blocks = int(lists.stop[index] - lists.first[index])
    sizes = np.full(blocks, lists.block_docs, np.int64)
    sizes[-1] = count - (blocks - 1) * lists.block_docs
    return sizes


def _positions(lists: PostingLists, index: int, freqs: UInt32s) -> list[npt.NDArray[np.int64]]:
    """Return the positions in each document of a list."""
    start, stop = int(lists.first[index]), int(lists.stop[index])
    sizes = _sizes(lists, index)
    counts = np.add.reduceat(freqs.astype(np.int64), np.cumsum(sizes) - sizes)
    streams = lists.streams
    own = ByteSlices(streams.source, streams.position[start:stop], streams.size[start:stop])
    steps = decode_streams(own, counts).astype(np.int64)
    ends = np.cumsum(freqs, dtype=np.int64)
    return [np.cumsum(each) for each in np.split(steps, ends[:-1])]


def _has_phrase(positions: list[npt.NDArray[np.int64]], phrase_offsets: Int64s, slop: int) -> bool:
    reached = positions[0]
    for own, step in zip(positions[1:], np.diff(phrase_offsets).tolist(), strict=True):
        before = np.searchsorted(reached, own - step, side="right") - 1
        skipped = own - step - reached[np.maximum(before, 0)]
        reached = own[(before >= 0) & (skipped <= slop)]
        if not len(reached):
            return False
    return bool(len(reached))


def _ranked(
    docs: UInt32s, lists: list[tuple[UInt32s, UInt32s]], ranking: Ranking
) -> tuple[UInt32s, Float32s]:
    if len(ranking.hidden):
        docs = docs[ranking.hidden[docs] == 0]
    sums = np.zeros(len(docs), np.float64)
    for idf, (own, freqs) in zip(ranking.idf, lists, strict=True):
        shared, into, at = np.intersect1d(docs, own, assume_unique=True, return_indices=True)
        doc_freqs = freqs[at].astype(np.float32)
        sums[into] += idf * (np.float32(2.2) * doc_freqs / (doc_freqs + ranking.norms[shared]))
    scores = sums.astype(np.float32)
    order = np.sort(np.lexsort((docs, -scores))[: ranking.limit])
    return docs[order].astype(np.uint32), scores[order]
