"""The order of values in indices, and places in what is sorted.

Nulls come first, then values ascending. Floats are in IEEE total order, which a comparison of
their bits as integers gives once the bits of negative ones are turned around:

    -NaN < -inf < ... < -0.0 < 0.0 < ... < inf < NaN

In filters -0.0 is 0.0 and every NaN is one value, the greatest. So a bound at zero is a bound at
-0.0 from below and at 0.0 from above, and NaN is sought behind infinity; `spans` adds what lies
before -inf.

Sorting texts and byte strings by eight bytes at a time, as numbers.

    user-17, user-9, user-170        shared beginning "user-", left out
    31370000.., 39000000.., 31373000..    the next eight bytes as a number, and how many there are
    user-17, user-170, user-9        numbers in order, those that tie decided by the bytes behind

Numbers are sorted several times faster than strings are compared. What ties for long is compared
after all.

Sorting integers of any width, with what belongs to them.

keys  int16    3 -1 3      numbers  10 11 12
words uint64   the same in order: the sign bit turned around
sorted        -1  3 3               11 10 12
"""

from __future__ import annotations

import bisect
from typing import Any, Final, Literal, Protocol, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from lancelet.buffers import Int64s
from lancelet.encodings.arrow import numpy_of
from lancelet.kernels import sort_words
from lancelet.rowids.address import UInt64s

Side: TypeAlias = Literal["left", "right"]

_FEW: Final = 64
"""Up to so many values are sought one by one where values have no keys."""

_WORD: Final = 8
_ROUNDS_MAX: Final = 4
"""Texts that agree for so many words are compared as texts."""

_SIGN: Final = np.uint64(1 << 63)
_MANY: Final = 1024
"""Fewer numbers are sorted by NumPy, which starts sooner."""


class Order(Protocol):
    """How values of one type are ordered."""

    def keys(self, ordered: pa.Array) -> Any:
        """Return ordered values in the form that is searched; whoever asks often keeps it."""

    def sought(self, values: pa.Array) -> Any:
        """Return values in the form that is looked for; whoever looks often makes it once."""

    def place(self, keys: Any, sought: Any, side: Side) -> Int64s:
        """Return where each of what is looked for would stand, before or behind its equals."""

    def find(self, keys: Any, values: pa.Array, side: Side) -> Int64s:
        """Return where each value would stand among keys, before or behind its equals."""
        return self.place(keys, self.sought(values), side)

    def search(self, ordered: pa.Array, values: pa.Array, side: Side) -> Int64s:
        """Return where each value would stand among ordered ones, before or behind its equals."""
        return self.find(self.keys(ordered), values, side)

    def sort(self, values: pa.Array) -> Int64s:
        """Return the places of values in their order, nulls first, equals as they come."""

    def arrange(self, values: pa.Array, numbers: UInt64s) -> tuple[pa.Array, UInt64s]:
        """Return values in their order, as `sort` has it, and the numbers that belong to them."""
        places = self.sort(values)
        return values.take(pa.array(places)), numbers[places]

    def changes(self, ordered: pa.Array) -> npt.NDArray[np.bool_]:
        """Return for each of ordered values whether it differs from the one before."""


def order_of(data_type: pa.DataType) -> Order:
    """Return how values of a type are ordered.

    >>> order = order_of(pa.float64())
    >>> order.sort(pa.array([1.0, None, float("nan"), -1.0])).tolist()
    [1, 3, 0, 2]
    """
    dtype = number_type(data_type)
    if dtype is None:
        return _ValueOrder()
    return _FloatOrder() if dtype.kind == "f" else _NumberOrder(dtype)


def is_bytes(data_type: pa.DataType) -> bool:
    """Return whether values are texts or byte strings of any length."""
    return bool(
        pa.types.is_string(data_type)
        or pa.types.is_large_string(data_type)
        or pa.types.is_binary(data_type)
        or pa.types.is_large_binary(data_type)
    )


def floats_as_keys(values: pa.Array) -> pa.Array:
    """Return the integers that have the order of floats, nulls where they are.

    >>> floats_as_keys(pa.array([0.0, -0.0, None])).to_pylist()
    [0, -1, None]
    """
    keys = _float_keys(_floats(values))
    if not values.null_count:
        return pa.array(keys)
    return pa.array(keys, mask=values.is_null().to_numpy(zero_copy_only=False))


