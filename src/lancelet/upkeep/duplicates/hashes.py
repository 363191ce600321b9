"""Find hashes with a small Hamming distance, and cluster the rows.

    hashes    0000 0001 1111      at most one different bit
    pairs     (0, 1)

Hashes are compared as 64-bit words, in blocks, so that memory does not depend on the number of
rows. Equal hashes are found by sorting.

A cluster is a connected component of pairs, represented by its lowest row number:

    pairs      (1, 4) (4, 9) (2, 3)
    clusters   1: 4 9    2: 3
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from lancelet.buffers import Int64s
from lancelet.errors import InvalidInputError
from lancelet.index.vector.vectors import values_of
from lancelet.rowids.address import UInt64s

Pairs = tuple[Int64s, Int64s]
"""Row indices of the left and right rows of pairs."""

_WORD_BYTES: Final = 8
_BLOCK_CELLS: Final = 1 << 20
"""Comparisons per block, which take a few megabytes."""

CLUSTER_SCHEMA: Final = pa.schema(
    [
        pa.field("representative", pa.uint64(), nullable=False),
        pa.field("duplicates", pa.list_(pa.uint64()), nullable=False),
    ]
)
"""The schema of clusters."""

_BATCH_ROWS: Final = 10_000


def check_hashes(data_type: pa.DataType, column: str) -> None:
    """Raise if the column type is not a hash of a multiple of 64 bits."""
    is_list = pa.types.is_fixed_size_list(data_type)
    if not (
        is_list
        and data_type.value_type == pa.uint8()
        and data_type.list_size > 0
        and data_type.list_size % _WORD_BYTES == 0
    ):
        raise InvalidInputError(
            f"Column '{column}' must be FixedSizeList<UInt8, N> where N is a positive multiple of "
            f"8 bytes, got {data_type}",
            column=column,
        )


def to_machine_words(hashes: pa.FixedSizeListArray) -> npt.NDArray[np.uint64]:
    """Return hashes without nulls as a matrix of 64-bit words."""
    flat = values_of(hashes)
    matrix = np.ascontiguousarray(flat).reshape(len(hashes), hashes.type.list_size)
    return matrix.view(np.uint64)


def pairs_of_hashes(machine_words: npt.NDArray[np.uint64], bits_max: int) -> Iterator[Pairs]:
    """Yield pairs of rows that connect all hashes with at most `bits_max` different bits.

    >>> hashes = np.array([[0], [1], [15]], np.uint64)
    >>> [(left.tolist(), right.tolist()) for left, right in pairs_of_hashes(hashes, 1)]
    [([], []), ([0], [1])]
    """
    distinct, first, inverse = np.unique(
        machine_words, axis=0, return_index=True, return_inverse=True
    )
    inverse = inverse.reshape(-1)
    repeated = np.flatnonzero(first[inverse] != np.arange(len(machine_words)))
    yield first[inverse[repeated]], repeated
    if bits_max > 0:
        for left, right in _near_pairs(distinct, bits_max):
            yield first[left], first[right]


def _near_pairs(machine_words: npt.NDArray[np.uint64], bits_max: int) -> Iterator[Pairs]:
    step = max(1, _BLOCK_CELLS // max(1, len(machine_words) * machine_words.shape[1]))
    for start in range(0, len(machine_words), step):
        block = machine_words[start : start + step]
        differing = block[:, None, :] ^ machine_words[None, start:, :]
        counts = np.bitwise_count(differing).sum(axis=2, dtype=np.int64)
        left, right = np.nonzero(counts <= bits_max)
        is_ordered = right > left
        yield left[is_ordered] + start, right[is_ordered] + start


def build_clusters(numbers: UInt64s, pairs: Iterable[Pairs]) -> pa.RecordBatchReader:
    """Return the clusters of rows, sorted by representative; single rows are omitted.

    Args:
        numbers: The row numbers.
        pairs: Pairs of indices into `numbers`.
    """
    ordered, inverse = np.unique(numbers, return_inverse=True)
    roots = np.arange(len(ordered), dtype=np.int64)
    for left, right in pairs:
        roots = _join(roots, inverse[left], inverse[right])
    sizes = np.bincount(roots, minlength=len(roots))
    members = np.argsort(roots, kind="stable")
    is_other = (members != roots[members]) & (sizes[roots[members]] > 1)
    others = ordered[members[is_other]]
    firsts = np.flatnonzero(sizes > 1)
    offsets = np.cumsum([0, *(sizes[firsts] - 1)], dtype=np.int32)
    lists = pa.ListArray.from_arrays(pa.array(offsets, pa.int32()), pa.array(others, pa.uint64()))
    table = pa.Table.from_arrays(
        [pa.array(ordered[firsts], pa.uint64()), lists], schema=CLUSTER_SCHEMA
    )
    return pa.RecordBatchReader.from_batches(
        CLUSTER_SCHEMA, table.to_batches(max_chunksize=_BATCH_ROWS) if len(firsts) else []
    )


def _join(roots: Int64s, left: Int64s, right: Int64s) -> Int64s:
    """Return the lowest connected row of each row, after adding pairs."""
    while True:
        minimum = np.minimum(roots[left], roots[right])
        before = roots.copy()
        np.minimum.at(roots, roots[left], minimum)
        np.minimum.at(roots, roots[right], minimum)
        roots = roots[roots]
        if np.array_equal(before, roots):
            return roots
