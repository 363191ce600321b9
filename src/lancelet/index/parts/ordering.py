"""Value order of indices, and sorting by it.

Nulls come first, then values ascending. Floats are in IEEE total order, which equals the integer
order of their bits if the magnitude bits of negative values are flipped:

    -NaN < -inf < ... < -0.0 < 0.0 < ... < inf < NaN

In filters, -0.0 equals 0.0, and all NaN values are equal and greater than infinity. A lower bound
at zero is therefore searched as -0.0, an upper bound as 0.0, and NaN after infinity; `spans` adds
the NaN values before -inf.

Strings and binary values are sorted by eight bytes at a time, as integers:

    user-17, user-9, user-170             common prefix "user-", skipped
    31370000.., 39000000.., 31373000..    the next eight bytes as integers, and the length
    user-17, user-170, user-9             sorted; ties are resolved by the following bytes

Sorting integers is several times faster than comparing strings. Values that share a long prefix are
compared as strings.

Integers of any width are sorted as 64-bit unsigned keys, together with row numbers:

    keys  int16     3 -1 3      numbers  10 11 12
    keys  uint64    the same order, with the sign bit flipped
    sorted         -1  3 3               11 10 12
"""

from __future__ import annotations

import bisect
from typing import Any, Final, Literal, Protocol, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from lancelet.buffers import Int64s
from lancelet.encodings.arrow import to_numpy
from lancelet.index.kernels import sort_pairs
from lancelet.rowids.address import UInt64s

Side: TypeAlias = Literal["left", "right"]

_BISECT_VALUES_MAX: Final = 64
"""Up to this number, strings and decimals are searched by bisection."""

_PREFIX_BYTES: Final = 8
_PREFIXES_MAX: Final = 4
"""Number of 8-byte prefixes compared before falling back to string comparison."""

_SIGN_BIT: Final = np.uint64(1 << 63)
_KERNEL_SORT_MIN: Final = 1024
"""Below this number, NumPy sorts faster because of its lower setup cost."""


class Order(Protocol):
    """Order of the values of a type."""

    def keys(self, ordered: pa.Array) -> Any:
        """Convert sorted values to search keys. The result can be reused."""

    def to_targets(self, values: pa.Array) -> Any:
        """Convert values to search targets. The result can be reused."""

    def search_keys(self, keys: Any, targets: Any, side: Side) -> Int64s:
        """Return the left or right insertion point of each target."""

    def find(self, keys: Any, values: pa.Array, side: Side) -> Int64s:
        """Return the left or right insertion point of each value among keys."""
        return self.search_keys(keys, self.to_targets(values), side)

    def search(self, ordered: pa.Array, values: pa.Array, side: Side) -> Int64s:
        """Return the left or right insertion point of each value among sorted values."""
        return self.find(self.keys(ordered), values, side)

    def sort(self, values: pa.Array) -> Int64s:
        """Return the stable sort permutation, nulls first."""

    def arrange(self, values: pa.Array, numbers: UInt64s) -> tuple[pa.Array, UInt64s]:
        """Sort values as `sort` does, and the row numbers with them."""
        indices = self.sort(values)
        return values.take(pa.array(indices)), numbers[indices]

    def changes(self, ordered: pa.Array) -> npt.NDArray[np.bool_]:
        """Return a mask of the sorted values that differ from their predecessor."""


def order_of(data_type: pa.DataType) -> Order:
    """Return the order of a type.

    >>> order = order_of(pa.float64())
    >>> order.sort(pa.array([1.0, None, float("nan"), -1.0])).tolist()
    [1, 3, 0, 2]
    """
    dtype = number_type(data_type)
    if dtype is None:
        return _ValueOrder()
    return _FloatOrder() if dtype.kind == "f" else _NumberOrder(dtype)


def is_bytes(data_type: pa.DataType) -> bool:
    """Return whether a type is string or binary with variable-length values."""
    return bool(
        pa.types.is_string(data_type)
        or pa.types.is_large_string(data_type)
        or pa.types.is_binary(data_type)
        or pa.types.is_large_binary(data_type)
    )