def keys_as_floats(keys: pa.Array, data_type: pa.DataType) -> pa.Array:
    """Return the floats that integers stand for: turning bits around twice changes nothing."""
    dtype = np.dtype(f"f{data_type.bit_width // 8}")
    bits = bits_of(keys, np.dtype(f"i{dtype.itemsize}"))
    floats = _float_keys(bits.view(dtype)).view(dtype)
    if not keys.null_count:
        return pa.array(floats, data_type)
    return pa.array(floats, data_type, mask=keys.is_null().to_numpy(zero_copy_only=False))


class _NumberOrder(Order):
    """Values that are numbers of a fixed width."""

    def __init__(self, dtype: np.dtype[Any]) -> None:
        self._dtype = dtype

    def keys(self, ordered: pa.Array) -> npt.NDArray[Any]:
        return bits_of(ordered, self._dtype)

    def sought(self, values: pa.Array) -> npt.NDArray[Any]:
        return bits_of(values, self._dtype)

    def place(self, keys: npt.NDArray[Any], sought: npt.NDArray[Any], side: Side) -> Int64s:
        places: Int64s = keys.searchsorted(sought, side)
        return places

    def sort(self, values: pa.Array) -> Int64s:
        return _nulls_first(values, bits_of(values, self._dtype))

    def arrange(self, values: pa.Array, numbers: UInt64s) -> tuple[pa.Array, UInt64s]:
        if values.null_count:
            return super().arrange(values, numbers)
        keys, ordered = sort_numbers(bits_of(values, self._dtype), numbers)
        return pa.Array.from_buffers(values.type, len(keys), [None, pa.py_buffer(keys)]), ordered

    def changes(self, ordered: pa.Array) -> npt.NDArray[np.bool_]:
        return _changes(ordered, bits_of(ordered, self._dtype))


class _FloatOrder(Order):
    """Floats, whose bits are compared as integers."""

    def keys(self, ordered: pa.Array) -> npt.NDArray[Any]:
        return _float_keys(_asked_floats(ordered))

    def sought(self, values: pa.Array) -> npt.NDArray[Any]:
        return _asked_floats(values)

    def place(self, keys: npt.NDArray[Any], sought: npt.NDArray[Any], side: Side) -> Int64s:
        bounds = sought.copy()
        bounds[sought == 0] = -0.0 if side == "left" else 0.0
        wanted = _float_keys(bounds)
        info = np.iinfo(wanted.dtype)
        infinity = int(_float_keys(np.array([np.inf], sought.dtype))[0])
        wanted[np.isnan(sought)] = infinity + 1 if side == "left" else info.max
        places: Int64s = keys.searchsorted(wanted, side)
        return places

    def sort(self, values: pa.Array) -> Int64s:
        return _nulls_first(values, _float_keys(_floats(values)))

    def changes(self, ordered: pa.Array) -> npt.NDArray[np.bool_]:
        return _changes(ordered, _float_keys(_floats(ordered)))


class _ValueOrder(Order):
    """Values that Arrow knows how to sort: texts, byte strings, decimals."""

    def keys(self, ordered: pa.Array) -> pa.Array:
        return ordered

    def sought(self, values: pa.Array) -> pa.Array | list[Any]:
        return values if len(values) > _FEW else values.to_pylist()

    def place(self, keys: pa.Array, sought: pa.Array | list[Any], side: Side) -> Int64s:
        if not isinstance(sought, list):
            return _ranks(keys, sought, side)
        find = bisect.bisect_left if side == "left" else bisect.bisect_right
        items = _Items(keys)
        return np.array([find(items, value) for value in sought], np.int64)

    def sort(self, values: pa.Array) -> Int64s:
        if not values.null_count and is_bytes(values.type):
            return sort_texts(values)
        if values.null_count and is_bytes(values.type):
            valid = values.is_valid().to_numpy(zero_copy_only=False)
            filled = np.flatnonzero(valid)
            return np.concatenate([np.flatnonzero(~valid), filled[sort_texts(values.drop_null())]])
        order = pc.array_sort_indices(values, null_placement="at_start")
        places: Int64s = numpy_of(order).astype(np.int64)
        return places

    def changes(self, ordered: pa.Array) -> npt.NDArray[np.bool_]:
        differs = np.ones(len(ordered), np.bool_)
        if len(ordered) > 1:
            both = pc.not_equal(ordered.slice(1), ordered.slice(0, len(ordered) - 1))
            differs[1:] = pc.fill_null(both, False).to_numpy(zero_copy_only=False)
        return _with_first_value(ordered, differs)


