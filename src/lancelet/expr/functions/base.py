"""The definition of a function: its names, parameter types, result type and implementation.

    lower     takes text             gives the same text type
    strpos    takes text, text       gives int32

Arguments are converted to the types in `takes`, as arrays or scalars. If all of them are scalars,
the result is a scalar.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final, TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from lancelet.errors import MemoryLimitError
from lancelet.expr.coercion import CoercionError, common_type, plain
from lancelet.expr.data_types import is_any_list, is_bytes, is_number, is_text
from lancelet.values import dataclass

Value: TypeAlias = Any
"""A `pa.Array` or a `pa.Scalar`; pyarrow has no common base class for them."""

Compute: TypeAlias = Callable[..., Value]
"""Computes the result of a function from its arguments."""

Takes: TypeAlias = Callable[[pa.DataType], "pa.DataType | None"]
"""Returns the type to convert an argument to, or None if its type is not supported."""

Gives: TypeAlias = "pa.DataType | Callable[[Sequence[pa.DataType]], pa.DataType]"


def of_arrow(name: str) -> Compute:
    """Return a function of `pyarrow.compute`, imported on the first call."""

    def compute(*arguments: Any, **options: Any) -> Value:
        return getattr(pc, name)(*arguments, **options)

    return compute


@dataclass(frozen=True, slots=True)
class Function:
    """A scalar function.

    `takes` lists the parameters. The last `optional` ones may be omitted; with `repeats`, the last
    one is variadic. `unify` converts all arguments to their common type. `can_fail` marks functions
    that raise for some values, so they are evaluated only for rows that need the result. `per_row`
    marks functions without arguments that return a value per row; they receive the number of rows.
    """

    names: tuple[str, ...]
    takes: tuple[Takes, ...]
    gives: Gives
    compute: Compute
    optional: int = 0
    repeats: bool = False
    unify: bool = False
    can_fail: bool = False
    per_row: bool = False

    def signature(
        self, types: Sequence[pa.DataType]
    ) -> tuple[tuple[pa.DataType, ...], pa.DataType]:
        """Return the argument types and the result type, or raise `CoercionError`."""
        least, most = len(self.takes) - self.optional, len(self.takes)
        if len(types) < least or (len(types) > most and not self.repeats):
            expected = f"{least}" if least == most else f"{least} to {most}"
            raise CoercionError(
                f"{self.names[0]} takes {expected}{' or more' if self.repeats else ''} arguments, "
                f"found {len(types)}"
            )
        takes = [*self.takes, *self.takes[-1:] * len(types)]
        converted = [self._convert(take, each) for take, each in zip(takes, types, strict=False)]
        if self.unify:
            shared = converted[0]
            for each in converted[1:]:
                shared = common_type(shared, each)
            converted = [shared] * len(converted)
        gives = self.gives(converted) if callable(self.gives) else self.gives
        return tuple(converted), gives

    def _convert(self, take: Takes, data_type: pa.DataType) -> pa.DataType:
        converted = take(plain(data_type))
        if converted is None:
            raise CoercionError(f"{self.names[0]} does not support {data_type}")
        return converted


# --- parameters ------------------------------------------------------------------------------


def anything(data_type: pa.DataType) -> pa.DataType:
    """Accept any type without conversion."""
    return data_type


def text(data_type: pa.DataType) -> pa.DataType | None:
    """Accept strings."""
    if pa.types.is_null(data_type):
        return pa.string()
    return data_type if is_text(data_type) else None


def printable(data_type: pa.DataType) -> pa.DataType | None:
    """Accept strings, and types that can be cast to strings."""
    if is_text(data_type):
        return data_type
    nested = pa.types.is_nested(data_type) or is_bytes(data_type)
    return None if nested else pa.string()


def text_or_bytes(data_type: pa.DataType) -> pa.DataType | None:
    """Accept strings or binary values."""
    return data_type if is_bytes(data_type) else text(data_type)


def integer(data_type: pa.DataType) -> pa.DataType | None:
    """Accept integers, converted to int64."""
    is_accepted = pa.types.is_integer(data_type) or pa.types.is_null(data_type)
    return pa.int64() if is_accepted else None


def real(data_type: pa.DataType) -> pa.DataType | None:
    """Accept numbers, converted to doubles."""
    return pa.float64() if is_number(data_type) or pa.types.is_null(data_type) else None


def floating(data_type: pa.DataType) -> pa.DataType | None:
    """Accept floats without conversion, and other numbers converted to doubles."""
    return pa.float32() if pa.types.is_float32(data_type) else real(data_type)


def number(data_type: pa.DataType) -> pa.DataType | None:
    """Accept numbers without conversion."""
    if pa.types.is_null(data_type):
        return pa.int64()
    return data_type if is_number(data_type) else None


def boolean(data_type: pa.DataType) -> pa.DataType | None:
    """Accept booleans."""
    is_accepted = pa.types.is_boolean(data_type) or pa.types.is_null(data_type)
    return pa.bool_() if is_accepted else None


def a_list(data_type: pa.DataType) -> pa.DataType | None:
    """Accept lists, of variable or fixed size."""
    return data_type if is_any_list(data_type) else None


def first(types: Sequence[pa.DataType]) -> pa.DataType:
    """Return the type of the first argument."""
    return types[0]


# --- values ----------------------------------------------------------------------------------

OUTPUT_BYTES_MAX: Final = 1 << 28
"""Maximum bytes of a result that is much larger than the arguments of the function."""


def check_output(name: str, num_bytes: int, *arguments: Value) -> None:
    """Raise if the result of a function would be too large, before memory is allocated for it.

    Raises:
        MemoryLimitError: The result needs more than 256 MiB, and more than four times the
            memory of the argument columns.
    """
    columns = sum(each.nbytes for each in arguments if not isinstance(each, pa.Scalar))
    limit = max(OUTPUT_BYTES_MAX, 4 * columns)
    if num_bytes > limit:
        raise MemoryLimitError(
            f"the result of {name} for one batch takes {num_bytes} bytes, more than the limit of "
            f"{limit}; use smaller arguments or a smaller batch_size"
        )


def text_bytes(value: Value) -> int:
    """Return the total number of bytes of a string scalar or column."""
    if isinstance(value, pa.Scalar):
        return len(value.as_buffer()) if value.is_valid else 0
    return int(pc.sum(pc.binary_length(value).cast(pa.int64())).as_py() or 0)


def num_rows_of(values: Sequence[Value]) -> int:
    """Return the number of rows of columns, or 1 if all values are scalars."""
    return next((len(each) for each in values if not isinstance(each, pa.Scalar)), 1)


def constant(value: Value, name: str) -> Any:
    """Return a constant argument as a Python value; raise if it is a column."""
    if not isinstance(value, pa.Scalar):
        raise CoercionError(f"{name} must be a constant")
    return value.as_py()


def broadcast(value: Value, num_rows: int) -> pa.Array:
    """Return a scalar as an array of `num_rows` equal values; arrays are returned unchanged."""
    if not isinstance(value, pa.Scalar):
        return value
    if not value.is_valid or not num_rows:
        return pa.nulls(num_rows, value.type)
    return pa.repeat(value, num_rows)


def per_distinct(name: str, compute: Compute) -> Compute:
    """Wrap a function with constant arguments after the first to accept columns for them.

    Rows with equal arguments are computed in one call.
    """

    def call(values: Value, *arguments: Value) -> Value:
        if all(isinstance(argument, pa.Scalar) for argument in arguments):
            return compute(values, *arguments)
        num_rows = num_rows_of((values, *arguments))
        columns = [broadcast(argument, num_rows) for argument in arguments]
        groups: dict[str, list[int]] = {}
        for row, key in enumerate(zip(*(column.to_pylist() for column in columns), strict=True)):
            groups.setdefault(repr(key), []).append(row)
        if not groups:
            nulls = [pa.scalar(None, column.type) for column in columns]
            return broadcast(compute(values, *nulls), 0)
        parts: list[pa.Array] = []
        for rows in groups.values():
            own = values if isinstance(values, pa.Scalar) else values.take(pa.array(rows))
            found = compute(own, *(column[rows[0]] for column in columns))
            parts.append(broadcast(found, len(rows)))
            check_output(name, sum(part.nbytes for part in parts), values, *columns)
        order = np.argsort(np.concatenate(list(groups.values())), kind="stable")
        return pa.concat_arrays(parts).take(pa.array(order))

    return call


def on_arrays(compute: Compute) -> Compute:
    """Wrap a function of arrays to accept scalars too."""

    def with_arrays(*values: Value) -> Value:
        lengths = [len(value) for value in values if not isinstance(value, pa.Scalar)]
        num_rows = lengths[0] if lengths else 1
        found = compute(*(broadcast(value, num_rows) for value in values))
        return found if lengths else found[0]

    return with_arrays