def floats_as_keys(values: pa.Array) -> pa.Array:
    """Convert floats to integers of the same order. Nulls are preserved.

    >>> floats_as_keys(pa.array([0.0, -0.0, None])).to_pylist()
    [0, -1, None]
    """
    keys = _float_keys(_floats(values))
    if not values.null_count:
        return pa.array(keys)
    return pa.array(keys, mask=values.is_null().to_numpy(zero_copy_only=False))


def keys_as_floats(keys: pa.Array, data_type: pa.DataType) -> pa.Array:
    """Convert the result of `floats_as_keys` back. The bit transformation is its own inverse."""
    dtype = np.dtype(f"f{data_type.bit_width // 8}")
    bits = bits_of(keys, np.dtype(f"i{dtype.itemsize}"))
    floats = _float_keys(bits.view(dtype)).view(dtype)
    if not keys.null_count:
        return pa.array(floats, data_type)
    return pa.array(floats, data_type, mask=keys.is_null().to_numpy(zero_copy_only=False))


class _NumberOrder(Order):
    """Fixed-width numbers."""

    def __init__(self, dtype: np.dtype[Any]) -> None:
        self._dtype = dtype

    def keys(self, ordered: pa.Array) -> npt.NDArray[Any]:
        return bits_of(ordered, self._dtype)

    def to_targets(self, values: pa.Array) -> npt.NDArray[Any]:
        return bits_of(values, self._dtype)

    def search_keys(self, keys: npt.NDArray[Any], targets: npt.NDArray[Any], side: Side) -> Int64s:
        indices: Int64s = keys.searchsorted(targets, side)
        return indices

    def sort(self, values: pa.Array) -> Int64s:
        return _nulls_first(values, bits_of(values, self._dtype))

    def arrange(self, values: pa.Array, numbers: UInt64s) -> tuple[pa.Array, UInt64s]:
        if values.null_count:
            return super().arrange(values, numbers)
        keys, ordered = sort_numbers(bits_of(values, self._dtype), numbers)
        return pa.Array.from_buffers(values.type, len(keys), [None, pa.py_buffer(keys)]), ordered

    def changes(self, ordered: pa.Array) -> npt.NDArray[np.bool_]:
        return _mark_changes(ordered, bits_of(ordered, self._dtype))


class _FloatOrder(Order):
    """Floats, compared by their bits as integers."""

    def keys(self, ordered: pa.Array) -> npt.NDArray[Any]:
        return _float_keys(_query_floats(ordered))

    def to_targets(self, values: pa.Array) -> npt.NDArray[Any]:
        return _query_floats(values)

    def search_keys(self, keys: npt.NDArray[Any], targets: npt.NDArray[Any], side: Side) -> Int64s:
        bounds = targets.copy()
        bounds[targets == 0] = -0.0 if side == "left" else 0.0
        target_keys = _float_keys(bounds)
        info = np.iinfo(target_keys.dtype)
        infinity = int(_float_keys(np.array([np.inf], targets.dtype))[0])
        target_keys[np.isnan(targets)] = infinity + 1 if side == "left" else info.max
        indices: Int64s = keys.searchsorted(target_keys, side)
        return indices

    def sort(self, values: pa.Array) -> Int64s:
        return _nulls_first(values, _float_keys(_floats(values)))

    def changes(self, ordered: pa.Array) -> npt.NDArray[np.bool_]:
        return _mark_changes(ordered, _float_keys(_floats(ordered)))