class _Items:
    """An Arrow array as a sequence of Python values, made as they are asked for."""

    def __init__(self, array: pa.Array) -> None:
        self._array = array

    def __len__(self) -> int:
        return len(self._array)

    def __getitem__(self, place: int) -> Any:
        return self._array[place].as_py()


def _ranks(ordered: pa.Array, values: pa.Array, side: Side) -> Int64s:
    """Return places by sorting both together; a stable sort decides between equals."""
    first_values = side == "left"
    parts = [values, ordered] if first_values else [ordered, values]
    order = pc.array_sort_indices(pa.concat_arrays(parts)).to_numpy().astype(np.int64)
    is_value = order < len(values) if first_values else order >= len(ordered)
    ordered_before = np.cumsum(~is_value)
    places = np.empty(len(values), np.int64)
    places[order[is_value] - (0 if first_values else len(ordered))] = ordered_before[is_value]
    return places


def _nulls_first(values: pa.Array, keys: npt.NDArray[Any]) -> Int64s:
    if not values.null_count:
        return sorted_places(keys)
    valid = values.is_valid().to_numpy(zero_copy_only=False)
    filled = np.flatnonzero(valid)
    return np.concatenate([np.flatnonzero(~valid), filled[sorted_places(keys[filled])]])


def _changes(ordered: pa.Array, keys: npt.NDArray[Any]) -> npt.NDArray[np.bool_]:
    differs = np.ones(len(ordered), np.bool_)
    differs[1:] = keys[1:] != keys[:-1]
    return _with_first_value(ordered, differs)


def _with_first_value(ordered: pa.Array, differs: npt.NDArray[np.bool_]) -> npt.NDArray[np.bool_]:
    """Say that nulls are alike, and that the first value differs from them."""
    differs[1 : ordered.null_count] = False
    if ordered.null_count < len(ordered):
        differs[ordered.null_count] = True
    return differs


