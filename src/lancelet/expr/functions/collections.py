"""Functions that return lists, structs and maps, evaluated in Python row by row.

    array_append([1, 2], 3)        [1, 2, 3]
    array_union([1, 2], [2, 5])    [1, 2, 5]
    named_struct('a', 1)           {a: 1}
    map_keys(MAP ['a'], [1])       ['a']

Nulls are equal to each other when items are compared. Vectorized list functions are in `lists`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from functools import reduce
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc

from lancelet.expr.coercion import CoercionError, common_type, plain
from lancelet.expr.data_types import is_any_list
from lancelet.expr.functions.base import (
    Compute,
    Function,
    Value,
    a_list,
    anything,
    check_output,
    constant,
    integer,
    num_rows_of,
    on_arrays,
    text,
)
from lancelet.expr.functions.each_value import each
from lancelet.values import dataclass, replace

_List = list[Any]

_ITEM_BYTES: Final = 8
"""Minimum bytes of a list item in a result."""


@dataclass(frozen=True, slots=True)
class ArrayFunction(Function):
    """A function of lists and items that have a common item type.

    `kinds` has a letter for each parameter: `l` list, `i` item, `n` integer, `t` text. With
    `repeats`, the last one is variadic. `result` is `l`, `i` or a type.
    """

    kinds: str = ""
    result: str | pa.DataType = "l"

    def signature(
        self, types: Sequence[pa.DataType]
    ) -> tuple[tuple[pa.DataType, ...], pa.DataType]:
        """Return the argument types and the result type, or raise `CoercionError`."""
        least = len(self.kinds) - self.optional
        if len(types) < least or (len(types) > len(self.kinds) and not self.repeats):
            raise CoercionError(f"{self.names[0]} does not accept {len(types)} arguments")
        kinds = (self.kinds + self.kinds[-1] * len(types))[: len(types)]
        pairs = list(zip(kinds, types, strict=True))
        found = [self._item(kind, given) for kind, given in pairs if kind in "li"]
        item = reduce(common_type, found, pa.null())
        types_by_kind = {"l": pa.list_(item), "i": item, "n": pa.int64(), "t": pa.string()}
        for kind, given in pairs:
            take = {"n": integer, "t": text}.get(kind)
            if take is not None and take(plain(given)) is None:
                raise CoercionError(f"{self.names[0]} does not support {given}")
        gives = (
            types_by_kind.get(self.result, self.result)
            if isinstance(self.result, str)
            else self.result
        )
        return tuple(types_by_kind[kind] for kind in kinds), gives

    def _item(self, kind: str, data_type: pa.DataType) -> pa.DataType:
        found = plain(data_type)
        if kind == "i" or pa.types.is_null(found):
            return found
        if not is_any_list(found):
            raise CoercionError(f"{self.names[0]} does not support {data_type}")
        return plain(found.value_type)


def _result(result: str | pa.DataType, item: pa.DataType) -> pa.DataType:
    return {"l": pa.list_(item), "i": item}[result] if isinstance(result, str) else result


def _arrays(
    names: str,
    kinds: str,
    call: Callable[..., Any],
    result: str | pa.DataType = "l",
    *,
    optional: int = 0,
    repeats: bool = False,
    with_nulls: bool = False,
) -> ArrayFunction:
    """Create a function with the name prefixes `array_` and `list_`."""
    every = tuple(f"{kind}_{name}" for name in names.split() for kind in ("array", "list"))

    def compute(*columns: Value) -> Value:
        given = next((c.type for c in columns if is_any_list(c.type)), None)
        item = given.value_type if given is not None else columns[0].type
        gives = (
            {"l": pa.list_(item), "i": item}.get(result, result)
            if isinstance(result, str)
            else result
        )
        if not with_nulls:
            return each(call, gives)(*columns)
        return _each_with_nulls(call, gives)(*columns)

    return ArrayFunction(
        every,
        (),
        pa.null(),
        compute,
        optional=optional,
        repeats=repeats,
        can_fail=True,
        kinds=kinds,
        result=result,
    )


def _bounded(name: str, count: Callable[..., int], compute: Compute) -> Compute:
    """Wrap a function to raise if its result would have too many items.

    `count` returns the number of items for the arguments of one row.
    """

    def call(*columns: Value) -> Value:
        rows = num_rows_of(columns)
        lists = [
            [each.as_py()] * rows if isinstance(each, pa.Scalar) else each.to_pylist()
            for each in columns
        ]
        items = sum(count(*row) for row in zip(*lists, strict=True))
        check_output(name, _ITEM_BYTES * items)
        return compute(*columns)

    return call


def _each_with_nulls(call: Callable[..., Any], gives: pa.DataType) -> Compute:
    @on_arrays
    def compute(*columns: pa.Array) -> pa.Array:
        rows = zip(*(column.to_pylist() for column in columns), strict=True)
        return pa.array([call(*row) for row in rows], gives)

    return compute


# --- items -----------------------------------------------------------------------------------


def _key(value: Any) -> Any:
    """Return a hashable key that is equal for equal values."""
    return repr(value) if isinstance(value, list | dict) else value


def _first_seen(values: Iterable[Any]) -> _List:
    seen: dict[Any, Any] = {}
    for value in values:
        seen.setdefault(_key(value), value)
    return list(seen.values())


def _except(left: _List, right: _List) -> _List:
    unwanted = set(map(_key, right))
    return [value for value in _first_seen(left) if _key(value) not in unwanted]


def _intersect(left: _List, right: _List) -> _List:
    keys = set(map(_key, right))
    return [value for value in _first_seen(left) if _key(value) in keys]


def _concat(*lists: _List | None) -> _List | None:
    present = [each for each in lists if each is not None]
    return [value for each in present for value in each] if present else None


def _remove(values: _List | None, unwanted: Any, count: int | None) -> _List | None:
    if values is None or unwanted is None or count is None:
        return None
    remaining, left = [], count
    for value in values:
        if left > 0 and _key(value) == _key(unwanted):
            left -= 1
        else:
            remaining.append(value)
    return remaining


def _replace(values: _List | None, old: Any, new: Any, count: int | None) -> _List | None:
    if values is None or count is None:
        return None
    found, left = [], count
    for value in values:
        hit = left > 0 and _key(value) == _key(old)
        left -= hit
        found.append(new if hit else value)
    return found


def _resize(values: _List | None, size: int | None, by: Any = None) -> _List | None:
    if values is None or size is None:
        return None if values is None else []
    if size < 0:
        raise CoercionError("array_resize: a list cannot have a negative number of items")
    return values[:size] + [by] * (size - len(values))


def _sort(values: _List, order: str = "ASC", nulls: str = "NULLS FIRST") -> _List:
    if order.upper() not in {"ASC", "DESC"}:
        raise CoercionError(f"array_sort: the order must be ASC or DESC, found {order!r}")
    if nulls.upper() not in {"NULLS FIRST", "NULLS LAST"}:
        raise CoercionError(
            f"array_sort: the null order must be NULLS FIRST or NULLS LAST, found {nulls!r}"
        )
    present = [value for value in values if value is not None]
    # As in Arrow, NaN is greater than all numbers.
    present.sort(
        key=lambda value: (value != value, value),  # noqa: PLR0124 - only NaN differs from itself
        reverse=order.upper() == "DESC",
    )
    absent = [None] * (len(values) - len(present))
    return absent + present if nulls.upper() == "NULLS FIRST" else present + absent


def _repeat(value: Any, times: int | None) -> _List | None:
    return None if times is None else [value] * max(0, times)


def _array_repeat(values: Value, times: Value) -> Value:
    compute = _each_with_nulls(_repeat, pa.list_(values.type))
    return _bounded("array_repeat", _repeated_items, compute)(values, times)


def _repeated_items(value: Any, times: int | None) -> int:
    size = len(value) // _ITEM_BYTES if isinstance(value, str | bytes | list) else 0
    return max(0, times or 0) * (1 + size)


def _numbers(values: _List) -> list[float] | None:
    return None if any(value is None for value in values) else [float(value) for value in values]


def _pairs(left: _List, right: _List, function: str) -> list[tuple[float, float]] | None:
    first, second = _numbers(left), _numbers(right)
    if first is None or second is None:
        return None
    if len(first) != len(second):
        raise CoercionError(f"{function}: the lists have {len(first)} and {len(second)} items")
    return list(zip(first, second, strict=True))


def _distance(left: _List, right: _List) -> float | None:
    pairs = _pairs(left, right, "array_distance")
    return None if pairs is None else math.sqrt(sum((a - b) ** 2 for a, b in pairs))


def _inner_product(left: _List, right: _List) -> float | None:
    pairs = _pairs(left, right, "inner_product")
    return None if pairs is None else sum(a * b for a, b in pairs)


def _cosine_distance(left: _List, right: _List) -> float | None:
    pairs = _pairs(left, right, "cosine_distance")
    if pairs is None:
        return None
    norms = math.sqrt(sum(a * a for a, _ in pairs)) * math.sqrt(sum(b * b for _, b in pairs))
    return 1 - sum(a * b for a, b in pairs) / norms if norms else None


def _normalize(values: _List) -> list[float] | None:
    numbers = _numbers(values)
    if numbers == []:
        return []
    norm = 0.0 if numbers is None else math.sqrt(sum(value * value for value in numbers))
    return [value / norm for value in numbers] if numbers is not None and norm else None


def _series(*bounds: int, is_inclusive: bool) -> range:
    start, stop, step = (0, *bounds, 1) if len(bounds) == 1 else (*bounds, 1)[:3]
    if not step:
        raise CoercionError("the step of a range cannot be 0")
    return range(start, stop + (1 if step > 0 else -1) if is_inclusive else stop, step)


def _num_items(*bounds: int | None, is_inclusive: bool) -> int:
    present = [bound for bound in bounds if bound is not None]
    found = (
        _series(*present, is_inclusive=is_inclusive) if len(present) == len(bounds) else range(0)
    )
    # `len` of a range with more than 2^63 items raises.
    return max(0, (found.stop - found.start) // found.step)


def _split(value: str | None, delimiter: str | None, null: str | None = None) -> _List | None:
    if value is None:
        return None
    if not value:
        return []
    parts = list(value) if delimiter is None else [value]
    if delimiter:
        parts = value.split(delimiter)
    return [None if null is not None and part == null else part for part in parts]


# --- types that depend on more ---------------------------------------------------------------


def _flattened(types: Sequence[pa.DataType]) -> pa.DataType:
    item = types[0].value_type
    return pa.list_(plain(item.value_type if is_any_list(item) else item))


def _flatten(lists: Value) -> Value:
    if not is_any_list(lists.type.value_type):
        return lists.cast(_flattened([lists.type]))
    gives = _flattened([lists.type])
    return each(
        lambda values: [item for inner in values if inner is not None for item in inner], gives
    )(lists)


def _depth(data_type: pa.DataType) -> int:
    return 1 + _depth(data_type.value_type) if is_any_list(data_type) else 0


def _dims(lists: Value) -> Value:
    depth = _depth(lists.type)

    def sizes(values: Any) -> list[int] | None:
        found: list[int] = []
        while values is not None and len(found) < depth:
            found.append(len(values))
            values = values[0] if values else None
        return [*found, *[0] * (depth - len(found))] if found[0] else None

    return each(sizes, pa.list_(pa.uint64()))(lists)


@on_arrays
def _ndims(lists: pa.Array) -> pa.Array:
    depth = pa.scalar(_depth(lists.type), pa.uint64())
    return pc.if_else(lists.is_valid(), depth, pa.scalar(None, pa.uint64()))


def _zipped(types: Sequence[pa.DataType]) -> pa.DataType:
    parts = [(str(number), plain(each.value_type)) for number, each in enumerate(types, 1)]
    return pa.list_(pa.struct(parts))


def _zip(*lists: Value) -> Value:
    gives = _zipped([each.type for each in lists])

    def call(*row: _List | None) -> _List | None:
        if all(each is None for each in row):
            return None
        longest = max(len(each or ()) for each in row)
        return [
            {
                str(number): each[index] if each is not None and index < len(each) else None
                for number, each in enumerate(row, 1)
            }
            for index in range(longest)
        ]

    return _each_with_nulls(call, gives)(*lists)


def _row_type(types: Sequence[pa.DataType]) -> pa.DataType:
    return pa.struct([(f"c{index}", each) for index, each in enumerate(types)])


@on_arrays
def _row(*columns: pa.Array) -> pa.Array:
    fields = list(_row_type([column.type for column in columns]))
    return pa.StructArray.from_arrays(columns, fields=fields)


def _named(*arguments: Value) -> Value:
    names = [constant(name, "the field name") for name in arguments[::2]]

    @on_arrays
    def compute(*columns: pa.Array) -> pa.Array:
        return pa.StructArray.from_arrays(columns, names)

    return compute(*arguments[1::2])


def _a_map(data_type: pa.DataType) -> pa.DataType | None:
    return data_type if pa.types.is_map(data_type) else None


@on_arrays
def _map_keys(maps: pa.Array) -> pa.Array:
    return pa.array(
        [None if row is None else [key for key, _ in row] for row in maps.to_pylist()],
        pa.list_(maps.type.key_type),
    )


@on_arrays
def _map_values(maps: pa.Array) -> pa.Array:
    return pa.array(
        [None if row is None else [value for _, value in row] for row in maps.to_pylist()],
        pa.list_(maps.type.item_type),
    )


def _entry_type(types: Sequence[pa.DataType]) -> pa.DataType:
    kind = types[0]
    parts = [pa.field("key", kind.key_type, False), pa.field("value", kind.item_type)]
    return pa.list_(pa.field("item", pa.struct(parts), False))


@on_arrays
def _map_entries(maps: pa.Array) -> pa.Array:
    rows = maps.to_pylist()
    entries = [
        None if row is None else [{"key": key, "value": value} for key, value in row]
        for row in rows
    ]
    return pa.array(entries, _entry_type([maps.type]))


@on_arrays
def _map_extract(maps: pa.Array, keys: pa.Array) -> pa.Array:
    rows = zip(maps.to_pylist(), keys.to_pylist(), strict=True)
    return pa.array(
        [[dict(row or ()).get(key)] for row, key in rows], pa.list_(maps.type.item_type)
    )


def _map_type(types: Sequence[pa.DataType]) -> pa.DataType:
    return pa.map_(plain(types[0].value_type), plain(types[1].value_type))


@on_arrays
def _map(keys: pa.Array, values: pa.Array) -> pa.Array:
    rows: list[Any] = []
    for names, items in zip(keys.to_pylist(), values.to_pylist(), strict=True):
        if names is None or items is None:
            rows.append(None)
            continue
        if any(name is None for name in names):
            raise CoercionError("map: a key cannot be null")
        if len(names) != len(items):
            raise CoercionError(f"map: there are {len(names)} keys and {len(items)} values")
        if len(set(map(_key, names))) != len(names):
            raise CoercionError("map: duplicate key")
        rows.append(list(zip(names, items, strict=True)))
    return pa.array(rows, _map_type([keys.type, values.type]))


_ALL: Final = 1 << 62
_UNBOUNDED_RESIZE: Final = _arrays("resize", "lni", _resize, optional=1, with_nulls=True)
_RESIZE: Final = replace(
    _UNBOUNDED_RESIZE,
    compute=_bounded("array_resize", lambda *row: max(0, row[1] or 0), _UNBOUNDED_RESIZE.compute),
)

COLLECTION_FUNCTIONS: Final = (
    _arrays("append push_back", "li", lambda v, i: [*(v or ()), i], with_nulls=True),
    _arrays("prepend push_front", "il", lambda i, v: [i, *(v or ())], with_nulls=True),
    _arrays("concat cat", "l", _concat, repeats=True, with_nulls=True),
    _arrays("distinct", "l", _first_seen),
    _arrays("except", "ll", _except),
    _arrays("intersect", "ll", _intersect),
    _arrays("union", "ll", lambda left, right: _first_seen([*left, *right])),
    _arrays("pop_back", "l", lambda values: values[:-1]),
    _arrays("pop_front", "l", lambda values: values[1:]),
    _arrays(
        "positions",
        "li",
        lambda values, item: (
            None
            if values is None
            else [index for index, v in enumerate(values, 1) if _key(v) == _key(item)]
        ),
        pa.list_(pa.uint64()),
        with_nulls=True,
    ),
    _arrays("remove", "li", lambda v, i: _remove(v, i, 1), with_nulls=True),
    _arrays("remove_all", "li", lambda v, i: _remove(v, i, _ALL), with_nulls=True),
    _arrays("remove_n", "lin", _remove, with_nulls=True),
    _arrays("replace", "lii", lambda v, a, b: _replace(v, a, b, 1), with_nulls=True),
    _arrays("replace_all", "lii", lambda v, a, b: _replace(v, a, b, _ALL), with_nulls=True),
    _arrays("replace_n", "liin", _replace, with_nulls=True),
    _RESIZE,
    _arrays("reverse", "l", lambda values: values[::-1]),
    _arrays("sort", "ltt", _sort, optional=2),
    _arrays("any_value", "l", lambda v: next((x for x in v if x is not None), None), "i"),
    Function(("array_dims", "list_dims"), (a_list,), pa.list_(pa.uint64()), _dims),
    Function(("array_ndims", "list_ndims"), (a_list,), pa.uint64(), _ndims),
    Function(
        ("array_distance", "list_distance"),
        (a_list, a_list),
        pa.float64(),
        each(_distance, pa.float64()),
    ),
    Function(
        ("inner_product",), (a_list, a_list), pa.float64(), each(_inner_product, pa.float64())
    ),
    Function(
        ("cosine_distance",), (a_list, a_list), pa.float64(), each(_cosine_distance, pa.float64())
    ),
    Function(
        ("array_normalize",),
        (a_list,),
        pa.list_(pa.float64()),
        each(_normalize, pa.list_(pa.float64())),
    ),
    Function(
        ("array_repeat", "list_repeat"),
        (anything, integer),
        lambda types: pa.list_(types[0]),
        _array_repeat,
    ),
    Function(
        ("range",),
        (integer,) * 3,
        pa.list_(pa.int64()),
        _bounded(
            "range",
            lambda *bounds: _num_items(*bounds, is_inclusive=False),
            each(lambda *bounds: [*_series(*bounds, is_inclusive=False)], pa.list_(pa.int64())),
        ),
        optional=2,
        can_fail=True,
    ),
    Function(
        ("generate_series",),
        (integer,) * 3,
        pa.list_(pa.int64()),
        _bounded(
            "generate_series",
            lambda *bounds: _num_items(*bounds, is_inclusive=True),
            each(lambda *bounds: [*_series(*bounds, is_inclusive=True)], pa.list_(pa.int64())),
        ),
        optional=2,
        can_fail=True,
    ),
    Function(
        ("string_to_array", "string_to_list"),
        (text,) * 3,
        pa.list_(pa.string()),
        _each_with_nulls(_split, pa.list_(pa.string())),
        optional=1,
    ),
    Function(("flatten",), (a_list,), _flattened, _flatten),
    Function(("arrays_zip", "list_zip"), (a_list,), _zipped, _zip, repeats=True),
    Function(("struct", "row"), (anything,), _row_type, _row, repeats=True),
    Function(("named_struct",), (anything,), _row_type, _named, repeats=True),
    Function(("map_keys",), (_a_map,), lambda types: pa.list_(types[0].key_type), _map_keys),
    Function(("map_values",), (_a_map,), lambda types: pa.list_(types[0].item_type), _map_values),
    Function(("map_entries",), (_a_map,), _entry_type, _map_entries),
    Function(
        ("map_extract", "element_at"),
        (_a_map, anything),
        lambda types: pa.list_(types[0].item_type),
        _map_extract,
    ),
    Function(("map",), (a_list, a_list), _map_type, _map, can_fail=True),
)
"""All functions that return lists, structs and maps."""
