"""Posting lists as a search takes them: those of a query, among others in the same arrays.

blocks   a0 a1 a2 c0 c1 b0      list a has 300 documents, list b 12; c is not asked for
first    0 5                    where the blocks of each list begin
stop     3 6
last     127 255 299 .. 80      the last document of each block
best     1.4 0.9 1.7 .. 1.1     the largest weight in each block, before the idf

A list that many of all documents have may have a glance: a byte for each document, 0 if it is not
in the list, else how much it weighs, rounded up. It saves decoding, and changes nothing else.
"""

from __future__ import annotations

from dataclasses import field
from typing import Any, Final, NamedTuple

import numpy as np
import numpy.typing as npt

from lancelet.buffers import Bytes, Int64s, Slices
from lancelet.kernels.arguments import as_int64s, slice_arrays
from lancelet.values import cached_property, dataclass

UInt32s = npt.NDArray[np.uint32]
Float32s = npt.NDArray[np.float32]

BLOCKS_PER_GROUP: Final = 32
"""What may score best is written down for every block, and once more for so many together."""


QUANTIZED_WEIGHT_MAX: Final = 255
"""What a document has in a glance whose weight is as large as weights can be."""
WEIGHT_MAX: Final = 2.2

_NO_INTS: Final = np.empty(0, np.int64)
NO_STREAMS: Final = Slices(np.empty(0, np.uint8), _NO_INTS, _NO_INTS)


@dataclass(frozen=True, eq=False)
class PostingLists:
    """The lists of a query; `counts` has how many documents each list has, at least one.

    Attributes:
        blocks: The blocks of all lists that there are.
        last: The last document of each block.
        best: The largest weight in each block.
        first: Where the blocks of each list of the query begin.
        stop: Where they end.
        counts: How many documents each list has.
        block_docs: How many documents a block has that is full.
        is_varint: Whether the last documents of a list are stored as varints.
        streams: The positions of each block, if there are any.
        glances: The glances of all lists that have one.
        glance: Where the glance of each list of the query begins, -1 if it has none.
    """

    blocks: Slices
    last_docs: UInt32s
    block_max: Float32s
    first: Int64s
    stop: Int64s
    counts: Int64s
    block_docs: int = 128
    is_varint: bool = True
    streams: Slices = NO_STREAMS
    doc_weights: Bytes = field(default_factory=lambda: np.empty(0, np.uint8))
    weights_start: Int64s | None = None

    @cached_property
    def arrays(self) -> tuple[Any, ...]:
        """Everything but the positions, as a native kernel takes it; checked once."""
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
        """The positions, as a native kernel takes them."""
        return slice_arrays(self.streams)


def quantize_weights(num_docs: int, docs: UInt32s, weights: Float32s) -> Bytes:
    """Return the glance of a list.

    >>> quantize_weights(4, np.array([1, 3], np.uint32), np.array([2.2, 0.01], np.float32)).tolist()
    [0, 255, 0, 2]
    """
    quantized = np.zeros(num_docs, np.uint8)
    steps = np.ceil(weights * np.float32(QUANTIZED_WEIGHT_MAX / WEIGHT_MAX))
    quantized[docs] = np.minimum(steps, QUANTIZED_WEIGHT_MAX).astype(np.uint8)
    return quantized


class Ranking(NamedTuple):
    """What documents are ranked by; a document is left out where `hidden` is not 0.

    Attributes:
        idf: What the weights of each list are multiplied with, above 0.
        norms: What is added to the frequency below the line, for each document.
        most: The most documents that are wanted.
        hidden: Empty if no document is left out.
    """

    idf: Float32s
    norms: Float32s
    limit: int
    hidden: npt.NDArray[np.uint8]