class _ValueOrder(Order):
    """Values sorted by Arrow: strings, binary values and decimals."""

    def keys(self, ordered: pa.Array) -> pa.Array:
        return ordered

    def to_targets(self, values: pa.Array) -> pa.Array | list[Any]:
        return values if len(values) > _BISECT_VALUES_MAX else values.to_pylist()

    def search_keys(self, keys: pa.Array, targets: pa.Array | list[Any], side: Side) -> Int64s:
        if not isinstance(targets, list):
            return _search_by_sorting(keys, targets, side)
        find = bisect.bisect_left if side == "left" else bisect.bisect_right
        items = _Items(keys)
        return np.array([find(items, value) for value in targets], np.int64)

    def sort(self, values: pa.Array) -> Int64s:
        if not values.null_count and is_bytes(values.type):
            return argsort_strings(values)
        if values.null_count and is_bytes(values.type):
            valid = values.is_valid().to_numpy(zero_copy_only=False)
            filled = np.flatnonzero(valid)
            return np.concatenate(
                [np.flatnonzero(~valid), filled[argsort_strings(values.drop_null())]]
            )
        order = pc.array_sort_indices(values, null_placement="at_start")
        indices: Int64s = to_numpy(order).astype(np.int64)
        return indices

    def changes(self, ordered: pa.Array) -> npt.NDArray[np.bool_]:
        differs = np.ones(len(ordered), np.bool_)
        if len(ordered) > 1:
            both = pc.not_equal(ordered.slice(1), ordered.slice(0, len(ordered) - 1))
            differs[1:] = pc.fill_null(both, False).to_numpy(zero_copy_only=False)
        return _with_first_value(ordered, differs)


class _Items:
    """An Arrow array as a sequence of Python values, converted on access."""

    def __init__(self, array: pa.Array) -> None:
        self._array = array

    def __len__(self) -> int:
        return len(self._array)

    def __getitem__(self, index: int) -> Any:
        return self._array[index].as_py()


def _search_by_sorting(ordered: pa.Array, values: pa.Array, side: Side) -> Int64s:
    """Return insertion points by sorting both arrays together; the stable sort places equals."""
    first_values = side == "left"
    parts = [values, ordered] if first_values else [ordered, values]
    order = pc.array_sort_indices(pa.concat_arrays(parts)).to_numpy().astype(np.int64)
    is_value = order < len(values) if first_values else order >= len(ordered)
    ordered_before = np.cumsum(~is_value)
    indices = np.empty(len(values), np.int64)
    indices[order[is_value] - (0 if first_values else len(ordered))] = ordered_before[is_value]
    return indices


def _nulls_first(values: pa.Array, keys: npt.NDArray[Any]) -> Int64s:
    if not values.null_count:
        return argsort_integers(keys)
    valid = values.is_valid().to_numpy(zero_copy_only=False)
    filled = np.flatnonzero(valid)
    return np.concatenate([np.flatnonzero(~valid), filled[argsort_integers(keys[filled])]])


def _mark_changes(ordered: pa.Array, keys: npt.NDArray[Any]) -> npt.NDArray[np.bool_]:
    differs = np.ones(len(ordered), np.bool_)
    differs[1:] = keys[1:] != keys[:-1]
    return _with_first_value(ordered, differs)


def _with_first_value(ordered: pa.Array, differs: npt.NDArray[np.bool_]) -> npt.NDArray[np.bool_]:
    """Treat nulls as equal to each other and different from the first value."""
    differs[1 : ordered.null_count] = False
    if ordered.null_count < len(ordered):
        differs[ordered.null_count] = True
    return differs


def number_type(data_type: pa.DataType) -> np.dtype[Any] | None:
    """Return the NumPy type that has the memory layout and order of an Arrow type, or None.

    >>> number_type(pa.timestamp("s")), number_type(pa.string())
    (dtype('int64'), None)
    """
    if pa.types.is_floating(data_type):
        return np.dtype(f"f{data_type.bit_width // 8}")
    if pa.types.is_integer(data_type):
        sign = "i" if pa.types.is_signed_integer(data_type) else "u"
        return np.dtype(f"{sign}{data_type.bit_width // 8}")
    if (
        pa.types.is_date(data_type)
        or pa.types.is_time(data_type)
        or pa.types.is_timestamp(data_type)
        or pa.types.is_duration(data_type)
    ):
        return np.dtype(f"i{data_type.bit_width // 8}")
    return None


