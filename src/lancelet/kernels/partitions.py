"""What the kernel takes that finds the nearest rows in partitions of a vector index.

codes     of a whole segment, a partition behind the other
query     how a row is scored by its code
rows      address of each row, and whether it may be found

The kinds of codes, where `c` is the code of a row:

    WORDS      sum of |rest - word|^2 over pieces; rest is the query less the centre
    TABLE      base + sum of entries
    BYTES      factor * |c - q|^2
    PRODUCTS   base + factor * <q, c>
    VECTORS    by a metric
    ROTATED    number of the partition + add + scale * (<q, c> + base), add and scale of the row;
               no number of a code is above twice `factor`
"""

from __future__ import annotations

from dataclasses import field
from enum import IntEnum
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from lancelet.buffers import Int64s
from lancelet.kernels.graph import Floats, Metric
from lancelet.values import dataclass

NO_FLOATS: Final[Floats] = np.empty(0, np.float32)
_NO_BYTES: Final = np.empty(0, np.uint8)
ENTRIES: Final = 256
"""How many entries a table has for each byte of a code."""
BLOCK_ROWS: Final = 64
"""Codes of WORDS and TABLE lie in blocks of so many rows of a partition, the last of what is left,
in each column by column."""


def _no_floats() -> Floats:
    return NO_FLOATS


def _no_bytes() -> npt.NDArray[np.uint8]:
    return _NO_BYTES


class CodeKind(IntEnum):
    """How codes are scored."""

    CODEBOOK = 0
    TABLE = 1
    BYTES = 2
    PRODUCTS = 3
    VECTORS = 4
    ROTATED = 5
    ROTATED_WIDE = 6


@dataclass(frozen=True, slots=True, eq=False)
class CodeQuery:
    """How rows are scored; `query` is in the type that the kind takes.

    `codebook` is a table, or a codebook of the shape (pieces, elements of a piece, words).
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
    """The codes of a segment; those of a row have so many bytes, and two numbers if ROTATED.

    Of other kinds, what there is besides lets rows be told to be too far by a product of bytes:

    BYTES      add      squares of the bytes less 256 times their sum, times the factor
    VECTORS    numbers  result of `quantize_rows` (of normalized rows for cosine)
               add      their squares, for L2
               scale    -2 times the steps for L2, -1 times else; probes have centres then
    """

    values: npt.NDArray[Any]
    row_bytes: int
    add: Floats = field(default_factory=_no_floats)
    scale: Floats = field(default_factory=_no_floats)
    numbers: npt.NDArray[np.uint8] = field(default_factory=_no_bytes)


@dataclass(frozen=True, slots=True, eq=False)
class Probes:
    """The partitions that are looked at: where their rows are, and what scores need of each."""

    starts: Int64s
    lengths: Int64s
    centers: Floats = field(default_factory=_no_floats)
    bases: Floats = field(default_factory=_no_floats)


@dataclass(frozen=True, slots=True, eq=False)
class RowMasks:
    """Rows that may be found: masks of fragments, one behind the other from `starts` on."""

    fragments: Int64s
    starts: Int64s
    mask: npt.NDArray[np.bool_]
