"""A sample of a page: a few runs of neighbouring values from all over it.

    page of 1 000 000 words of 64 bits     4 runs of 1024, at 0, 333 000, 666 000 and the end

Neighbours matter, since run lengths, packing and general compression live on what lies side by
side; places matter, since a page that was sorted has one kind of value at its start.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import numpy as np

from lancelet.encodings.base import Block, FixedWidth, Variable
from lancelet.encodings.codecs.variable import offsets_from_sizes
from lancelet.encodings.cost import raw_bytes
from lancelet.encodings.leaf import slice_block
from lancelet.encodings.spans import expand

BYTES_AIM: Final = 32 * 1024
"""A sample aims at so many bytes, which is what is compressed at once."""

VALUES_FEW: Final = 4096
VALUES_MAX: Final = 16384
"""It has so many values nevertheless, and never more, ..."""

BYTES_MAX: Final = 128 * 1024
VALUES_MIN: Final = 64
"""... and of large values at most so many bytes, but not fewer than so many."""

PIECES: Final = 4

LONG_BYTES: Final = 16 * 1024
"""Of values that are stored one by one, so many bytes show how each would be compressed."""


def sample_of(block: Block) -> Block:
    """Return a sample of a block, or the block itself if it is small.

    >>> values = FixedWidth(8, np.arange(100_000).astype(np.uint8), 100_000)
    >>> sample_of(values).count
    16384
    """
    value_bytes = raw_bytes(block) / max(block.count, 1)
    aim = min(max(int(BYTES_AIM / max(value_bytes, 1)), VALUES_FEW), VALUES_MAX)
    wanted = max(min(aim, int(BYTES_MAX / max(value_bytes, 1))), VALUES_MIN)
    if block.count <= wanted:
        return block
    if not isinstance(block, FixedWidth | Variable):
        start = _whole_bytes((block.count - wanted) // 2)
        return slice_block(block, start, start + wanted)
    piece = _whole_bytes(wanted // PIECES)
    starts = [_whole_bytes((block.count - piece) * at // (PIECES - 1)) for at in range(PIECES)]
    return _joined([slice_block(block, start, start + piece) for start in starts])


def sample_of_long(values: Variable) -> Variable:
    """Return a sample of strings that are encoded one by one: single ones, the middle if long.

    >>> values = Variable(np.array([0, 3, 1 << 20]), np.zeros(1 << 20, np.uint8))
    >>> sample_of_long(values).offsets.tolist()
    [0, 3, 16387]
    """
    value_bytes = raw_bytes(values) / max(values.count, 1)
    wanted = max(min(VALUES_MAX, int(BYTES_MAX / max(value_bytes, 1))), VALUES_MIN)
    picked = np.linspace(0, values.count - 1, min(wanted, values.count)).astype(np.int64)
    start, stop = (values.offsets[picked + at].astype(np.int64) for at in (0, 1))
    size = np.minimum(stop - start, LONG_BYTES)
    data = values.data[expand((start + stop - size) // 2, size)]
    return Variable(offsets_from_sizes(size), data)


def _whole_bytes(count: int) -> int:
    """Return a count of values that ends on a byte even if they are bits."""
    return count // 8 * 8


def _joined(pieces: Sequence[Block]) -> Block:
    fixed = [piece for piece in pieces if isinstance(piece, FixedWidth)]
    if fixed:
        count = sum(piece.count for piece in fixed)
        return FixedWidth(fixed[0].bits, np.concatenate([piece.data for piece in fixed]), count)
    strings = [piece for piece in pieces if isinstance(piece, Variable)]
    sizes = np.concatenate([np.diff(piece.offsets).astype(np.int64) for piece in strings])
    data = [piece.data[int(piece.offsets[0]) : int(piece.offsets[-1])] for piece in strings]
    return Variable(offsets_from_sizes(sizes), np.concatenate(data))
