"""Posting lists of a query, as block ranges of shared arrays.

    blocks     a0 a1 a2 c0 c1 b0      list a has 300 documents, list b 12; c is not in the query
    first      0 5                    first block of each list
    stop       3 6
    last_docs  127 255 299 .. 80      last document of each block
    block_max  1.4 0.9 1.7 .. 1.1     maximum weight in each block, before the idf

The list of a frequent token may have document weights: a byte per document, 0 if the list does not
contain it, else its weight, rounded up. They avoid decoding and do not affect results.
"""

from __future__ import annotations

from dataclasses import field
from typing import Any, Final, NamedTuple

import numpy as np
import numpy.typing as npt

from lancelet.buffers import Bytes, ByteSlices, Int64s
from lancelet.kernels.arguments import as_int64s, slice_arrays
from lancelet.values import cached_property, dataclass

UInt32s = npt.NDArray[np.uint32]
Float32s = npt.NDArray[np.float32]

BLOCKS_PER_GROUP: Final = 32
"""Impacts are stored for each block, and for each group of this many blocks."""


QUANTIZED_WEIGHT_MAX: Final = 255
"""Quantized value of the maximum weight."""
WEIGHT_MAX: Final = 2.2

_NO_INTS: Final = np.empty(0, np.int64)
NO_STREAMS: Final = ByteSlices(np.empty(0, np.uint8), _NO_INTS, _NO_INTS)


@dataclass(frozen=True, eq=False)
class PostingLists:
    """The posting lists of a query, each with at least one document.

    Attributes:
        blocks: The blocks of all lists in the shared arrays.
        last_docs: The last document of each block.
        block_max: The maximum weight in each block.
        first: The first block of each list of the query.
        stop: The end of its blocks.
        counts: Number of documents of each list.
        block_docs: Number of documents in a full block.
        is_varint: Whether the tails of lists are stored as varints.
        streams: The positions of each block, if any.
        doc_weights: Document weights of all lists that have them.
        weights_start: Start of the document weights of each list, -1 if it has none.
    """

    blocks: ByteSlices
    last_docs: UInt32s
    block_max: Float32s
    first: Int64s
    stop: Int64s
    counts: Int64s
    block_docs: int = 128
    is_varint: bool = True
    streams: ByteSlices = NO_STREAMS
    doc_weights: Bytes = field(default_factory=lambda: np.empty(0, np.uint8))
    weights_start: Int64s | None = None

    @cached_property
    def arrays(self) -> tuple[Any, ...]:
        """Arguments for the native kernel, except positions."""
        weights_start = (
            np.full(len(self.counts), -1) if self.weights_start is None else self.weights_start
        )
        return (
            *slice_arrays(self.blocks),
            self.last_docs,
            self.block_max,
            *map(as_int64s, (self.first, self.stop, self.counts)),
            self.doc_weights,
            as_int64s(weights_start),
        )

    @cached_property
    def stream_arrays(self) -> tuple[Any, ...]:
        """Position arguments for the native kernel."""
        return slice_arrays(self.streams)


def quantize_weights(num_docs: int, docs: UInt32s, weights: Float32s) -> Bytes:
    """Return the document weights of a list.

    >>> quantize_weights(4, np.array([1, 3], np.uint32), np.array([2.2, 0.01], np.float32)).tolist()
    [0, 255, 0, 2]
    """
    quantized = np.zeros(num_docs, np.uint8)
    steps = np.ceil(weights * np.float32(QUANTIZED_WEIGHT_MAX / WEIGHT_MAX))
    quantized[docs] = np.minimum(steps, QUANTIZED_WEIGHT_MAX).astype(np.uint8)
    return quantized


class Ranking(NamedTuple):
    """Ranking parameters; documents with non-zero `hidden` are skipped.

    Attributes:
        idf: Factor of the weights of each list, positive.
        norms: Term added to the frequency in the BM25 denominator, by document.
        limit: Maximum number of results.
        hidden: Flags of documents to skip, or empty.
    """

    idf: Float32s
    norms: Float32s
    limit: int
    hidden: npt.NDArray[np.uint8]
