"""Top-k search in partitions of a vector index, with a prefilter.

Ties are broken by address, smallest first. NaN scores are never returned.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from lancelet.buffers import Int64s
from lancelet.index.kernels.partitions import (
    BLOCK_ROWS,
    ENTRIES,
    CodeKind,
    CodeQuery,
    PackedCodes,
    Probes,
    RowMasks,
)
from lancelet.index.kernels.reference.vectors import vector_distances
from lancelet.index.kernels.vectors import Floats


def scan_partitions(
    code_query: CodeQuery,
    codes: PackedCodes,
    probes: Probes,
    addresses: npt.NDArray[np.uint64],
    allowed: npt.NDArray[np.bool_],
    count: int,
    bounds: tuple[float, float] = (-np.inf, np.inf),
) -> tuple[npt.NDArray[np.uint64], Floats]:
    """Return the addresses and scores of the `count` nearest allowed rows, nearest first.

    Scores must be at least the first bound and below the second.
    """
    where = [np.empty(0, np.uint64)]
    scores = [np.empty(0, np.float32)]
    is_allowed = [np.empty(0, np.bool_)]
    for partition, (start, length) in enumerate(zip(probes.starts, probes.lengths, strict=True)):
        rows = slice(int(start), int(start + length))
        where.append(addresses[rows])
        is_allowed.append(allowed[rows])
        scores.append(_scores(code_query, codes, probes, partition, rows).astype(np.float32))
    found, all_scores = np.concatenate(where), np.concatenate(scores)
    with np.errstate(invalid="ignore"):
        is_within = (all_scores >= bounds[0]) & (all_scores < bounds[1])
    selected = np.flatnonzero(is_within & np.concatenate(is_allowed))
    order = np.lexsort((found[selected], all_scores[selected]))[:count]
    return found[selected[order]], all_scores[selected[order]]


def prefilter_rows(
    addresses: npt.NDArray[np.uint64],
    starts: Int64s,
    lengths: Int64s,
    masks: RowMasks,
    allowed: npt.NDArray[np.bool_],
) -> None:
    """Set `allowed` for the rows of partitions by the masks of their fragments."""
    for start, length in zip(starts.tolist(), lengths.tolist(), strict=True):
        rows = slice(start, start + length)
        allowed[rows] = _admitted(addresses[rows], masks)


def _scores(
    code_query: CodeQuery, codes: PackedCodes, probes: Probes, partition: int, rows: slice
) -> npt.NDArray[Any]:
    per_row = codes.row_bytes // codes.values.itemsize
    own = codes.values[rows.start * per_row : rows.stop * per_row]
    match code_query.kind:
        case CodeKind.CODEBOOK | CodeKind.TABLE:
            table = code_query.codebook
            if code_query.kind is CodeKind.CODEBOOK:
                table = _table(
                    code_query, probes.centers.reshape(-1, code_query.dimension)[partition]
                )
            entries = table.reshape(per_row, ENTRIES)
            sums = np.full(rows.stop - rows.start, code_query.base, np.float32)
            for first in range(0, len(sums), BLOCK_ROWS):
                block = own[first * per_row : (first + BLOCK_ROWS) * per_row]
                for column, line in enumerate(block.reshape(per_row, -1)):
                    sums[first : first + BLOCK_ROWS] += entries[column][line]
            return sums
        case CodeKind.BYTES:
            difference = own.reshape(-1, per_row).astype(np.int64) - code_query.query
            squares: npt.NDArray[Any] = (difference * difference).sum(axis=1) * code_query.factor
            return squares
        case CodeKind.PRODUCTS:
            products: npt.NDArray[Any] = own.reshape(-1, per_row) @ code_query.query
            return code_query.base + code_query.factor * products
        case CodeKind.VECTORS:
            return vector_distances(own, code_query.dimension, code_query.query, code_query.metric)
        case _:
            product = own.reshape(-1, per_row).astype(np.float32) @ code_query.query
            adjusted = codes.add[rows] + codes.scale[rows] * (product + np.float32(code_query.base))
            found: npt.NDArray[Any] = probes.bases[partition] + adjusted
            return found


def _table(code_query: CodeQuery, center: Floats) -> Floats:
    codebook = code_query.codebook.reshape(
        code_query.num_sub_vectors, code_query.dimension // code_query.num_sub_vectors, -1
    )
    rest = (code_query.query - center).reshape(code_query.num_sub_vectors, -1, 1)
    found: Floats = ((rest - codebook) ** 2).sum(axis=1)
    if found.shape[1] < ENTRIES:
        found = (found[0::2, None, :] + found[1::2, :, None]).reshape(-1, ENTRIES)
    return found


def _admitted(addresses: npt.NDArray[np.uint64], masks: RowMasks) -> npt.NDArray[np.bool_]:
    if not masks.mask.any():
        return np.zeros(len(addresses), np.bool_)
    fragments = (addresses >> np.uint64(32)).astype(np.int64)
    offsets = (addresses & np.uint64(0xFFFFFFFF)).astype(np.int64)
    at = np.minimum(np.searchsorted(masks.fragments, fragments), len(masks.fragments) - 1)
    positions = masks.starts[at] + offsets
    is_member = (masks.fragments[at] == fragments) & (positions < masks.starts[at + 1])
    found: npt.NDArray[np.bool_] = is_member & masks.mask[np.where(is_member, positions, 0)]
    return found
