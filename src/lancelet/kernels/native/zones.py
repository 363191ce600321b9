"""Statistics per zone by `native/src/zones.cpp`; `reference/zones.py` defines them."""

from __future__ import annotations

from typing import Any, Final

import numpy as np
import numpy.typing as npt

from lancelet.buffers import Bytes, Int64s
from lancelet.kernels import _native
from lancelet.kernels.arguments import (
    as_bytes,
    check_validity,
    check_zone_rows,
    check_zone_values,
)
from lancelet.kernels.faults import checked
from lancelet.kernels.offsets import Offsets

_NO_NULLS: Final = np.empty(0, np.uint8)


def zone_min_max(
    values: npt.NDArray[Any], zone_rows: int, validity: Bytes | None = None
) -> tuple[npt.NDArray[Any], npt.NDArray[Any], Int64s, Int64s]:
    """Return minimum, maximum, null count and NaN count of each `zone_rows` values."""
    check_zone_values(values, zone_rows)
    if validity is not None:
        check_validity(validity, len(values))
    zones = -(-len(values) // zone_rows)
    minimum, maximum = np.empty(zones, values.dtype), np.empty(zones, values.dtype)
    nulls, nans = np.empty(zones, np.int64), np.empty(zones, np.int64)
    status = _native.zone_min_max(
        (as_bytes(values), ord(values.dtype.kind), values.dtype.itemsize),
        zone_rows,
        _NO_NULLS if validity is None else validity,
        as_bytes(minimum),
        as_bytes(maximum),
        nulls,
        nans,
    )
    checked(status, kernel="zone_min_max")
    return minimum, maximum, nulls, nans


def zone_min_max_strings(
    offsets: Offsets, data: Bytes, zone_rows: int, validity: Bytes | None = None
) -> tuple[Int64s, Int64s]:
    """Return the rows of the smallest and largest string in each `zone_rows`, by bytes."""
    check_zone_rows(zone_rows)
    rows = max(len(offsets) - 1, 0)
    if validity is not None:
        check_validity(validity, rows)
    minimum, maximum = (np.empty(-(-rows // zone_rows), np.int64) for _ in range(2))
    status = _native.zone_min_max_strings(
        as_bytes(offsets),
        offsets.itemsize,
        as_bytes(data),
        zone_rows,
        _NO_NULLS if validity is None else as_bytes(validity),
        minimum,
        maximum,
    )
    checked(status, kernel="zone_min_max_strings")
    return minimum, maximum
