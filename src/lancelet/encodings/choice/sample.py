"""Page samples: runs of adjacent values, evenly distributed over the page.

    page of 1 000 000 64-bit integers     4 runs of 1024, at 0, 333 000, 666 000 and the end

Adjacent values are needed because run lengths, bit-packing and general compression depend on them.
Distributed runs are needed because a sorted page has similar values at its start.
"""

from __future__ import annotations

from typing import Final

import numpy as np

from lancelet.buffers import Int64s
from lancelet.encodings.base import FixedWidth, Variable
from lancelet.encodings.codecs.variable import offsets_from_sizes
from lancelet.encodings.pages.leaf import slice_block
from lancelet.encodings.pages.leaf_pages import Pages, raw_bytes
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


def sample_rows(pages: Pages) -> Int64s:
    """Return the sample size of each page; a power of two unless the full page is used.

    >>> sample_rows(Pages.single(FixedWidth(64, np.zeros(800_000, np.uint8), 100_000))).tolist()
    [4096]
    """
    value_bytes = np.maximum(pages.raw_bytes / max(pages.rows, 1), 1)
    aim = np.minimum(np.maximum(BYTES_AIM / value_bytes, VALUES_FEW), VALUES_MAX)
    target = np.maximum(np.minimum(aim, BYTES_MAX / value_bytes), VALUES_MIN)
    rows: Int64s = 1 << np.log2(target).round().astype(np.int64)
    return np.minimum(rows, pages.rows)


def sample_pages(pages: Pages) -> Pages:
    """Return a sample of pages with equal sample sizes, or the pages themselves if small.

    >>> values = FixedWidth(8, np.arange(100_000).astype(np.uint8), 100_000)
    >>> sample_pages(Pages.single(values)).rows
    16384
    """
    num_rows = int(sample_rows(pages)[0])
    if pages.rows <= num_rows:
        return pages
    if not isinstance(pages.block, FixedWidth | Variable):
        start = _whole_bytes((pages.rows - num_rows) // 2)
        return Pages.single(slice_block(pages.block, start, start + num_rows))
    run_rows = _whole_bytes(num_rows // NUM_RUNS)
    starts = [
        _whole_bytes((pages.rows - run_rows) * run // (NUM_RUNS - 1)) for run in range(NUM_RUNS)
    ]
    return pages.slices([(start, start + run_rows) for start in starts])


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
