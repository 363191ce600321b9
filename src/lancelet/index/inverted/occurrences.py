"""Where tokens stand, and phrases any of whose words may be one of several tokens.

    foo_bar      is a name, and the words foo and bar
    position 0   foo_bar or foo: in document 3 at 5 and at 9, in document 4 at 0
    position 1   bar:            in document 3 at 7,          in document 4 at 1
    a phrase     document 4, and with a slop of 1 document 3

A place is a document and a position in one number, so that the places of all documents are sorted
and compared at once.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import numpy as np
import numpy.typing as npt

from lancelet.buffers import Slices
from lancelet.index.inverted.postings import positions_of
from lancelet.index.inverted.tokens import sizes_of
from lancelet.kernels import PostingLists, decode_postings, decode_streams
from lancelet.rowids.address import UInt64s

_POSITION_BITS: Final = np.uint64(32)
_POSITION: Final = np.uint64(2**32 - 1)


def occurrences(lists: PostingLists) -> list[UInt64s]:
    """Return the places of each token, ascending: document << 32 | position."""
    found = []
    for first, stop, count in zip(lists.first, lists.stop, lists.counts.tolist(), strict=True):
        own, sizes = slice(first, stop), sizes_of(count, lists.block_docs)
        docs, freqs = decode_postings(
            _chosen(lists.blocks, own),
            sizes,
            block_docs=lists.block_docs,
            is_varint=lists.is_varint,
        )
        of_block = np.add.reduceat(freqs, np.cumsum(sizes) - sizes, dtype=np.int64)
        steps = decode_streams(_chosen(lists.streams, own), of_block)
        places = np.repeat(docs.astype(np.uint64) << _POSITION_BITS, freqs)
        found.append(places | positions_of(steps, freqs))
    return found


def docs_with_phrase(
    words: Sequence[Sequence[UInt64s]], offsets: Sequence[int], *, slop: int
) -> npt.NDArray[np.uint32]:
    """Return the documents in which words follow one another as in a phrase.

    Each is given as the places of the tokens it may be, and by how far into the phrase it is;
    at most `slop` others stand between two words.

    >>> at = [np.array([3 << 32 | 5, 4 << 32], np.uint64), np.array([3 << 32 | 9], np.uint64)]
    >>> next_to = [np.array([3 << 32 | 7, 4 << 32 | 1], np.uint64)]
    >>> docs_with_phrase([at, next_to], [0, 1], slop=0).tolist()
    [4]
    >>> docs_with_phrase([at, next_to], [0, 1], slop=1).tolist()
    [3, 4]
    """
    reached = _joined(words[0])
    for tokens, step in zip(words[1:], np.diff(offsets).astype(np.uint64), strict=True):
        if not len(reached):
            break
        places = _joined(tokens)
        places = places[(places & _POSITION) >= step]
        before = np.searchsorted(reached, places - step, side="right") - 1
        last = reached[np.maximum(before, 0)]
        is_same = (places >> _POSITION_BITS) == (last >> _POSITION_BITS)
        reached = places[(before >= 0) & is_same & (places - step - last <= np.uint64(slop))]
    docs = (reached >> _POSITION_BITS).astype(np.uint32)
    is_first = np.ones(len(docs), np.bool_)
    np.not_equal(docs[1:], docs[:-1], out=is_first[1:])
    return docs[is_first]


def _joined(tokens: Sequence[UInt64s]) -> UInt64s:
    """Return the places of any of some tokens, ascending."""
    if len(tokens) == 1:
        return tokens[0]
    joined = np.concatenate([np.empty(0, np.uint64), *tokens])
    joined.sort(kind="stable")  # it merges what is sorted already
    return joined


def _chosen(strings: Slices, own: slice) -> Slices:
    return Slices(strings.source, strings.position[own], strings.size[own])
