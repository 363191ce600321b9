"""Page samples: runs of adjacent values, evenly distributed over the page.

    page of 1 000 000 64-bit integers     4 runs of 1024, at 0, 333 000, 666 000 and the end

Adjacent values are needed because run lengths, bit-packing and general compression depend on them.
Distributed runs are needed because a sorted page has similar values at its start.
"""

from __future__ import annotations

import math
from typing import Final

import numpy as np

from lancelet import kernels
from lancelet.encodings.base import Block, FixedWidth, Variable
from lancelet.encodings.codecs.variable import offsets_from_sizes
from lancelet.encodings.pages.leaf import raw_bytes, slice_block
from lancelet.encodings.row_ranges import expand

BYTES_AIM: Final = 32 * 1024
"""Target sample size in bytes, the size of a compressed chunk."""

VALUES_FEW: Final = 4096
VALUES_MAX: Final = 16384
"""Minimum and maximum number of sampled small values."""

BYTES_MAX: Final = 128 * 1024
VALUES_MIN: Final = 64
"""Maximum sample size in bytes of large values, and the minimum number of values regardless."""

NUM_RUNS: Final = 4

LONG_BYTES: Final = 16 * 1024
"""Bytes per value sampled to estimate the compression of individually stored values."""


def sample_rows(block: Block) -> int:
    """Return the sample size of a page; a power of two unless the full page is used.

    >>> sample_rows(FixedWidth(64, np.zeros(800_000, np.uint8), 100_000))
    4096
    """
    value_bytes = max(raw_bytes(block) / max(block.count, 1), 1.0)
    aim = min(max(BYTES_AIM / value_bytes, VALUES_FEW), VALUES_MAX)
    target = max(min(aim, BYTES_MAX / value_bytes), VALUES_MIN)
    return min(1 << round(math.log2(target)), block.count)


def sample_values(block: Block) -> Block:
    """Return a sample of a page, or the page itself if small.

    >>> values = FixedWidth(8, np.arange(100_000).astype(np.uint8), 100_000)
    >>> sample_values(values).count
    16384
    """
    num_rows = sample_rows(block)
    if block.count <= num_rows:
        return block
    if not isinstance(block, FixedWidth | Variable):
        start = _whole_bytes((block.count - num_rows) // 2)
        return slice_block(block, start, start + num_rows)
    rows = _whole_bytes(num_rows // NUM_RUNS)
    starts = [_whole_bytes((block.count - rows) * run // (NUM_RUNS - 1)) for run in range(NUM_RUNS)]
    if isinstance(block, Variable):
        selected = np.concatenate([np.arange(start, start + rows) for start in starts])
        return Variable(*kernels.take_variable(block.offsets, block.data, selected))
    # Runs start at byte boundaries, also those of bits.
    edges = [(start * block.bits // 8, (start + rows) * block.bits // 8) for start in starts]
    data = np.concatenate([block.data[start:stop] for start, stop in edges])
    return FixedWidth(block.bits, data, NUM_RUNS * rows)


def sample_long_strings(values: Variable) -> Variable:
    """Sample single strings that are encoded one by one; of long strings, the middle.

    >>> values = Variable(np.array([0, 3, 1 << 20]), np.zeros(1 << 20, np.uint8))
    >>> sample_long_strings(values).offsets.tolist()
    [0, 3, 16387]
    """
    value_bytes = raw_bytes(values) / max(values.count, 1)
    num_values = max(min(VALUES_MAX, int(BYTES_MAX / max(value_bytes, 1))), VALUES_MIN)
    selected = np.linspace(0, values.count - 1, min(num_values, values.count)).astype(np.int64)
    start, stop = (values.offsets[selected + edge].astype(np.int64) for edge in (0, 1))
    size = np.minimum(stop - start, LONG_BYTES)
    data = values.data[expand((start + stop - size) // 2, size)]
    return Variable(offsets_from_sizes(size), data)


def _whole_bytes(count: int) -> int:
    """Round down to a multiple of 8, so that bit values end at a byte boundary."""
    return count // 8 * 8
