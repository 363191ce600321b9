"""Zone maps of data files: null count, minimum and maximum for each zone of rows.

All fields have the same zones, so filters on several fields intersect sets of zones:

    rows        0 .. 8191   8192 .. 16383   16384 .. 20000
    age         [ 3, 71]    [ 5, 64]        [ 1, 90]
    age > 80    no          no              maybe

The statistics are stored in a nested file of version 2.0, in a global buffer, with a row for each
field and zone. Fields of the same type share a pair of columns, so wide tables do not double the
number of columns:

    null_count  nan_count   int32: minimum  maximum    string: minimum  maximum
    0           0                  3        71                 -        -           age, zone 0
    0           0                  5        64                 -        -           age, zone 1
    12          0                  -        -                  "Aachen" "Zwickau"   city, zone 0

Bounds are correct but not necessarily tight. Strings are truncated to 64 bytes, and a truncated
maximum is incremented. Zones without values have null bounds. Bounds exclude NaN, which is counted
instead. Zeros are stored as -0.0 in minima and +0.0 in maxima.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from lancelet.buffers import Int64s
from lancelet.encodings.arrow import block_from_arrow, unpack_booleans, validity_bits
from lancelet.encodings.base import Variable
from lancelet.format import logical_type
from lancelet.format.field import Field
from lancelet.kernels import zone_min_max, zone_min_max_strings
from lancelet.values import dataclass

ZONE_ROWS: Final = 8192
BOUND_BYTES: Final = 64
"""The maximum length of a string bound in bytes."""

_LONG_BYTES: Final = 1024
"""If a string is longer than this, only prefixes are compared."""

_CHARACTER_MAX: Final = 0x10FFFF
_SURROGATES: Final = (0xD800, 0xE000)
_BYTE: Final = np.dtype(np.uint8)


@dataclass(frozen=True, slots=True, eq=False)
class ZoneBounds:
    """Statistics of consecutive zones of a field; the first and last may be partial zones."""

    first_zone: int
    null_count: Int64s
    nan_count: Int64s
    minimum: pa.Array
    maximum: pa.Array


@dataclass(frozen=True, slots=True, eq=False)
class LeafBounds:
    """Zone and page statistics of the values of a leaf that are encoded together."""

    zones: ZoneBounds
    pages: ZoneBounds


def zoned_fields(field: Field) -> Iterator[tuple[int, ...]]:
    """Yield the path of each descendant with statistics, as child indices.

    These are leaves of ordered types that are not nested in lists.
    """
    if field.is_blob or field.is_packed:
        return
    if field.logical_type == logical_type.STRUCT:
        for index, child in enumerate(field.children):
            yield from ((index, *path) for path in zoned_fields(child))
    elif _is_ordered(field):
        yield ()


def field_at(field: Field, path: Sequence[int]) -> Field:
    """Return the descendant at a path of child indices."""
    for index in path:
        field = field.children[index]
    return field


def values_at(array: pa.Array, path: Sequence[int]) -> pa.Array:
    """Return the values at a path of child indices; null if a parent struct is null."""
    for index in path:
        array = array.flatten()[index]
    return array


def bounds_of(array: pa.Array, first_row: int, *, zone_rows: int) -> ZoneBounds:
    """Return the statistics of values starting at row `first_row` of the file.

    >>> bounds = bounds_of(pa.array([5, 1, None, 7]), 2, zone_rows=3)
    >>> bounds.first_zone, bounds.minimum.to_pylist(), bounds.null_count.tolist()
    (0, [5, 1], [0, 1])
    """
    zone_offset = first_row % zone_rows
    parts: list[pa.Array] = [array]
    if zone_offset and len(array) > zone_rows - zone_offset:
        parts = [array[: zone_rows - zone_offset], array[zone_rows - zone_offset :]]
    bounds = concat_bounds([_aligned_bounds([part], zone_rows) for part in parts])
    first_zone = first_row // zone_rows
    return replace(bounds, first_zone=first_zone) if first_zone else bounds


def bounds_of_each(
    arrays: Sequence[pa.Array], first_rows: Sequence[int], *, zone_rows: int
) -> list[LeafBounds]:
    """Return the statistics of several pages of the same type and length."""
    if len(arrays) == 1 or any(row % zone_rows for row in first_rows):
        zones = [
            bounds_of(array, row, zone_rows=zone_rows)
            for array, row in zip(arrays, first_rows, strict=True)
        ]
        return [LeafBounds(zones_per_page, join_bounds(zones_per_page)) for zones_per_page in zones]
    zone_bounds = _aligned_bounds(arrays, zone_rows)
    zones_per_page = -(-len(arrays[0]) // zone_rows)
    page_bounds = zone_bounds if zones_per_page == 1 else _merge_zones(zone_bounds, zones_per_page)
    return [
        LeafBounds(
            _part(zone_bounds, index * zones_per_page, zones_per_page, row // zone_rows),
            _part(page_bounds, index, 1, 0),
        )
        for index, row in enumerate(first_rows)
    ]


def merge_bounds(parts: Sequence[ZoneBounds]) -> ZoneBounds:
    """Merge the statistics of consecutive parts of a field.

    >>> parts = [bounds_of(pa.array([5]), 0, zone_rows=3), bounds_of(pa.array([1]), 1, zone_rows=3)]
    >>> merge_bounds(parts).minimum.to_pylist()
    [1]
    """
    if len(parts) == 1:
        return _from_first(parts[0])
    zones = np.concatenate([np.arange(len(part.null_count)) + part.first_zone for part in parts])
    starts = np.flatnonzero(np.diff(zones, prepend=-1))
    joined = concat_bounds(parts)
    if len(starts) == len(zones):
        return joined
    stops = [*starts[1:].tolist(), len(zones)]
    minimum, maximum = _reduced(joined, list(zip(starts.tolist(), stops, strict=True)))
    return ZoneBounds(
        0,
        np.add.reduceat(joined.null_count, starts),
        np.add.reduceat(joined.nan_count, starts),
        minimum,
        maximum,
    )


def concat_bounds(parts: Sequence[ZoneBounds]) -> ZoneBounds:
    """Concatenate statistics."""
    if len(parts) == 1:
        return _from_first(parts[0])
    return ZoneBounds(
        0,
        np.concatenate([part.null_count for part in parts]),
        np.concatenate([part.nan_count for part in parts]),
        pa.concat_arrays([part.minimum for part in parts]),
        pa.concat_arrays([part.maximum for part in parts]),
    )


def join_bounds(bounds: ZoneBounds) -> ZoneBounds:
    """Merge the statistics of zones to those of a single zone.

    >>> join_bounds(bounds_of(pa.array([5, 1, None, 7]), 0, zone_rows=3)).maximum.to_pylist()
    [7]
    """
    count = len(bounds.null_count)
    return _from_first(bounds) if count == 1 else _merge_zones(bounds, count)


def _from_first(bounds: ZoneBounds) -> ZoneBounds:
    return replace(bounds, first_zone=0) if bounds.first_zone else bounds


# --- computing bounds -------------------------------------------------------------------------


def _is_ordered(field: Field) -> bool:
    if field.logical_type == logical_type.JSON or field.children:
        return False
    data_type = field.storage_type
    return bool(
        pa.types.is_primitive(data_type)
        or pa.types.is_decimal(data_type)
        or pa.types.is_fixed_size_binary(data_type)
        or _is_variable(data_type)
    )


def _is_variable(data_type: pa.DataType) -> bool:
    return data_type in (pa.string(), pa.large_string(), pa.binary(), pa.large_binary())


def _aligned_bounds(arrays: Sequence[pa.Array], zone_rows: int) -> ZoneBounds:
    """Return the statistics of arrays that each start at a zone boundary."""
    data_type = arrays[0].type
    dtype = _number_type(data_type)
    if dtype is not None:
        return _number_bounds(arrays, dtype, zone_rows)
    if pa.types.is_boolean(data_type):
        bounds = _number_bounds([_bits_as_bytes(array) for array in arrays], _BYTE, zone_rows)
        minimum, maximum = (each.cast(data_type) for each in (bounds.minimum, bounds.maximum))
        return replace(bounds, minimum=minimum, maximum=maximum)
    zone_rows_ = [
        (index, start, min(start + zone_rows, len(array)))
        for index, array in enumerate(arrays)
        for start in range(0, len(array), zone_rows)
    ]
    zones = [arrays[index][start:stop] for index, start, stop in zone_rows_]
    if _is_variable(data_type):
        minimum, maximum = _string_bounds(arrays, zone_rows)
    else:
        min_max = [pc.min_max(zone) for zone in zones]
        minimum, maximum = (
            _concat([bounds[name] for bounds in min_max], data_type) for name in ("min", "max")
        )
    return ZoneBounds(
        0,
        np.fromiter((zone.null_count for zone in zones), np.int64, len(zones)),
        np.zeros(len(zones), np.int64),
        minimum,
        maximum,
    )


def _string_bounds(arrays: Sequence[pa.Array], zone_rows: int) -> tuple[pa.Array, pa.Array]:
    data_type = arrays[0].type
    array = _truncate_long(arrays[0] if len(arrays) == 1 else pa.concat_arrays(arrays))
    block = block_from_arrow(array)
    assert isinstance(block, Variable)
    stops = np.cumsum([len(each) for each in arrays]).tolist()
    row_indices: list[tuple[Int64s, Int64s]] = []
    for each, stop in zip(arrays, stops, strict=True):
        start = stop - len(each)
        valid = validity_bits(each)
        rows = zone_min_max_strings(block.offsets[start : stop + 1], block.data, zone_rows, valid)
        row_indices.append((np.where(rows[0] < 0, -1, rows[0] + start), rows[1] + start))
    smallest, largest = (np.concatenate(rows) for rows in zip(*row_indices, strict=True))
    is_empty = smallest < 0
    minimum, maximum = (array.take(pa.array(rows, mask=is_empty)) for rows in (smallest, largest))
    if array.type != data_type:
        minimum, maximum = (_as_text(bounds, data_type) for bounds in (minimum, maximum))
    return _replace_long(minimum, _truncate_down), _replace_long(maximum, _truncate_up)


def _number_type(data_type: pa.DataType) -> np.dtype[Any] | None:
    """Return the NumPy type of numeric and temporal types, or None for other types."""
    if pa.types.is_floating(data_type):
        return np.dtype(f"f{data_type.bit_width // 8}")
    if pa.types.is_unsigned_integer(data_type):
        return np.dtype(f"u{data_type.bit_width // 8}")
    if pa.types.is_integer(data_type) or pa.types.is_temporal(data_type):
        return np.dtype(f"i{data_type.bit_width // 8}")
    return None


def _number_bounds(arrays: Sequence[pa.Array], dtype: np.dtype[Any], zone_rows: int) -> ZoneBounds:
    parts = [
        zone_min_max(_numbers(array, dtype), zone_rows, validity_bits(array)) for array in arrays
    ]
    minimum, maximum, null_count, nan_count = (
        each[0] if len(parts) == 1 else np.concatenate(each) for each in zip(*parts, strict=True)
    )
    rows = np.concatenate([_zone_sizes(len(array), zone_rows) for array in arrays])
    is_empty = null_count + nan_count == rows
    if dtype.kind == "f":
        minimum = np.where(minimum == 0, -0.0, minimum)
        maximum = np.where(maximum == 0, 0.0, maximum)
    data_type = arrays[0].type
    return ZoneBounds(
        0,
        null_count,
        nan_count,
        _from_numbers(minimum.astype(dtype), data_type, is_empty),
        _from_numbers(maximum.astype(dtype), data_type, is_empty),
    )


def _bits_as_bytes(array: pa.Array) -> pa.Array:
    """Return booleans as uint8 values, which have a zone kernel."""
    validity = validity_bits(array)
    nulls = None if validity is None else pa.py_buffer(validity)
    values = pa.py_buffer(unpack_booleans(array))
    return pa.Array.from_buffers(pa.uint8(), len(array), [nulls, values])


def _zone_sizes(count: int, zone_rows: int) -> Int64s:
    sizes: Int64s = np.minimum(count - np.arange(0, count, zone_rows), zone_rows)
    return sizes


def _numbers(array: pa.Array, dtype: np.dtype[Any]) -> npt.NDArray[Any]:
    """Return the values of an array as a NumPy array."""
    values = np.frombuffer(array.buffers()[1], np.uint8)
    start = array.offset * dtype.itemsize
    return values[start : start + len(array) * dtype.itemsize].view(dtype)


def _merge_zones(bounds: ZoneBounds, each: int) -> ZoneBounds:
    """Merge the statistics of each group of `each` zones."""
    starts = np.arange(0, len(bounds.null_count), each)
    dtype = _number_type(bounds.minimum.type)
    if dtype is None:
        minimum, maximum = _reduced(bounds, [(start, start + each) for start in starts.tolist()])
    else:
        smallest, largest = (
            _number_bounds([array], dtype, each) for array in (bounds.minimum, bounds.maximum)
        )
        minimum, maximum = smallest.minimum, largest.maximum
    return ZoneBounds(
        0,
        np.add.reduceat(bounds.null_count, starts),
        np.add.reduceat(bounds.nan_count, starts),
        minimum,
        maximum,
    )


def _part(bounds: ZoneBounds, start: int, count: int, first_zone: int) -> ZoneBounds:
    stop = start + count
    return ZoneBounds(
        first_zone,
        bounds.null_count[start:stop],
        bounds.nan_count[start:stop],
        bounds.minimum.slice(start, count),
        bounds.maximum.slice(start, count),
    )


def _from_numbers(
    numbers: npt.NDArray[Any], data_type: pa.DataType, is_empty: npt.NDArray[np.bool_]
) -> pa.Array:
    validity = pa.py_buffer(np.packbits(~is_empty, bitorder="little"))
    return pa.Array.from_buffers(data_type, len(numbers), [validity, pa.py_buffer(numbers)])


def _reduced(bounds: ZoneBounds, runs: Sequence[tuple[int, int]]) -> tuple[pa.Array, pa.Array]:
    """Return the minimum and maximum of each run of zones."""
    minimum = _reduce(pc.min, bounds.minimum, runs)
    maximum = _reduce(pc.max, bounds.maximum, runs)
    # A run has no maximum if any of its non-empty zones lacks one.
    unbounded = np.asarray(bounds.minimum.is_valid()) & np.asarray(bounds.maximum.is_null())
    if unbounded.any():
        lost = pa.array([bool(unbounded[start:stop].any()) for start, stop in runs])
        maximum = pc.if_else(lost, pa.nulls(len(runs), maximum.type), maximum)
    return minimum, maximum


def _reduce(
    reduction: Callable[[pa.Array], pa.Scalar], bounds: pa.Array, runs: Sequence[tuple[int, int]]
) -> pa.Array:
    """Reduce each run of bounds to one bound."""
    data_type = bounds.type
    # Arrow does not compare these two types; cast them to types with the same order.
    if pa.types.is_float16(data_type):
        bounds = bounds.cast(pa.float32())
    elif pa.types.is_duration(data_type):
        bounds = bounds.cast(pa.int64())
    reduced = [reduction(bounds[start:stop]) for start, stop in runs]
    return _concat(reduced, bounds.type).cast(data_type)


def _concat(scalars: Sequence[pa.Scalar], data_type: pa.DataType) -> pa.Array:
    return pa.array(scalars, data_type)


def _truncate_long(array: pa.Array) -> pa.Array:
    """Truncate long strings to binary prefixes that exceed bounds by at least one character.

    Prefixes have the order of their values, which may have hundreds of megabytes.
    """
    if not len(array) or (pc.max(pc.binary_length(array)).as_py() or 0) <= _LONG_BYTES:
        return array
    plain = {pa.string(): pa.binary(), pa.large_string(): pa.large_binary()}
    return pc.binary_slice(array.view(plain.get(array.type, array.type)), 0, BOUND_BYTES + 4)


def _as_text(bounds: pa.Array, data_type: pa.DataType) -> pa.Array:
    """Convert prefixes to strings, without incomplete characters at the end."""
    texts = (
        None if value is None else value.decode(errors="ignore") for value in bounds.to_pylist()
    )
    return pa.array(texts, data_type)


def _replace_long(bounds: pa.Array, truncate: Any) -> pa.Array:
    sizes = pc.fill_null(pc.binary_length(bounds), 0)
    if pc.max(sizes).as_py() is None or pc.max(sizes).as_py() <= BOUND_BYTES:
        return bounds
    return pa.array([truncate(value) for value in bounds.to_pylist()], bounds.type)


def _truncate_down(value: str | bytes | None) -> str | bytes | None:
    """Truncate a value to a lower bound.

    >>> len(_truncate_down("é" * 40).encode())
    64
    """
    if isinstance(value, str):
        return value.encode()[:BOUND_BYTES].decode(errors="ignore")
    return None if value is None else value[:BOUND_BYTES]


def _truncate_up(value: str | bytes | None) -> str | bytes | None:
    r"""Truncate a value to an upper bound; None if every byte is already the maximum.

    >>> _truncate_up("a" * 65)[-2:], _truncate_up(b"\xff" * 65)
    ('ab', None)
    """
    size = 0 if value is None else len(value.encode() if isinstance(value, str) else value)
    if value is None or size <= BOUND_BYTES:
        return value
    if isinstance(value, bytes):
        prefix = value[:BOUND_BYTES].rstrip(b"\xff")
        return prefix[:-1] + bytes([prefix[-1] + 1]) if prefix else None
    text = value.encode()[:BOUND_BYTES].decode(errors="ignore").rstrip(chr(_CHARACTER_MAX))
    if not text:
        return None
    following = ord(text[-1]) + 1
    # Surrogates are not valid characters.
    character = chr(_SURROGATES[1] if following == _SURROGATES[0] else following)
    return text[:-1] + character
