"""Minimum and maximum value of each zone.

    values    3 -1 null | NaN 2 5 | NaN null NaN      zones of 3
    minimum   -1        | 2       | NaN
    maximum   3         | NaN     | NaN               NaN counts as the greatest
    NaNs      0         | 1       | 2

Floats are in total order, with -0.0 below 0.0. Values without an order have null bounds. pylance
writes no minimum for zones that contain only NaN and misses them in filters with a lower bound;
lancelet finds them.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from lancelet.encodings.arrow import validity_bits
from lancelet.index.base import is_ordered_type
from lancelet.index.parts.ordering import bits_of, is_bytes, number_type
from lancelet.kernels import zone_min_max, zone_min_max_strings
from lancelet.values import dataclass


@dataclass(frozen=True, slots=True, eq=False)
class Bounds:
    """Bounds of the values of each zone."""

    minimum: pa.Array
    maximum: pa.Array
    nan_counts: npt.NDArray[np.uint32]


def compute_bounds(values: pa.Array, zone_rows: int) -> Bounds:
    """Return the bounds of each zone of `zone_rows` values.

    >>> compute_bounds(pa.array([3, -1, None, None]), 2).maximum.to_pylist()
    [3, None]
    """
    count = -(-len(values) // zone_rows)
    no_nan = np.zeros(count, np.uint32)
    if not is_ordered_type(values.type):
        nulls = pa.nulls(count, values.type)
        return Bounds(nulls, nulls, no_nan)
    if pa.types.is_boolean(values.type):
        converted = compute_bounds(values.cast(pa.uint8()), zone_rows)
        return Bounds(
            converted.minimum.cast(pa.bool_()), converted.maximum.cast(pa.bool_()), no_nan
        )
    dtype = number_type(values.type)
    if dtype is not None:
        return _number_bounds(values, dtype, zone_rows)
    if pa.types.is_fixed_size_binary(values.type):
        converted = compute_bounds(values.cast(pa.binary()), zone_rows)
        return Bounds(
            converted.minimum.cast(values.type), converted.maximum.cast(values.type), no_nan
        )
    if is_bytes(values.type):
        return Bounds(*_string_bounds(values, zone_rows), no_nan)
    extremes = [
        pc.min_max(values.slice(start, zone_rows)) for start in range(0, len(values), zone_rows)
    ]
    lows, highs = (
        pa.array([each[side] for each in extremes], values.type) for side in ("min", "max")
    )
    return Bounds(lows, highs, no_nan)


def _number_bounds(values: pa.Array, dtype: np.dtype[Any], zone_rows: int) -> Bounds:
    numbers = bits_of(values, dtype)
    minimum, maximum, nulls, nans = zone_min_max(numbers, zone_rows, validity_bits(values))
    rows = np.minimum(len(values) - np.arange(len(nulls)) * zone_rows, zone_rows)
    if dtype.kind == "f":
        maximum[nans > 0] = np.nan
        minimum[nulls + nans == rows] = np.nan
    is_empty = nulls == rows
    return Bounds(
        _from_numbers(minimum, values.type, is_empty),
        _from_numbers(maximum, values.type, is_empty),
        nans.astype(np.uint32),
    )


def _from_numbers(
    numbers: npt.NDArray[Any], data_type: pa.DataType, is_null: npt.NDArray[np.bool_]
) -> pa.Array:
    validity = pa.py_buffer(np.packbits(~is_null, bitorder="little"))
    return pa.Array.from_buffers(data_type, len(numbers), [validity, pa.py_buffer(numbers)])


def _string_bounds(values: pa.Array, zone_rows: int) -> tuple[pa.Array, pa.Array]:
    is_large = pa.types.is_large_string(values.type) or pa.types.is_large_binary(values.type)
    dtype = np.dtype(np.int64 if is_large else np.int32)
    offsets = np.frombuffer(values.buffers()[1], dtype)[values.offset :][: len(values) + 1]
    data = np.frombuffer(values.buffers()[2] or b"", np.uint8)
    row_indices = zone_min_max_strings(offsets, data, zone_rows, validity_bits(values))
    lows, highs = (values.take(pa.array(rows, mask=rows < 0)) for rows in row_indices)
    return lows, highs
