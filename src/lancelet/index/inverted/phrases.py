"""Phrase search over token positions, where each phrase element may match several tokens.

    foo_bar      is an identifier, and consists of foo and bar
    position 0   foo_bar or foo: in document 3 at 5 and 9, in document 4 at 0
    position 1   bar:            in document 3 at 7,       in document 4 at 1
    a phrase     document 4, and with a slop of 1 document 3

An occurrence combines document and position in one number, so that the occurrences of all documents
are sorted and compared in one operation.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import numpy as np
import numpy.typing as npt

from lancelet.buffers import ByteSlices
from lancelet.index.inverted.postings import positions_of
from lancelet.index.inverted.tokens import list_block_sizes
from lancelet.index.kernels import PostingLists, decode_postings, decode_streams
from lancelet.rowids.address import UInt64s

_POSITION_BITS: Final = np.uint64(32)
_POSITION: Final = np.uint64(2**32 - 1)


def occurrences(lists: PostingLists) -> list[UInt64s]:
    """Return the occurrences of each token in ascending order: document << 32 | position."""
    result = []
    for first, stop, count in zip(lists.first, lists.stop, lists.counts.tolist(), strict=True):
        blocks, sizes = slice(first, stop), list_block_sizes(count, lists.block_docs)
        docs, freqs = decode_postings(
            _select(lists.blocks, blocks),
            sizes,
            block_docs=lists.block_docs,
            is_varint=lists.is_varint,
        )
        block_positions = np.add.reduceat(freqs, np.cumsum(sizes) - sizes, dtype=np.int64)
        steps = decode_streams(_select(lists.streams, blocks), block_positions)
        doc_bits = np.repeat(docs.astype(np.uint64) << _POSITION_BITS, freqs)
        result.append(doc_bits | positions_of(steps, freqs))
    return result


def docs_with_phrase(
    elements: Sequence[Sequence[UInt64s]], offsets: Sequence[int], *, slop: int
) -> npt.NDArray[np.uint32]:
    """Return the documents that contain a phrase.

    Each element of the phrase is given as the occurrences of its alternative tokens, and `offsets`
    are their positions in the phrase. At most `slop` other tokens may separate two elements.

    >>> at = [np.array([3 << 32 | 5, 4 << 32], np.uint64), np.array([3 << 32 | 9], np.uint64)]
    >>> next_to = [np.array([3 << 32 | 7, 4 << 32 | 1], np.uint64)]
    >>> docs_with_phrase([at, next_to], [0, 1], slop=0).tolist()
    [4]
    >>> docs_with_phrase([at, next_to], [0, 1], slop=1).tolist()
    [3, 4]
    """
    matches = _merge(elements[0])
    for tokens, step in zip(elements[1:], np.diff(offsets).astype(np.uint64), strict=True):
        if not len(matches):
            break
        candidates = _merge(tokens)
        candidates = candidates[(candidates & _POSITION) >= step]
        before = np.searchsorted(matches, candidates - step, side="right") - 1
        last = matches[np.maximum(before, 0)]
        is_same = (candidates >> _POSITION_BITS) == (last >> _POSITION_BITS)
        matches = candidates[
            (before >= 0) & is_same & (candidates - step - last <= np.uint64(slop))
        ]
    docs = (matches >> _POSITION_BITS).astype(np.uint32)
    is_first = np.ones(len(docs), np.bool_)
    np.not_equal(docs[1:], docs[:-1], out=is_first[1:])
    return docs[is_first]


def _merge(tokens: Sequence[UInt64s]) -> UInt64s:
    """Merge the occurrences of alternative tokens in ascending order."""
    if len(tokens) == 1:
        return tokens[0]
    joined = np.concatenate([np.empty(0, np.uint64), *tokens])
    joined.sort(kind="stable")  # stable sort merges sorted runs
    return joined


def _select(strings: ByteSlices, selection: slice) -> ByteSlices:
    return ByteSlices(strings.source, strings.position[selection], strings.size[selection])