def _floats(array: pa.Array) -> npt.NDArray[Any]:
    return bits_of(array, np.dtype(f"f{array.type.bit_width // 8}"))


def _query_floats(array: pa.Array) -> npt.NDArray[Any]:
    """Return floats for a query; half precision is converted to single precision."""
    floats = _floats(array)
    return floats.astype(np.float32) if floats.dtype == np.float16 else floats


def bits_of(array: pa.Array, dtype: np.dtype[Any]) -> npt.NDArray[Any]:
    """Return the values as stored in memory; undefined where they are null."""
    data = array.buffers()[1]
    if data is None:
        return np.zeros(len(array), dtype)
    return np.frombuffer(data, dtype, count=array.offset + len(array))[array.offset :]


def _float_keys(floats: npt.NDArray[Any]) -> npt.NDArray[Any]:
    width = floats.dtype.itemsize * 8
    bits = floats.view(np.dtype(f"i{width // 8}"))
    magnitude = np.array(np.iinfo(bits.dtype).max, bits.dtype)
    keys: npt.NDArray[Any] = bits ^ ((bits >> (width - 1)) & magnitude)
    return keys


def argsort_strings(values: pa.Array) -> Int64s:
    """Return the stable sort permutation of strings or binary values.

    >>> argsort_strings(pa.array(["b", "a", "", "a0", "a"])).tolist()
    [2, 1, 4, 3, 0]
    """
    wide = values.cast(pa.large_binary())
    offsets = np.frombuffer(wide.buffers()[1], np.int64)[wide.offset :][: len(wide) + 1]
    data = np.frombuffer(wide.buffers()[2] or b"", np.uint8)
    starts, lengths = offsets[:-1], np.diff(offsets)
    offset = _common_prefix_length(wide)
    padded = np.concatenate([data, np.zeros(_PREFIX_BYTES, np.uint8)])
    prefixes = _prefix_keys(padded, starts, lengths, offset)
    ordered, numbers = sort_numbers(prefixes, np.arange(len(prefixes), dtype=np.uint64))
    order = numbers.view(np.int64)
    indices = np.flatnonzero(_has_equal_neighbor(ordered))
    groups: Int64s = np.cumsum(_differs_from_previous(ordered[indices]))
    prefix_bytes_left = np.minimum(np.maximum(lengths - offset, 0), _PREFIX_BYTES + 1)
    for _ in range(_PREFIXES_MAX):
        if not len(indices):
            return order
        rows = order[indices]
        offset += _PREFIX_BYTES
        prefixes = _prefix_keys(padded, starts[rows], lengths[rows], offset)
        permutation = np.lexsort((prefixes, prefix_bytes_left[rows], groups))
        order[indices] = rows[permutation]
        groups, prefixes, sorted_bytes_left = (
            groups[permutation],
            prefixes[permutation],
            prefix_bytes_left[rows[permutation]],
        )
        same = np.zeros(len(indices), np.bool_)
        same[1:] = (
            (groups[1:] == groups[:-1])
            & (sorted_bytes_left[1:] == sorted_bytes_left[:-1])
            & (prefixes[1:] == prefixes[:-1])
            & (sorted_bytes_left[1:] > _PREFIX_BYTES)
        )
        starts_group = ~same
        tied = same | np.append(same[1:], False)
        groups = np.cumsum(starts_group)[tied]
        indices = indices[tied]
        prefix_bytes_left = np.minimum(np.maximum(lengths - offset, 0), _PREFIX_BYTES + 1)
    if len(indices):
        order[indices] = _sort_within_groups(wide, order[indices], groups)
    return order


def _common_prefix_length(values: pa.Array) -> int:
    """Return the length of the common prefix in bytes."""
    if not len(values):
        return 0
    bounds = pc.min_max(values)
    lowest, greatest = bounds["min"].as_py(), bounds["max"].as_py()
    pairs = enumerate(zip(lowest, greatest, strict=False))
    return next(
        (at for at, (first, second) in pairs if first != second), min(len(lowest), len(greatest))
    )


