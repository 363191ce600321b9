"""What a function is: its names, which types it takes and gives, and how it computes.

    lower     takes text             gives the same text type
    strpos    takes text, text       gives int32

Arguments arrive as arrays or scalars of the types that `takes` asked for; at least one is an
array, or all are scalars and so is the result.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final, TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from lancelet.errors import MemoryLimitError
from lancelet.query.coercion import CoercionError, common_type, plain
from lancelet.query.data_types import is_any_list, is_bytes, is_number, is_text
from lancelet.values import dataclass

Value: TypeAlias = Any
"""A `pa.Array` or a `pa.Scalar`; kernels take both, and pyarrow has no name for the pair."""

Compute: TypeAlias = Callable[..., Value]
"""Computes a function from its arguments."""

Takes: TypeAlias = Callable[[pa.DataType], "pa.DataType | None"]
"""The type that an argument is converted to, or None if it does not fit."""

Gives: TypeAlias = "pa.DataType | Callable[[Sequence[pa.DataType]], pa.DataType]"


def of_arrow(name: str) -> Compute:
    """Return a function of `pyarrow.compute`, which is loaded when one is called."""

    def compute(*arguments: Any, **options: Any) -> Value:
        return getattr(pc, name)(*arguments, **options)

    return compute


@dataclass(frozen=True, slots=True)
class Function:
    """A function of columns.

    `takes` lists its parameters, of which the last `optional` may be missing; with `repeats`
    the last one may come any number of times. `unify` converts all arguments to one type.
    `can_fail` marks functions that raise for some values: they see only rows that matter.
    `per_row` marks functions without arguments that give another value for each row; they are
    given the number of rows.
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
        """Return the types to convert arguments to and the result's, or raise `CoercionError`."""
        least, most = len(self.takes) - self.optional, len(self.takes)
        if len(types) < least or (len(types) > most and not self.repeats):
            wanted = f"{least}" if least == most else f"{least} to {most}"
            raise CoercionError(
                f"{self.names[0]} takes {wanted}{' or more' if self.repeats else ''} arguments, "
                f"not {len(types)}"
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
            raise CoercionError(f"{self.names[0]} does not take {data_type}")
        return converted


# --- parameters ------------------------------------------------------------------------------


def anything(data_type: pa.DataType) -> pa.DataType:
    """Take any type as it is."""
    return data_type


def text(data_type: pa.DataType) -> pa.DataType | None:
    """Take text."""
    if pa.types.is_null(data_type):
        return pa.string()
    return data_type if is_text(data_type) else None


def printable(data_type: pa.DataType) -> pa.DataType | None:
    """Take text, or what casts to text."""
    if is_text(data_type):
        return data_type
    nested = pa.types.is_nested(data_type) or is_bytes(data_type)
    return None if nested else pa.string()


def text_or_bytes(data_type: pa.DataType) -> pa.DataType | None:
    """Take text or byte strings."""
    return data_type if is_bytes(data_type) else text(data_type)


def integer(data_type: pa.DataType) -> pa.DataType | None:
    """Take integers, as int64."""
    wanted = pa.types.is_integer(data_type) or pa.types.is_null(data_type)
    return pa.int64() if wanted else None


def real(data_type: pa.DataType) -> pa.DataType | None:
    """Take numbers, as doubles."""
    return pa.float64() if is_number(data_type) or pa.types.is_null(data_type) else None


def floating(data_type: pa.DataType) -> pa.DataType | None:
    """Take floats as they are, other numbers as doubles."""
    return pa.float32() if pa.types.is_float32(data_type) else real(data_type)


def number(data_type: pa.DataType) -> pa.DataType | None:
    """Take numbers as they are."""
    if pa.types.is_null(data_type):
        return pa.int64()
    return data_type if is_number(data_type) else None


def boolean(data_type: pa.DataType) -> pa.DataType | None:
    """Take truth values."""
    wanted = pa.types.is_boolean(data_type) or pa.types.is_null(data_type)
    return pa.bool_() if wanted else None


def a_list(data_type: pa.DataType) -> pa.DataType | None:
    """Take lists, of any or of fixed size."""
    return data_type if is_any_list(data_type) else None


def first(types: Sequence[pa.DataType]) -> pa.DataType:
    """Give the type of the first argument."""
    return types[0]


# --- values ----------------------------------------------------------------------------------

OUTPUT_BYTES_MAX: Final = 1 << 28
"""How much memory the result of a function may take if that is much more than its arguments."""


def check_output(name: str, num_bytes: int, *arguments: Value) -> None:
    """Raise if the result of a function is too large, before memory is allocated for it.

    Raises:
        MemoryLimitError: The result takes more than 256 MiB and more than four times as much
            memory as the columns among the arguments.
    """
    columns = sum(each.nbytes for each in arguments if not isinstance(each, pa.Scalar))
    limit = max(OUTPUT_BYTES_MAX, 4 * columns)
    if num_bytes > limit:
        raise MemoryLimitError(
            f"the result of {name} for one batch takes {num_bytes} bytes, more than the limit of "
            f"{limit}; use smaller arguments or a smaller batch_size"
        )


def text_bytes(value: Value) -> int:
    """Return the number of bytes of a text, or of all texts of a column."""
    if isinstance(value, pa.Scalar):
        return len(value.as_buffer()) if value.is_valid else 0
    return int(pc.sum(pc.binary_length(value).cast(pa.int64())).as_py() or 0)


def num_rows_of(values: Sequence[Value]) -> int:
    """Return the number of rows of columns, 1 if there are only constants."""
    return next((len(each) for each in values if not isinstance(each, pa.Scalar)), 1)


def constant(value: Value, what: str) -> Any:
    """Return a scalar argument as a Python value; a column is not allowed there."""
    if not isinstance(value, pa.Scalar):
        raise CoercionError(f"{what} must be a constant")
    return value.as_py()


def spread(value: Value, num_rows: int) -> pa.Array:
    """Return a scalar as an array of that many rows, an array as it is."""
    if not isinstance(value, pa.Scalar):
        return value
    if not value.is_valid or not num_rows:
        return pa.nulls(num_rows, value.type)
    return pa.repeat(value, num_rows)


def per_distinct(name: str, compute: Compute) -> Compute:
    """Let a function whose arguments after the first are constants take columns there.

    Rows with equal arguments are computed together.
    """

    def call(values: Value, *arguments: Value) -> Value:
        if all(isinstance(argument, pa.Scalar) for argument in arguments):
            return compute(values, *arguments)
        num_rows = num_rows_of((values, *arguments))
        columns = [spread(argument, num_rows) for argument in arguments]
        groups: dict[str, list[int]] = {}
        for row, key in enumerate(zip(*(column.to_pylist() for column in columns), strict=True)):
            groups.setdefault(repr(key), []).append(row)
        if not groups:
            nothing = [pa.scalar(None, column.type) for column in columns]
            return spread(compute(values, *nothing), 0)
        parts: list[pa.Array] = []
        for rows in groups.values():
            own = values if isinstance(values, pa.Scalar) else values.take(pa.array(rows))
            found = compute(own, *(column[rows[0]] for column in columns))
            parts.append(spread(found, len(rows)))
            check_output(name, sum(part.nbytes for part in parts), values, *columns)
        order = np.argsort(np.concatenate(list(groups.values())), kind="stable")
        return pa.concat_arrays(parts).take(pa.array(order))

    return call


def on_arrays(compute: Compute) -> Compute:
    """Let a function that wants arrays take scalars too."""

    def with_arrays(*values: Value) -> Value:
        lengths = [len(value) for value in values if not isinstance(value, pa.Scalar)]
        num_rows = lengths[0] if lengths else 1
        found = compute(*(spread(value, num_rows) for value in values))
        return found if lengths else found[0]

    return with_arrays
