"""The nearest rows of some partitions of a vector index, of those that may be found.

Rows that score the same are told apart by their address, the smaller first. A score that is no
number is never found.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from lancelet.buffers import Int64s
from lancelet.kernels.graph import Floats
from lancelet.kernels.partitions import (
    BLOCK_ROWS,
    ENTRIES,
    CodeKind,
    CodeQuery,
    PackedCodes,
    Probes,
    RowMasks,
)
from lancelet.kernels.reference.vectors import vector_distances


def scan_partitions(
    asked: CodeQuery,
    codes: PackedCodes,
    probes: Probes,
    addresses: npt.NDArray[np.uint64],
    admitted: npt.NDArray[np.bool_],
    count: int,
    bounds: tuple[float, float] = (-np.inf, np.inf),
) -> tuple[npt.NDArray[np.uint64], Floats]:
    """Return the addresses and scores of so many admitted rows at most, the nearest first.

    Only rows are found whose scores are at least the first bound and below the second.
    """
    where = [np.empty(0, np.uint64)]
    scores = [np.empty(0, np.float32)]
    may_be_found = [np.empty(0, np.bool_)]
    for place, (start, length) in enumerate(zip(probes.starts, probes.lengths, strict=True)):
        rows = slice(int(start), int(start + length))
        where.append(addresses[rows])
        may_be_found.append(admitted[rows])
        scores.append(_scores(asked, codes, probes, place, rows).astype(np.float32))
    found, apart = np.concatenate(where), np.concatenate(scores)
    with np.errstate(invalid="ignore"):
        is_within = (apart >= bounds[0]) & (apart < bounds[1])
    kept = np.flatnonzero(is_within & np.concatenate(may_be_found))
    order = np.lexsort((found[kept], apart[kept]))[:count]
    return found[kept[order]], apart[kept[order]]


def prefilter_rows(
    addresses: npt.NDArray[np.uint64],
    starts: Int64s,
    lengths: Int64s,
    masks: RowMasks,
    admitted: npt.NDArray[np.bool_],
) -> None:
    """Write whether each row of some partitions is in the mask of its fragment."""
    for start, length in zip(starts.tolist(), lengths.tolist(), strict=True):
        rows = slice(start, start + length)
        admitted[rows] = _admitted(addresses[rows], masks)


def _scores(
    asked: CodeQuery, codes: PackedCodes, probes: Probes, place: int, rows: slice
) -> npt.NDArray[Any]:
    per_row = codes.row_bytes // codes.values.itemsize
    own = codes.values[rows.start * per_row : rows.stop * per_row]
    match asked.kind:
        case CodeKind.WORDS | CodeKind.TABLE:
            table = asked.words
            if asked.kind is CodeKind.WORDS:
                table = _table(asked, probes.centers.reshape(-1, asked.dimension)[place])
            entries = table.reshape(per_row, ENTRIES)
            sums = np.full(rows.stop - rows.start, asked.base, np.float32)
            for first in range(0, len(sums), BLOCK_ROWS):
                block = own[first * per_row : (first + BLOCK_ROWS) * per_row]
                for column, line in enumerate(block.reshape(per_row, -1)):
                    sums[first : first + BLOCK_ROWS] += entries[column][line]
            return sums
        case CodeKind.BYTES:
            apart = own.reshape(-1, per_row).astype(np.int64) - asked.query
            squares: npt.NDArray[Any] = (apart * apart).sum(axis=1) * asked.factor
            return squares
        case CodeKind.PRODUCTS:
            products: npt.NDArray[Any] = own.reshape(-1, per_row) @ asked.query
            return asked.base + asked.factor * products
        case CodeKind.VECTORS:
            return vector_distances(own, asked.dimension, asked.query, asked.metric)
        case _:
            product = own.reshape(-1, per_row).astype(np.float32) @ asked.query
            adjusted = codes.add[rows] + codes.scale[rows] * (product + np.float32(asked.base))
            found: npt.NDArray[Any] = probes.bases[place] + adjusted
            return found


def _table(asked: CodeQuery, center: Floats) -> Floats:
    words = asked.words.reshape(asked.pieces, asked.dimension // asked.pieces, -1)
    rest = (asked.query - center).reshape(asked.pieces, -1, 1)
    found: Floats = ((rest - words) ** 2).sum(axis=1)
    if found.shape[1] < ENTRIES:
        found = (found[0::2, None, :] + found[1::2, :, None]).reshape(-1, ENTRIES)
    return found


def _admitted(addresses: npt.NDArray[np.uint64], masks: RowMasks) -> npt.NDArray[np.bool_]:
    if not masks.mask.any():
        return np.zeros(len(addresses), np.bool_)
    fragments = (addresses >> np.uint64(32)).astype(np.int64)
    offsets = (addresses & np.uint64(0xFFFFFFFF)).astype(np.int64)
    at = np.minimum(np.searchsorted(masks.fragments, fragments), len(masks.fragments) - 1)
    places = masks.starts[at] + offsets
    known = (masks.fragments[at] == fragments) & (places < masks.starts[at + 1])
    found: npt.NDArray[np.bool_] = known & masks.mask[np.where(known, places, 0)]
    return found
