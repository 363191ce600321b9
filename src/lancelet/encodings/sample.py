"""A sample of a page: a few runs of neighbouring values from all over it.

    page of 1 000 000 words of 64 bits     4 runs of 1024, at 0, 333 000, 666 000 and the end

Neighbours matter, since run lengths, packing and general compression live on what lies side by
side; places matter, since a page that was sorted has one kind of value at its start.
"""

from __future__ import annotations

from typing import Final

import numpy as np

from lancelet.buffers import Int64s
from lancelet.encodings.base import FixedWidth, Variable
from lancelet.encodings.codecs.variable import offsets_from_sizes
from lancelet.encodings.leaf import slice_block
from lancelet.encodings.pages import Pages, raw_bytes
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


def sample_rows(pages: Pages) -> Int64s:
    """Return how many values a sample of each page has; a power of two if not all of them.

    >>> sample_rows(Pages.one(FixedWidth(64, np.zeros(800_000, np.uint8), 100_000))).tolist()
    [4096]
    """
    value_bytes = np.maximum(pages.raw_bytes / max(pages.rows, 1), 1)
    aim = np.minimum(np.maximum(BYTES_AIM / value_bytes, VALUES_FEW), VALUES_MAX)
    wanted = np.maximum(np.minimum(aim, BYTES_MAX / value_bytes), VALUES_MIN)
    rows: Int64s = 1 << np.log2(wanted).round().astype(np.int64)
    return np.minimum(rows, pages.rows)


def sample_of(pages: Pages) -> Pages:
    """Return a sample of pages whose samples have the same rows, or the pages if they are small.

    >>> values = FixedWidth(8, np.arange(100_000).astype(np.uint8), 100_000)
    >>> sample_of(Pages.one(values)).rows
    16384
    """
    wanted = int(sample_rows(pages)[0])
    if pages.rows <= wanted:
        return pages
    if not isinstance(pages.block, FixedWidth | Variable):
        start = _whole_bytes((pages.rows - wanted) // 2)
        return Pages.one(slice_block(pages.block, start, start + wanted))
    piece = _whole_bytes(wanted // PIECES)
    starts = [_whole_bytes((pages.rows - piece) * at // (PIECES - 1)) for at in range(PIECES)]
    return pages.parts([(start, start + piece) for start in starts])


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