def number_type(data_type: pa.DataType) -> np.dtype[Any] | None:
    """Return the NumPy type that values of an Arrow type are in memory, if it has their order.

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


def _asked_floats(array: pa.Array) -> npt.NDArray[Any]:
    """Return floats as questions have them: half ones are compared with single ones."""
    floats = _floats(array)
    return floats.astype(np.float32) if floats.dtype == np.float16 else floats


def bits_of(array: pa.Array, dtype: np.dtype[Any]) -> npt.NDArray[Any]:
    """Return what the values are in memory; whatever is there where they are null."""
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


def sort_texts(values: pa.Array) -> Int64s:
    """Return the places of texts or byte strings in their order, equals as they come.

    >>> sort_texts(pa.array(["b", "a", "", "a0", "a"])).tolist()
    [2, 1, 4, 3, 0]
    """
    wide = values.cast(pa.large_binary())
    offsets = np.frombuffer(wide.buffers()[1], np.int64)[wide.offset :][: len(wide) + 1]
    data = np.frombuffer(wide.buffers()[2] or b"", np.uint8)
    starts, lengths = offsets[:-1], np.diff(offsets)
    at = _shared(wide)
    padded = np.concatenate([data, np.zeros(_WORD, np.uint8)])
    words = _words(padded, starts, lengths, at)
    ordered, numbers = sort_numbers(words, np.arange(len(words), dtype=np.uint64))
    order = numbers.view(np.int64)
    places = np.flatnonzero(_in_ties(ordered))
    groups: Int64s = np.cumsum(_is_new(ordered[places]))
    known = np.minimum(np.maximum(lengths - at, 0), _WORD + 1)
    for _ in range(_ROUNDS_MAX):
        if not len(places):
            return order
        rows = order[places]
        at += _WORD
        words = _words(padded, starts[rows], lengths[rows], at)
        own = np.lexsort((words, known[rows], groups))
        order[places] = rows[own]
        groups, words, known_now = groups[own], words[own], known[rows[own]]
        same = np.zeros(len(places), np.bool_)
        same[1:] = (
            (groups[1:] == groups[:-1])
            & (known_now[1:] == known_now[:-1])
            & (words[1:] == words[:-1])
            & (known_now[1:] > _WORD)
        )
        starts_group = ~same
        ties = same | np.append(same[1:], False)
        groups = np.cumsum(starts_group)[ties]
        places = places[ties]
        known = np.minimum(np.maximum(lengths - at, 0), _WORD + 1)
    if len(places):
        order[places] = _compared(wide, order[places], groups)
    return order


def _shared(values: pa.Array) -> int:
    """Return how many bytes at the beginning all values share."""
    if not len(values):
        return 0
    bounds = pc.min_max(values)
    least, greatest = bounds["min"].as_py(), bounds["max"].as_py()
    pairs = enumerate(zip(least, greatest, strict=False))
    return next((at for at, (one, other) in pairs if one != other), min(len(least), len(greatest)))


def _words(padded: npt.NDArray[np.uint8], starts: Int64s, lengths: Int64s, at: int) -> UInt64s:
    """Return eight bytes of each value from a place on as a number; missing bytes are zero."""
    windows: npt.NDArray[Any] = np.ndarray((len(padded) - _WORD + 1,), ">u8", padded, 0, (1,))
    words: UInt64s = windows[np.minimum(starts + at, len(windows) - 1)].astype(np.uint64)
    # Most values are longer, so only the others are looked at once more.
    short = np.flatnonzero(lengths < at + _WORD)
    if len(short):
        rest = np.maximum(lengths[short] - at, 0)
        shift = ((_WORD - rest) * 8).astype(np.uint64)
        words[short] = np.where(rest > 0, (words[short] >> shift) << shift, np.uint64(0))
    return words


def _is_new(ordered: UInt64s) -> npt.NDArray[np.bool_]:
    new = np.ones(len(ordered), np.bool_)
    new[1:] = ordered[1:] != ordered[:-1]
    return new


def _in_ties(ordered: UInt64s) -> npt.NDArray[np.bool_]:
    """Return which of ordered numbers have an equal beside them."""
    new = _is_new(ordered)
    tied: npt.NDArray[np.bool_] = ~new | ~np.append(new[1:], True)
    return tied


def _compared(values: pa.Array, rows: Int64s, groups: Int64s) -> Int64s:
    """Return rows in the order of their values, within groups that are in order already."""
    table = pa.table({"group": groups, "value": values.take(pa.array(rows))})
    keys = [("group", "ascending"), ("value", "ascending")]
    # Arrow does not promise a stable sort by several keys, so places decide at last.
    table = table.append_column("place", pa.array(np.arange(len(rows))))
    order = pc.sort_indices(table, sort_keys=[*keys, ("place", "ascending")])
    found: Int64s = rows[numpy_of(order).astype(np.int64)]
    return found


def sort_numbers(keys: npt.NDArray[Any], numbers: UInt64s) -> tuple[npt.NDArray[Any], UInt64s]:
    """Return integers in ascending order, and what belongs to each; equals stay as they come."""
    if len(keys) < _MANY:
        places = np.argsort(keys, kind="stable")
        return keys[places], numbers[places]
    words, ordered = sort_words(_as_words(keys), numbers)
    return _from_words(words, keys.dtype), ordered


def sorted_places(keys: npt.NDArray[Any]) -> Int64s:
    """Return the places of integers in ascending order, equals as they come.

    >>> sorted_places(np.array([2, -1, 2])).tolist()
    [1, 0, 2]
    """
    if len(keys) < _MANY:
        return np.argsort(keys, kind="stable")
    _, places = sort_words(_as_words(keys), np.arange(len(keys), dtype=np.uint64))
    return places.view(np.int64)


def _as_words(keys: npt.NDArray[Any]) -> UInt64s:
    """Return integers as unsigned ones of the same order."""
    if keys.dtype.kind == "u":
        return keys.astype(np.uint64)
    words: UInt64s = keys.astype(np.int64).view(np.uint64)
    words ^= _SIGN
    return words


def _from_words(words: UInt64s, dtype: np.dtype[Any]) -> npt.NDArray[Any]:
    """Return the integers of a type that `_as_words` made of them."""
    if dtype.kind == "u":
        return words.astype(dtype, copy=False)
    words ^= _SIGN
    return words.view(np.int64).astype(dtype, copy=False)
