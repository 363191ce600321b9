"""Hashes that differ in few bits, as pairs of places.

hashes    0000 0001 1111      at most one bit apart
pairs     (0, 1)

Hashes are compared as words of 64 bits, a block of rows with a block of rows, so memory does not
depend on how many there are. Equal hashes, which need no comparing, are found by sorting.

Rows that are connected by pairs, as clusters: the row of the least number, and the others.

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
"""Places of rows, each with the place of a row that is near it."""

_WORD_BYTES: Final = 8
_BLOCK_CELLS: Final = 1 << 20
"""Comparisons at a time: some megabytes of words."""

CLUSTER_SCHEMA: Final = pa.schema(
    [
        pa.field("representative", pa.uint64(), nullable=False),
        pa.field("duplicates", pa.list_(pa.uint64()), nullable=False),
    ]
)
"""A cluster of rows, as callers get it."""

_BATCH_ROWS: Final = 10_000


def check_hashes(data_type: pa.DataType, column: str) -> None:
    """Raise if a column has no hashes of whole words."""
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


def words_of(hashes: pa.FixedSizeListArray) -> npt.NDArray[np.uint64]:
    """Return hashes without nulls as words, a row for each."""
    flat = values_of(hashes)
    matrix = np.ascontiguousarray(flat).reshape(len(hashes), hashes.type.list_size)
    return matrix.view(np.uint64)


def pairs_of_hashes(words: npt.NDArray[np.uint64], bits_max: int) -> Iterator[Pairs]:
    """Yield pairs of rows whose hashes differ in at most so many bits, enough to connect all.

    >>> hashes = np.array([[0], [1], [15]], np.uint64)
    >>> [(left.tolist(), right.tolist()) for left, right in pairs_of_hashes(hashes, 1)]
    [([], []), ([0], [1])]
    """
    distinct, first, which = np.unique(words, axis=0, return_index=True, return_inverse=True)
    which = which.reshape(-1)
    again = np.flatnonzero(first[which] != np.arange(len(words)))
    yield first[which[again]], again
    if bits_max > 0:
        for left, right in _near(distinct, bits_max):
            yield first[left], first[right]


def _near(words: npt.NDArray[np.uint64], bits_max: int) -> Iterator[Pairs]:
    step = max(1, _BLOCK_CELLS // max(1, len(words) * words.shape[1]))
    for start in range(0, len(words), step):
        own = words[start : start + step]
        differing = own[:, None, :] ^ words[None, start:, :]
        counts = np.bitwise_count(differing).sum(axis=2, dtype=np.int64)
        left, right = np.nonzero(counts <= bits_max)
        is_once = right > left
        yield left[is_once] + start, right[is_once] + start


def clusters_of(numbers: UInt64s, pairs: Iterable[Pairs]) -> pa.RecordBatchReader:
    """Return the clusters of rows, by the number of the first; a row alone is in none.

    Args:
        numbers: The number of each row.
        pairs: Places of rows among these, that belong together.
    """
    ordered, place = np.unique(numbers, return_inverse=True)
    roots = np.arange(len(ordered), dtype=np.int64)
    for left, right in pairs:
        roots = _joined(roots, place[left], place[right])
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


def _joined(roots: Int64s, left: Int64s, right: Int64s) -> Int64s:
    """Return roots after pairs are joined: of each row the least one that it is connected to."""
    while True:
        least = np.minimum(roots[left], roots[right])
        before = roots.copy()
        np.minimum.at(roots, roots[left], least)
        np.minimum.at(roots, roots[right], least)
        roots = roots[roots]
        if np.array_equal(before, roots):
            return roots
