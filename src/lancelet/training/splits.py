"""Splits of rows, such as training and validation, that are stable when rows are appended.

The split of a row depends on its key, or on its row id by default, but not on the number of rows.

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
"""Separates the hashes of splits from those of shuffles with the same seed."""


def rows_of_split(
    rows: pa.Table,
    fractions: Mapping[str, float],
    name: str,
    *,
    key: str | None,
    stratum: str | None,
    seed: int,
) -> npt.NDArray[np.bool_]:
    """Return a mask of the rows of a split.

    Args:
        rows: The column `_rowid`, and the columns `key` and `stratum` if given.
        fractions: The fraction of rows per split.
        name: The split.
        key: A column; rows with the same value are in the same split.
        stratum: A column; the rows of each value are divided by the same fractions.
        seed: The seed of the splits.
    """
    bounds = _bounds(fractions, name)
    if stratum is not None:
        if key is not None:
            raise InvalidInputError("split_key and stratify_by cannot be combined")
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
        raise InvalidInputError("unknown split", found=name, available=list(fractions))
    values = np.array(list(fractions.values()), np.float64)
    if not (values > 0).all() or not np.isclose(values.sum(), 1.0):
        raise InvalidInputError(
            "fractions of splits must be positive and add up to 1", found=fractions
        )
    ends = np.cumsum(values)
    ends[-1] = 1.0
    at = list(fractions).index(name)
    return (float(ends[at - 1]) if at else 0.0), float(ends[at])


def _within_strata(
    values: pa.ChunkedArray, row_ids: npt.NDArray[np.uint64], seed: int
) -> npt.NDArray[np.float64]:
    """Return a number in [0, 1) per row; the first k rows of a stratum are evenly distributed.

    The number is the rank of the row id within the stratum with reversed bits (0, 1/2, 1/4, 3/4,
    ...), XORed with a hash of the stratum. Appended rows do not change existing numbers. With
    stable row ids, neither do updates of other columns.
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
    """Reverse the 32 bits of each value."""
    for shift, mask in ((1, 0x55555555), (2, 0x33333333), (4, 0x0F0F0F0F)):
        low, high = values & np.uint32(mask), (values >> np.uint32(shift)) & np.uint32(mask)
        values = (low << np.uint32(shift)) | high
    return values.byteswap()


def _hashes(values: pa.Array) -> npt.NDArray[np.uint64]:
    return hashes_of(pc.fill_null(pc.cast(values, pa.string()), "\x00null"))
