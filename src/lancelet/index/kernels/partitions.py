"""Parameters of the top-k search in partitions of a vector index.

    codes     of a whole segment, partition by partition
    query     scoring parameters
    rows      address of each row, and whether it is allowed

Code kinds, where `c` is the code of a row:

    CODEBOOK   sum of |residual - codeword|^2 over sub-vectors; residual is query minus centroid
    TABLE      base + sum of entries
    BYTES      factor * |c - q|^2
    PRODUCTS   base + factor * <q, c>
    VECTORS    by a metric
    ROTATED    number of the partition + add + scale * (<q, c> + base), add and scale of the row;
               code values are at most twice `factor`
"""

from __future__ import annotations

from dataclasses import field
from enum import IntEnum
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from lancelet.buffers import Int64s
from lancelet.index.kernels.vectors import Floats, Metric
from lancelet.values import dataclass

NO_FLOATS: Final[Floats] = np.empty(0, np.float32)
_NO_BYTES: Final = np.empty(0, np.uint8)
ENTRIES: Final = 256
"""Number of table entries per code byte."""
BLOCK_ROWS: Final = 64
"""CODEBOOK and TABLE codes are stored in blocks of this many rows, column by column. The last block
of a partition may be shorter.
"""


def _no_floats() -> Floats:
    return NO_FLOATS


def _no_bytes() -> npt.NDArray[np.uint8]:
    return _NO_BYTES


class CodeKind(IntEnum):
    """Scoring methods of codes."""

    CODEBOOK = 0
    TABLE = 1
    BYTES = 2
    PRODUCTS = 3
    VECTORS = 4
    ROTATED = 5
    ROTATED_WIDE = 6


@dataclass(frozen=True, slots=True, eq=False)
class CodeQuery:
    """Scoring parameters; the type of `query` depends on the kind.

    `codebook` is a table, or codebooks of shape (sub-vectors, elements, codewords).
    """

    kind: CodeKind
    query: npt.NDArray[Any]
    dimension: int
    codebook: Floats = field(default_factory=_no_floats)
    num_sub_vectors: int = 0
    metric: Metric = Metric.L2
    factor: float = 1.0
    base: float = 0.0


@dataclass(frozen=True, slots=True, eq=False)
class PackedCodes:
    """The codes of a segment, `row_bytes` per row, with `add` and `scale` per row if ROTATED.

    For other kinds, optional fields allow rejecting rows by a byte dot product:

        BYTES      add      squared norm of the bytes minus 256 times their sum, times the factor
        VECTORS    numbers  result of `quantize_rows` (of normalized rows for cosine)
                   add      their squares, for L2
                   scale    -2 times the steps for L2, else -1 times; probes have centers then
    """

    values: npt.NDArray[Any]
    row_bytes: int
    add: Floats = field(default_factory=_no_floats)
    scale: Floats = field(default_factory=_no_floats)
    numbers: npt.NDArray[np.uint8] = field(default_factory=_no_bytes)


@dataclass(frozen=True, slots=True, eq=False)
class Probes:
    """The probed partitions: row ranges, and scoring parameters per partition."""

    starts: Int64s
    lengths: Int64s
    centers: Floats = field(default_factory=_no_floats)
    bases: Floats = field(default_factory=_no_floats)


@dataclass(frozen=True, slots=True, eq=False)
class RowMasks:
    """The prefilter: concatenated masks of fragments; `starts` has the start of each."""

    fragments: Int64s
    starts: Int64s
    mask: npt.NDArray[np.bool_]
