"""The posting list of one token as it is stored: documents in blocks, positions in streams.

300 documents    blocks of 128, 128 and 44       each a byte string, one behind the other
positions        a stream for each block
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from lancelet.buffers import Bytes, Int64s, Slices
from lancelet.errors import CorruptDataError
from lancelet.index.inverted.postings import Postings, position_steps
from lancelet.kernels import decode_postings, encode_postings, encode_streams
from lancelet.values import dataclass

UInt32s = npt.NDArray[np.uint32]


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
    def empty(count: int) -> Blocks:
        """Return so many empty strings."""
        return Blocks(np.empty(0, np.uint8), np.zeros(count, np.int64))

    def as_slices(self) -> Slices:
        """Return the strings as slices of their bytes."""
        sizes = np.diff(self.ends, prepend=0)
        return Slices(self.data, self.ends - sizes, sizes)


@dataclass(frozen=True, slots=True, eq=False)
class TokenList:
    """The documents of a token: how many, in blocks, with the positions of each block."""

    count: int
    blocks: Blocks
    block_docs: int
    is_varint: bool
    streams: Blocks | None = None

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
    def sizes(self) -> Int64s:
        """How many documents each block has."""
        return sizes_of(self.count, self.block_docs)

    def decode(self, num_docs: int) -> tuple[UInt32s, UInt32s]:
        """Return the documents, of which there are so many at most, and the frequencies."""
        docs, freqs = decode_postings(
            self.blocks.as_slices(),
            self.sizes,
            block_docs=self.block_docs,
            is_varint=self.is_varint,
        )
        if np.any(docs[1:] <= docs[:-1]) or (len(docs) and int(docs[-1]) >= num_docs):
            raise CorruptDataError("a posting list names a document twice, or one that is not")
        return docs, freqs


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
