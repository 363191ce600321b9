"""The posting list of a token as it is stored, and several of them together for a search.

    red   blocks r0 r1 r2      of a search: r0 r1 r2 f0, where each begins and what is best in it
    fox   blocks f0

What is best in a block is worked out once by decoding it, and not read: it depends on how long
documents are on average, and what a file claims might be wrong.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from lancelet.buffers import Bytes, Int64s, Slices
from lancelet.errors import CorruptDataError
from lancelet.index.inverted.bm25 import weights
from lancelet.index.inverted.postings import Postings, position_steps
from lancelet.kernels import PostingLists, decode_postings, encode_postings, encode_streams

UInt32s = npt.NDArray[np.uint32]
Float32s = npt.NDArray[np.float32]


@dataclass(frozen=True, slots=True, eq=False)
class Blocks:
    """Byte strings that lie one behind the other, each ending where the next begins."""

    data: Bytes
    ends: Int64s

    @staticmethod
    def of(strings: Slices) -> Blocks:
        """Copy byte strings out of a buffer in which they lie one behind the other."""
        if not len(strings):
            return Blocks(np.empty(0, np.uint8), np.empty(0, np.int64))
        start = int(strings.position[0])
        ends = strings.position + strings.size
        return Blocks(strings.source[start : int(ends[-1])].copy(), ends - start)

    @staticmethod
    def join(parts: Sequence[Blocks]) -> Slices:
        """Return the strings of several parts in one buffer."""
        if len(parts) == 1:
            data, ends = parts[0].data, parts[0].ends
        else:
            data = np.concatenate([part.data for part in parts])
            before = np.cumsum([0, *(len(part.data) for part in parts[:-1])])
            ends = np.concatenate(
                [part.ends + start for part, start in zip(parts, before, strict=True)]
            )
        starts = np.empty(len(ends), np.int64)
        starts[:1] = 0
        starts[1:] = ends[:-1]
        return Slices(data, starts, ends - starts)


@dataclass(slots=True, eq=False)
class TokenList:
    """The documents of a token: how many, in blocks, with the positions of each block."""

    count: int
    blocks: Blocks
    block_docs: int
    is_varint: bool
    streams: Blocks | None = None
    _bounds: tuple[Float32s, UInt32s, Float32s] | None = None

    @staticmethod
    def of(postings: Postings, block_docs: int) -> TokenList:
        """Encode the documents of a token."""
        count = len(postings)
        sizes = sizes_of(count, block_docs)
        data, ends = encode_postings(
            postings.docs,
            postings.freqs,
            np.array([count], np.int64),
            np.zeros(len(sizes), np.float32),
            block_docs=block_docs,
        )
        streams = None
        if postings.positions is not None:
            streams = streams_of(postings.positions, postings.freqs, sizes)
        return TokenList(count, Blocks(data, ends), block_docs, True, streams)

    @property
    def num_bytes(self) -> int:
        """How much memory it takes, about."""
        streams = 0 if self.streams is None else len(self.streams.data)
        return len(self.blocks.data) + streams + 24 * len(self.blocks.ends) + 200

    def decode(self, num_docs: int) -> tuple[UInt32s, UInt32s]:
        """Return the documents, of which there are so many at most, and the frequencies."""
        docs, freqs = decode_postings(
            Blocks.join([self.blocks]),
            sizes_of(self.count, self.block_docs),
            block_docs=self.block_docs,
            is_varint=self.is_varint,
        )
        if np.any(docs[1:] <= docs[:-1]) or (len(docs) and int(docs[-1]) >= num_docs):
            raise CorruptDataError("a posting list names a document twice, or one that is not")
        return docs, freqs

    def bounds(self, norms: Float32s) -> tuple[UInt32s, Float32s]:
        """Return the last document of each block, and the largest weight."""
        if self._bounds is None or self._bounds[0] is not norms:
            docs, freqs = self.decode(len(norms))
            sizes = sizes_of(self.count, self.block_docs)
            starts = np.cumsum(sizes) - sizes
            best = np.maximum.reduceat(weights(freqs, norms[docs]), starts)
            self._bounds = norms, docs[starts + sizes - 1], best
        return self._bounds[1:]


def join_lists(lists: Sequence[TokenList], norms: Float32s) -> PostingLists:
    """Return lists, of which there is one at least, as a search takes them."""
    if len(lists) == 1:
        last, best = lists[0].bounds(norms)
    else:
        bounds = [each.bounds(norms) for each in lists]
        last = np.concatenate([each for each, _ in bounds])
        best = np.concatenate([each for _, each in bounds])
    return PostingLists(
        Blocks.join([each.blocks for each in lists]),
        last,
        best,
        np.cumsum([0, *(len(each.blocks.ends) for each in lists)]),
        np.array([each.count for each in lists], np.int64),
        lists[0].block_docs,
        lists[0].is_varint,
    )


def join_streams(lists: Sequence[TokenList]) -> Slices:
    """Return the positions of lists that have them."""
    return Blocks.join([each.streams for each in lists if each.streams is not None])


def streams_of(positions: UInt32s, freqs: UInt32s, sizes: Int64s) -> Blocks:
    """Encode the positions of the documents of blocks of these sizes."""
    starts = np.cumsum(sizes) - sizes
    counts = np.add.reduceat(freqs.astype(np.int64), starts)
    return Blocks(*encode_streams(position_steps(positions, freqs), counts))


def sizes_of(count: int, block_docs: int) -> Int64s:
    """Return how many documents each block of a list has.

    >>> sizes_of(300, 128).tolist()
    [128, 128, 44]
    """
    sizes = np.full(-(-count // block_docs), block_docs, np.int64)
    sizes[-1:] = count - (len(sizes) - 1) * block_docs
    return sizes
