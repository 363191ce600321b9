"""Splits of rows into parts, such as training and validation, that stay as rows are appended.

A row's part depends on its own key, or where none is given on its id, and never on the number of
rows. So what was for validation yesterday is for validation tomorrow.

    fractions {"train": 0.9, "valid": 0.1}      hash of the key / 2^64:  0.03 train ... 0.95 valid
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from lancelet.errors import InvalidInputError
from lancelet.index.scalar.bloomfilter.kind import hashes_of
from lancelet.training.shuffle import mixed, mixed_key

_SPLIT: Final = 0x5B11
"""What sets the numbers of splits apart from those of shuffles with the same seed."""


def rows_of_split(
    rows: pa.Table,
    fractions: Mapping[str, float],
    name: str,
    *,
    key: str | None,
    stratum: str | None,
    seed: int,
) -> npt.NDArray[np.bool_]:
    """Return whether each row belongs to a part.

    Args:
        rows: `_rowid`, and the columns of the key and the stratum where they are given.
        fractions: The fraction of rows of each part.
        name: The part.
        key: A column; rows with the same value are in the same part.
        stratum: A column; each of its values is divided as exactly as the whole.
        seed: The seed of the division.
    """
    bounds = _bounds(fractions, name)
    if stratum is not None:
        if key is not None:
            raise InvalidInputError("split by a key or by strata, not by both")
        drawn = _within_strata(rows[stratum], rows["_rowid"].to_numpy(), seed)
    else:
        hashes = (
            mixed(rows["_rowid"].to_numpy().astype(np.uint64), mixed_key(seed, _SPLIT))
            if key is None
            else mixed(_hashes(rows[key].combine_chunks()), mixed_key(seed, _SPLIT))
        )
        drawn = (hashes >> np.uint64(11)).astype(np.float64) * 2.0**-53
    low, high = bounds
    return (drawn >= low) & (drawn < high)


def _bounds(fractions: Mapping[str, float], name: str) -> tuple[float, float]:
    if name not in fractions:
        raise InvalidInputError("no split has that name", found=name, known=list(fractions))
    values = np.array(list(fractions.values()), np.float64)
    if not (values > 0).all() or not np.isclose(values.sum(), 1.0):
        raise InvalidInputError("fractions of splits are positive and add up to 1", found=fractions)
    ends = np.cumsum(values)
    ends[-1] = 1.0
    at = list(fractions).index(name)
    return (float(ends[at - 1]) if at else 0.0), float(ends[at])


def _within_strata(
    values: pa.ChunkedArray, row_ids: npt.NDArray[np.uint64], seed: int
) -> npt.NDArray[np.float64]:
    """Return a number for each row, so that the first k rows of any stratum are spread evenly.

    It is the number of the row within its stratum by row id, with its bits reversed (0, 1/2, 1/4,
    3/4, ...), and with bits that the stratum chooses flipped. Appended rows change nothing of those
    before, and with stable row ids updates of other columns do not either.
    """
    codes = pc.dictionary_encode(values.combine_chunks(), null_encoding="encode")
    stratum = codes.indices.to_numpy(zero_copy_only=False).astype(np.int64)
    order = np.lexsort((row_ids, stratum))
    counts = np.bincount(stratum, minlength=len(codes.dictionary))
    first = np.cumsum(counts) - counts
    rank = np.empty(len(stratum), np.uint32)
    rank[order] = np.arange(len(stratum)) - np.repeat(first, counts)
    flipped = mixed(_hashes(codes.dictionary), mixed_key(seed, _SPLIT)) >> np.uint64(32)
    bits: npt.NDArray[np.uint32] = _reversed(rank) ^ flipped.astype(np.uint32)[stratum]
    return bits.astype(np.float64) * 2.0**-32


def _reversed(values: npt.NDArray[np.uint32]) -> npt.NDArray[np.uint32]:
    """Return 32 bits in the other order, for each value."""
    for shift, mask in ((1, 0x55555555), (2, 0x33333333), (4, 0x0F0F0F0F)):
        low, high = values & np.uint32(mask), (values >> np.uint32(shift)) & np.uint32(mask)
        values = (low << np.uint32(shift)) | high
    return values.byteswap()


def _hashes(values: pa.Array) -> npt.NDArray[np.uint64]:
    return hashes_of(pc.fill_null(pc.cast(values, pa.string()), "\x00null"))
