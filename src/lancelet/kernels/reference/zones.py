"""Statistics per zone of rows: minimum, maximum, null count and NaN count.

For example:

    values [3 1 9 | 7 - 8]  zone_rows 3    minimum [1 7]  maximum [9 8]  nulls [0 1]
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from lancelet.buffers import Bytes, Int64s
from lancelet.kernels.arguments import check_validity, check_zone_rows, check_zone_values
from lancelet.kernels.faults import Fault, corrupt
from lancelet.kernels.offsets import Offsets


def zone_min_max(
    values: npt.NDArray[Any], zone_rows: int, validity: Bytes | None = None
) -> tuple[npt.NDArray[Any], npt.NDArray[Any], Int64s, Int64s]:
    """Return minimum, maximum, null count and NaN count of each `zone_rows` values.

    `validity` has a bit per value, 1 if valid. A zone with only nulls and NaNs has minimum and
    maximum 0.
    """
    check_zone_values(values, zone_rows)
    starts = np.arange(0, len(values), zone_rows)
    if not len(starts):
        none = np.zeros(0, np.int64)
        return values[:0].copy(), values[:0].copy(), none, none.copy()
    valid = np.ones(len(values), np.bool_)
    if validity is not None:
        check_validity(validity, len(values))
        valid = np.unpackbits(validity, count=len(values), bitorder="little").view(np.bool_)
    nan = valid & np.isnan(values) if values.dtype.kind == "f" else np.zeros_like(valid)
    use = valid & ~nan
    low, high = _limits(values.dtype)
    minimum = np.minimum.reduceat(np.where(use, values, high), starts)
    maximum = np.maximum.reduceat(np.where(use, values, low), starts)
    is_empty = np.add.reduceat(use.astype(np.int64), starts) == 0
    minimum[is_empty] = 0
    maximum[is_empty] = 0
    nulls = np.add.reduceat((~valid).astype(np.int64), starts)
    nans = np.add.reduceat(nan.astype(np.int64), starts)
    return minimum, maximum, nulls, nans


def _limits(dtype: np.dtype[Any]) -> tuple[Any, Any]:
    if dtype.kind == "f":
        return dtype.type(-np.inf), dtype.type(np.inf)
    limits = np.iinfo(dtype)
    return dtype.type(limits.min), dtype.type(limits.max)


def zone_min_max_strings(
    offsets: Offsets, data: Bytes, zone_rows: int, validity: Bytes | None = None
) -> tuple[Int64s, Int64s]:
    """Return the rows of the smallest and largest string in each `zone_rows`, by bytes.

    `validity` has a bit per string, 1 if valid; zones of nulls only have row -1.
    """
    check_zone_rows(zone_rows)
    rows = max(len(offsets) - 1, 0)
    valid = np.ones(rows, np.bool_)
    if validity is not None:
        check_validity(validity, rows)
        valid = np.unpackbits(validity, count=rows, bitorder="little").view(np.bool_)
    found: list[tuple[int, int]] = []
    for start in range(0, rows, zone_rows):
        texts: dict[bytes, int] = {}
        for row in np.flatnonzero(valid[start : start + zone_rows]) + start:
            first, stop = int(offsets[row]), int(offsets[row + 1])
            if not 0 <= first <= stop <= data.nbytes:
                raise corrupt(Fault.BAD_OFFSETS, kernel="zone_min_max_strings", index=int(row))
            texts.setdefault(data[first:stop].tobytes(), int(row))
        found.append((texts[min(texts)], texts[max(texts)]) if texts else (-1, -1))
    minimum, maximum = np.array(found, np.int64).reshape(-1, 2).T
    return np.ascontiguousarray(minimum), np.ascontiguousarray(maximum)