def _prefix_keys(
    padded: npt.NDArray[np.uint8], starts: Int64s, lengths: Int64s, at: int
) -> UInt64s:
    """Return eight bytes of each value from an offset as integers, padded with zeros."""
    windows: npt.NDArray[Any] = np.ndarray(
        (len(padded) - _PREFIX_BYTES + 1,), ">u8", padded, 0, (1,)
    )
    prefixes: UInt64s = windows[np.minimum(starts + at, len(windows) - 1)].astype(np.uint64)
    # Most values are longer, so only short ones need masking.
    short = np.flatnonzero(lengths < at + _PREFIX_BYTES)
    if len(short):
        rest = np.maximum(lengths[short] - at, 0)
        shift = ((_PREFIX_BYTES - rest) * 8).astype(np.uint64)
        prefixes[short] = np.where(rest > 0, (prefixes[short] >> shift) << shift, np.uint64(0))
    return prefixes


def _differs_from_previous(ordered: UInt64s) -> npt.NDArray[np.bool_]:
    new = np.ones(len(ordered), np.bool_)
    new[1:] = ordered[1:] != ordered[:-1]
    return new


def _has_equal_neighbor(ordered: UInt64s) -> npt.NDArray[np.bool_]:
    """Return a mask of the sorted numbers that have an equal neighbor."""
    new = _differs_from_previous(ordered)
    tied: npt.NDArray[np.bool_] = ~new | ~np.append(new[1:], True)
    return tied


def _sort_within_groups(values: pa.Array, rows: Int64s, groups: Int64s) -> Int64s:
    """Sort rows by value within groups that are already in order."""
    table = pa.table({"group": groups, "value": values.take(pa.array(rows))})
    keys = [("group", "ascending"), ("value", "ascending")]
    # Arrow does not guarantee a stable sort by several keys, so the row index is the last key.
    table = table.append_column("index", pa.array(np.arange(len(rows))))
    order = pc.sort_indices(table, sort_keys=[*keys, ("index", "ascending")])
    sorted_rows: Int64s = rows[to_numpy(order).astype(np.int64)]
    return sorted_rows


def sort_numbers(keys: npt.NDArray[Any], numbers: UInt64s) -> tuple[npt.NDArray[Any], UInt64s]:
    """Sort integers and their row numbers. The sort is stable."""
    if len(keys) < _KERNEL_SORT_MIN:
        indices = np.argsort(keys, kind="stable")
        return keys[indices], numbers[indices]
    sort_keys, ordered = sort_pairs(_to_sort_keys(keys), numbers)
    return _from_sort_keys(sort_keys, keys.dtype), ordered


def argsort_integers(keys: npt.NDArray[Any]) -> Int64s:
    """Return the stable sort permutation of integers.

    >>> argsort_integers(np.array([2, -1, 2])).tolist()
    [1, 0, 2]
    """
    if len(keys) < _KERNEL_SORT_MIN:
        return np.argsort(keys, kind="stable")
    _, indices = sort_pairs(_to_sort_keys(keys), np.arange(len(keys), dtype=np.uint64))
    return indices.view(np.int64)


def _to_sort_keys(keys: npt.NDArray[Any]) -> UInt64s:
    """Convert integers to unsigned ones of the same order."""
    if keys.dtype.kind == "u":
        return keys.astype(np.uint64)
    sort_keys: UInt64s = keys.astype(np.int64).view(np.uint64)
    sort_keys ^= _SIGN_BIT
    return sort_keys


def _from_sort_keys(sort_keys: UInt64s, dtype: np.dtype[Any]) -> npt.NDArray[Any]:
    """Reverse `_to_sort_keys`."""
    if dtype.kind == "u":
        return sort_keys.astype(dtype, copy=False)
    sort_keys ^= _SIGN_BIT
    return sort_keys.view(np.int64).astype(dtype, copy=False)
